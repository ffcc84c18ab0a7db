//! Reads of single rows at one snapshot of a region.
//!
//! The rows are looked for in memory first, on the runtime's thread: most are there. Those that need the disk are read
//! together, off the runtime, at the same snapshot, and put in the places they were asked for.
//!
//! An answer has a limit, and reading stops there: a row that is too large costs no more than one that just fits.

use std::sync::Arc;

use bytes::Bytes;
use terrane_engine::{Patience, RowRead, Snapshot};
use terrane_env::task::run_blocking;
use terrane_types::filter::{RowFilter, Verdict};
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::row::check_row;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{Error, Invalid, Projection};

use super::filter::{FILTERED_ROW_BYTES_MAX, Lookup, too_large};
use crate::group::state::RegionState;
use crate::registry::Hosted;

/// Rows asked for by key.
pub struct GetRequest {
    pub rows: Vec<Bytes>,
    pub lookup: Lookup,
    /// Rows come without their cells.
    pub exists_only: bool,
}

/// What is done with each row that is read.
struct RowReader {
    projection: Projection,
    filter: Option<RowFilter>,
    exists_only: bool,
    now_ms: i64,
}

/// What a look into memory gave.
pub enum Got {
    /// All of it: the visible cells of the rows, packed, in the order asked; rows without any are left out.
    Rows(Vec<u8>),
    /// Some rows are still to be read from the disk.
    NeedsDisk(DiskGet),
}

/// A get of which some rows are still to be read from the disk.
pub struct DiskGet {
    hosted: Arc<Hosted>,
    snapshot: Snapshot,
    reader: RowReader,
    /// The rows that memory had.
    found: Vec<u8>,
    /// The others, each with its place in `found`.
    missing: Vec<(usize, Bytes)>,
}

/// Reads the rows, as far as they can be read without waiting for the disk.
pub fn get(hosted: &Arc<Hosted>, request: &GetRequest, now_ms: i64) -> Result<Got, Error> {
    let state = hosted.state();
    check_projection(request.lookup.projection(), &state)?;
    let snapshot = hosted.engine.snapshot();
    let GetRequest { lookup, exists_only, .. } = request;
    let filter = lookup.filter();
    let mut reader = RowReader { projection: lookup.reads().clone(), filter, exists_only: *exists_only, now_ms };
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for row in &request.rows {
        check_row(row)?;
        if !state.descriptor.range.contains(row) {
            let what = format!("row {} is not in region {}", terrane_types::escape(row), hosted.region);
            return Err(Error::Invalid(Invalid { what }));
        }
        let place = found.len();
        match reader.read(hosted, &snapshot, row, Patience::MemoryOnly, &mut found) {
            Ok(()) => check_size(&found)?,
            Err(terrane_engine::Error::NeedsDisk) => missing.push((place, row.clone())),
            Err(error) => return Err(reader.error(hosted, row, error)),
        }
    }
    if missing.is_empty() {
        return Ok(Got::Rows(found));
    }
    Ok(Got::NeedsDisk(DiskGet { hosted: hosted.clone(), snapshot, reader, found, missing }))
}

impl DiskGet {
    /// Reads the rest, off the runtime's threads.
    pub async fn finish(self) -> Result<Vec<u8>, Error> {
        run_blocking(move || self.read()).await
    }

    fn read(self) -> Result<Vec<u8>, Error> {
        let Self { hosted, snapshot, mut reader, found, missing } = self;
        let mut out = Vec::with_capacity(found.len());
        let mut copied = 0;
        for (place, row) in missing {
            out.extend_from_slice(&found[copied..place]);
            copied = place;
            reader
                .read(&hosted, &snapshot, &row, Patience::MayBlock, &mut out)
                .map_err(|error| reader.error(&hosted, &row, error))?;
            check_size(&out)?;
        }
        out.extend_from_slice(&found[copied..]);
        check_size(&out)?;
        Ok(out)
    }
}

impl RowReader {
    /// Appends one packed row; nothing when it has no visible cell, does not pass the filter, or cannot be read.
    fn read(
        &mut self,
        hosted: &Hosted,
        snapshot: &Snapshot,
        row: &[u8],
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error> {
        if self.filter.as_ref().is_some_and(|filter| !filter.may_pass(row)) {
            return Ok(());
        }
        let bytes_max = match &self.filter {
            // What does not pass takes no room in the answer.
            Some(_) => FILTERED_ROW_BYTES_MAX,
            None => BATCH_BYTES_MAX.saturating_sub(out.len()),
        };
        let start = begin_row(out, row);
        let read = RowRead { projection: &self.projection, now_ms: self.now_ms, patience, bytes_max };
        let read = hosted.engine.get_row(snapshot, row, read, out);
        if read.is_err() || out.len() == start.cells_start() {
            out.truncate(start.start());
            return read.map(drop);
        }
        end_row(out, start);
        if let Some(filter) = &mut self.filter
            && filter.judge(out, start.start()) != Verdict::Shown
        {
            out.truncate(start.start());
            return Ok(());
        }
        if self.exists_only {
            out.truncate(start.cells_start());
            end_row(out, start);
        }
        Ok(())
    }

    fn error(&self, hosted: &Hosted, row: &[u8], error: terrane_engine::Error) -> Error {
        match error {
            terrane_engine::Error::RowTooLarge { .. } if self.filter.is_some() => too_large(row),
            terrane_engine::Error::RowTooLarge { .. } => too_much(),
            other => hosted.read_error(other),
        }
    }
}

fn check_size(rows: &[u8]) -> Result<(), Error> {
    if rows.len() <= BATCH_BYTES_MAX { Ok(()) } else { Err(too_much()) }
}

fn too_much() -> Error {
    let what = format!("the rows asked for take more than {BATCH_BYTES_MAX} bytes: ask for fewer at once, or scan");
    Error::Invalid(Invalid { what })
}

/// A projection may only name families that the table has.
pub fn check_projection(projection: &Projection, state: &RegionState) -> Result<(), Error> {
    let tested = projection.filter.as_ref().map(|filter| filter.families()).unwrap_or_default();
    for family in projection.families.iter().map(|(family, _)| family).chain(&tested) {
        if state.schema.family(family.as_bytes()).is_none() {
            let known: Vec<&str> = state.schema.families.iter().map(|family| family.name.as_str()).collect();
            let known = known.join(", ");
            return Err(
                Invalid::new(format!("table {} has no family {family}; it has {known}", state.schema.name)).into()
            );
        }
    }
    Ok(())
}
