//! The filter as a value: its tests, connectives, and the methods that build them.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::{FamilyName, KeyDeclaration, KeyRange, Time, ValueType};

use crate::fuzzy_key::FuzzyKey;
use crate::pattern::Pattern;

/// Which rows and cells a read returns.
///
/// ```
/// use terrane_filter::{Filter, Relation, Subject};
///
/// let warm = Filter::from_text("i32(data:airtemp) > 100 and prefix(row, '0290')")?;
/// let built = Subject::column("data".parse()?, "airtemp").is(Relation::Greater,
/// 100_i32).and(Filter::row_prefix("0290")); assert_eq!(warm, built);
/// assert_eq!(built.to_string(), "i32(data:airtemp) > 100 and prefix(row, '0290')");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Yes if all say yes.
    And(Vec<Filter>),
    /// Yes if at least one says yes.
    Or(Vec<Filter>),
    /// The opposite.
    Not(Box<Filter>),
    /// Compares with a value: `i32(data:airtemp) > 100`, `row <= 'k'`, `qualifier = 'name'`.
    Compare {
        /// What is compared.
        subject: Subject,
        /// The type its bytes are read as.
        read_as: ValueType,
        /// The comparison.
        relation: Relation,
        /// The value, in its type's encoding.
        operand: Bytes,
    },
    /// Equals one of several values: `qualifier in ('a', 'b')`.
    OneOf {
        /// What is compared.
        subject: Subject,
        /// The type its bytes are read as.
        read_as: ValueType,
        /// The values, in their type's encoding.
        operands: Vec<Bytes>,
    },
    /// Begins with these bytes: `prefix(row, '0290')`.
    Prefix {
        /// What is tested.
        subject: Subject,
        /// The bytes it begins with.
        prefix: Bytes,
    },
    /// Contains these bytes: `contains(value, 'rain')`; ignoring case, as HBase's substring comparator:
    /// `icontains(value, 'rain')`.
    Contains {
        /// What is tested.
        subject: Subject,
        /// The bytes to find.
        part: Bytes,
        /// Ignore case, for UTF-8 text.
        ignore_case: bool,
    },
    /// A regular expression matches somewhere in it: `matches(value, '^[0-9]+$')`.
    Matches {
        /// What is tested.
        subject: Subject,
        /// The expression.
        pattern: Pattern,
    },
    /// It is as long as the mask, and combining the two bit by bit gives a bit that is not zero: `bits(value, and,
    /// '\x01')`.
    Bits {
        /// What is tested.
        subject: Subject,
        /// How the bits are combined.
        operator: BitOperator,
        /// The mask.
        mask: Bytes,
    },
    /// The row has the column: `exists(data:airtemp)`.
    Exists {
        /// The family.
        family: FamilyName,
        /// The qualifier.
        qualifier: Bytes,
    },
    /// The row lies in one of the ranges: `rows('a'..'c', 'x'..)`.
    Rows(Vec<KeyRange>),
    /// The row matches one of the keys: `fuzzy('????-2024')`.
    Fuzzy(Vec<FuzzyKey>),
    /// The qualifier lies between two: `qualifiers('a'..'c')`.
    Qualifiers {
        /// The first qualifier inside.
        start: Bytes,
        /// The first qualifier after the end; empty: unbounded.
        end: Bytes,
    },
    /// The cell has one of these timestamps: `timestamps(1, 2)`.
    Timestamps(Vec<i64>),
    /// The cell's column is among the first `limit` columns of the row after `offset`, as the projection selects them:
    /// `columns(10, 20)` is the 21st to 30th.
    Columns {
        /// How many columns.
        limit: u32,
        /// How many columns before them.
        offset: u32,
    },
    /// The first cell of the row that the projection selects: `first_key_only()`.
    FirstKeyOnly,
    /// A fraction of all rows, the same ones at each read: `random(0.1)`, `random(0.1, 7)`.
    Random {
        /// The fraction, in millionths.
        millionths: u32,
        /// Another seed selects other rows.
        seed: u64,
    },
    /// Every cell of the row gets a yes: `skip(value != '0')` skips rows that hold a zero.
    Skip(Box<Filter>),
    /// Some cell of the row gets a yes: `any(value = '0')` shows whole rows that hold a zero.
    Any(Box<Filter>),
    /// As [`Filter::Skip`], but the first row that fails it, among those that pass everything else, ends the scan:
    /// `while(row < 'k')`.
    While(Box<Filter>),
    /// Ends the scan after this many rows: `page(10)`.
    Page(u64),
    /// Cells come without their values, or with the value's length as a 4-byte big-endian number: `keys_only()`,
    /// `keys_only(lengths)`.
    KeysOnly {
        /// Replace values by their lengths.
        lengths: bool,
    },
}

/// What a test examines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The row key.
    Row,
    /// The cell's family.
    Family,
    /// The cell's qualifier.
    Qualifier,
    /// The cell's value.
    Value,
    /// The value of a column of the row.
    Column(ColumnSubject),
    /// A part of the row key: `key(user)`.
    KeyPart(KeyPartSubject),
}

/// A part of the row key tested by name. It is compared by its declared type with =, !=, <, <=, >, >= and `in` only; the
/// operands are texts, as in `terrane get TABLE user=7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPartSubject {
    /// The part's name.
    pub name: String,
    /// The key that the table declares; `None` until it is known: see [`Filter::with_key`].
    pub key: Option<Arc<KeyDeclaration>>,
}

/// A column tested by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSubject {
    /// The family.
    pub family: FamilyName,
    /// The qualifier.
    pub qualifier: Bytes,
    /// Rows without the column pass.
    pub pass_missing: bool,
    /// The test passes if any selected version passes; otherwise only the newest version counts.
    pub any_version: bool,
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// How a value's bits are combined with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperator {
    /// Bits set in both.
    And,
    /// Bits set in either.
    Or,
    /// Bits set in exactly one.
    Xor,
}

impl Relation {
    /// Whether the relation holds for this ordering of two values.
    #[must_use]
    pub fn holds(self, ordering: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => ordering.is_eq(),
            Self::NotEqual => ordering.is_ne(),
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// A value to compare with; its type determines how the other side is read.
pub trait Operand {
    /// The type.
    const READ_AS: ValueType;

    /// The value in its type's encoding.
    fn to_operand(self) -> Bytes;
}

macro_rules! number_operand {
    ($($number:ty => $kind:ident),*) => {$(
        impl Operand for $number {
            const READ_AS: ValueType = ValueType::$kind;

            fn to_operand(self) -> Bytes {
                Bytes::copy_from_slice(&self.to_be_bytes())
            }
        }
    )*};
}

number_operand!(i32 => I32, i64 => I64, u32 => U32, u64 => U64, f64 => F64);

impl Operand for Time {
    const READ_AS: ValueType = ValueType::Time;

    fn to_operand(self) -> Bytes {
        Bytes::copy_from_slice(&self.millis().to_be_bytes())
    }
}

impl Operand for &str {
    const READ_AS: ValueType = ValueType::Text;

    fn to_operand(self) -> Bytes {
        Bytes::copy_from_slice(self.as_bytes())
    }
}

impl Operand for &[u8] {
    const READ_AS: ValueType = ValueType::Bytes;

    fn to_operand(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl<const N: usize> Operand for &[u8; N] {
    const READ_AS: ValueType = ValueType::Bytes;

    fn to_operand(self) -> Bytes {
        Bytes::copy_from_slice(self)
    }
}

impl Operand for Bytes {
    const READ_AS: ValueType = ValueType::Bytes;

    fn to_operand(self) -> Bytes {
        self
    }
}

impl Subject {
    /// The newest version of a column; rows without it fail.
    #[must_use]
    pub fn column(family: FamilyName, qualifier: impl Into<Bytes>) -> Self {
        let qualifier = qualifier.into();
        Self::Column(ColumnSubject { family, qualifier, pass_missing: false, any_version: false })
    }

    /// Rows without the column pass. Has no effect on other subjects, which are never missing.
    #[must_use]
    pub fn or_missing(mut self) -> Self {
        if let Self::Column(column) = &mut self {
            column.pass_missing = true;
        }
        self
    }

    /// Tests all versions of the column that are read. Has no effect on other subjects.
    #[must_use]
    pub fn any_version(mut self) -> Self {
        if let Self::Column(column) = &mut self {
            column.any_version = true;
        }
        self
    }

    /// Compares with a value, read as the type of the operand.
    #[must_use]
    pub fn is<O: Operand>(self, relation: Relation, operand: O) -> Filter {
        Filter::Compare { subject: self, read_as: O::READ_AS, relation, operand: operand.to_operand() }
    }

    /// Equals one of the values.
    #[must_use]
    pub fn is_one_of<O: Operand>(self, operands: impl IntoIterator<Item = O>) -> Filter {
        let operands = operands.into_iter().map(Operand::to_operand).collect();
        Filter::OneOf { subject: self, read_as: O::READ_AS, operands }
    }

    /// Begins with these bytes.
    #[must_use]
    pub fn has_prefix(self, prefix: impl Into<Bytes>) -> Filter {
        Filter::Prefix { subject: self, prefix: prefix.into() }
    }

    /// Contains these bytes.
    #[must_use]
    pub fn contains(self, part: impl Into<Bytes>) -> Filter {
        Filter::Contains { subject: self, part: part.into(), ignore_case: false }
    }

    /// The expression matches somewhere in it.
    #[must_use]
    pub fn matches(self, pattern: Pattern) -> Filter {
        Filter::Matches { subject: self, pattern }
    }
}

impl Filter {
    /// Rows that begin with these bytes.
    #[must_use]
    pub fn row_prefix(prefix: impl Into<Bytes>) -> Self {
        Subject::Row.has_prefix(prefix)
    }

    /// Yes if both say yes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::And(mut all), Self::And(more)) => {
                all.extend(more);
                Self::And(all)
            }
            (Self::And(mut all), one) => {
                all.push(one);
                Self::And(all)
            }
            (one, Self::And(mut all)) => {
                all.insert(0, one);
                Self::And(all)
            }
            (one, other) => Self::And(vec![one, other]),
        }
    }

    /// Yes if at least one of the two says yes.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Or(mut all), Self::Or(more)) => {
                all.extend(more);
                Self::Or(all)
            }
            (Self::Or(mut all), one) => {
                all.push(one);
                Self::Or(all)
            }
            (one, Self::Or(mut all)) => {
                all.insert(0, one);
                Self::Or(all)
            }
            (one, other) => Self::Or(vec![one, other]),
        }
    }

    /// The row limit of its `page(n)`, the least if there are several; `None` without one. The client counts the rows,
    /// because a server sees only its own region.
    #[must_use]
    pub fn page(&self) -> Option<u64> {
        self.conjuncts().iter().filter_map(|part| if let Self::Page(rows) = part { Some(*rows) } else { None }).min()
    }

    /// The operands of the outermost `and`, or the filter itself.
    pub(crate) fn conjuncts(&self) -> &[Self] {
        match self {
            Self::And(all) => all,
            one => std::slice::from_ref(one),
        }
    }
}

impl std::ops::Not for Filter {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }
}
