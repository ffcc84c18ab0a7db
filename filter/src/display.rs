//! A filter as text, which [`FromStr`](std::str::FromStr) parses back into the same filter.

use std::fmt::{self, Display, Formatter};

use terrane_types::{KeyRange, Value, ValueType, escape};

use crate::expression::{BitOperator, ColumnSubject, Filter, KeyPartSubject, Relation, Subject};
use crate::token::is_word;

impl Display for Filter {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::And(parts) => list(f, parts, " and "),
            Self::Or(parts) => list(f, parts, " or "),
            Self::Not(inner) => {
                f.write_str("not ")?;
                enclosed(f, inner)
            }
            Self::Compare { subject, read_as, relation, operand } => {
                typed(f, subject, *read_as)?;
                write!(f, " {relation} ")?;
                operand_of(f, subject, *read_as, operand)
            }
            Self::OneOf { subject, read_as, operands } => {
                typed(f, subject, *read_as)?;
                f.write_str(" in (")?;
                for (at, operand) in operands.iter().enumerate() {
                    f.write_str(if at > 0 { ", " } else { "" })?;
                    operand_of(f, subject, *read_as, operand)?;
                }
                f.write_str(")")
            }
            Self::Prefix { subject, prefix } => write!(f, "prefix({subject}, {})", Quoted(prefix)),
            Self::Contains { subject, part, ignore_case } => {
                write!(f, "{}({subject}, {})", if *ignore_case { "icontains" } else { "contains" }, Quoted(part))
            }
            Self::Matches { subject, pattern } => {
                write!(f, "matches({subject}, {})", Quoted(pattern.as_str().as_bytes()))
            }
            Self::Bits { subject, operator, mask } => write!(f, "bits({subject}, {operator}, {})", Quoted(mask)),
            Self::Exists { family, qualifier } => write!(f, "exists({})", ColumnName(family.as_str(), qualifier)),
            Self::Rows(ranges) => {
                f.write_str("rows(")?;
                separated(f, ranges.iter().map(|KeyRange { start, end }| Range(start, end)))?;
                f.write_str(")")
            }
            Self::Fuzzy(keys) => {
                f.write_str("fuzzy(")?;
                separated(f, keys.iter().map(|key| format!("'{key}'")))?;
                f.write_str(")")
            }
            Self::Qualifiers { start, end } => write!(f, "qualifiers({})", Range(start, end)),
            Self::Timestamps(times) => {
                f.write_str("timestamps(")?;
                separated(f, times)?;
                f.write_str(")")
            }
            Self::Columns { limit, offset: 0 } => write!(f, "columns({limit})"),
            Self::Columns { limit, offset } => write!(f, "columns({limit}, {offset})"),
            Self::FirstKeyOnly => f.write_str("first_key_only()"),
            Self::Random { millionths, seed: 0 } => write!(f, "random({})", Share(*millionths)),
            Self::Random { millionths, seed } => write!(f, "random({}, {seed})", Share(*millionths)),
            Self::Skip(inner) => write!(f, "skip({inner})"),
            Self::Any(inner) => write!(f, "any({inner})"),
            Self::While(inner) => write!(f, "while({inner})"),
            Self::Page(rows) => write!(f, "page({rows})"),
            Self::KeysOnly { lengths: false } => f.write_str("keys_only()"),
            Self::KeysOnly { lengths: true } => f.write_str("keys_only(lengths)"),
        }
    }
}

fn list(f: &mut Formatter<'_>, parts: &[Filter], between: &str) -> fmt::Result {
    match parts {
        [only] => only.fmt(f),
        parts => parts.iter().enumerate().try_for_each(|(at, part)| {
            if at > 0 {
                f.write_str(between)?;
            }
            enclosed(f, part)
        }),
    }
}

/// A part of a larger expression; a nested `and` or `or` gets parentheses.
fn enclosed(f: &mut Formatter<'_>, part: &Filter) -> fmt::Result {
    match part {
        Filter::And(parts) | Filter::Or(parts) if parts.len() == 1 => enclosed(f, &parts[0]),
        Filter::And(_) | Filter::Or(_) => write!(f, "({part})"),
        other => other.fmt(f),
    }
}

fn separated(f: &mut Formatter<'_>, entries: impl IntoIterator<Item = impl Display>) -> fmt::Result {
    entries.into_iter().enumerate().try_for_each(|(at, entry)| {
        if at > 0 {
            f.write_str(", ")?;
        }
        entry.fmt(f)
    })
}

/// A subject with the type it is read as; the default, bytes, is omitted.
fn typed(f: &mut Formatter<'_>, subject: &Subject, read_as: ValueType) -> fmt::Result {
    match subject {
        Subject::Column(column) => of_column(f, column, read_as),
        other if read_as == ValueType::Bytes => other.fmt(f),
        other => write!(f, "{read_as}({other})"),
    }
}

/// What a subject is compared with. That of a part of the key is its text already.
fn operand_of(f: &mut Formatter<'_>, subject: &Subject, read_as: ValueType, operand: &[u8]) -> fmt::Result {
    match (subject, std::str::from_utf8(operand)) {
        (Subject::KeyPart(_), Ok(text)) if is_word(operand) => f.write_str(text),
        (Subject::KeyPart(_), Ok(text)) => write!(f, "'{}'", text.replace('\'', "\\x27")),
        _ => Literal(read_as, operand).fmt(f),
    }
}

fn of_column(f: &mut Formatter<'_>, column: &ColumnSubject, read_as: ValueType) -> fmt::Result {
    let ColumnSubject { family, qualifier, pass_missing, any_version } = column;
    let name = ColumnName(family.as_str(), qualifier);
    if read_as == ValueType::Bytes && !pass_missing && !any_version {
        return name.fmt(f);
    }
    write!(f, "{read_as}({name}")?;
    if *pass_missing {
        f.write_str(", pass_missing")?;
    }
    if *any_version {
        f.write_str(", any_version")?;
    }
    f.write_str(")")
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row => f.write_str("row"),
            Self::Family => f.write_str("family"),
            Self::Qualifier => f.write_str("qualifier"),
            Self::Value => f.write_str("value"),
            Self::Column(column) => of_column(f, column, ValueType::Bytes),
            Self::KeyPart(KeyPartSubject { name, key: None }) => write!(f, "key({name})"),
            Self::KeyPart(KeyPartSubject { name, key: Some(key) }) => write!(f, "key('{key}', {name})"),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl Display for BitOperator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        })
    }
}

struct Quoted<'a>(&'a [u8]);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "'{}'", escape(self.0).replace('\'', "\\x27"))
    }
}

struct ColumnName<'a>(&'a str, &'a [u8]);

impl Display for ColumnName<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let part = |f: &mut Formatter<'_>, name: &[u8]| match std::str::from_utf8(name) {
            Ok(word) if is_word(name) => f.write_str(word),
            _ => Quoted(name).fmt(f),
        };
        part(f, self.0.as_bytes())?;
        f.write_str(":")?;
        part(f, self.1)
    }
}

struct Range<'a>(&'a [u8], &'a [u8]);

impl Display for Range<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if !self.0.is_empty() {
            Quoted(self.0).fmt(f)?;
        }
        f.write_str("..")?;
        if self.1.is_empty() { Ok(()) } else { Quoted(self.1).fmt(f) }
    }
}

struct Literal<'a>(ValueType, &'a [u8]);

impl Display for Literal<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.read(self.1) {
            Ok(Value::Integer(_)) if self.0 == ValueType::Time => {
                write!(f, "'{}'", self.0.text(self.1).unwrap_or_default())
            }
            Ok(Value::Integer(number)) => number.fmt(f),
            // Debug format: it writes an exponent where one is shorter, and parses back into the same number.
            Ok(Value::Float(number)) => fmt::Debug::fmt(&number, f),
            Ok(Value::Text(_) | Value::Bytes(_)) => Quoted(self.1).fmt(f),
            // Not a value of its type, which check() refuses. It is still shown, because errors show filters.
            Err(_) => Quoted(self.1).fmt(f),
        }
    }
}

/// Millionths as a fraction of one.
struct Share(u32);

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        if rest == 0 {
            return whole.fmt(f);
        }
        let digits = format!("{rest:06}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}
