//! A recursive-descent parser for a filter's text: `or`, then `and`, then `not`, then tests.
//!
//! An error shows the place and what was expected there, and suggests a name for a misspelled one. Nesting is counted
//! before it is entered, so that hostile text cannot overflow the stack.

use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use terrane_types::{CellValue, FamilyName, KeyDeclaration, KeyRange, TableSchema, Time, ValueType};

use crate::error::FilterError;
use crate::expression::{BitOperator, ColumnSubject, Filter, KeyPartSubject, Subject};
use crate::key_part;
use crate::limits::{DEPTH_MAX, TEXT_BYTES_MAX};
use crate::misspelling::{unknown_name, unknown_subject};
use crate::pattern::Pattern;

use crate::token::{Token, TokenKind, syntax, tokens};

mod sql;
mod values;

use values::begins_with_date;

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
/// Begins a test of a part of the key: `key(user)`.
const KEY: &str = "key";

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        parse(text, &[], Declared::Nothing, None).map(|parsed| parsed.filter)
    }
}

/// What is known of the table: the types of its columns and the parts of its key.
#[derive(Clone, Copy)]
pub(crate) enum Declared<'a> {
    /// The text says everything: it travels, or there is no table.
    Nothing,
    /// The table is not known yet: what depends on it is checked later.
    Later,
    /// The table.
    By(&'a TableSchema),
}

/// A filter, and whether it depends on the table.
pub(crate) struct Parsed {
    pub(crate) filter: Filter,
    /// Whether the filter compares columns or key parts whose types the table may declare. Operands of such columns are missing
    /// in the filter if it was parsed before the table was known.
    pub(crate) depends_on_table: bool,
}

/// Parses a text whose parameters have these values; `now` is what its relative times count from.
pub(crate) fn parse(
    text: &str,
    values: &[CellValue<'_>],
    declared: Declared<'_>,
    now: Option<Time>,
) -> Result<Parsed, FilterError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(FilterError::TooLong { bytes: text.len(), limit: TEXT_BYTES_MAX });
    }
    let tokens = tokens(text)?;
    let mut parser =
        Parser { text, tokens, next: 0, nesting: 0, values, parameters: 0, declared, now, depends_on_table: false };
    let filter = parser.expression()?;
    if parser.peek() != TokenKind::End {
        return Err(parser.expected("`and`, `or` or the end"));
    }
    let parameters = parser.parameters;
    if parameters < values.len() {
        let what = format!("has a value and no `?`: the text has {parameters}");
        return Err(parser.wrong_parameter(parameters + 1, text.len(), what));
    }
    filter.check()?;
    Ok(Parsed { filter, depends_on_table: parser.depends_on_table })
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
    /// The values of the parameters.
    values: &'a [CellValue<'a>],
    /// How many parameters were met.
    parameters: usize,
    declared: Declared<'a>,
    now: Option<Time>,
    depends_on_table: bool,
}

/// A subject and the type it is read as.
struct Typed {
    subject: Subject,
    read_as: ValueType,
    /// Whether the text says the type.
    is_written: bool,
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

    /// Takes the word, in letters of any case, if it is next and does not name a family.
    fn takes_word(&mut self, word: &str) -> bool {
        let is_next = matches!(self.peek(), TokenKind::Word(next) if next.eq_ignore_ascii_case(word));
        let found = is_next && self.token(1).kind != TokenKind::Colon;
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
        let mut parts = self.unary()?;
        while self.takes_word("and") {
            parts.extend(self.unary()?);
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

    /// What stands between two `and`, as operands of an `and`: a test in SQL's words may be several.
    fn unary(&mut self) -> Result<Vec<Filter>, FilterError> {
        if self.takes_word("not") {
            let inner = one_or(self.nested(Self::unary)?, Filter::And);
            return Ok(vec![Filter::Not(Box::new(inner))]);
        }
        if self.peek() == TokenKind::Open {
            return Ok(vec![self.enclosed()?]);
        }
        match (self.peek(), self.token(1).kind) {
            (TokenKind::Word(_) | TokenKind::Quoted(_), TokenKind::Colon) => self.comparison(),
            (TokenKind::Word(word), TokenKind::Open) if word != KEY && ValueType::parse(word).is_err() => {
                Ok(vec![self.test(word)?])
            }
            (TokenKind::Word(_), _) => self.comparison(),
            _ => Err(self.expected("a test, like i32(data:airtemp) > 100 or prefix(row, 'a')")),
        }
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

    fn test(&mut self, word: &str) -> Result<Filter, FilterError> {
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
            "timestamps" => Filter::Timestamps(self.list(Self::timestamp)?),
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
        let known = [("and", BitOperator::And), ("or", BitOperator::Or), ("xor", BitOperator::Xor)];
        let Some((_, operator)) = known.into_iter().find(|(word, _)| self.takes_word(word)) else {
            return Err(self.expected("`and`, `or` or `xor`"));
        };
        self.take(TokenKind::Comma)?;
        Ok(Filter::Bits { subject, operator, mask: self.string("the mask, a string in single quotes")? })
    }

    fn exists(&mut self) -> Result<Filter, FilterError> {
        let (family, qualifier) = self.column()?;
        Ok(Filter::Exists { family, qualifier })
    }

    fn comparison(&mut self) -> Result<Vec<Filter>, FilterError> {
        let Typed { subject, read_as, is_written } = self.subject()?;
        let read_as = if is_written { Some(read_as) } else { self.declared_type(&subject) };
        if let Some(tests) = self.in_words(&subject, read_as)? {
            return Ok(tests);
        }
        let TokenKind::Relation(relation) = self.peek() else {
            return Err(self.expected("one of = != < <= > >= in like between is"));
        };
        self.advance();
        self.refuse_null()?;
        let operand = self.compared_with(&subject, read_as)?;
        Ok(vec![Filter::Compare { subject, read_as: read_as.unwrap_or(ValueType::Bytes), relation, operand }])
    }

    /// A value that the subject is compared with, read as this type.
    fn compared_with(&mut self, subject: &Subject, read_as: Option<ValueType>) -> Result<Bytes, FilterError> {
        match read_as {
            Some(read_as) => self.operand(subject, read_as),
            None => self.operand_of_unknown_type(),
        }
    }

    /// How a subject is compared whose type the text does not say; `None`: that depends on a table that is not known yet.
    fn declared_type(&mut self, subject: &Subject) -> Option<ValueType> {
        let Subject::Column(column) = subject else { return Some(ValueType::Bytes) };
        self.depends_on_table = true;
        match self.declared {
            Declared::Nothing => Some(ValueType::Bytes),
            Declared::Later => None,
            Declared::By(schema) => {
                let declared = schema.value_type(column.family.as_bytes(), &column.qualifier);
                // Text sorts as its bytes do, and bytes that are no text can be compared too.
                Some(declared.filter(|declared| declared.is_number()).unwrap_or(ValueType::Bytes))
            }
        }
    }

    /// Passes over a value that is read once the table is known.
    fn operand_of_unknown_type(&mut self) -> Result<Bytes, FilterError> {
        match self.peek() {
            TokenKind::Parameter => return self.parameter(|_| Ok(Bytes::new())),
            TokenKind::Word(word) if word.parse::<f64>().is_ok() => {}
            TokenKind::Word(word) if begins_with_date(word) || Time::is_relative(word) => {
                self.word_or_date();
                return Ok(Bytes::new());
            }
            TokenKind::Quoted(_) => drop(self.unescaped()?),
            _ => return Err(self.expected("a number, or a string in single quotes")),
        }
        self.advance();
        Ok(Bytes::new())
    }

    /// A subject that is tested as raw bytes.
    fn untyped_subject(&mut self) -> Result<Subject, FilterError> {
        let begin = self.next;
        let Typed { subject, read_as, .. } = self.subject()?;
        if let Subject::KeyPart(_) = subject {
            self.next = begin;
            return Err(self.error(format!("{}; for bytes, test the row", key_part::RELATIONS)));
        }
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
        if found == (TokenKind::Word(KEY), TokenKind::Open) {
            return Ok(Typed { subject: self.key_part()?, read_as: ValueType::Bytes, is_written: true });
        }
        if let (TokenKind::Word(name), TokenKind::Open) = found {
            let Ok(read_as) = ValueType::parse(name) else {
                return Err(self.error(unknown_name("type", name, ValueType::ALL.map(ValueType::name))));
            };
            self.advance();
            self.advance();
            if (self.peek(), self.token(1).kind) == (TokenKind::Word(KEY), TokenKind::Open) {
                return Err(self.error("a part of the key has the type that the table declares; write key(…) alone"));
            }
            let mut subject = self.plain_subject()?;
            while self.peek() == TokenKind::Comma {
                self.advance();
                self.option(&mut subject)?;
            }
            self.take(TokenKind::Close)?;
            return Ok(Typed { subject, read_as, is_written: true });
        }
        Ok(Typed { subject: self.plain_subject()?, read_as: ValueType::Bytes, is_written: false })
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
            (TokenKind::Word(name), _) => match self.declared {
                // The table may have a name like it, which the error then says.
                Declared::Later if name.parse::<f64>().is_err() => {
                    self.depends_on_table = true;
                    let family = FamilyName::new(name).map_err(|error| self.error(error.what))?;
                    let qualifier = Bytes::new();
                    Subject::Column(ColumnSubject { family, qualifier, pass_missing: false, any_version: false })
                }
                Declared::Nothing | Declared::Later => return Err(self.error(unknown_subject(name, None))),
                Declared::By(schema) => return Err(self.error(unknown_subject(name, Some(schema)))),
            },
            _ => return Err(self.expected("row, key(part), family, qualifier, value or a column like data:airtemp")),
        };
        self.advance();
        Ok(subject)
    }

    /// `key(user)`, or with the table's key, as clients send it: `key('user:u64, time:desc i64', user)`.
    fn key_part(&mut self) -> Result<Subject, FilterError> {
        self.advance();
        self.take(TokenKind::Open)?;
        let key = if matches!(self.peek(), TokenKind::Quoted(_)) {
            let text = String::from_utf8_lossy(&self.unescaped()?).into_owned();
            let key = KeyDeclaration::parse(&text).map_err(|error| self.error(error.what))?;
            self.advance();
            self.take(TokenKind::Comma)?;
            Some(Arc::new(key))
        } else {
            self.depends_on_table = true;
            match self.declared {
                Declared::Nothing | Declared::Later => None,
                Declared::By(schema) => schema.key.clone().map(Arc::new),
            }
        };
        let TokenKind::Word(name) = self.peek() else { return Err(self.expected("the name of a part of the key")) };
        if key.is_none() && matches!(self.declared, Declared::By(_)) {
            return Err(self.error(key_part::no_key(name)));
        }
        if let Some(Err(error)) = key.as_ref().map(|key| key.place_of(name)) {
            return Err(self.error(error.what));
        }
        self.advance();
        self.take(TokenKind::Close)?;
        Ok(Subject::KeyPart(KeyPartSubject { name: name.to_owned(), key }))
    }

    /// What a subject is compared with.
    fn operand(&mut self, subject: &Subject, read_as: ValueType) -> Result<Bytes, FilterError> {
        let Subject::KeyPart(part) = subject else { return self.literal(read_as) };
        let at = self.token(0).at;
        let mut text = match self.peek() {
            TokenKind::Parameter => self.parameter(key_part::bound)?,
            TokenKind::Word(_) => self.word_or_date(),
            TokenKind::Quoted(text) => {
                self.unescaped()?;
                self.advance();
                text.to_owned()
            }
            _ => return Err(self.expected("a value of this part of the key")),
        };
        if part.is_time() && Time::is_relative(&text) {
            // The filter means the same time on every server and at every retry.
            text = self.time_of(&text).map_err(|error| syntax(self.text, at, error.what))?.millis().to_string();
        }
        part.encode(&text).map_err(|error| syntax(self.text, at, error.what))?;
        Ok(text.into())
    }

    fn column(&mut self) -> Result<(FamilyName, Bytes), FilterError> {
        let family = match self.peek() {
            TokenKind::Word(name) => FamilyName::new(name),
            TokenKind::Quoted(_) => FamilyName::try_from(&self.unescaped()?[..]),
            _ => return Err(self.expected("a column like data:airtemp")),
        };
        let family = family.map_err(|error| self.error(error.what))?;
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
