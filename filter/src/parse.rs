//! A recursive-descent parser for a filter's text: `or`, then `and`, then `not`, then tests.
//!
//! An error shows the place and what was expected there, and suggests a name for a misspelled one. Nesting is counted
//! before it is entered, so that hostile text cannot overflow the stack.

use std::str::FromStr;

use bytes::Bytes;

use terrane_types::{FamilyName, KeyRange, ValueType, unescape};

use crate::error::FilterError;
use crate::expression::{BitOperator, ColumnSubject, Filter, Subject};
use crate::fuzzy_key::FuzzyKey;
use crate::limits::{DEPTH_MAX, TEXT_BYTES_MAX};
use crate::pattern::Pattern;
use crate::token::{Token, TokenKind, syntax, tokens};

/// Parentheses count as nesting here, and each list may have a pair.
const NESTING_MAX: usize = 2 * DEPTH_MAX;

/// Every name that is followed by a parenthesis, except types.
const FUNCTIONS: [&str; 20] = [
    "prefix",
    "contains",
    "icontains",
    "matches",
    "bits",
    "exists",
    "absent",
    "rows",
    "fuzzy",
    "qualifiers",
    "timestamps",
    "columns",
    "first_key_only",
    "random",
    "skip",
    "any",
    "while",
    "page",
    "keys_only",
    "not",
];
const SUBJECTS: [&str; 4] = ["row", "family", "qualifier", "value"];

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(FilterError::TooLong { bytes: text.len(), limit: TEXT_BYTES_MAX });
        }
        let mut parser = Parser { text, tokens: tokens(text)?, next: 0, nesting: 0 };
        let filter = parser.expression()?;
        if parser.peek() != TokenKind::End {
            return Err(parser.expected("`and`, `or` or the end"));
        }
        filter.check()?;
        Ok(filter)
    }
}

impl Filter {
    /// Parses a filter, as [`FromStr`] does.
    ///
    /// # Errors
    /// [`FilterError`] that shows the place.
    pub fn from_text(text: &str) -> Result<Self, FilterError> {
        text.parse()
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    next: usize,
    nesting: usize,
}

/// A subject and the type it is read as.
struct Typed {
    subject: Subject,
    read_as: ValueType,
}

impl<'a> Parser<'a> {
    fn token(&self, ahead: usize) -> Token<'a> {
        let last = self.tokens.len() - 1;
        self.tokens[(self.next + ahead).min(last)]
    }

    fn peek(&self) -> TokenKind<'a> {
        self.token(0).kind
    }

    fn advance(&mut self) {
        self.next += 1;
    }

    fn error(&self, what: impl Into<String>) -> FilterError {
        syntax(self.text, self.token(0).at, what)
    }

    fn expected(&self, what: &str) -> FilterError {
        self.error(format!("expected {what}, found {}", self.peek().shown()))
    }

    fn take(&mut self, kind: TokenKind<'_>) -> Result<(), FilterError> {
        if self.peek() != kind {
            return Err(self.expected(&kind.shown()));
        }
        self.advance();
        Ok(())
    }

    /// Takes the word if it is next and does not name a family.
    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.peek() == TokenKind::Word(word) && self.token(1).kind != TokenKind::Colon;
        if found {
            self.advance();
        }
        found
    }

    fn expression(&mut self) -> Result<Filter, FilterError> {
        let first = self.conjunction()?;
        let mut parts = vec![first];
        while self.takes_word("or") {
            parts.push(self.conjunction()?);
        }
        Ok(one_or(parts, Filter::Or))
    }

    fn conjunction(&mut self) -> Result<Filter, FilterError> {
        let first = self.unary()?;
        let mut parts = vec![first];
        while self.takes_word("and") {
            parts.push(self.unary()?);
        }
        Ok(one_or(parts, Filter::And))
    }

    /// Parses one level deeper. After an error the level is not restored, because parsing ends.
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Result<T, FilterError>) -> Result<T, FilterError> {
        self.nesting += 1;
        if self.nesting > NESTING_MAX {
            return Err(FilterError::TooDeep { depth: self.nesting, limit: DEPTH_MAX });
        }
        let result = inner(self)?;
        self.nesting -= 1;
        Ok(result)
    }

    fn unary(&mut self) -> Result<Filter, FilterError> {
        if self.takes_word("not") {
            return Ok(Filter::Not(Box::new(self.nested(Self::unary)?)));
        }
        if self.peek() == TokenKind::Open {
            return self.enclosed();
        }
        self.test()
    }

    fn enclosed(&mut self) -> Result<Filter, FilterError> {
        self.take(TokenKind::Open)?;
        let inner = self.nested(Self::expression)?;
        if self.peek() != TokenKind::Close {
            return Err(self.expected("`and`, `or` or `)`"));
        }
        self.advance();
        Ok(inner)
    }

    fn test(&mut self) -> Result<Filter, FilterError> {
        let word = match (self.peek(), self.token(1).kind) {
            (TokenKind::Word(_) | TokenKind::Quoted(_), TokenKind::Colon) => return self.comparison(),
            (TokenKind::Word(word), TokenKind::Open) if ValueType::parse(word).is_err() => word,
            (TokenKind::Word(_), _) => return self.comparison(),
            _ => return Err(self.expected("a test, like i32(data:airtemp) > 100 or prefix(row, 'a')")),
        };
        let begin = self.next;
        self.advance();
        self.take(TokenKind::Open)?;
        let filter = match word {
            "prefix" => self.of_subject(|_, subject, prefix| Ok(Filter::Prefix { subject, prefix }))?,
            "contains" => {
                self.of_subject(|_, subject, part| Ok(Filter::Contains { subject, part, ignore_case: false }))?
            }
            "icontains" => {
                self.of_subject(|_, subject, part| Ok(Filter::Contains { subject, part, ignore_case: true }))?
            }
            "matches" => self.of_subject(|parser, subject, text| parser.pattern(subject, &text))?,
            "bits" => self.bits()?,
            "exists" => self.exists()?,
            "absent" => Filter::Not(Box::new(self.exists()?)),
            "rows" => Filter::Rows(self.list(|parser| {
                let (start, end) = parser.range()?;
                Ok(KeyRange { start, end })
            })?),
            "fuzzy" => Filter::Fuzzy(self.list(Self::fuzzy_key)?),
            "qualifiers" => {
                let (start, end) = self.range()?;
                Filter::Qualifiers { start, end }
            }
            "timestamps" => Filter::Timestamps(self.list(|parser| parser.number("a timestamp"))?),
            "columns" => {
                let limit = self.number("how many columns")?;
                Filter::Columns { limit, offset: self.optional(|parser| parser.number("an offset"))?.unwrap_or(0) }
            }
            "first_key_only" => Filter::FirstKeyOnly,
            "random" => {
                let millionths = self.share()?;
                Filter::Random { millionths, seed: self.optional(|parser| parser.number("a seed"))?.unwrap_or(0) }
            }
            "skip" => Filter::Skip(Box::new(self.nested(Self::expression)?)),
            "any" => Filter::Any(Box::new(self.nested(Self::expression)?)),
            "while" => Filter::While(Box::new(self.nested(Self::expression)?)),
            "page" => Filter::Page(self.number("how many rows")?),
            "keys_only" => Filter::KeysOnly { lengths: self.takes_word("lengths") },
            unknown => {
                self.next = begin;
                let known = FUNCTIONS.iter().copied().chain(ValueType::ALL.map(ValueType::name));
                return Err(self.error(unknown_name("test", unknown, known)));
            }
        };
        if self.peek() != TokenKind::Close {
            return Err(self.expected("`)`"));
        }
        self.advance();
        Ok(filter)
    }

    /// The arguments of a test of a subject's bytes: `subject, 'bytes'`.
    fn of_subject(
        &mut self,
        make: impl FnOnce(&Self, Subject, Bytes) -> Result<Filter, FilterError>,
    ) -> Result<Filter, FilterError> {
        let subject = self.untyped_subject()?;
        self.take(TokenKind::Comma)?;
        let bytes = self.string("a string in single quotes")?;
        make(self, subject, bytes)
    }

    fn pattern(&self, subject: Subject, text: &Bytes) -> Result<Filter, FilterError> {
        // The token just taken is the string.
        let at = self.tokens[self.next - 1].at;
        let text = std::str::from_utf8(text)
            .map_err(|_| syntax(self.text, at, "a regular expression is UTF-8; write (?-u:\\\\xFF) for any byte"))?;
        let pattern = Pattern::new(text).map_err(|error| syntax(self.text, at, error.to_string()))?;
        Ok(Filter::Matches { subject, pattern })
    }

    fn bits(&mut self) -> Result<Filter, FilterError> {
        let subject = self.untyped_subject()?;
        self.take(TokenKind::Comma)?;
        let operator = match self.peek() {
            TokenKind::Word("and") => BitOperator::And,
            TokenKind::Word("or") => BitOperator::Or,
            TokenKind::Word("xor") => BitOperator::Xor,
            _ => return Err(self.expected("`and`, `or` or `xor`")),
        };
        self.advance();
        self.take(TokenKind::Comma)?;
        Ok(Filter::Bits { subject, operator, mask: self.string("the mask, a string in single quotes")? })
    }

    fn exists(&mut self) -> Result<Filter, FilterError> {
        let (family, qualifier) = self.column()?;
        Ok(Filter::Exists { family, qualifier })
    }

    fn comparison(&mut self) -> Result<Filter, FilterError> {
        let Typed { subject, read_as } = self.subject()?;
        if self.takes_word("in") {
            self.take(TokenKind::Open)?;
            let operands = self.list(|parser| parser.literal(read_as))?;
            self.take(TokenKind::Close)?;
            return Ok(Filter::OneOf { subject, read_as, operands });
        }
        let TokenKind::Relation(relation) = self.peek() else {
            return Err(self.expected("one of = != < <= > >= in"));
        };
        self.advance();
        Ok(Filter::Compare { subject, read_as, relation, operand: self.literal(read_as)? })
    }

    /// A subject that is tested as raw bytes.
    fn untyped_subject(&mut self) -> Result<Subject, FilterError> {
        let begin = self.next;
        let Typed { subject, read_as } = self.subject()?;
        if read_as.is_number() {
            self.next = begin;
            return Err(
                self.error(format!("this test looks at bytes, not at {read_as} numbers; compare those with = or <"))
            );
        }
        Ok(subject)
    }

    fn subject(&mut self) -> Result<Typed, FilterError> {
        let found = (self.peek(), self.token(1).kind);
        if let (TokenKind::Word(name), TokenKind::Open) = found {
            let Ok(read_as) = ValueType::parse(name) else {
                return Err(self.error(unknown_name("type", name, ValueType::ALL.map(ValueType::name))));
            };
            self.advance();
            self.advance();
            let mut subject = self.plain_subject()?;
            while self.peek() == TokenKind::Comma {
                self.advance();
                self.option(&mut subject)?;
            }
            self.take(TokenKind::Close)?;
            return Ok(Typed { subject, read_as });
        }
        Ok(Typed { subject: self.plain_subject()?, read_as: ValueType::Bytes })
    }

    fn option(&mut self, subject: &mut Subject) -> Result<(), FilterError> {
        let TokenKind::Word(name) = self.peek() else {
            return Err(self.expected("`pass_missing` or `any_version`"));
        };
        let Subject::Column(column) = subject else {
            return Err(self.error(format!("`{name}` is for columns tested by name, like data:airtemp")));
        };
        match name {
            "pass_missing" => column.pass_missing = true,
            "any_version" => column.any_version = true,
            _ => return Err(self.error(unknown_name("option", name, ["pass_missing", "any_version"]))),
        }
        self.advance();
        Ok(())
    }

    fn plain_subject(&mut self) -> Result<Subject, FilterError> {
        let subject = match (self.peek(), self.token(1).kind) {
            (TokenKind::Word(_) | TokenKind::Quoted(_), TokenKind::Colon) => {
                let (family, qualifier) = self.column()?;
                let column = ColumnSubject { family, qualifier, pass_missing: false, any_version: false };
                return Ok(Subject::Column(column));
            }
            (TokenKind::Word("row"), _) => Subject::Row,
            (TokenKind::Word("family"), _) => Subject::Family,
            (TokenKind::Word("qualifier"), _) => Subject::Qualifier,
            (TokenKind::Word("value"), _) => Subject::Value,
            (TokenKind::Word(name), _) => {
                let hint = "tests are of row, family, qualifier, value, or a column like data:airtemp";
                return Err(self.error(format!("{} ({hint})", unknown_name("subject", name, SUBJECTS))));
            }
            _ => return Err(self.expected("row, family, qualifier, value or a column like data:airtemp")),
        };
        self.advance();
        Ok(subject)
    }

    fn column(&mut self) -> Result<(FamilyName, Bytes), FilterError> {
        let family = match self.peek() {
            TokenKind::Word(name) => name.to_owned(),
            TokenKind::Quoted(_) => String::from_utf8_lossy(&self.unescaped()?).into_owned(),
            _ => return Err(self.expected("a column like data:airtemp")),
        };
        let family = FamilyName::new(&family).map_err(|error| self.error(error.what))?;
        self.advance();
        if self.peek() != TokenKind::Colon {
            return Err(self.expected("`:` and a qualifier"));
        }
        self.advance();
        let qualifier = match self.peek() {
            TokenKind::Word(name) => Bytes::copy_from_slice(name.as_bytes()),
            TokenKind::Quoted(_) => self.unescaped()?,
            _ => return Err(self.expected("a qualifier; in single quotes where it is more than letters and digits")),
        };
        self.advance();
        Ok((family, qualifier))
    }

    /// The bytes of the quoted string that is next.
    fn unescaped(&self) -> Result<Bytes, FilterError> {
        let TokenKind::Quoted(text) = self.peek() else { return Err(self.expected("a string in single quotes")) };
        unescape(text).map(Bytes::from).map_err(|error| self.error(error.what))
    }

    fn string(&mut self, what: &str) -> Result<Bytes, FilterError> {
        if !matches!(self.peek(), TokenKind::Quoted(_)) {
            return Err(self.expected(what));
        }
        let bytes = self.unescaped()?;
        self.advance();
        Ok(bytes)
    }

    /// A value of the type.
    fn literal(&mut self, read_as: ValueType) -> Result<Bytes, FilterError> {
        let (at, word) = match self.peek() {
            TokenKind::Word(word) if read_as.is_number() => (self.token(0).at, word),
            _ if read_as.is_number() => return Err(self.expected(&format!("a number of type {read_as}"))),
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
                    "a number is compared with a number: say how to read the other side, like i32(…) or f64(…); or quote it: '{word}'"
                )));
            }
            _ => return self.string("a string in single quotes"),
        };
        let bytes = number_bytes(read_as, word)
            .ok_or_else(|| syntax(self.text, at, format!("`{word}` is no number of type {read_as}")))?;
        self.advance();
        Ok(bytes)
    }

    fn number<T: FromStr>(&mut self, what: &str) -> Result<T, FilterError> {
        let TokenKind::Word(word) = self.peek() else { return Err(self.expected(what)) };
        let number =
            word.parse().map_err(|_| self.error(format!("expected {what}, a whole number, found `{word}`")))?;
        self.advance();
        Ok(number)
    }

    /// A fraction from 0 to 1 with up to six decimal places, in millionths.
    fn share(&mut self) -> Result<u32, FilterError> {
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

    fn fuzzy_key(&mut self) -> Result<FuzzyKey, FilterError> {
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
    fn range(&mut self) -> Result<(Bytes, Bytes), FilterError> {
        let start = match self.peek() {
            TokenKind::Quoted(_) => self.string("the start of a range")?,
            _ => Bytes::new(),
        };
        let TokenKind::Dots { inclusive } = self.peek() else { return Err(self.expected("a range like 'a'..'b'")) };
        self.advance();
        let end = match self.peek() {
            TokenKind::Quoted(_) => Some(self.string("the end of a range")?),
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

    fn list<T>(&mut self, mut entry: impl FnMut(&mut Self) -> Result<T, FilterError>) -> Result<Vec<T>, FilterError> {
        let first = entry(self)?;
        let mut entries = vec![first];
        while self.peek() == TokenKind::Comma {
            self.advance();
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    /// An optional further argument.
    fn optional<T>(
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

fn one_or(mut parts: Vec<Filter>, list: impl FnOnce(Vec<Filter>) -> Filter) -> Filter {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            list(parts)
        }
        None => list(parts),
    }
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
        ValueType::Text | ValueType::Bytes => return None,
    })
}

/// Reports an unknown name and suggests a similar one.
fn unknown_name<'n>(kind: &str, name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let lower = name.to_lowercase();
    let nearest = known.into_iter().map(|known| (distance(&lower, known), known)).min();
    match nearest {
        Some((away, meant)) if away <= meant.len().div_ceil(3) => {
            format!("there is no {kind} `{name}`; did you mean `{meant}`?")
        }
        _ => format!("there is no {kind} `{name}`"),
    }
}

/// The Levenshtein distance of two words; the same letters in another order count as one edit.
fn distance(left: &str, right: &str) -> usize {
    let sorted = |word: &str| {
        let mut letters = word.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    if left != right && left.len() == right.len() && sorted(left) == sorted(right) {
        return 1;
    }
    // Names are short; a much longer word is not similar to any.
    if left.len() > 32 {
        return left.len();
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}
