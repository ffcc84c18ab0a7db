//! The filter as a value: its tests, connectives, and the methods that build them.

use bytes::Bytes;
use terrane_types::{FamilyName, KeyRange, ValueType};

use crate::fuzzy_key::FuzzyKey;
use crate::pattern::Pattern;

/// Which rows and cells are shown.
///
/// ```
/// use terrane_filter::{Filter, Relation, Subject};
///
/// let warm = Filter::from_text("i32(data:airtemp) > 100 and prefix(row, '0290')")?;
/// let built = Subject::column("data".parse()?, "airtemp").is(Relation::Greater, 100_i32).and(Filter::row_prefix("0290"));
/// assert_eq!(warm, built);
/// assert_eq!(built.to_string(), "i32(data:airtemp) > 100 and prefix(row, '0290')");
/// # Ok::<(), terrane_types::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Yes where all say yes.
    And(Vec<Filter>),
    /// Yes where one says yes.
    Or(Vec<Filter>),
    /// The opposite.
    Not(Box<Filter>),
    /// Compares with a value: `i32(data:airtemp) > 100`, `row <= 'k'`, `qualifier = 'name'`.
    Compare {
        /// What is compared.
        subject: Subject,
        /// How its bytes are read.
        read_as: ValueType,
        /// How the two are to stand.
        relation: Relation,
        /// The value, in the bytes of its type.
        operand: Bytes,
    },
    /// Equals one of several values: `qualifier in ('a', 'b')`.
    OneOf {
        /// What is compared.
        subject: Subject,
        /// How its bytes are read.
        read_as: ValueType,
        /// The values, in the bytes of their type.
        operands: Vec<Bytes>,
    },
    /// Begins with these bytes: `prefix(row, '0290')`.
    Prefix {
        /// What is looked at.
        subject: Subject,
        /// The bytes it begins with.
        prefix: Bytes,
    },
    /// Has these bytes in it: `contains(value, 'rain')`; without regard to case, as HBase's substring comparator:
    /// `icontains(value, 'rain')`.
    Contains {
        /// What is looked at.
        subject: Subject,
        /// The bytes looked for.
        part: Bytes,
        /// Upper and lower case are alike, in what is UTF-8.
        ignore_case: bool,
    },
    /// A regular expression is found in it: `matches(value, '^[0-9]+$')`.
    Matches {
        /// What is looked at.
        subject: Subject,
        /// The expression.
        pattern: Pattern,
    },
    /// It has as many bytes as the mask, and joined with it bit by bit they are not all zero: `bits(value, and, '\x01')`.
    Bits {
        /// What is looked at.
        subject: Subject,
        /// How the bits are joined.
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
    /// The row looks like one of the keys: `fuzzy('????-2024')`.
    Fuzzy(Vec<FuzzyKey>),
    /// The qualifier lies between two: `qualifiers('a'..'c')`.
    Qualifiers {
        /// The first inside.
        start: Bytes,
        /// The first beyond; empty: no bound.
        end: Bytes,
    },
    /// The cell has one of these timestamps: `timestamps(1, 2)`.
    Timestamps(Vec<i64>),
    /// The cell is of one of so many columns of the row, counted from the first after the offset, as the projection shows
    /// them: `columns(10, 20)` is the 21st to 30th.
    Columns {
        /// How many columns.
        limit: u32,
        /// How many before them.
        offset: u32,
    },
    /// The first cell of the row, as the projection shows it: `first_key_only()`.
    FirstKeyOnly,
    /// A share of all rows, the same at each read: `random(0.1)`, `random(0.1, 7)`.
    Random {
        /// The share, in millionths.
        millionths: u32,
        /// Another seed takes other rows.
        seed: u64,
    },
    /// Every cell of the row gets a yes: `skip(value != '0')` skips rows that hold a zero.
    Skip(Box<Filter>),
    /// Some cell of the row gets a yes: `any(value = '0')` shows whole rows that hold a zero.
    Any(Box<Filter>),
    /// As [`Filter::Skip`], and the first row that everything else lets pass and this does not ends the scan:
    /// `while(row < 'k')`.
    While(Box<Filter>),
    /// Ends the scan after so many rows: `page(10)`.
    Page(u64),
    /// Cells come without their values, or with the value's length as a 4-byte big-endian number: `keys_only()`,
    /// `keys_only(lengths)`.
    KeysOnly {
        /// With lengths.
        lengths: bool,
    },
}

/// What a test looks at.
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
}

/// A column that is tested by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSubject {
    /// The family.
    pub family: FamilyName,
    /// The qualifier.
    pub qualifier: Bytes,
    /// Rows without the column pass.
    pub pass_missing: bool,
    /// All versions that the projection shows are looked at, and one that passes is enough; else the newest alone.
    pub any_version: bool,
}

/// How two values are to stand.
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

/// How a value's bits are joined with a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOperator {
    /// Bits that both have.
    And,
    /// Bits that one has.
    Or,
    /// Bits that only one has.
    Xor,
}

impl Relation {
    /// Whether values that compare so stand in the relation.
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

/// A value to compare with, and the type it says to read the other side as.
pub trait Operand {
    /// The type.
    const READ_AS: ValueType;

    /// The value in the bytes of its type.
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

    /// Rows without the column pass. Of other subjects, which are never missing, this changes nothing.
    #[must_use]
    pub fn or_missing(mut self) -> Self {
        if let Self::Column(column) = &mut self {
            column.pass_missing = true;
        }
        self
    }

    /// All versions of the column that are read are looked at. Of other subjects this changes nothing.
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

    /// Has these bytes in it.
    #[must_use]
    pub fn contains(self, part: impl Into<Bytes>) -> Filter {
        Filter::Contains { subject: self, part: part.into(), ignore_case: false }
    }

    /// The expression is found in it.
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

    /// Yes where both say yes.
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

    /// Yes where one of the two says yes.
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

    /// How many rows its `page(n)` lets pass, the least where it has several; `None` without one. Who reads across regions counts them: a server
    /// sees its own region only.
    #[must_use]
    pub fn page(&self) -> Option<u64> {
        self.conjuncts().iter().filter_map(|part| if let Self::Page(rows) = part { Some(*rows) } else { None }).min()
    }

    /// The parts of the outermost `and`, or the filter itself.
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
