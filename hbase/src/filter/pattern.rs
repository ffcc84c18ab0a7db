//! Regular expressions in Java's syntax.
//!
//! An expression is rewritten: what both engines write the same way stays, what they write differently is translated, and what
//! ours do not have is refused. An engine whose time is linear in what it reads runs what it can. Look-around,
//! back-references, atomic groups and possessive quantifiers need one that goes back: it runs within a limit of steps, and
//! the read fails at the limit. As in HBase, bytes are decoded before they are searched, and a match anywhere is a match.

use std::fmt::Write as _;
use std::sync::Arc;

use regex::{Regex, RegexBuilder};
use terrane_types::Invalid;

use crate::limits::{PATTERN_BYTES_MAX, PATTERN_SIZE_MAX, PATTERN_STEPS_MAX, PATTERN_TEXT_BYTES_MAX};

/// Flags of `java.util.regex.Pattern`.
const UNIX_LINES: i32 = 1;
const CASE_INSENSITIVE: i32 = 2;
const COMMENTS: i32 = 4;
const MULTILINE: i32 = 8;
const LITERAL: i32 = 16;
const DOTALL: i32 = 32;
const UNICODE_CASE: i32 = 64;
const KNOWN_FLAGS: i32 =
    UNIX_LINES | CASE_INSENSITIVE | COMMENTS | MULTILINE | LITERAL | DOTALL | UNICODE_CASE | UNICODE_CHARACTER_CLASS;
/// It changes classes such as `\w`, which are refused then.
const UNICODE_CHARACTER_CLASS: i32 = 256;

/// What ends a line in Java, for a class.
const LINE_ENDS: &str = r"\n\r\x{85}\x{2028}\x{2029}";

/// How bytes become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
    Ascii,
}

/// A compiled expression. Copies share it.
#[derive(Clone)]
pub(crate) struct Pattern {
    engine: Engine,
    charset: Charset,
}

#[derive(Clone)]
enum Engine {
    /// Its time is linear in what it reads.
    Linear(Regex),
    /// It goes back, within a limit.
    Backtracking(Arc<fancy_regex::Regex>),
}

impl Pattern {
    pub fn new(java: &str, flags: i32, charset: &str) -> Result<Self, Invalid> {
        if java.len() > PATTERN_BYTES_MAX {
            return Err(Invalid::new(format!(
                "a regular expression has {} bytes; the limit is {PATTERN_BYTES_MAX}",
                java.len()
            )));
        }
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Invalid::new(format!("flags {flags} of a regular expression are not supported")));
        }
        let charset = match charset.to_ascii_uppercase().as_str() {
            "" | "UTF-8" | "UTF8" => Charset::Utf8,
            "ISO-8859-1" | "ISO8859_1" | "LATIN1" => Charset::Latin1,
            "US-ASCII" | "ASCII" => Charset::Ascii,
            other => {
                return Err(Invalid::new(format!(
                    "charset {other} of a regular expression is not supported; use UTF-8, ISO-8859-1 or US-ASCII"
                )));
            }
        };
        let rewritten = match flags & LITERAL {
            0 => Rewriter::new(java, flags).rewrite()?,
            _ => Rewritten { expression: regex::escape(java), goes_back: false },
        };
        let engine = Self::build(java, flags, &rewritten)?;
        Ok(Self { engine, charset })
    }

    /// An expression that a whole text must match, and not a part of it.
    pub fn whole(java: &str) -> Result<Self, Invalid> {
        // By itself first: a bracket of its own must not close the one around it.
        Self::new(java, 0, "")?;
        let mut rewritten = Rewriter::new(java, 0).rewrite()?;
        rewritten.expression = format!(r"\A(?:{})\z", rewritten.expression);
        Ok(Self { engine: Self::build(java, 0, &rewritten)?, charset: Charset::Utf8 })
    }

    fn build(java: &str, flags: i32, rewritten: &Rewritten) -> Result<Engine, Invalid> {
        let refused =
            |why: &dyn std::fmt::Display| Invalid::new(format!("regular expression {java:?} is refused: {why}"));
        let ignores_whitespace = flags & COMMENTS != 0 && flags & LITERAL == 0;
        Ok(if rewritten.goes_back {
            let built = fancy_regex::RegexBuilder::new(&rewritten.expression)
                .case_insensitive(flags & CASE_INSENSITIVE != 0)
                .multi_line(flags & MULTILINE != 0)
                .dot_matches_new_line(flags & DOTALL != 0)
                .ignore_whitespace(ignores_whitespace)
                .delegate_size_limit(PATTERN_SIZE_MAX)
                .delegate_dfa_size_limit(PATTERN_SIZE_MAX)
                .max_prog_size(PATTERN_SIZE_MAX)
                .backtrack_limit(PATTERN_STEPS_MAX)
                .seek(false)
                .build()
                .map_err(|why| refused(&why))?;
            Engine::Backtracking(Arc::new(built))
        } else {
            let built = RegexBuilder::new(&rewritten.expression)
                .case_insensitive(flags & CASE_INSENSITIVE != 0)
                .multi_line(flags & MULTILINE != 0)
                .dot_matches_new_line(flags & DOTALL != 0)
                .ignore_whitespace(ignores_whitespace)
                .size_limit(PATTERN_SIZE_MAX)
                .dfa_size_limit(PATTERN_SIZE_MAX)
                .build()
                .map_err(|why| refused(&why))?;
            Engine::Linear(built)
        })
    }

    /// Whether its time is not linear in what it reads.
    pub const fn backtracks(&self) -> bool {
        matches!(self.engine, Engine::Backtracking(_))
    }

    /// Whether the expression is found in these bytes.
    ///
    /// # Errors
    /// [`Invalid`] if that takes more steps than a search may.
    pub fn is_match(&self, bytes: &[u8]) -> Result<bool, Invalid> {
        match self.charset {
            Charset::Utf8 => self.finds(&String::from_utf8_lossy(bytes)),
            Charset::Latin1 => self.finds(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
            Charset::Ascii => {
                let decoded = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { char::REPLACEMENT_CHARACTER };
                self.finds(&bytes.iter().map(decoded).collect::<String>())
            }
        }
    }

    fn finds(&self, text: &str) -> Result<bool, Invalid> {
        let engine = match &self.engine {
            Engine::Linear(regex) => return Ok(regex.is_match(text)),
            Engine::Backtracking(engine) => engine,
        };
        if text.len() > PATTERN_TEXT_BYTES_MAX {
            return Err(Invalid::new(format!(
                "regular expression {:?} with look-around, back-references, atomic groups or possessive quantifiers met {} \
                 bytes; it is searched for in at most {PATTERN_TEXT_BYTES_MAX}",
                engine.as_str(),
                text.len()
            )));
        }
        engine.is_match(text).map_err(|stopped| {
            Invalid::new(format!(
                "regular expression {:?} takes more than {PATTERN_STEPS_MAX} steps back in {} bytes ({stopped}); make it \
                 unambiguous, or do without look-around, back-references, atomic groups and possessive quantifiers",
                engine.as_str(),
                text.len()
            ))
        })
    }
}

/// An expression for our engines.
struct Rewritten {
    expression: String,
    /// Only the engine that goes back can run it.
    goes_back: bool,
}

/// Rewrites an expression, character by character.
struct Rewriter<'a> {
    java: &'a str,
    /// The flags that are on here.
    flags: i32,
    /// The flags around each group that is open.
    around: Vec<i32>,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
    /// How many classes are open.
    classes: usize,
    /// How many capturing groups have begun.
    groups: u32,
    goes_back: bool,
}

impl<'a> Rewriter<'a> {
    fn new(java: &'a str, flags: i32) -> Self {
        Self {
            java,
            flags,
            around: Vec::new(),
            rest: java.chars().peekable(),
            out: String::new(),
            classes: 0,
            groups: 0,
            goes_back: false,
        }
    }

    fn refuse<T>(&self, what: &str) -> Result<T, Invalid> {
        Err(Invalid::new(format!("regular expression {:?} is refused: {what} are not supported", self.java)))
    }

    fn rewrite(mut self) -> Result<Rewritten, Invalid> {
        while let Some(next) = self.rest.next() {
            match next {
                '\\' => self.escaped()?,
                '[' => {
                    self.classes += 1;
                    self.out.push('[');
                    if self.rest.next_if_eq(&'^').is_some() {
                        self.out.push('^');
                    }
                    // A bracket that comes first is one of the class.
                    if self.rest.next_if_eq(&']').is_some() {
                        self.out.push_str("\\]");
                    }
                }
                ']' if self.classes > 0 => {
                    self.classes -= 1;
                    self.out.push(']');
                }
                '-' if self.classes > 0 && self.rest.peek() == Some(&'-') => self.out.push_str("\\-"),
                '~' if self.classes > 0 => self.out.push_str("\\~"),
                other if self.classes > 0 => self.out.push(other),
                '(' if self.rest.next_if_eq(&'?').is_some() => self.group()?,
                ')' => {
                    self.flags = self.around.pop().unwrap_or(self.flags);
                    self.out.push(')');
                }
                '#' if self.flags & COMMENTS != 0 => while self.rest.next_if(|next| *next != '\n').is_some() {},
                '.' if self.flags & DOTALL == 0 => {
                    let _always = write!(self.out, "[^{}]", self.line_ends());
                }
                '$' if self.flags & MULTILINE == 0 => self.end_of_text(),
                '(' if self.rest.peek() != Some(&'*') => {
                    self.groups += 1;
                    self.open("(");
                }
                '(' => return self.refuse("quantifiers of nothing"),
                '*' | '+' | '?' | '}' if self.rest.next_if_eq(&'+').is_some() => {
                    self.goes_back = true;
                    self.out.push(next);
                    self.out.push('+');
                }
                other => self.out.push(other),
            }
        }
        Ok(Rewritten { expression: self.out, goes_back: self.goes_back })
    }

    fn line_ends(&self) -> &'static str {
        if self.flags & UNIX_LINES == 0 { LINE_ENDS } else { r"\n" }
    }

    /// The end, or the line end before it.
    fn end_of_text(&mut self) {
        let _always = write!(self.out, r"(?:(?:\r\n|[{}])?\z)", self.line_ends());
    }

    fn open(&mut self, begin: &str) {
        self.around.push(self.flags);
        self.out.push_str(begin);
    }

    fn group(&mut self) -> Result<(), Invalid> {
        match self.rest.peek() {
            Some('=' | '!' | '>') => {
                self.goes_back = true;
                self.open("(?");
            }
            Some('<') => {
                self.rest.next();
                match self.rest.peek() {
                    Some('=' | '!') => self.goes_back = true,
                    _ => self.groups += 1,
                }
                self.open("(?<");
            }
            _ => return self.flags_and_group(),
        }
        Ok(())
    }

    /// Flags up to a colon are those of a group, flags up to the bracket those of the rest of the group around them.
    fn flags_and_group(&mut self) -> Result<(), Invalid> {
        let (mut flags, mut on, mut ours) = (self.flags, true, String::new());
        loop {
            let Some(next) = self.rest.next() else { return self.refuse("groups without an end") };
            let flag = match next {
                ':' | ')' => {
                    // Only flags that change nothing here leave a minus alone.
                    let ours = ours.trim_end_matches('-');
                    if next == ':' {
                        self.open(&format!("(?{ours}:"));
                    } else if !ours.is_empty() {
                        let _always = write!(self.out, "(?{ours})");
                    }
                    self.flags = flags;
                    return Ok(());
                }
                '-' if on => {
                    on = false;
                    ours.push('-');
                    continue;
                }
                'i' => CASE_INSENSITIVE,
                'm' => MULTILINE,
                's' => DOTALL,
                'x' => COMMENTS,
                'd' => UNIX_LINES,
                // Letters are compared by Unicode's rules in any case.
                'u' => UNICODE_CASE,
                _ => return self.refuse("flags other than d, i, m, s, u and x"),
            };
            flags = if on { flags | flag } else { flags & !flag };
            if !matches!(next, 'd' | 'u') {
                ours.push(next);
            }
        }
    }

    /// A class by what it holds: as it is inside of another class, in brackets otherwise.
    fn class(&mut self, negated: bool, holds: &str) {
        let _always = write!(self.out, "[{}{holds}]", if negated { "^" } else { "" });
    }

    fn escaped(&mut self) -> Result<(), Invalid> {
        let Some(escaped) = self.rest.next() else {
            return self.refuse("backslashes at the end");
        };
        let negated = escaped.is_ascii_uppercase();
        match escaped {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' if self.flags & UNICODE_CHARACTER_CLASS != 0 => {
                return self.refuse("classes of Unicode");
            }
            'd' | 'D' => self.class(negated, "0-9"),
            'w' | 'W' => self.class(negated, "a-zA-Z0-9_"),
            's' | 'S' => self.class(negated, r" \t\n\x0B\f\r"),
            'h' | 'H' => self.class(negated, r" \t\x{A0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}"),
            'v' | 'V' => self.class(negated, r"\n\x0B\f\r\x{85}\x{2028}\x{2029}"),
            'R' => self.out.push_str(r"(?:\r\n|[\n\x0B\f\r\x{85}\x{2028}\x{2029}])"),
            'Z' => self.end_of_text(),
            'e' => self.out.push_str(r"\x1B"),
            'A' | 'z' | 'b' | 'B' | 't' | 'n' | 'r' | 'f' | 'a' | 'x' | 'u' => {
                self.out.push('\\');
                self.out.push(escaped);
            }
            'Q' => self.quoted(),
            'E' => {}
            'c' => match self.rest.next().and_then(|letter| u8::try_from(letter).ok()) {
                Some(letter) => {
                    let _always = write!(self.out, r"\x{:02X}", letter ^ 64);
                }
                None => return self.refuse("control characters without a letter"),
            },
            '0' => self.octal()?,
            'p' | 'P' => self.property(negated)?,
            '1'..='9' => self.back_reference(escaped),
            'k' => {
                self.goes_back = true;
                self.out.push_str(r"\k");
            }
            'G' | 'X' => return self.refuse("\\G and \\X"),
            other if other.is_ascii_alphabetic() => return self.refuse("such escapes"),
            other => self.literal(other),
        }
        Ok(())
    }

    /// Java takes digits as long as there are that many groups before.
    fn back_reference(&mut self, first: char) {
        self.goes_back = true;
        let mut group = first.to_digit(10).expect("it is a digit");
        while let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(10)) {
            if group * 10 + digit > self.groups {
                break;
            }
            group = group * 10 + digit;
            self.rest.next();
        }
        // The group keeps a digit that follows apart.
        let _always = write!(self.out, r"(?:\{group})");
    }

    fn literal(&mut self, literal: char) {
        self.out.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
    }

    /// Up to `\E` or the end, everything is literal.
    fn quoted(&mut self) {
        while let Some(next) = self.rest.next() {
            if next == '\\' && self.rest.next_if_eq(&'E').is_some() {
                return;
            }
            self.literal(next);
        }
    }

    fn octal(&mut self) -> Result<(), Invalid> {
        let (mut code, mut digits) = (0, 0);
        while let Some(digit) = self.rest.peek().and_then(|next| next.to_digit(8)) {
            if digits == 3 || code * 8 + digit > 0o377 {
                break;
            }
            (code, digits) = (code * 8 + digit, digits + 1);
            self.rest.next();
        }
        if digits == 0 {
            return self.refuse("octal escapes without digits");
        }
        let _always = write!(self.out, r"\x{{{code:X}}}");
        Ok(())
    }

    fn property(&mut self, negated: bool) -> Result<(), Invalid> {
        let name: String = if self.rest.next_if_eq(&'{').is_some() {
            self.rest.by_ref().take_while(|next| *next != '}').collect()
        } else {
            self.rest.next().into_iter().collect()
        };
        let holds = match name.as_str() {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "ASCII" => r"\x00-\x7F",
            "Alpha" => "a-zA-Z",
            "Digit" => "0-9",
            "Alnum" => "a-zA-Z0-9",
            "Punct" => r"!-/:-@\[-`\{-\~",
            "Graph" => r"!-\~",
            "Print" => r" -\~",
            "Blank" => r" \t",
            "Cntrl" => r"\x00-\x1F\x7F",
            "XDigit" => "0-9a-fA-F",
            "Space" => r" \t\n\x0B\f\r",
            _ => return self.refuse("properties of Unicode"),
        };
        self.class(negated, holds);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn finds(java: &str, flags: i32, text: &str) -> bool {
        Pattern::new(java, flags, "UTF-8")
            .unwrap_or_else(|refused| panic!("{refused}"))
            .is_match(text.as_bytes())
            .unwrap()
    }

    fn text(hex: &str) -> Vec<u8> {
        if hex == "-" {
            return Vec::new();
        }
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(byte).collect()
    }

    /// `hbase/java/PatternGolden.java` prints the file and describes its form.
    #[test]
    fn expressions_that_go_back_find_what_java_finds() {
        let (mut pattern, mut checked) = (None, 0);
        for line in include_str!("testdata/patterns.txt").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["pattern", flags, expression] => {
                    let java = String::from_utf8(text(expression)).unwrap();
                    let flags = flags.parse().unwrap();
                    pattern = Some(Pattern::new(&java, flags, "").unwrap_or_else(|refused| panic!("{refused}")));
                }
                [found @ ("found" | "not"), ref texts @ ..] => {
                    for hex in texts {
                        let (text, found) = (text(hex), found == "found");
                        let ours = pattern.as_ref().unwrap().is_match(&text).unwrap();
                        assert_eq!(ours, found, "{line}: {:?}", String::from_utf8_lossy(&text));
                        checked += 1;
                    }
                }
                _ => {}
            }
        }
        assert!(checked > 6_000, "{checked}");
    }

    #[test]
    fn a_search_that_goes_back_too_often_ends_with_an_error() {
        let ambiguous = Pattern::new("^(?:(a|aa)+)(?!.)(?<=b)", 0, "").unwrap();
        let refused = ambiguous.is_match(&[b'a'; 200]).unwrap_err();
        assert!(refused.what.contains("takes more than 100000 steps"), "{}", refused.what);
        let long = vec![b'a'; PATTERN_TEXT_BYTES_MAX + 1];
        assert!(ambiguous.is_match(&long).unwrap_err().what.contains("at most 16384"));
        let linear = Pattern::new("^(?:(a|aa)+)b", 0, "").unwrap();
        assert!(!linear.is_match(&long).unwrap());
    }

    #[test]
    fn an_expression_is_found_anywhere() {
        assert!(finds("b+c", DOTALL, "abbcd"));
        assert!(!finds("^b+c$", DOTALL, "abbcd"));
        assert!(finds(r"^\d{2}-\w+$", DOTALL, "12-ab_3"));
        assert!(finds(r"\Qa.b\E.", DOTALL, "xa.bc"));
        assert!(!finds(r"\Qa.b\E.", DOTALL, "xaxbc"));
        assert!(finds(r"[\w&&[^\d]]-[^\s\]]", DOTALL, "a-b"));
        assert!(finds(r"\p{Punct}\x41\u0042\0103\cA", DOTALL, "~ABC\u{1}"));
        assert!(finds("(?i)ABC", DOTALL, "xabc"));
        assert!(finds("ABC", CASE_INSENSITIVE, "xabc"));
        assert!(finds("a.c", LITERAL, "a.c") && !finds("a.c", LITERAL, "abc"));
    }

    #[test]
    fn lines_end_as_in_java() {
        assert!(finds("a$", 0, "a\r\n") && finds("a$", 0, "a\u{2028}") && !finds("a$", 0, "a\n\n"));
        assert!(!finds("a$", UNIX_LINES, "a\r") && finds("a$", UNIX_LINES, "a\n"));
        assert!(!finds("a.b", 0, "a\rb") && finds("a.b", UNIX_LINES, "a\rb") && finds("a.b", DOTALL, "a\nb"));
        assert!(finds("^b$", MULTILINE, "a\nb\nc"));
        assert!(finds("(?s)a.b", 0, "a\nb") && !finds("(?-s)a.b", DOTALL, "a\nb"));
        assert!(finds("(?s:a.)b", 0, "a\nb") && !finds("(?s:a).b", 0, "a\nb") && !finds("((?s)a).b", 0, "a\nb"));
        assert!(finds("(?m)^b$", 0, "a\nb\nc") && finds("(?d)a.b", 0, "a\rb") && finds("(?u-u)a", 0, "a"));
        assert!(finds("(?x)a # ( a comment\nb", 0, "ab"));
        assert!(finds(r"a\Z", 0, "a\n") && !finds(r"a\z", 0, "a\n"));
    }

    #[test]
    fn what_the_engine_lacks_is_refused_with_its_name() {
        for (java, what) in [
            (r"(a)\2", "back reference"),
            (r"\Ga", "\\G"),
            ("(*FAIL)a(?=b)", "quantifiers of nothing"),
            ("(?~a)", "flags"),
            (r"\p{L}", "Unicode"),
            ("(a", "unclosed"),
            (&"a".repeat(PATTERN_BYTES_MAX + 1), "limit"),
            ("((a{100}){100}){100}", "exceeds"),
        ] {
            let refused = Pattern::new(java, DOTALL, "").err().unwrap_or_else(|| panic!("{java} is taken"));
            assert!(refused.what.contains(what), "{java}: {}", refused.what);
        }
        assert!(Pattern::new("a", 128, "").is_err() && Pattern::new("a", 0, "UTF-16").is_err());
    }

    #[test]
    fn bytes_are_decoded_by_the_charset() {
        let found = |charset, bytes: &[u8]| Pattern::new("^.é$", DOTALL, charset).unwrap().is_match(bytes).unwrap();
        assert!(found("UTF-8", "aé".as_bytes()) && found("UTF-8", b"\xFF\xC3\xA9"));
        assert!(found("ISO-8859-1", b"\xFF\xE9") && !found("US-ASCII", b"a\xE9"));
    }
}
