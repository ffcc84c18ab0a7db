//! The rules for every filter, whether parsed or built as a value: limits, placement and operands.

use bytes::Bytes;
use terrane_types::limits::VALUE_BYTES_MAX;
use terrane_types::{Value, ValueType};

use crate::error::FilterError;
use crate::expression::{Filter, Subject};
use crate::key_part;
use crate::limits::{DEPTH_MAX, ENTRIES_MAX, NODES_MAX, PATTERNS_MAX, TEXT_BYTES_MAX};

/// Totals so far.
#[derive(Default)]
struct Counted {
    nodes: usize,
    entries: usize,
    patterns: usize,
    /// A lower bound of the length of the text.
    bytes: usize,
}

impl Filter {
    /// Checks limits, operands, and that tests of the whole scan are outermost. Parsing includes this check.
    ///
    /// # Errors
    /// [`FilterError`] that names the rule.
    pub fn check(&self) -> Result<(), FilterError> {
        let mut counted = Counted::default();
        for part in self.conjuncts() {
            let inner = match part {
                Self::Page(0) => return Err(bad("page(0) shows nothing; a page has at least 1 row")),
                Self::Page(_) | Self::KeysOnly { .. } => {
                    counted.node(1)?;
                    continue;
                }
                Self::While(inner) => {
                    counted.node(1)?;
                    inner
                }
                other => other,
            };
            let depth = if matches!(self, Self::And(_)) { 2 } else { 1 };
            visit(inner, depth, &mut counted)?;
        }
        if matches!(self, Self::And(parts) if parts.is_empty()) {
            return Err(empty("and"));
        }
        // A byte takes up to four characters, and a number or name a few dozen. Most filters are far below the limit,
        // so they need not be written out to know it.
        if counted.bytes * 4 + (counted.nodes + counted.entries) * NODE_BYTES_MAX > TEXT_BYTES_MAX {
            let bytes = self.to_string().len();
            if bytes > TEXT_BYTES_MAX {
                return Err(FilterError::TooLong { bytes, limit: TEXT_BYTES_MAX });
            }
        }
        Ok(())
    }
}

/// An upper bound of the text of a node or list entry without its bytes; family names are the longest part.
const NODE_BYTES_MAX: usize = 768;

impl Counted {
    fn node(&mut self, bytes: usize) -> Result<(), FilterError> {
        self.nodes += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        within("tests and connectives", self.nodes, NODES_MAX)?;
        if self.bytes > TEXT_BYTES_MAX {
            return Err(FilterError::TooLong { bytes: self.bytes, limit: TEXT_BYTES_MAX });
        }
        Ok(())
    }

    fn entries(&mut self, count: usize) -> Result<(), FilterError> {
        self.entries += count;
        within("entries in its lists", self.entries, ENTRIES_MAX)
    }
}

fn within(what: &'static str, count: usize, limit: usize) -> Result<(), FilterError> {
    if count > limit { Err(FilterError::TooMany { what, count, limit }) } else { Ok(()) }
}

fn bad(what: impl Into<String>) -> FilterError {
    FilterError::BadOperand { what: what.into() }
}

fn empty(name: &str) -> FilterError {
    bad(format!("{name} without anything in it says neither yes nor no; leave it out"))
}

fn visit(filter: &Filter, depth: usize, counted: &mut Counted) -> Result<(), FilterError> {
    if depth > DEPTH_MAX {
        return Err(FilterError::TooDeep { depth, limit: DEPTH_MAX });
    }
    counted.node(bytes_of(filter))?;
    match filter {
        Filter::And(parts) if parts.is_empty() => Err(empty("and")),
        Filter::Or(parts) if parts.is_empty() => Err(empty("or")),
        Filter::And(parts) | Filter::Or(parts) => parts.iter().try_for_each(|part| visit(part, depth + 1, counted)),
        Filter::Not(inner) | Filter::Skip(inner) | Filter::Any(inner) => visit(inner, depth + 1, counted),
        Filter::Page(_) => Err(FilterError::Misplaced { name: "page" }),
        Filter::While(_) => Err(FilterError::Misplaced { name: "while" }),
        Filter::KeysOnly { .. } => Err(FilterError::Misplaced { name: "keys_only" }),
        Filter::Compare { subject, read_as, operand, .. } => check_operand(subject, *read_as, operand),
        Filter::OneOf { subject, read_as, operands } => {
            check_list("in", operands.len())?;
            counted.entries(operands.len())?;
            operands.iter().try_for_each(|operand| check_operand(subject, *read_as, operand))
        }
        Filter::Prefix { subject: Subject::KeyPart(_), .. }
        | Filter::Contains { subject: Subject::KeyPart(_), .. }
        | Filter::Matches { subject: Subject::KeyPart(_), .. }
        | Filter::Bits { subject: Subject::KeyPart(_), .. } => Err(bad(key_part::RELATIONS)),
        Filter::Bits { mask, .. } if mask.is_empty() => Err(bad("the mask of bits() has no byte")),
        Filter::Matches { .. } => {
            counted.patterns += 1;
            within("regular expressions", counted.patterns, PATTERNS_MAX)
        }
        Filter::Rows(ranges) => {
            check_list("rows", ranges.len())?;
            if let Some(range) = ranges.iter().find(|range| !range.end.is_empty() && range.end < range.start) {
                return Err(bad(format!("the range {range} in rows() is reversed")));
            }
            counted.entries(ranges.len())
        }
        Filter::Fuzzy(keys) => {
            check_list("fuzzy", keys.len())?;
            counted.entries(keys.len())
        }
        Filter::Timestamps(times) => {
            check_list("timestamps", times.len())?;
            counted.entries(times.len())
        }
        Filter::Qualifiers { start, end } if !end.is_empty() && end < start => {
            Err(bad("the range in qualifiers() is reversed"))
        }
        Filter::Columns { limit: 0, .. } => Err(bad("columns(0) shows nothing; ask for at least 1 column")),
        Filter::Random { millionths, .. } if *millionths > 1_000_000 => Err(bad("random() takes a share from 0 to 1")),
        Filter::Prefix { .. }
        | Filter::Contains { .. }
        | Filter::Bits { .. }
        | Filter::Exists { .. }
        | Filter::Qualifiers { .. }
        | Filter::Columns { .. }
        | Filter::FirstKeyOnly
        | Filter::Random { .. } => Ok(()),
    }
}

fn check_list(name: &str, entries: usize) -> Result<(), FilterError> {
    if entries == 0 { Err(bad(format!("{name}() has an empty list, which nothing passes"))) } else { Ok(()) }
}

fn check_operand(subject: &Subject, read_as: ValueType, operand: &Bytes) -> Result<(), FilterError> {
    if let Subject::KeyPart(part) = subject {
        let text = std::str::from_utf8(operand).map_err(|_| bad("a part of the key is compared with a text"))?;
        return part.encode(text).map(drop).map_err(|error| bad(error.what));
    }
    match read_as.read(operand) {
        Ok(Value::Float(number)) if number.is_nan() => Err(bad("nothing is compared with a number that is none (NaN)")),
        Ok(_) if operand.len() > VALUE_BYTES_MAX => Err(bad("a value compared with is longer than a value can be")),
        Ok(_) => Ok(()),
        Err(error) => Err(bad(error.to_string())),
    }
}

/// A lower bound of the length of the node's text, without nested nodes.
fn bytes_of(filter: &Filter) -> usize {
    let subject = |subject: &Subject| match subject {
        Subject::Column(column) => column.qualifier.len(),
        Subject::KeyPart(part) => part.name.len() + part.key.as_ref().map_or(0, |key| key.to_string().len()),
        _ => 0,
    };
    match filter {
        Filter::Compare { subject: of, operand, read_as, .. } => {
            subject(of) + if read_as.is_number() { 1 } else { operand.len() }
        }
        Filter::OneOf { subject: of, operands, read_as } => {
            let texts = if read_as.is_number() { 0 } else { operands.iter().map(Bytes::len).sum() };
            subject(of) + operands.len() + texts
        }
        Filter::Prefix { subject: of, prefix: bytes }
        | Filter::Contains { subject: of, part: bytes, .. }
        | Filter::Bits { subject: of, mask: bytes, .. } => subject(of) + bytes.len(),
        Filter::Matches { subject: of, pattern } => subject(of) + pattern.as_str().len(),
        Filter::Exists { qualifier, .. } => qualifier.len(),
        Filter::Rows(ranges) => ranges.iter().map(|range| range.start.len() + range.end.len() + 1).sum(),
        Filter::Fuzzy(keys) => keys.iter().map(|key| key.places().len()).sum(),
        Filter::Qualifiers { start, end } => start.len() + end.len(),
        Filter::Timestamps(times) => times.len(),
        _ => 1,
    }
}
