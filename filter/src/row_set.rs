//! The rows that can pass a filter, as sorted ranges: a scan need not read the rest.
//!
//! The ranges may include rows that do not pass, but never exclude one that does. Filters on the row key give exact
//! ranges, which `and`, `or` and `not` combine as sets; every other filter gives all rows.
//!
//! Invariant: the ranges of a [`RowSet`] are sorted, not empty, and neither overlap nor touch.

use bytes::Bytes;
use terrane_types::keycodec::PartType;
use terrane_types::{KeyRange, ValueType};

use crate::expression::{Filter, Relation, Subject};
use crate::key_part::{KeyPartTest, PartRelation};

/// Most stretches of rows that lists of values of several parts of a key are multiplied to, buckets included. Beyond that the lists
/// of later parts are tested on each row.
const PREFIXES_MAX: usize = 1_024;

/// A set of rows, as ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowSet(Vec<KeyRange>);

/// The rows that can pass, and whether all of them pass.
struct Rows {
    set: RowSet,
    exact: bool,
}

impl RowSet {
    /// The rows that can pass the filter.
    pub(crate) fn of(filter: &Filter) -> Self {
        rows_of(filter).set
    }

    pub(crate) fn all() -> Self {
        Self(vec![KeyRange::all()])
    }

    /// Sorts ranges and joins those that overlap or touch.
    pub(crate) fn new(mut ranges: Vec<KeyRange>) -> Self {
        ranges.retain(|range| range.end.is_empty() || range.start < range.end);
        ranges.sort();
        let mut joined: Vec<KeyRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end.is_empty() => break,
                Some(last) if range.start <= last.end => {
                    if range.end.is_empty() || range.end > last.end {
                        last.end = range.end;
                    }
                }
                _ => joined.push(range),
            }
        }
        debug_assert!(
            joined.windows(2).all(|pair| !pair[0].end.is_empty() && pair[0].end < pair[1].start),
            "a row set has ranges that overlap or touch: {joined:?}"
        );
        Self(joined)
    }

    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut both = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            both.extend(a.intersect(b));
            // The range that ends first cannot overlap anything else.
            let left_ends = !a.end.is_empty() && (b.end.is_empty() || a.end < b.end);
            if left_ends {
                left.next()
            } else {
                right.next()
            };
        }
        both.retain(|range| range.end.is_empty() || range.start < range.end);
        Self(both)
    }

    pub(crate) fn union(sets: impl Iterator<Item = Self>) -> Self {
        Self::new(sets.flat_map(|set| set.0).collect())
    }

    fn complement(&self) -> Self {
        let mut start = Bytes::new();
        let mut rest = Vec::with_capacity(self.0.len() + 1);
        for range in &self.0 {
            if range.start > start {
                rest.push(KeyRange { start, end: range.start.clone() });
            }
            if range.end.is_empty() {
                return Self(rest);
            }
            start = range.end.clone();
        }
        rest.push(KeyRange { start, end: Bytes::new() });
        Self(rest)
    }

    pub(crate) fn contains(&self, row: &[u8]) -> bool {
        self.range_from(row).is_some_and(|range| range.start[..] <= *row)
    }

    /// The range that contains the row, or the next one after it.
    pub(crate) fn range_from(&self, row: &[u8]) -> Option<&KeyRange> {
        self.0.get(self.0.partition_point(|range| !range.is_before_end(row)))
    }

    /// The last range that contains rows before this one.
    pub(crate) fn range_before(&self, row: &[u8]) -> Option<&KeyRange> {
        let behind = self.0.partition_point(|range| range.start[..] < *row);
        self.0[..behind].last()
    }

    /// Whether the set has gaps: rows that cannot pass between rows that can.
    pub(crate) fn is_parted(&self) -> bool {
        self.0.len() > 1
    }

    /// `range` clipped to the first and last rows of the set; `None` if nothing is left.
    pub(crate) fn clip(&self, range: &KeyRange) -> Option<KeyRange> {
        let inside = self.intersect(&Self(vec![range.clone()]));
        let (first, last) = (inside.0.first()?, inside.0.last()?);
        Some(KeyRange { start: first.start.clone(), end: last.end.clone() })
    }
}

fn rows_of(filter: &Filter) -> Rows {
    let exact = |set: RowSet| Rows { set, exact: true };
    let all = || Rows { set: RowSet::all(), exact: false };
    match filter {
        Filter::And(parts) => {
            // Tests of several parts of the key narrow the rows together.
            let begin = exact(rows_of_parts(parts));
            parts.iter().map(rows_of).fold(begin, |joined, part| Rows {
                set: joined.set.intersect(&part.set),
                exact: joined.exact && part.exact,
            })
        }
        Filter::Or(parts) => {
            let parts: Vec<Rows> = parts.iter().map(rows_of).collect();
            let exact = parts.iter().all(|part| part.exact);
            Rows { set: RowSet::new(parts.into_iter().flat_map(|part| part.set.0).collect()), exact }
        }
        Filter::Not(inner) => match rows_of(inner) {
            Rows { set, exact: true } => exact(set.complement()),
            Rows { exact: false, .. } => all(),
        },
        // A row test gives all cells the same answer, so `any` and `skip` of it are the test itself.
        // (`while` differs: a row that fails it must be read, because that row ends the scan.)
        Filter::Skip(inner) | Filter::Any(inner) => Rows { exact: false, ..rows_of(inner) },
        Filter::Rows(ranges) => exact(RowSet::new(ranges.clone())),
        Filter::Fuzzy(keys) => {
            Rows { set: RowSet::new(keys.iter().map(super::FuzzyKey::range).collect()), exact: false }
        }
        Filter::Prefix { subject: Subject::Row, prefix } => exact(RowSet::new(vec![KeyRange::prefix(prefix)])),
        Filter::Compare { subject: Subject::Row, read_as: ValueType::Bytes, relation, operand } => {
            exact(compared(*relation, operand))
        }
        Filter::OneOf { subject: Subject::Row, read_as: ValueType::Bytes, operands } => {
            exact(RowSet::new(operands.iter().map(|row| KeyRange::row(row)).collect()))
        }
        Filter::Compare { subject: Subject::KeyPart(_), .. } | Filter::OneOf { subject: Subject::KeyPart(_), .. } => {
            Rows { set: rows_of_parts(std::slice::from_ref(filter)), exact: false }
        }
        _ => all(),
    }
}

fn compared(relation: Relation, operand: &Bytes) -> RowSet {
    let KeyRange { start, end: behind } = KeyRange::row(operand);
    let from = |start: Bytes| KeyRange { start, end: Bytes::new() };
    let until = |end: Bytes| KeyRange { start: Bytes::new(), end };
    // No row is empty, so nothing lies at or before an empty operand; and an empty end would mean unbounded.
    let before = if start.is_empty() { Vec::new() } else { vec![until(start.clone())] };
    RowSet::new(match relation {
        Relation::Equal => vec![KeyRange { start, end: behind }],
        Relation::NotEqual => before.into_iter().chain([from(behind)]).collect(),
        Relation::Less => before,
        Relation::LessOrEqual => vec![until(behind)],
        Relation::Greater => vec![from(behind)],
        Relation::GreaterOrEqual => vec![from(start)],
    })
}

/// The rows that can pass all of these filters, as far as tests of leading key parts say: equal values of the first parts, or a few
/// values of each, then bounds of the next one. That is one stretch of rows for each combination of values, in each bucket.
fn rows_of_parts(filters: &[Filter]) -> RowSet {
    let mut tests: Vec<KeyPartTest> = Vec::new();
    tests_of_parts(filters, &mut tests);
    let Some(key) = tests.first().map(|test| &*test.key) else { return RowSet::all() };
    let of_part = |place: usize| tests.iter().filter(move |test| *test.key == *key && test.place == place);
    // There are at most 256 buckets, and the last one's number fits.
    let (mut prefixes, mut place): (Vec<Vec<u8>>, usize) = match key.parts()[0].kind.part {
        PartType::Bucket(buckets) => ((0..buckets).map(|bucket| bucket.to_be_bytes()[1..].to_vec()).collect(), 1),
        _ => (vec![Vec::new()], 0),
    };
    let first = place;
    while let Some(values) = of_part(place).filter_map(KeyPartTest::values).min_by_key(|values| values.len()) {
        if values.len() > 1 && prefixes.len() * values.len() > PREFIXES_MAX {
            break;
        }
        let joined =
            |prefix: &Vec<u8>| values.iter().map(|value| [&prefix[..], &value[..]].concat()).collect::<Vec<_>>();
        prefixes = prefixes.iter().flat_map(joined).collect();
        place += 1;
    }
    if place == first && of_part(place).next().is_none() {
        return RowSet::all();
    }
    let within = |prefix: &Vec<u8>| {
        let all = RowSet::new(vec![KeyRange::prefix(prefix)]);
        of_part(place).fold(all, |rows, test| rows.intersect(&test.rows(prefix)))
    };
    RowSet::union(prefixes.iter().map(within))
}

/// The tests of key parts that all of these filters make, also within another `and`.
fn tests_of_parts(filters: &[Filter], tests: &mut Vec<KeyPartTest>) {
    for filter in filters {
        match filter {
            Filter::And(parts) => tests_of_parts(parts, tests),
            other => tests.extend(KeyPartTest::of(other)),
        }
    }
}

impl KeyPartTest {
    /// The values that pass, if they are listed.
    fn values(&self) -> Option<&[Vec<u8>]> {
        match &self.test {
            PartRelation::Compare(Relation::Equal, value) => Some(std::slice::from_ref(value)),
            PartRelation::OneOf(values) => Some(values),
            PartRelation::Compare(..) => None,
        }
    }

    /// The rows that can pass among those that begin with what comes before the part. Rows of one value begin with its bytes, and
    /// no value's bytes begin with another's, but for those of a tail, where the rows are a superset.
    fn rows(&self, before: &[u8]) -> RowSet {
        let value = |operand: &[u8]| KeyRange::prefix(&[before, operand].concat());
        RowSet::new(match &self.test {
            PartRelation::OneOf(operands) => operands.iter().map(|operand| value(operand)).collect(),
            PartRelation::Compare(relation, operand) => {
                let KeyRange { start, end } = value(operand);
                match relation {
                    Relation::Equal => vec![KeyRange { start, end }],
                    Relation::NotEqual => return RowSet::all(),
                    // Nothing lies before an empty start, and as an end it would mean no bound.
                    Relation::Less if start.is_empty() => Vec::new(),
                    Relation::Less => vec![KeyRange { start: Bytes::new(), end: start }],
                    Relation::LessOrEqual => vec![KeyRange { start: Bytes::new(), end }],
                    Relation::Greater | Relation::GreaterOrEqual => vec![KeyRange { start, end: Bytes::new() }],
                }
            }
        })
    }
}
