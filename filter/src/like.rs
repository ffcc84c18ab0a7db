//! SQL's patterns: `%` stands for any bytes, `_` for one character, and a backslash takes away what the next character means.
//!
//! A pattern becomes the cheapest test that says the same. What begins with letters is also a test of a prefix, from which rows
//! and columns are planned; only other patterns become regular expressions.

use bytes::Bytes;

use crate::error::FilterError;
use crate::expression::{Filter, Relation, Subject};
use crate::pattern::Pattern;
use terrane_types::ValueType;

/// A part of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    /// `_`
    One,
    /// `%`
    Any,
}

/// A pattern, in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Like(Vec<Piece>);

impl Like {
    /// Reads a pattern. Nothing is wrong with one but a backslash at its end.
    pub(crate) fn read(pattern: &[u8]) -> Result<Self, &'static str> {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut bytes = pattern.iter().copied();
        while let Some(byte) = bytes.next() {
            let literal = match byte {
                b'%' if pieces.last() == Some(&Piece::Any) => continue,
                b'%' => {
                    pieces.push(Piece::Any);
                    continue;
                }
                b'_' => {
                    pieces.push(Piece::One);
                    continue;
                }
                b'\\' => bytes.next().ok_or("a pattern ends with a backslash; write \\\\\\\\ for one")?,
                other => other,
            };
            match pieces.last_mut() {
                Some(Piece::Literal(text)) => text.push(literal),
                _ => pieces.push(Piece::Literal(vec![literal])),
            }
        }
        Ok(Self(pieces))
    }

    /// The tests of this subject that together say that it is like the pattern. `read_as` is how a pattern without places is
    /// compared.
    pub(crate) fn tests(
        &self,
        subject: Subject,
        read_as: ValueType,
        ignore_case: bool,
    ) -> Result<Vec<Filter>, FilterError> {
        let bytes = |text: &[u8]| Bytes::copy_from_slice(text);
        let whole = |operand| Filter::Compare { subject: subject.clone(), read_as, relation: Relation::Equal, operand };
        Ok(match (&self.0[..], ignore_case) {
            ([], _) => vec![whole(Bytes::new())],
            ([Piece::Literal(text)], false) => vec![whole(bytes(text))],
            ([Piece::Any], _) => vec![Filter::Prefix { subject, prefix: Bytes::new() }],
            ([Piece::Literal(text), Piece::Any], false) => vec![Filter::Prefix { subject, prefix: bytes(text) }],
            ([Piece::Any, Piece::Literal(text), Piece::Any], _) => {
                vec![Filter::Contains { subject, part: bytes(text), ignore_case }]
            }
            (pieces, _) => {
                let pattern = Pattern::new(&expression(pieces, ignore_case))?;
                let matches = Filter::Matches { subject: subject.clone(), pattern };
                match (&pieces[0], &subject) {
                    (Piece::Literal(text), Subject::Row | Subject::Qualifier) if !ignore_case => {
                        vec![Filter::Prefix { subject, prefix: bytes(text) }, matches]
                    }
                    _ => vec![matches],
                }
            }
        })
    }
}

/// The regular expression of the pieces. A `%` takes any bytes, also those that are no text.
fn expression(pieces: &[Piece], ignore_case: bool) -> String {
    let mut text = String::from(if ignore_case { "(?i)^" } else { "^" });
    for piece in pieces {
        match piece {
            Piece::One => text.push_str("(?s:.)"),
            Piece::Any => text.push_str("(?s-u:.*)"),
            Piece::Literal(literal) => {
                for chunk in literal.utf8_chunks() {
                    text.push_str(&regex::escape(chunk.valid()));
                    chunk.invalid().iter().for_each(|byte| text.push_str(&format!("(?-u:\\x{byte:02X})")));
                }
            }
        }
    }
    // At the end of a pattern `.*` takes all there is.
    match text.strip_suffix("(?s-u:.*)") {
        Some(open) => open.to_owned(),
        None => text + "$",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(pattern: &[u8], ignore_case: bool) -> String {
        let tests = Like::read(pattern).expect("a pattern").tests(Subject::Row, ValueType::Bytes, ignore_case);
        tests.expect("tests").iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
    }

    #[test]
    fn a_pattern_is_the_cheapest_test_that_says_the_same() {
        for (pattern, ignore_case, test) in [
            ("", false, "row = ''"),
            ("a", false, "row = 'a'"),
            ("%", false, "prefix(row, '')"),
            ("ab%", false, "prefix(row, 'ab')"),
            ("ab%%", false, "prefix(row, 'ab')"),
            ("%ab%", false, "contains(row, 'ab')"),
            ("%ab%", true, "icontains(row, 'ab')"),
            ("%ab", false, r"matches(row, '^(?s-u:.*)ab$')"),
            ("a_c%", false, r"prefix(row, 'a') and matches(row, '^a(?s:.)c')"),
            ("_", false, r"matches(row, '^(?s:.)$')"),
            ("a.c", true, r"matches(row, '(?i)^a\\.c$')"),
            (r"5\%", false, "row = '5%'"),
            (r"a\_b%", false, "prefix(row, 'a_b')"),
            (r"a\\%", false, r"prefix(row, 'a\\')"),
        ] {
            assert_eq!(text(pattern.as_bytes(), ignore_case), test, "{pattern}");
        }
        assert!(Like::read(br"a\").is_err());
    }

    /// The definition: whether the pattern's pieces take the whole text.
    fn is_like(text: &[u8], pieces: &[Piece]) -> bool {
        match pieces.split_first() {
            None => text.is_empty(),
            Some((Piece::Literal(literal), rest)) => {
                text.strip_prefix(&literal[..]).is_some_and(|text| is_like(text, rest))
            }
            Some((Piece::Any, rest)) => (0..=text.len()).any(|at| is_like(&text[at..], rest)),
            Some((Piece::One, rest)) => {
                let widths = (1..=4).filter(|width| {
                    let character = text.get(..*width).and_then(|bytes| std::str::from_utf8(bytes).ok());
                    character.is_some_and(|character| character.chars().count() == 1)
                });
                widths.into_iter().any(|width| is_like(&text[width..], rest))
            }
        }
    }

    proptest! {
        #[test]
        fn the_tests_of_a_pattern_mean_what_sql_says(
            pattern in "[ab%_\\n]{0,5}|[aé_%]{0,4}",
            raw in any::<bool>(),
            text in proptest::collection::vec(proptest::sample::select(vec![b'a', b'b', b'\n', 0xC3, 0xA9, 0xFF]), 0..6),
        ) {
            let mut pattern = pattern.into_bytes();
            if raw {
                pattern.push(0xFF);
            }
            let like = Like::read(&pattern).expect("no backslash");
            let tests = like.tests(Subject::Value, ValueType::Bytes, false).expect("tests");
            let passes = tests.iter().all(|test| match test {
                Filter::Compare { operand, .. } => text[..] == operand[..],
                Filter::Prefix { prefix, .. } => text.starts_with(prefix),
                Filter::Contains { part, .. } => part.is_empty() || text.windows(part.len()).any(|window| window == part),
                Filter::Matches { pattern, .. } => pattern.is_match(&text),
                other => panic!("{other}"),
            });
            prop_assert_eq!(passes, is_like(&text, &like.0), "{:?} {:?}", text, pattern);
        }
    }
}
