//! Splits a line of the shell into words, nearly as a POSIX shell does.
//!
//! Blanks separate words. A word in single or double quotes keeps its blanks and loses its quotes. Quotes inside of a word
//! stay, since key parts need them: `user='Li, Wei',time=5` is one word with its quotes. Backslashes stay as they are: they
//! belong to the escapes of keys and values.

use terrane_types::Invalid;

/// The words of a line.
pub fn split(line: &str) -> Result<Vec<String>, Invalid> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = next(rest)?;
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// The first word and what follows it.
fn next(line: &str) -> Result<(String, &str), Invalid> {
    let mut open: Option<char> = None;
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        match open {
            Some(quote) if c == quote => open = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => open = Some(c),
            None if c.is_whitespace() => {
                end = at;
                break;
            }
            None => {}
        }
    }
    if let Some(quote) = open {
        return Err(Invalid::new(format!("a closing {quote} is missing")));
    }
    let (word, after) = line.split_at(end);
    let whole = ['\'', '"'].into_iter().find_map(|quote| {
        let inside = word.strip_prefix(quote)?.strip_suffix(quote)?;
        (!inside.contains(quote)).then_some(inside)
    });
    Ok((whole.unwrap_or(word).to_owned(), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_around_a_word_go_and_quotes_within_stay() {
        let read = |line: &str| split(line).expect(line);
        assert_eq!(read("put  t r f:q 'a b'"), ["put", "t", "r", "f:q", "a b"]);
        assert_eq!(read("get people user='Li, Wei',time=5"), ["get", "people", "user='Li, Wei',time=5"]);
        assert_eq!(read("get people 'Li, Wei',5"), ["get", "people", "'Li, Wei',5"]);
        assert_eq!(read(r#"scan t --filter "f:q = 'a b'""#), ["scan", "t", "--filter", "f:q = 'a b'"]);
        assert_eq!(read(r"put t a\x00 f:q ''"), ["put", "t", r"a\x00", "f:q", ""]);
        assert!(split("put t 'r").is_err());
    }
}
