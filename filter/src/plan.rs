//! A filter prepared for evaluation: tests with one answer per row, and tests with one answer per cell.
//!
//! Row tests are evaluated first and once, the row key before any cell. A row test inside a cell expression has a slot
//! that caches its answer for the current row.

use bytes::Bytes;
use memchr::memmem::Finder;
use terrane_types::{FamilyName, Value, ValueType};

use crate::expression::{BitOperator, ColumnSubject, Filter, Relation, Subject};
use crate::fuzzy_key::FuzzyKey;
use crate::key_part::KeyPartTest;
use crate::pattern::Pattern;
use crate::row_set::RowSet;

/// A prepared filter.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The rows that can pass.
    pub(crate) rows: RowSet,
    /// For each fuzzy test, the keys of which a row must match one.
    pub(crate) fuzzy: Vec<Vec<FuzzyKey>>,
    /// Tests that the row must pass.
    pub(crate) row_tests: Vec<RowNode>,
    /// Tests that a cell must pass.
    pub(crate) cell_tests: Vec<CellNode>,
    /// Tests that end the scan unless every cell passes them.
    pub(crate) whiles: Vec<CellNode>,
    /// Whether only the first cell of a row can pass.
    pub(crate) first_only: bool,
    /// Whether values are left out.
    pub(crate) keys_only: bool,
    /// Whether their lengths replace them.
    pub(crate) lengths: bool,
    /// The number of slots for cached row answers.
    pub(crate) slots: usize,
}

/// A test with one answer per row.
#[derive(Clone, Debug)]
pub(crate) enum RowNode {
    All(Vec<RowNode>),
    Any(Vec<RowNode>),
    Not(Box<RowNode>),
    Key(Test),
    KeyPart(KeyPartTest),
    Ranges(RowSet),
    Fuzzy(Vec<FuzzyKey>),
    Column { column: ColumnSubject, test: Test },
    Exists { family: FamilyName, qualifier: Bytes },
    Random { millionths: u32, seed: u64 },
    EveryCell(Box<CellNode>),
    SomeCell(Box<CellNode>),
}

/// A test with one answer per cell.
#[derive(Clone, Debug)]
pub(crate) enum CellNode {
    Row {
        slot: usize,
        test: RowNode,
    },
    All(Vec<CellNode>),
    Any(Vec<CellNode>),
    Not(Box<CellNode>),
    Family(Test),
    Qualifier(Test),
    Value(Test),
    Qualifiers {
        start: Bytes,
        end: Bytes,
    },
    /// Sorted.
    Timestamps(Vec<i64>),
    Columns {
        limit: u32,
        offset: u32,
    },
    First,
}

/// A test of bytes.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Compare {
        read_as: ValueType,
        relation: Relation,
        operand: Operand,
    },
    /// Encoded values, sorted: values of one type are equal if their bytes are.
    OneOf {
        read_as: ValueType,
        operands: Vec<Bytes>,
    },
    Prefix(Bytes),
    Contains(Finder<'static>),
    /// In lower case.
    ContainsIgnoringCase(Finder<'static>),
    Matches(Pattern),
    Bits {
        operator: BitOperator,
        mask: Bytes,
    },
}

/// The decoded operand of a comparison.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Integer(i128),
    Float(f64),
    /// Also text: UTF-8 sorts as its bytes do.
    Bytes(Bytes),
}

impl Plan {
    /// Prepares a checked filter.
    pub(crate) fn of(filter: &Filter) -> Self {
        let mut plan = Self {
            rows: RowSet::of(filter),
            fuzzy: Vec::new(),
            row_tests: Vec::new(),
            cell_tests: Vec::new(),
            whiles: Vec::new(),
            first_only: false,
            keys_only: false,
            lengths: false,
            slots: 0,
        };
        for part in filter.conjuncts() {
            match part {
                Filter::Page(_) => {}
                Filter::KeysOnly { lengths } => {
                    plan.keys_only = true;
                    plan.lengths |= lengths;
                }
                Filter::FirstKeyOnly => plan.first_only = true,
                Filter::While(inner) => {
                    let ends = plan.cell_node(inner);
                    plan.whiles.push(ends);
                }
                // `rows` expresses all of these exactly.
                Filter::Rows(_)
                | Filter::Prefix { subject: Subject::Row, .. }
                | Filter::Compare { subject: Subject::Row, read_as: ValueType::Bytes, .. } => {}
                Filter::Fuzzy(keys) => plan.fuzzy.push(keys.clone()),
                other if is_about_row(other) => {
                    let test = plan.row_node(other);
                    plan.row_tests.push(test);
                }
                other => {
                    let test = plan.cell_node(other);
                    plan.cell_tests.push(test);
                }
            }
        }
        // Tests of the key alone come before tests that look up a column.
        plan.row_tests.sort_by_key(|test| !test.is_about_key());
        plan
    }

    /// Whether the answer depends only on the row key.
    pub(crate) fn is_about_key(&self) -> bool {
        self.cell_tests.is_empty() && self.whiles.is_empty() && self.row_tests.iter().all(RowNode::is_about_key)
    }

    fn row_node(&mut self, filter: &Filter) -> RowNode {
        match filter {
            Filter::And(parts) => RowNode::All(parts.iter().map(|part| self.row_node(part)).collect()),
            Filter::Or(parts) => RowNode::Any(parts.iter().map(|part| self.row_node(part)).collect()),
            Filter::Not(inner) => RowNode::Not(Box::new(self.row_node(inner))),
            Filter::Rows(ranges) => RowNode::Ranges(RowSet::new(ranges.clone())),
            Filter::Fuzzy(keys) => RowNode::Fuzzy(keys.clone()),
            Filter::Exists { family, qualifier } => {
                RowNode::Exists { family: family.clone(), qualifier: qualifier.clone() }
            }
            Filter::Random { millionths, seed } => RowNode::Random { millionths: *millionths, seed: *seed },
            Filter::Any(inner) => RowNode::SomeCell(Box::new(self.cell_node(inner))),
            Filter::Skip(inner) => RowNode::EveryCell(Box::new(self.cell_node(inner))),
            Filter::Compare { subject: Subject::KeyPart(_), .. }
            | Filter::OneOf { subject: Subject::KeyPart(_), .. } => {
                // Nothing passes a test of a key that is not known; servers refuse such filters.
                KeyPartTest::of(filter).map_or_else(|| RowNode::Any(Vec::new()), RowNode::KeyPart)
            }
            other => match test_of(other) {
                Some((Subject::Row, test)) => RowNode::Key(test),
                Some((Subject::Column(column), test)) => RowNode::Column { column: column.clone(), test },
                // Unreachable for tests that differ between cells: see is_about_row().
                _ => RowNode::EveryCell(Box::new(self.cell_node(other))),
            },
        }
    }

    fn cell_node(&mut self, filter: &Filter) -> CellNode {
        if is_about_row(filter) {
            let test = self.row_node(filter);
            self.slots += 1;
            return CellNode::Row { slot: self.slots - 1, test };
        }
        match filter {
            Filter::And(parts) => CellNode::All(parts.iter().map(|part| self.cell_node(part)).collect()),
            Filter::Or(parts) => CellNode::Any(parts.iter().map(|part| self.cell_node(part)).collect()),
            Filter::Not(inner) => CellNode::Not(Box::new(self.cell_node(inner))),
            Filter::Qualifiers { start, end } => CellNode::Qualifiers { start: start.clone(), end: end.clone() },
            Filter::Timestamps(times) => {
                let mut times = times.clone();
                times.sort_unstable();
                CellNode::Timestamps(times)
            }
            Filter::Columns { limit, offset } => CellNode::Columns { limit: *limit, offset: *offset },
            Filter::FirstKeyOnly => CellNode::First,
            other => match test_of(other) {
                Some((Subject::Family, test)) => CellNode::Family(test),
                Some((Subject::Qualifier, test)) => CellNode::Qualifier(test),
                Some((Subject::Value, test)) => CellNode::Value(test),
                // check() refused scan tests inside other expressions; here they pass everything.
                _ => CellNode::All(Vec::new()),
            },
        }
    }
}

impl RowNode {
    /// Whether the row key alone decides.
    pub(crate) fn is_about_key(&self) -> bool {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().all(Self::is_about_key),
            Self::Not(inner) => inner.is_about_key(),
            Self::Key(_) | Self::KeyPart(_) | Self::Ranges(_) | Self::Fuzzy(_) | Self::Random { .. } => true,
            Self::Column { .. } | Self::Exists { .. } | Self::EveryCell(_) | Self::SomeCell(_) => false,
        }
    }
}

/// Whether the filter gives all cells of a row the same answer.
pub(crate) fn is_about_row(filter: &Filter) -> bool {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().all(is_about_row),
        Filter::Not(inner) => is_about_row(inner),
        Filter::Rows(_)
        | Filter::Fuzzy(_)
        | Filter::Exists { .. }
        | Filter::Random { .. }
        | Filter::Any(_)
        | Filter::Skip(_) => true,
        other => matches!(subject_of(other), Some(Subject::Row | Subject::KeyPart(_) | Subject::Column(_))),
    }
}

fn subject_of(filter: &Filter) -> Option<&Subject> {
    match filter {
        Filter::Compare { subject, .. }
        | Filter::OneOf { subject, .. }
        | Filter::Prefix { subject, .. }
        | Filter::Contains { subject, .. }
        | Filter::Matches { subject, .. }
        | Filter::Bits { subject, .. } => Some(subject),
        _ => None,
    }
}

fn test_of(filter: &Filter) -> Option<(&Subject, Test)> {
    let subject = subject_of(filter)?;
    let test = match filter {
        Filter::Compare { read_as, relation, operand, .. } => {
            Test::Compare { read_as: *read_as, relation: *relation, operand: Operand::read(*read_as, operand) }
        }
        Filter::OneOf { read_as, operands, .. } => {
            let mut operands = operands.clone();
            operands.sort();
            Test::OneOf { read_as: *read_as, operands }
        }
        Filter::Prefix { prefix, .. } => Test::Prefix(prefix.clone()),
        Filter::Contains { part, ignore_case: false, .. } => Test::Contains(Finder::new(part).into_owned()),
        Filter::Contains { part, ignore_case: true, .. } => {
            Test::ContainsIgnoringCase(Finder::new(lower_case(part).as_bytes()).into_owned())
        }
        Filter::Matches { pattern, .. } => Test::Matches(pattern.clone()),
        Filter::Bits { operator, mask, .. } => Test::Bits { operator: *operator, mask: mask.clone() },
        _ => return None,
    };
    Some((subject, test))
}

/// Bytes that are not UTF-8 become the replacement character, which matches no valid text.
fn lower_case(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_lowercase()
}

impl Operand {
    fn read(read_as: ValueType, bytes: &Bytes) -> Self {
        match read_as.read(bytes) {
            Ok(Value::Integer(number)) => Self::Integer(number),
            Ok(Value::Float(number)) => Self::Float(number),
            // check() refused operands that are not of their type.
            Ok(Value::Text(_) | Value::Bytes(_)) | Err(_) => Self::Bytes(bytes.clone()),
        }
    }

    fn value(&self) -> Value<'_> {
        match self {
            Self::Integer(number) => Value::Integer(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

/// The value, unless the bytes are not of the type. Avoids building the error message of [`ValueType::read`], because a
/// scan may meet millions of such values.
fn read(read_as: ValueType, bytes: &[u8]) -> Option<Value<'_>> {
    match read_as.width() {
        Some(width) if width != bytes.len() => None,
        Some(_) => read_as.read(bytes).ok(),
        None if read_as == ValueType::Text => std::str::from_utf8(bytes).is_ok().then_some(Value::Bytes(bytes)),
        None => Some(Value::Bytes(bytes)),
    }
}

impl Test {
    /// Whether the bytes pass.
    pub(crate) fn passes(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Compare { read_as, relation, operand } => {
                read(*read_as, bytes).is_some_and(|value| relation.holds(value.order(&operand.value())))
            }
            Self::OneOf { read_as, operands } => {
                operands.binary_search_by(|one| one[..].cmp(bytes)).is_ok() && read(*read_as, bytes).is_some()
            }
            Self::Prefix(prefix) => bytes.starts_with(prefix),
            Self::Contains(finder) => finder.find(bytes).is_some(),
            Self::ContainsIgnoringCase(finder) => finder.find(lower_case(bytes).as_bytes()).is_some(),
            Self::Matches(pattern) => pattern.is_match(bytes),
            Self::Bits { operator, mask } => {
                let join = |(a, b): (&u8, &u8)| match operator {
                    BitOperator::And => a & b,
                    BitOperator::Or => a | b,
                    BitOperator::Xor => a ^ b,
                };
                bytes.len() == mask.len() && bytes.iter().zip(mask).any(|pair| join(pair) != 0)
            }
        }
    }
}
