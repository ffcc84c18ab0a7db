//! The rules that a mutation must keep, in one place: the client checks them before it sends anything, and the server's
//! edge checks them again for callers it does not know.
//!
//! What one value can check by itself is checked where the value is created ([`Row`](struct@crate::Row),
//! [`PackedCells`], [`Condition::check`], [`ReadModifyWrite::check`]). Here are the rules that span a whole row or
//! batch.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{ReadModifyWrite, ReadModifyWriteKind};
use crate::cell::{Cells, PackedCells};
use crate::condition::Condition;
use crate::escape::escape;
use crate::invalid::Invalid;
use crate::limits::{BATCH_BYTES_MAX, BATCH_ROWS_MAX, READ_MODIFY_WRITES_MAX, ROW_MUTATION_BYTES_MAX};
use crate::schema::TableSchema;

/// How many offending rows an error names.
const ROWS_NAMED_MAX: usize = 5;

/// The mutation of one row, borrowed from whatever form the caller has it in.
#[derive(Clone, Copy, Debug)]
pub struct MutationParts<'a> {
    /// The row key.
    pub row: &'a [u8],
    /// Whether everything in the row is deleted first.
    pub delete_row: bool,
    /// Packed cells, valid ones.
    pub cells: &'a [u8],
    /// What must hold for the mutation to be applied.
    pub condition: Option<&'a Condition>,
    /// Increments and appends.
    pub read_modify_writes: &'a [ReadModifyWrite],
}

impl MutationParts<'_> {
    /// Bytes of the cells, and of what increments and appends add; the row key is not counted.
    #[must_use]
    pub fn value_bytes(&self) -> usize {
        self.cells.len() + self.read_modify_writes.iter().map(rmw_bytes).sum::<usize>()
    }

    /// Checks everything that does not depend on the table: the mutation changes something, stays within the limits,
    /// and names a column of an increment or append only once.
    ///
    /// # Errors
    /// [`Invalid`] that names the row and the rule.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_repeating()?;
        if self.read_modify_writes.is_empty() { Ok(()) } else { self.check_read_modify_writes() }
    }

    /// As [`MutationParts::check`], for a mutation that says in which order changes to one column count: it may name a
    /// column more than once.
    ///
    /// # Errors
    /// [`Invalid`] that names the row and the rule.
    pub fn check_repeating(&self) -> Result<(), Invalid> {
        if self.cells.is_empty() && !self.delete_row && self.read_modify_writes.is_empty() {
            return Err(Invalid::new(format!(
                "the mutation of row {} changes nothing: it holds no cell, no increment and no append",
                escape(self.row)
            )));
        }
        let bytes = self.value_bytes();
        if bytes > ROW_MUTATION_BYTES_MAX {
            return Err(Invalid::new(format!(
                "the mutation of row {} has {bytes} bytes of cells, increments and appends; the limit is \
                 {ROW_MUTATION_BYTES_MAX}",
                escape(self.row)
            )));
        }
        let count = self.read_modify_writes.len();
        if count > READ_MODIFY_WRITES_MAX {
            return Err(Invalid::new(format!(
                "the mutation of row {} has {count} increments, appends and deletes of newest versions; the limit is \
                 {READ_MODIFY_WRITES_MAX}",
                escape(self.row)
            )));
        }
        Ok(())
    }

    /// The order of two changes to one column would be undefined if one of them reads the column.
    fn check_read_modify_writes(&self) -> Result<(), Invalid> {
        let cells = Cells::new(self.cells).filter(|cell| !cell.kind.is_family_tombstone());
        let mut named: BTreeSet<(&[u8], &[u8])> = cells.map(|cell| (cell.family, cell.qualifier)).collect();
        match self.read_modify_writes.iter().find(|rmw| !named.insert((rmw.family.as_bytes(), &rmw.qualifier))) {
            None => Ok(()),
            Some(twice) => Err(Invalid::new(format!(
                "the mutation of row {} names column {} more than once; a column takes one increment, append or \
                 delete of its newest version, and then no cell",
                escape(self.row),
                twice.column()
            ))),
        }
    }

    /// Checks that the table has every family that the mutation names.
    ///
    /// # Errors
    /// [`Invalid`] that names the family and those that the table has.
    pub fn check_families(&self, schema: &TableSchema) -> Result<(), Invalid> {
        let mut known = KnownFamily::new(schema);
        Cells::new(self.cells).try_for_each(|cell| known.check(cell.family))?;
        self.check_request_families(schema)
    }

    /// As [`MutationParts::check_families`], without the cells: for a caller that got those from [`check_cells`].
    ///
    /// # Errors
    /// [`Invalid`] that names the family and those that the table has.
    pub fn check_request_families(&self, schema: &TableSchema) -> Result<(), Invalid> {
        self.read_modify_writes.iter().try_for_each(|rmw| schema.check_family(rmw.family.as_bytes()))?;
        match self.condition {
            Some(condition) => condition.each_test(&mut |test| schema.check_family(test.family.as_bytes())),
            None => Ok(()),
        }
    }
}

/// Bytes that an increment or append adds to a mutation.
fn rmw_bytes(rmw: &ReadModifyWrite) -> usize {
    let value = match &rmw.what {
        ReadModifyWriteKind::Increment(_) | ReadModifyWriteKind::DeleteNewest => 8,
        ReadModifyWriteKind::Append(value) => value.len(),
    };
    rmw.family.as_bytes().len() + rmw.qualifier.len() + value
}

/// Looks up a family of the table once for each run of cells in it: most mutations are of one family.
struct KnownFamily<'s> {
    schema: &'s TableSchema,
    last: &'s [u8],
}

impl<'s> KnownFamily<'s> {
    const fn new(schema: &'s TableSchema) -> Self {
        Self { schema, last: &[] }
    }

    fn check(&mut self, family: &[u8]) -> Result<(), Invalid> {
        if family != self.last {
            self.last = self.schema.known_family(family)?.name.as_bytes();
        }
        Ok(())
    }
}

/// Checks the cells of one row's mutation, in one pass: what [`PackedCells::validate_mutation`] checks, and that the
/// table has their families.
///
/// # Errors
/// [`Invalid`] that names what is wrong and the limit.
pub fn check_cells(cells: Bytes, schema: &TableSchema) -> Result<PackedCells, Invalid> {
    let mut known = KnownFamily::new(schema);
    PackedCells::validate_mutation_with(cells, |cell| known.check(cell.family))
}

/// Checks the number of rows in one request that writes.
///
/// # Errors
/// [`Invalid`] that names the limit.
pub fn check_batch_rows(rows: usize) -> Result<(), Invalid> {
    if rows <= BATCH_ROWS_MAX {
        return Ok(());
    }
    Err(Invalid::new(format!("the batch has {rows} rows; the limit is {BATCH_ROWS_MAX}: send fewer rows at once")))
}

/// Checks the bytes of one request that writes: of all row keys, and of all [`MutationParts::value_bytes`].
///
/// # Errors
/// [`Invalid`] that names the limit.
pub fn check_batch_bytes(bytes: usize) -> Result<(), Invalid> {
    if bytes <= BATCH_BYTES_MAX {
        return Ok(());
    }
    Err(Invalid::new(format!("the batch has {bytes} bytes; the limit is {BATCH_BYTES_MAX}: send fewer rows at once")))
}

/// Checks that the rows of an atomic batch differ and share the table's atomic key prefix: one entry of one group's log
/// applies them all. A single row is always atomic.
///
/// # Errors
/// [`Invalid`] that names the rule and the first rows that break it.
pub fn check_atomic(rows: &[&[u8]], schema: &TableSchema) -> Result<(), Invalid> {
    let [first, others @ ..] = rows else { return Ok(()) };
    if others.is_empty() {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    if let Some(twice) = rows.iter().find(|row| !seen.insert(**row)) {
        let row = escape(twice);
        return Err(Invalid::new(format!(
            "an atomic batch names each row once; {row} is there twice: make one mutation of it"
        )));
    }
    let table = &schema.name;
    let (Some(key), parts @ 1..) = (&schema.key, schema.atomic) else {
        return Err(Invalid::new(format!(
            "table {table} declares no atomic key prefix: set its attributes key and atomic to write several rows atomically"
        )));
    };
    let prefix = |row: &'_ [u8]| key.prefix_len(row, parts);
    let malformed: Vec<&[u8]> = rows.iter().copied().filter(|row| prefix(row).is_none()).collect();
    if !malformed.is_empty() {
        return Err(Invalid::new(format!("not keys of table {table}, which are ({key}): {}", name_rows(&malformed))));
    }
    let shared = prefix(first).unwrap_or_default();
    let strays: Vec<&[u8]> = others
        .iter()
        .copied()
        .filter(|row| prefix(row) != Some(shared) || !row.starts_with(&first[..shared]))
        .collect();
    if strays.is_empty() {
        return Ok(());
    }
    Err(Invalid::new(format!(
        "rows of an atomic batch share the first {parts} parts of their key ({key}); these differ there from {}: {}",
        escape(first),
        name_rows(&strays)
    )))
}

fn name_rows(rows: &[&[u8]]) -> String {
    let named: Vec<String> = rows.iter().take(ROWS_NAMED_MAX).map(|row| escape(row)).collect();
    let more = rows.len().saturating_sub(ROWS_NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    named.join(", ") + &more
}

#[cfg(test)]
mod tests;
