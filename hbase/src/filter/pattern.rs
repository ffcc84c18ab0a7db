//! Regular expressions in Java's syntax, run by an engine whose time is linear in what it reads.
//!
//! An expression is rewritten: what both engines write the same way stays, what they write differently is translated, and what
//! ours does not have is refused: look-around, back-references, atomic groups and possessive quantifiers. As in HBase, bytes are
//! decoded before they are searched, and a match anywhere is a match.

use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};
use terrane_types::Invalid;

use super::{PATTERN_BYTES_MAX, PATTERN_SIZE_MAX};

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
pub(super) struct Pattern {
    regex: Regex,
    charset: Charset,
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
        let rewritten =
            if flags & LITERAL != 0 { regex::escape(java) } else { Rewriter::new(java, flags).rewrite()? };
        let regex = RegexBuilder::new(&rewritten)
            .case_insensitive(flags & CASE_INSENSITIVE != 0)
            .multi_line(flags & MULTILINE != 0)
            .dot_matches_new_line(flags & DOTALL != 0)
            .ignore_whitespace(flags & COMMENTS != 0 && flags & LITERAL == 0)
            .size_limit(PATTERN_SIZE_MAX)
            .dfa_size_limit(PATTERN_SIZE_MAX)
            .build()
            .map_err(|refused| Invalid::new(format!("regular expression {java:?} is refused: {refused}")))?;
        Ok(Self { regex, charset })
    }

    pub fn is_match(&self, bytes: &[u8]) -> bool {
        match self.charset {
            Charset::Utf8 => self.regex.is_match(&String::from_utf8_lossy(bytes)),
            Charset::Latin1 => self.regex.is_match(&bytes.iter().map(|byte| char::from(*byte)).collect::<String>()),
            Charset::Ascii => {
                let decoded = |byte: &u8| if byte.is_ascii() { char::from(*byte) } else { char::REPLACEMENT_CHARACTER };
                self.regex.is_match(&bytes.iter().map(decoded).collect::<String>())
            }
        }
    }
}

/// Rewrites an expression, character by character.
struct Rewriter<'a> {
    java: &'a str,
    flags: i32,
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    out: String,
    /// How many classes are open.
    classes: usize,
}

impl<'a> Rewriter<'a> {
    fn new(java: &'a str, flags: i32) -> Self {
        Self { java, flags, rest: java.chars().peekable(), out: String::new(), classes: 0 }
    }

    fn refuse<T>(&self, what: &str) -> Result<T, Invalid> {
        Err(Invalid::new(format!("regular expression {:?} is refused: {what} are not supported", self.java)))
    }

    fn rewrite(mut self) -> Result<String, Invalid> {
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
                '.' if self.flags & DOTALL == 0 => {
                    let _always = write!(self.out, "[^{}]", self.line_ends());
                }
                '$' if self.flags & MULTILINE == 0 => self.end_of_text(),
                '*' | '+' | '?' | '}' if self.rest.peek() == Some(&'+') => {
                    return self.refuse("possessive quantifiers");
                }
                other => self.out.push(other),
            }
        }
        Ok(self.out)
    }

    fn line_ends(&self) -> &'static str {
        if self.flags & UNIX_LINES == 0 { LINE_ENDS } else { r"\n" }
    }

    /// The end, or the line end before it.
    fn end_of_text(&mut self) {
        let _always = write!(self.out, r"(?:(?:\r\n|[{}])?\z)", self.line_ends());
    }

    fn group(&mut self) -> Result<(), Invalid> {
        match self.rest.peek() {
            Some('=' | '!') => return self.refuse("look-aheads"),
            Some('>') => return self.refuse("atomic groups"),
            Some('<') => {
                self.rest.next();
                if matches!(self.rest.peek(), Some('=' | '!')) {
                    return self.refuse("look-behinds");
                }
                self.out.push_str("(?<");
            }
            Some(':') => self.out.push_str("(?"),
            _ => {
                self.out.push_str("(?");
                while let Some(flag) = self.rest.next_if(|flag| !matches!(flag, ':' | ')')) {
                    match flag {
                        'i' | 'm' | 's' | 'x' | '-' => self.out.push(flag),
                        // Letters are compared by Unicode's rules in any case.
                        'u' => {}
                        _ => return self.refuse("flags other than i, m, s, u and x"),
                    }
                }
                if self.out.ends_with("(?") {
                    // Only flags that change nothing.
                    self.out.push_str(if self.rest.next_if_eq(&')').is_some() { ":)" } else { "" });
                }
            }
        }
        Ok(())
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
            '1'..='9' | 'k' => return self.refuse("back-references"),
            'G' | 'X' => return self.refuse("\\G and \\X"),
            other if other.is_ascii_alphabetic() => return self.refuse("such escapes"),
            other => self.literal(other),
        }
        Ok(())
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
        Pattern::new(java, flags, "UTF-8").unwrap_or_else(|refused| panic!("{refused}")).is_match(text.as_bytes())
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
        assert!(finds(r"a\Z", 0, "a\n") && !finds(r"a\z", 0, "a\n"));
    }

    #[test]
    fn what_the_engine_lacks_is_refused_with_its_name() {
        for (java, what) in [
            ("a(?=b)", "look-aheads"),
            ("(?<!a)b", "look-behinds"),
            (r"(a)\1", "back-references"),
            ("a++b", "possessive"),
            ("(?>a)b", "atomic"),
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
        let found = |charset, bytes: &[u8]| Pattern::new("^.é$", DOTALL, charset).unwrap().is_match(bytes);
        assert!(found("UTF-8", "aé".as_bytes()) && found("UTF-8", b"\xFF\xC3\xA9"));
        assert!(found("ISO-8859-1", b"\xFF\xE9") && !found("US-ASCII", b"a\xE9"));
    }
}
