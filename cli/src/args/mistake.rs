//! Mistakes in a command line, in the words of a person.
//!
//! The parser's message is kept, but for three things: the usage line shows flags that the environment or the session
//! gave as if the user had to write them, numbers are refused in Rust's words, and the advice to put an unknown flag
//! behind `--` as a value is never what was meant, since rows and values take a leading dash without it.

/// Flags that the environment or the shell's session adds, as a usage line shows them.
const GIVEN: [&str; 3] = [" --masters <HOST:PORT,...>", " --timeout <DURATION>", " --json"];
/// What the parser says of numbers, and what it means.
const WORDS: [(&str, &str); 3] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("cannot parse integer from empty string", "it is not a whole number"),
    ("invalid float literal", "it is not a number"),
];

/// The parser's error without its prefix; `in_shell`, without the program's name, which is not typed there.
pub fn mistake(error: &clap::Error, in_shell: bool) -> String {
    let mut text = String::new();
    for line in error.to_string().trim_end().lines() {
        let mut line = line.to_owned();
        if line.starts_with("Usage:") {
            line = GIVEN.iter().fold(line, |line, given| line.replace(given, ""));
        }
        if line.trim_start().starts_with("tip: to pass '") {
            // The blank line before it goes, too.
            text.truncate(text.trim_end().len());
            text.push('\n');
            continue;
        }
        text.push_str(&WORDS.iter().fold(line, |line, (from, to)| line.replace(from, to)));
        text.push('\n');
    }
    let text = text.trim_start_matches("error: ").trim_end();
    if in_shell { text.replace("terrane ", "") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse;

    fn said(line: &str) -> String {
        let words = std::iter::once("terrane").chain(line.split(' ')).map(Into::into).collect();
        mistake(&parse(words).expect_err(line), false)
    }

    #[test]
    fn the_usage_shows_what_the_user_has_to_write() {
        let text = said("get --masters 127.0.0.1:1 --timeout 1s --json t");
        assert!(text.contains("Usage: terrane get <TABLE> <ROW> [COLUMNS]..."), "{text}");
        assert!(!text.starts_with("error"), "{text}");
    }

    #[test]
    fn numbers_and_flags_are_refused_in_plain_words() {
        let text = said("scan t --limit x");
        assert!(text.contains("invalid value 'x' for '--limit <N>': it is not a whole number"), "{text}");
        let text = said("scan t --bogus");
        assert!(text.contains("unexpected argument '--bogus' found") && !text.contains("tip"), "{text}");
        assert!(said("scan t --limt 5").contains("tip: a similar argument exists: '--limit'"));
    }
}
