//! `FuzzyRowFilter` and `MultiRowRangeFilter`: sets of rows, between which the reader seeks.

use bytes::Bytes;
use terrane_types::{Invalid, KeyRange};

use super::{CellCoordinates, CellFilter, Code, Position};
use crate::cell_block::KeyValue;

/// A key with fixed and open bytes. A longer row matches by its beginning, and a shorter one if its bytes do.
#[derive(Clone)]
pub(super) struct FuzzyKey {
    /// `None`: any byte.
    pub bytes: Vec<Option<u8>>,
}

impl FuzzyKey {
    fn matches(&self, row: &[u8]) -> bool {
        self.bytes.iter().zip(row).all(|(fixed, byte)| fixed.is_none_or(|fixed| fixed == *byte))
    }

    /// A row that no matching row lies before, in the direction of the scan, among those behind `row`, which does not match.
    fn next(&self, row: &[u8], reverse: bool) -> Option<Vec<u8>> {
        let is_last = |byte: u8| byte == if reverse { 0 } else { u8::MAX };
        // The first fixed byte that differs is within the row, or it would match.
        let differing =
            self.bytes.iter().zip(row).position(|(fixed, byte)| fixed.is_some_and(|fixed| fixed != *byte))?;
        let fixed = self.bytes[differing]?;
        let is_ahead = if reverse { fixed < row[differing] } else { fixed > row[differing] };
        let mut next = row[..differing].to_vec();
        if is_ahead {
            next.push(fixed);
        } else {
            // An open byte before it has to move on; what is open behind that one begins again.
            let open = (0..differing).rev().find(|&at| self.bytes[at].is_none() && !is_last(row[at]))?;
            next.truncate(open + 1);
            next[open] = if reverse { next[open] - 1 } else { next[open] + 1 };
        }
        let fixed_to = self.bytes.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        let first = if reverse { u8::MAX } else { 0 };
        for fixed in self.bytes.get(next.len()..fixed_to).unwrap_or_default() {
            next.push(fixed.unwrap_or(first));
        }
        if reverse {
            // All rows that begin with it are to be read, the last one first.
            let end = terrane_types::range::prefix_end(&next);
            return Some(if end.is_empty() { row.to_vec() } else { end.to_vec() });
        }
        Some(next)
    }
}

/// `FuzzyRowFilter`: rows that match one of some keys.
#[derive(Clone)]
pub(super) struct Fuzzy {
    pub keys: Vec<FuzzyKey>,
    pub reverse: bool,
    pub drops: bool,
    pub over: bool,
}

impl CellFilter for Fuzzy {
    fn reset(&mut self) {
        self.drops = false;
    }

    fn is_over(&self) -> bool {
        self.over
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if self.keys.iter().any(|key| key.matches(cell.row)) {
            return Ok(Code::Include);
        }
        self.drops = true;
        Ok(Code::Seek)
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        let rows = self.keys.iter().filter_map(|key| key.next(at.row, self.reverse));
        let next = if self.reverse { rows.max() } else { rows.min() };
        self.over |= next.is_none();
        next.map(Position::row)
    }

    fn drops_row(&mut self) -> bool {
        self.drops
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn reverse(&mut self) {
        self.reverse = true;
    }
}

/// A range of rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rows {
    /// The first row inside.
    pub start: Bytes,
    /// The first row behind; empty: none.
    pub end: Bytes,
}

impl Rows {
    fn contains(&self, row: &[u8]) -> bool {
        *row >= self.start[..] && self.is_before_end(row)
    }

    fn is_before_end(&self, row: &[u8]) -> bool {
        self.end.is_empty() || *row < self.end[..]
    }
}

/// `MultiRowRangeFilter`: rows in one of some ranges.
#[derive(Clone)]
pub(super) struct RowRanges {
    /// Sorted and apart from each other.
    ranges: Vec<Rows>,
    reverse: bool,
    over: bool,
    code: Code,
    next: Option<Bytes>,
}

impl RowRanges {
    pub fn new(mut ranges: Vec<Rows>) -> Self {
        ranges.sort();
        let mut apart: Vec<Rows> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match apart.last_mut() {
                Some(last) if last.end.is_empty() || range.start <= last.end => {
                    if !last.end.is_empty() && (range.end.is_empty() || range.end > last.end) {
                        last.end = range.end;
                    }
                }
                _ => apart.push(range),
            }
        }
        Self { ranges: apart, reverse: false, over: false, code: Code::Include, next: None }
    }
}

impl CellFilter for RowRanges {
    fn is_over(&self) -> bool {
        self.over
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        if self.over {
            return Ok(true);
        }
        let begun = self.ranges.partition_point(|range| range.start[..] <= *row);
        if begun.checked_sub(1).is_some_and(|at| self.ranges[at].contains(row)) {
            self.code = Code::Include;
            return Ok(false);
        }
        self.next = if self.reverse {
            begun.checked_sub(1).map(|at| self.ranges[at].end.clone())
        } else {
            self.ranges.get(begun).map(|range| range.start.clone())
        };
        self.over = self.next.is_none();
        self.code = if self.over { Code::NextRow } else { Code::Seek };
        Ok(false)
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(self.code)
    }

    fn hint(&mut self, _at: CellCoordinates<'_>) -> Option<Position> {
        self.next.as_ref().map(|next| Position::row(next.to_vec()))
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn reverse(&mut self) {
        self.reverse = true;
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        let (first, last) = (self.ranges.first()?, self.ranges.last()?);
        range.intersect(&KeyRange { start: first.start.clone(), end: last.end.clone() })
    }
}
