//! Masks Rust source: comments and literals become blanks, so that a rule can search for words in code alone. Positions
//! and lines do not change.

/// The code alone, byte for byte at the same positions.
pub fn code_of(source: &str) -> String {
    let mut masked = Masked { source: source.as_bytes(), output: Vec::with_capacity(source.len()), at: 0 };
    while masked.at < masked.source.len() {
        masked.step();
    }
    String::from_utf8(masked.output).expect("only whole characters outside of code are replaced")
}

struct Masked<'a> {
    source: &'a [u8],
    output: Vec<u8>,
    at: usize,
}

impl Masked<'_> {
    fn step(&mut self) {
        let rest = &self.source[self.at..];
        if rest.starts_with(b"//") {
            let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
            self.blank(length);
        } else if rest.starts_with(b"/*") {
            self.blank(block_comment_length(rest));
        } else if let Some(length) = raw_string_length(rest).filter(|_| !self.inside_word()) {
            self.blank(length);
        } else if rest[0] == b'"' {
            self.blank(string_length(rest));
        } else if let Some(length) = char_length(rest) {
            self.blank(length);
        } else {
            self.output.push(rest[0]);
            self.at += 1;
        }
    }

    /// Whether the previous byte belongs to a name, so that an `r` here does not start a raw string.
    fn inside_word(&self) -> bool {
        self.at > 0
            && matches!(self.source[self.at - 1], b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z')
            && !matches!(self.source[self.at - 1], b'b' | b'c')
    }

    fn blank(&mut self, length: usize) {
        let end = (self.at + length).min(self.source.len());
        let blanks = self.source[self.at..end].iter().map(|&b| if b == b'\n' { b'\n' } else { b' ' });
        self.output.extend(blanks);
        self.at = end;
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn raw_string_length(rest: &[u8]) -> Option<usize> {
    let after_r = rest.strip_prefix(b"r")?;
    let hashes = after_r.iter().take_while(|&&b| b == b'#').count();
    let body = after_r[hashes..].strip_prefix(b"\"")?;
    let mut end = vec![b'"'];
    end.extend(std::iter::repeat_n(b'#', hashes));
    let length = body.windows(end.len()).position(|window| window == end).unwrap_or(body.len());
    Some(1 + hashes + 1 + length + end.len())
}

fn string_length(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` for a lifetime, which has no closing quote after one character.
fn char_length(rest: &[u8]) -> Option<usize> {
    let inside = rest.strip_prefix(b"'")?;
    if inside.first() == Some(&b'\\') {
        let end = inside.iter().skip(2).position(|&b| b == b'\'')?;
        return Some(1 + 2 + end + 1);
    }
    let first = std::str::from_utf8(&inside[..inside.len().min(4)])
        .or_else(|error| std::str::from_utf8(&inside[..error.valid_up_to()]));
    let width = first.ok()?.chars().next()?.len_utf8();
    (inside.get(width) == Some(&b'\'')).then_some(1 + width + 1)
}

/// The line of a byte position, counted from 1.
pub fn line_of(text: &str, position: usize) -> usize {
    text.as_bytes()[..position].iter().filter(|&&b| b == b'\n').count() + 1
}

/// Positions of `word` where it is not part of a longer name.
pub fn find_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(position, _)| position).filter(move |&position| {
        let before = text[..position].chars().next_back();
        let after = text[position + word.len()..].chars().next();
        !before.is_some_and(is_name) && !after.is_some_and(is_name)
    })
}

/// The text from an opening bracket at `position` to its partner, inclusive.
pub fn bracketed(code: &str, position: usize) -> &str {
    let mut depth = 0_usize;
    for (offset, c) in code[position..].char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &code[position..position + offset + c.len_utf8()];
        }
    }
    &code[position..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The remaining words, after checking that every byte and line kept its position.
    fn words_left(source: &str) -> String {
        let code = code_of(source);
        assert_eq!(code.len(), source.len(), "{source}");
        let line_ends = |text: &str| text.match_indices('\n').map(|(at, _)| at).collect::<Vec<_>>();
        assert_eq!(line_ends(&code), line_ends(source), "{source}");
        code.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn prose_and_literals_become_blanks() {
        for (source, code) in [
            ("a // b\nc", "a c"),
            ("a /* b /* c\n */ d */ e", "a e"),
            (r#"f("x // y", 'z')"#, "f( , )"),
            (r##"f(r#"a "b" c"#, g)"##, "f( , g)"),
            (r#"f("\"", h)"#, "f( , h)"),
            ("let x: &'a str = '\\'';", "let x: &'a str = ;"),
            ("'\\u{41}' b", "b"),
            ("let c = '\u{e9}'; d", "let c = ; d"),
        ] {
            assert_eq!(words_left(source), code, "{source}");
        }
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        for source in ["\"abc", "/* abc", "r#\"abc", "'\\", "'", "\"\\"] {
            assert!(code_of(source).len() <= source.len(), "{source}");
        }
    }

    #[test]
    fn names_that_end_in_r_do_not_start_a_raw_string() {
        assert_eq!(words_left("for\"x\" in r"), "for in r");
        assert_eq!(words_left("br\"a\\\" x"), "b x");
    }

    #[test]
    fn words_are_found_whole_and_brackets_to_their_partner() {
        assert_eq!(find_word("ab abc ab", "ab").collect::<Vec<_>>(), [0, 7]);
        assert_eq!(bracketed("x(a[b], c) d)", 1), "(a[b], c)");
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
