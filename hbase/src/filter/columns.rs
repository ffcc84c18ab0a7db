//! Filters about cells and columns by their names, times and places.

use std::collections::BTreeSet;

use bytes::Bytes;
use terrane_types::{Columns, Invalid, QualifierRange};

use super::compare::Test;
use super::{CellCoordinates, CellFilter, Code, Position, Shown};
use crate::cell_block::KeyValue;

/// `KeyOnlyFilter`: cells without their values, or with the lengths of the values.
#[derive(Clone)]
pub(super) struct KeyOnly {
    pub lengths: bool,
}

impl CellFilter for KeyOnly {
    fn shown(&self, shown: Shown, length: usize) -> Shown {
        let length = match shown {
            Shown::Whole => length,
            Shown::Nothing => 0,
            Shown::Length(_) => 4,
        };
        if self.lengths { Shown::Length(u32::try_from(length).unwrap_or(u32::MAX)) } else { Shown::Nothing }
    }

    fn judges_cells(&self) -> bool {
        false
    }

    fn changes_values(&self) -> bool {
        true
    }

    fn reads_values(&self) -> bool {
        self.lengths
    }

    fn hides_values(&self) -> bool {
        !self.lengths
    }

    fn judges_each_alone(&self) -> bool {
        true
    }
}

/// `FirstKeyOnlyFilter`: the first cell of each row. `FirstKeyValueMatchingQualifiersFilter`: each family's cells up to the first
/// with one of the qualifiers, until one is found.
#[derive(Clone)]
pub(super) struct FirstKey {
    /// Absent: any.
    pub qualifiers: Option<BTreeSet<Bytes>>,
    pub found: bool,
}

impl CellFilter for FirstKey {
    fn reset(&mut self) {
        self.found = false;
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if self.found {
            return Ok(Code::NextRow);
        }
        self.found = self.qualifiers.as_ref().is_none_or(|wanted| wanted.contains(cell.cell.qualifier));
        Ok(Code::Include)
    }

    fn takes_first_cell(&self) -> bool {
        self.qualifiers.is_none()
    }
}

/// What of a cell is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Family,
    Qualifier,
    Value,
}

/// `FamilyFilter`, `QualifierFilter`, `ValueFilter`.
#[derive(Clone)]
pub(super) struct Compare {
    pub part: Part,
    pub test: Test,
}

impl CellFilter for Compare {
    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let cell = &cell.cell;
        let (tested, otherwise) = match self.part {
            Part::Family => (cell.family, Code::NextRow),
            Part::Qualifier => (cell.qualifier, Code::Skip),
            Part::Value => (cell.value, Code::Skip),
        };
        Ok(if self.test.passes(tested)? { Code::Include } else { otherwise })
    }

    fn reads_values(&self) -> bool {
        self.part == Part::Value
    }

    fn judges_each_alone(&self) -> bool {
        !self.test.may_fail()
    }

    fn columns(&self) -> Columns {
        if self.part == Part::Qualifier { self.test.passing_qualifiers() } else { Columns::whole_family() }
    }
}

/// `ColumnPrefixFilter` and `MultipleColumnPrefixFilter`: columns whose qualifiers begin with one of some prefixes. HBase looks
/// only at the last prefix that is not behind the qualifier.
#[derive(Clone)]
pub(super) struct ColumnPrefixes {
    /// Sorted; empty: everything passes.
    pub prefixes: Vec<Bytes>,
    pub next: Option<Bytes>,
}

impl CellFilter for ColumnPrefixes {
    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if self.prefixes.is_empty() {
            return Ok(Code::Include);
        }
        let qualifier = cell.cell.qualifier;
        let behind = self.prefixes.partition_point(|prefix| prefix[..] <= *qualifier);
        if behind > 0 && qualifier.starts_with(&self.prefixes[behind - 1]) {
            return Ok(Code::Include);
        }
        match self.prefixes.get(behind) {
            None => Ok(Code::NextRow),
            Some(next) => {
                self.next = Some(next.clone());
                Ok(Code::Seek)
            }
        }
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        self.next.as_ref().map(|next| Position::column(at, next))
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn columns(&self) -> Columns {
        if self.prefixes.is_empty() {
            return Columns::whole_family();
        }
        Columns::of_ranges(self.prefixes.iter().map(|prefix| QualifierRange::prefix(prefix)))
    }
}

/// `ColumnRangeFilter`: columns between two qualifiers.
#[derive(Clone)]
pub(super) struct ColumnRange {
    pub least: Option<Bytes>,
    pub least_inclusive: bool,
    pub greatest: Option<Bytes>,
    pub greatest_inclusive: bool,
}

impl CellFilter for ColumnRange {
    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let qualifier = cell.cell.qualifier;
        if let Some(least) = &self.least {
            if *qualifier < least[..] {
                return Ok(Code::Seek);
            }
            if !self.least_inclusive && qualifier == least {
                return Ok(Code::NextColumn);
            }
        }
        Ok(match &self.greatest {
            Some(greatest) if *qualifier > greatest[..] || (!self.greatest_inclusive && qualifier == greatest) => {
                Code::NextRow
            }
            _ => Code::Include,
        })
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        Some(Position::column(at, self.least.as_deref().unwrap_or_default()))
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn columns(&self) -> Columns {
        let behind = |qualifier: &Bytes| QualifierRange::qualifier(qualifier).end;
        let bound = |qualifier: &Bytes, is_before: bool| if is_before { qualifier.clone() } else { behind(qualifier) };
        let start = self.least.as_ref().map(|least| bound(least, self.least_inclusive)).unwrap_or_default();
        let end = match &self.greatest {
            Some(greatest) => bound(greatest, !self.greatest_inclusive),
            None => Bytes::new(),
        };
        // Nothing is before the column without a name, and as an end it would mean that there is none.
        let is_empty = self.greatest.is_some() && (end.is_empty() || end <= start);
        Columns::of_ranges((!is_empty).then_some(QualifierRange { start, end }))
    }
}

/// `ColumnCountGetFilter`: the first columns of a row. A scan ends its families at the first row that has more, as in HBase.
#[derive(Clone)]
pub(super) struct ColumnCount {
    pub limit: i32,
    pub seen: i32,
}

impl CellFilter for ColumnCount {
    fn reset(&mut self) {
        self.seen = 0;
    }

    fn is_over(&self) -> bool {
        self.seen > self.limit
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        self.seen = self.seen.saturating_add(1);
        Ok(if self.is_over() { Code::NextColumn } else { Code::IncludeAndNextColumn })
    }

    fn watches_rows(&self) -> bool {
        true
    }
}

/// `ColumnPaginationFilter`: some columns of a row, after a number of columns, or from a qualifier on.
#[derive(Clone)]
pub(super) struct ColumnPagination {
    pub limit: i64,
    pub offset: i64,
    /// Counts from the first column that is not before this one.
    pub from: Option<Bytes>,
    pub seen: i64,
}

impl CellFilter for ColumnPagination {
    fn reset(&mut self) {
        self.seen = 0;
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let offset = if self.from.is_some() { 0 } else { self.offset };
        if self.seen >= offset + self.limit {
            return Ok(Code::NextRow);
        }
        if let Some(from) = &self.from
            && self.seen == 0
            && *cell.cell.qualifier < from[..]
        {
            return Ok(Code::Seek);
        }
        let code = if self.seen < offset { Code::NextColumn } else { Code::IncludeAndNextColumn };
        self.seen += 1;
        Ok(code)
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        self.from.as_ref().map(|from| Position::column(at, from))
    }
}

/// `TimestampsFilter`: cells with one of some timestamps.
#[derive(Clone)]
pub(super) struct Timestamps {
    pub times: BTreeSet<i64>,
    pub hints: bool,
}

impl CellFilter for Timestamps {
    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let time = cell.cell.timestamp;
        Ok(if self.times.contains(&time) {
            Code::Include
        } else if time < self.times.first().copied().unwrap_or(i64::MAX) {
            Code::NextColumn
        } else if self.hints {
            Code::Seek
        } else {
            Code::Skip
        })
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        if !self.hints {
            return None;
        }
        Some(match self.times.range(..at.timestamp).next_back() {
            Some(next) => Position::version(at, *next),
            None => Position::behind_column(at),
        })
    }

    fn judges_each_alone(&self) -> bool {
        true
    }
}
