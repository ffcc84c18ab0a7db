//! Filters about the value or the times of a column.

use std::collections::HashSet;

use bytes::Bytes;
use terrane_types::Invalid;

use super::compare::Test;
use super::{CellFilter, Code, Kept};
use crate::cell_block::KeyValue;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub family: Bytes,
    pub qualifier: Bytes,
}

impl Column {
    fn has(&self, cell: &KeyValue<'_>) -> bool {
        cell.cell.family == self.family && cell.cell.qualifier == self.qualifier
    }
}

/// `SingleColumnValueFilter`, and `SingleColumnValueExcludeFilter`, which leaves out the column: rows in which a column passes
/// a test.
#[derive(Clone)]
pub(super) struct SingleColumnValue {
    pub column: Column,
    pub test: Test,
    pub drop_missing: bool,
    pub newest_only: bool,
    pub excludes: bool,
    pub found: bool,
    pub matched: bool,
}

impl CellFilter for SingleColumnValue {
    fn reset(&mut self) {
        (self.found, self.matched) = (false, false);
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if self.matched {
            return Ok(Code::Include);
        }
        if self.newest_only && self.found {
            return Ok(Code::NextRow);
        }
        if !self.column.has(cell) {
            return Ok(Code::Include);
        }
        self.found = true;
        self.matched = self.test.passes(cell.cell.value)?;
        Ok(if !self.matched && self.newest_only { Code::NextRow } else { Code::Include })
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn edits_cells(&self) -> bool {
        self.excludes
    }

    fn edit(&mut self, cells: &mut Vec<Kept<'_>>) {
        if self.excludes {
            cells.retain(|kept| !self.column.has(&kept.cell));
        }
    }

    fn drops_row(&mut self) -> bool {
        if self.found { !self.matched } else { self.drop_missing }
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        !self.drop_missing || self.column.family == family
    }

    fn decided_by(&self) -> Option<Vec<(Bytes, Bytes)>> {
        (!self.excludes).then(|| vec![(self.column.family.clone(), self.column.qualifier.clone())])
    }

    fn reads_values(&self) -> bool {
        true
    }
}

/// `ColumnValueFilter`: the cells of one column that pass a test.
#[derive(Clone)]
pub(super) struct ColumnValue {
    pub column: Column,
    pub test: Test,
    pub found: bool,
}

impl CellFilter for ColumnValue {
    fn reset(&mut self) {
        self.found = false;
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if !self.column.has(cell) {
            return Ok(if self.found { Code::NextRow } else { Code::NextColumn });
        }
        self.found = true;
        Ok(if self.test.passes(cell.cell.value)? { Code::Include } else { Code::Skip })
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.column.family == family
    }

    fn reads_values(&self) -> bool {
        true
    }
}

/// `DependentColumnFilter`: cells whose timestamp a cell of one column has, too.
#[derive(Clone)]
pub(super) struct DependentColumn {
    pub column: Column,
    /// The cells of the column that count; absent: all.
    pub test: Option<Test>,
    pub excludes: bool,
    pub times: HashSet<i64>,
}

impl CellFilter for DependentColumn {
    fn reset(&mut self) {
        self.times.clear();
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if !self.column.has(cell) {
            return Ok(Code::Include);
        }
        if let Some(test) = &self.test
            && !test.passes(cell.cell.value)?
        {
            return Ok(Code::Skip);
        }
        self.times.insert(cell.cell.timestamp);
        Ok(if self.excludes { Code::Skip } else { Code::Include })
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn edits_cells(&self) -> bool {
        true
    }

    fn edit(&mut self, cells: &mut Vec<Kept<'_>>) {
        cells.retain(|kept| self.times.contains(&kept.cell.cell.timestamp));
    }

    fn reads_values(&self) -> bool {
        self.test.is_some()
    }
}
