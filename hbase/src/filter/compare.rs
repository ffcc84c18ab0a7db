//! Comparators: how a filter compares what is stored with what it was given.
//!
//! A comparator answers how the given value compares with the stored one. Some only know equal and not equal: they answer
//! [`Ordering::Equal`] for a match and [`Ordering::Greater`] otherwise, and filters apply operators to that as HBase does.

use std::cmp::Ordering;

use bytes::Bytes;
use terrane_types::{Columns, Invalid, QualifierRange};

use super::decimal::Decimal;
use super::pattern::Pattern;
use crate::proto::CompareType;

/// A comparison, as a filter applies it to what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    GreaterOrEqual,
    Greater,
    /// Nothing passes.
    Nothing,
}

impl Operator {
    pub const fn of(compare: CompareType) -> Self {
        match compare {
            CompareType::Less => Self::Less,
            CompareType::LessOrEqual => Self::LessOrEqual,
            CompareType::Equal => Self::Equal,
            CompareType::NotEqual => Self::NotEqual,
            CompareType::GreaterOrEqual => Self::GreaterOrEqual,
            CompareType::Greater => Self::Greater,
            CompareType::NoOp => Self::Nothing,
        }
    }

    /// Whether a stored value passes, if the given one compares with it like this.
    const fn passes(self, given: Ordering) -> bool {
        match self {
            Self::Less => given.is_gt(),
            Self::LessOrEqual => given.is_ge(),
            Self::Equal => given.is_eq(),
            Self::NotEqual => given.is_ne(),
            Self::GreaterOrEqual => given.is_le(),
            Self::Greater => given.is_lt(),
            Self::Nothing => false,
        }
    }
}

/// How the bits of two values are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bitwise {
    And,
    Or,
    Xor,
}

#[derive(Clone)]
pub(super) enum Comparator {
    Binary(Bytes),
    BinaryPrefix(Bytes),
    /// The given value with the stored one from an offset on.
    Component(Bytes, usize),
    /// Equal if joining the bits leaves one.
    Bit(Bytes, Bitwise),
    Long(i64),
    Decimal(Decimal),
    /// No stored value equals it: what has no value is not stored.
    Null,
    /// Equal if it contains this text, which is in lower case.
    Substring(String),
    Pattern(Pattern),
}

impl Comparator {
    /// How the given value compares with a stored one.
    pub fn compare(&self, stored: &[u8]) -> Result<Ordering, Invalid> {
        let matched = |matched: bool| if matched { Ordering::Equal } else { Ordering::Greater };
        Ok(match self {
            Self::Binary(given) => given[..].cmp(stored),
            Self::BinaryPrefix(given) => given[..].cmp(&stored[..stored.len().min(given.len())]),
            Self::Component(given, offset) => {
                let rest = stored.get(*offset..).unwrap_or_default();
                given[..].cmp(&rest[..rest.len().min(given.len())])
            }
            Self::Bit(given, bitwise) => {
                let mut pairs = given.iter().zip(stored);
                matched(given.len() == stored.len() && pairs.any(|(given, stored)| bitwise.join(*given, *stored) != 0))
            }
            Self::Long(given) => given.cmp(&i64::from_be_bytes(<[u8; 8]>::try_from(stored).map_err(|_| {
                Invalid::new(format!("a LongComparator met a value of {} bytes; numbers have 8", stored.len()))
            })?)),
            Self::Decimal(given) => given.compare(&Decimal::read(stored)?),
            Self::Null => Ordering::Greater,
            Self::Substring(given) => matched(String::from_utf8_lossy(stored).to_lowercase().contains(given)),
            Self::Pattern(pattern) => matched(pattern.is_match(stored)?),
        })
    }
}

impl Bitwise {
    const fn join(self, given: u8, stored: u8) -> u8 {
        match self {
            Self::And => given & stored,
            Self::Or => given | stored,
            Self::Xor => given ^ stored,
        }
    }
}

/// An operator and what it compares with.
#[derive(Clone)]
pub(super) struct Test {
    pub operator: Operator,
    /// Present unless nothing passes.
    pub comparator: Option<Comparator>,
}

impl Test {
    /// Whether there are stored values that it cannot compare.
    pub const fn may_fail(&self) -> bool {
        matches!(self.comparator, Some(Comparator::Long(_) | Comparator::Decimal(_) | Comparator::Pattern(_)))
    }

    /// The qualifiers that can pass.
    pub fn passing_qualifiers(&self) -> Columns {
        let (start, end) = match &self.comparator {
            Some(Comparator::Binary(given)) => {
                let QualifierRange { start, end } = QualifierRange::qualifier(given);
                (start, end)
            }
            Some(Comparator::BinaryPrefix(given)) if self.operator == Operator::Equal => {
                return Columns::of_ranges([QualifierRange::prefix(given)]);
            }
            _ => return Columns::whole_family(),
        };
        let from = |start| Some(QualifierRange { start, end: Bytes::new() });
        // As an end, the column without a name would mean that there is none.
        let until = |end: Bytes| (!end.is_empty()).then_some(QualifierRange { start: Bytes::new(), end });
        Columns::of_ranges(match self.operator {
            Operator::Less => until(start),
            Operator::LessOrEqual => until(end),
            Operator::Equal => Some(QualifierRange { start, end }),
            Operator::GreaterOrEqual => from(start),
            Operator::Greater => from(end),
            Operator::NotEqual | Operator::Nothing => return Columns::whole_family(),
        })
    }

    pub fn passes(&self, stored: &[u8]) -> Result<bool, Invalid> {
        match &self.comparator {
            Some(comparator) if self.operator != Operator::Nothing => {
                Ok(self.operator.passes(comparator.compare(stored)?))
            }
            _ => Ok(false),
        }
    }
}
