//! What tests compare with: strings, numbers, parameters, ranges, lists and patterns of keys, as the text writes them.
//!
//! The parser proper knows which of them may come next; each is read the same wherever it stands.

use std::str::FromStr;

use bytes::Bytes;
use terrane_types::{CellValue, Invalid, KeyRange, Time, ValueType, unescape};

use super::Parser;
use crate::error::FilterError;
use crate::fuzzy_key::FuzzyKey;
use crate::parameter::{operand, whole_number};
use crate::token::{TokenKind, syntax};

impl Parser<'_> {
    /// The bytes of the quoted string that is next.
    pub(super) fn unescaped(&self) -> Result<Bytes, FilterError> {
        let TokenKind::Quoted(text) = self.peek() else { return Err(self.expected("a string in single quotes")) };
        unescape(text).map(Bytes::from).map_err(|error| self.error(error.what))
    }

    pub(super) fn wrong_parameter(&self, number: usize, at: usize, what: String) -> FilterError {
        FilterError::Parameter { number, what, text: self.text.to_owned(), at }
    }

    /// Takes the parameter that is next; `read` reads its value, or says what is wrong with it.
    pub(super) fn parameter<T>(
        &mut self,
        read: impl FnOnce(&CellValue<'_>) -> Result<T, String>,
    ) -> Result<T, FilterError> {
        let at = self.token(0).at;
        self.parameters += 1;
        let number = self.parameters;
        let bound = self.values.len();
        let read = self.values.get(number - 1).map_or_else(
            || {
                Err(match bound {
                    0 => "has no value: write one in the place of the `?`, or bind one".to_owned(),
                    1 => "has no value; 1 is bound".to_owned(),
                    _ => format!("has no value; {bound} are bound"),
                })
            },
            read,
        );
        let read = read.map_err(|what| self.wrong_parameter(number, at, what))?;
        self.advance();
        Ok(read)
    }

    pub(super) fn string(&mut self, what: &str) -> Result<Bytes, FilterError> {
        if self.peek() == TokenKind::Parameter {
            return self.parameter(|value| operand(value, ValueType::Bytes)).map(Bytes::from);
        }
        if !matches!(self.peek(), TokenKind::Quoted(_)) {
            return Err(self.expected(what));
        }
        let bytes = self.unescaped()?;
        self.advance();
        Ok(bytes)
    }

    /// A value of the type.
    pub(super) fn literal(&mut self, read_as: ValueType) -> Result<Bytes, FilterError> {
        let (at, word) = match self.peek() {
            TokenKind::Parameter => return self.parameter(|value| operand(value, read_as)).map(Bytes::from),
            _ if read_as == ValueType::Time => {
                return Ok(Bytes::copy_from_slice(&self.time()?.millis().to_be_bytes()));
            }
            TokenKind::Word(word) if read_as.is_number() => (self.token(0).at, word),
            _ if read_as.is_number() => {
                return Err(
                    self.expected(&format!("a number of type {read_as} (for bytes, write bytes(…) on the other side)"))
                );
            }
            TokenKind::Quoted(_) if read_as == ValueType::Text => {
                let bytes = self.unescaped()?;
                if std::str::from_utf8(&bytes).is_err() {
                    return Err(self.error("a text is UTF-8; compare other bytes without text()"));
                }
                self.advance();
                return Ok(bytes);
            }
            TokenKind::Word(word) if word.parse::<f64>().is_ok() => {
                return Err(self.error(format!(
                    "a number is compared with a number: say how to read the other side, like i64(…) or f64(…), or quote \
                     what is text: '{word}'"
                )));
            }
            TokenKind::Word(word) if begins_with_date(word) => {
                return Err(self.error(
                    "a date is compared with a time: say to read the other side as one, time(…), or quote what is text",
                ));
            }
            _ => return self.string("a string in single quotes"),
        };
        let bytes = number_bytes(read_as, word)
            .ok_or_else(|| syntax(self.text, at, format!("`{word}` is no number of type {read_as}")))?;
        self.advance();
        Ok(bytes)
    }

    /// A time: a date, in quotes or without, milliseconds, or relative to what the caller calls now.
    fn time(&mut self) -> Result<Time, FilterError> {
        let at = self.token(0).at;
        let text = match self.peek() {
            TokenKind::Quoted(text) => {
                self.advance();
                text.to_owned()
            }
            TokenKind::Word(_) => self.word_or_date(),
            _ => return Err(self.expected("a time, like '2026-01-31T12:00Z'")),
        };
        self.time_of(&text).map_err(|error| syntax(self.text, at, error.what))
    }

    pub(super) fn time_of(&self, text: &str) -> Result<Time, Invalid> {
        self.now.map_or_else(|| Time::parse(text), |now| Time::parse_at(text, now))
    }

    /// A timestamp of a cell.
    pub(super) fn timestamp(&mut self) -> Result<i64, FilterError> {
        match self.peek() {
            TokenKind::Parameter => self.number("a timestamp"),
            _ => self.time().map(Time::millis),
        }
    }

    /// Takes the word that is next; of a date without quotes, `2026-01-31T12:00Z`, also its colons and what follows them.
    pub(super) fn word_or_date(&mut self) -> String {
        let at = self.token(0).at;
        let TokenKind::Word(word) = self.peek() else { return String::new() };
        let mut end = at + word.len();
        if begins_with_date(word) {
            let outside = |letter: char| !letter.is_ascii_alphanumeric() && !"-:.".contains(letter);
            end = self.text[at..].find(outside).map_or(self.text.len(), |length| at + length);
        }
        while self.token(0).at < end {
            self.advance();
        }
        self.text[at..end].to_owned()
    }

    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, FilterError> {
        if self.peek() == TokenKind::Parameter {
            return self.parameter(|value| {
                let digits = whole_number(value, what)?;
                digits.parse().map_err(|_| format!("is {digits}, not {what}, a whole number"))
            });
        }
        let TokenKind::Word(word) = self.peek() else { return Err(self.expected(what)) };
        let number =
            word.parse().map_err(|_| self.error(format!("expected {what}, a whole number, found `{word}`")))?;
        self.advance();
        Ok(number)
    }

    /// A fraction from 0 to 1 with up to six decimal places, in millionths.
    pub(super) fn share(&mut self) -> Result<u32, FilterError> {
        let TokenKind::Word(word) = self.peek() else { return Err(self.expected("a share from 0 to 1")) };
        let (whole, rest) = word.split_once('.').unwrap_or((word, ""));
        let digits = rest.len() <= 6 && rest.bytes().all(|byte| byte.is_ascii_digit());
        let millionths = match (whole, format!("{rest:0<6}").parse::<u32>()) {
            ("0", Ok(millionths)) if digits => millionths,
            ("1", Ok(0)) if digits => 1_000_000,
            _ => {
                let what = format!("expected a share from 0 to 1 with up to 6 decimal places, found `{word}`");
                return Err(self.error(what));
            }
        };
        self.advance();
        Ok(millionths)
    }

    pub(super) fn fuzzy_key(&mut self) -> Result<FuzzyKey, FilterError> {
        let TokenKind::Quoted(text) = self.peek() else {
            return Err(self.expected("a key in single quotes, with ? for any byte"));
        };
        let mut places = Vec::new();
        for (index, part) in text.split('?').enumerate() {
            if index > 0 {
                places.push(None);
            }
            let bytes = unescape(part).map_err(|error| self.error(error.what))?;
            places.extend(bytes.into_iter().map(Some));
        }
        let key = FuzzyKey::new(places).map_err(|error| self.error(error.what))?;
        self.advance();
        Ok(key)
    }

    /// `'a'..'b'`; a side that is left out is unbounded, and `..=` includes the end.
    pub(super) fn range(&mut self) -> Result<(Bytes, Bytes), FilterError> {
        let start = match self.peek() {
            TokenKind::Quoted(_) | TokenKind::Parameter => self.string("the start of a range")?,
            _ => Bytes::new(),
        };
        let TokenKind::Dots { inclusive } = self.peek() else { return Err(self.expected("a range like 'a'..'b'")) };
        self.advance();
        let end = match self.peek() {
            TokenKind::Quoted(_) | TokenKind::Parameter => Some(self.string("the end of a range")?),
            _ if inclusive => return Err(self.expected("the end of the range")),
            _ => None,
        };
        Ok((
            start,
            match end {
                Some(end) if inclusive => KeyRange::row(&end).end,
                Some(end) if end.is_empty() => {
                    return Err(self.error("nothing lies before an empty end; leave it out for no bound"));
                }
                Some(end) => end,
                None => Bytes::new(),
            },
        ))
    }

    pub(super) fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Result<T, FilterError>,
    ) -> Result<Vec<T>, FilterError> {
        let first = entry(self)?;
        let mut entries = vec![first];
        while self.peek() == TokenKind::Comma {
            self.advance();
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    /// An optional further argument.
    pub(super) fn optional<T>(
        &mut self,
        argument: impl FnOnce(&mut Self) -> Result<T, FilterError>,
    ) -> Result<Option<T>, FilterError> {
        if self.peek() != TokenKind::Comma {
            return Ok(None);
        }
        self.advance();
        argument(self).map(Some)
    }
}

/// Whether a word has the form of a date, or of a date with the hour after it.
pub(super) fn begins_with_date(word: &str) -> bool {
    let is_digit = |at: usize| word.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_dash = |at: usize| word.as_bytes().get(at) == Some(&b'-');
    [0, 1, 2, 3, 5, 6, 8, 9].into_iter().all(is_digit) && [4, 7].into_iter().all(is_dash)
}

fn number_bytes(read_as: ValueType, word: &str) -> Option<Bytes> {
    fn bytes<const N: usize>(number: [u8; N]) -> Bytes {
        Bytes::copy_from_slice(&number)
    }
    Some(match read_as {
        ValueType::I32 => bytes(word.parse::<i32>().ok()?.to_be_bytes()),
        ValueType::I64 => bytes(word.parse::<i64>().ok()?.to_be_bytes()),
        ValueType::U32 => bytes(word.parse::<u32>().ok()?.to_be_bytes()),
        ValueType::U64 => bytes(word.parse::<u64>().ok()?.to_be_bytes()),
        ValueType::F64 => bytes(word.parse::<f64>().ok()?.to_be_bytes()),
        ValueType::Time | ValueType::Text | ValueType::Bytes => return None,
    })
}
