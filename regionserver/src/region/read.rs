//! Reads of single rows at one snapshot of a region.
//!
//! The rows are looked for in memory first, on the runtime's thread: most are there. Those that need the disk are read
//! together, off the runtime, at the same snapshot, and put in the places they were asked for.

use std::sync::Arc;

use bytes::Bytes;
use terrane_engine::{Patience, Snapshot};
use terrane_env::task::run_blocking;
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::row::check_row;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{Error, Invalid, Projection};

use crate::group::state::RegionState;
use crate::registry::Hosted;

/// Rows asked for by key.
pub struct GetRequest {
    pub rows: Vec<Bytes>,
    pub projection: Projection,
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
    projection: Projection,
    now_ms: i64,
    /// The rows that memory had.
    found: Vec<u8>,
    /// The others, each with its place in `found`.
    missing: Vec<(usize, Bytes)>,
}

/// Reads the rows, as far as they can be read without waiting for the disk.
pub fn get(hosted: &Arc<Hosted>, request: &GetRequest, now_ms: i64) -> Result<Got, Error> {
    let state = hosted.state();
    check_projection(&request.projection, &state)?;
    let snapshot = hosted.engine.snapshot();
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for row in &request.rows {
        check_row(row)?;
        if !state.descriptor.range.contains(row) {
            let what = format!("row {} is not in region {}", terrane_types::escape(row), hosted.region);
            return Err(Error::Invalid(Invalid { what }));
        }
        let place = found.len();
        match get_row(hosted, &snapshot, row, &request.projection, now_ms, Patience::MemoryOnly, &mut found) {
            Ok(()) => check_size(&found)?,
            Err(terrane_engine::Error::NeedsDisk) => missing.push((place, row.clone())),
            Err(error) => return Err(hosted.read_error(error)),
        }
    }
    if missing.is_empty() {
        return Ok(Got::Rows(found));
    }
    let (hosted, projection) = (hosted.clone(), request.projection.clone());
    Ok(Got::NeedsDisk(DiskGet { hosted, snapshot, projection, now_ms, found, missing }))
}

impl DiskGet {
    /// Reads the rest, off the runtime's threads.
    pub async fn finish(self) -> Result<Vec<u8>, Error> {
        run_blocking(move || self.read()).await
    }

    fn read(self) -> Result<Vec<u8>, Error> {
        let Self { hosted, snapshot, projection, now_ms, found, missing } = self;
        let mut out = Vec::with_capacity(found.len());
        let mut copied = 0;
        for (place, row) in missing {
            out.extend_from_slice(&found[copied..place]);
            copied = place;
            get_row(&hosted, &snapshot, &row, &projection, now_ms, Patience::MayBlock, &mut out)
                .map_err(|error| hosted.read_error(error))?;
            check_size(&out)?;
        }
        out.extend_from_slice(&found[copied..]);
        check_size(&out)?;
        Ok(out)
    }
}

/// Appends one packed row; nothing when it has no visible cell or cannot be read.
fn get_row(
    hosted: &Hosted,
    snapshot: &Snapshot,
    row: &[u8],
    projection: &Projection,
    now_ms: i64,
    patience: Patience,
    out: &mut Vec<u8>,
) -> Result<(), terrane_engine::Error> {
    let start = begin_row(out, row);
    let read = hosted.engine.get(snapshot, row, projection, now_ms, patience, out);
    if read.is_err() || out.len() == start.cells_start() {
        out.truncate(start.start());
    } else {
        end_row(out, start);
    }
    read.map(drop)
}

fn check_size(rows: &[u8]) -> Result<(), Error> {
    if rows.len() <= BATCH_BYTES_MAX {
        return Ok(());
    }
    let what = format!("the rows asked for take more than {BATCH_BYTES_MAX} bytes: ask for fewer at once, or scan");
    Err(Error::Invalid(Invalid { what }))
}

/// A projection may only name families that the table has.
pub fn check_projection(projection: &Projection, state: &RegionState) -> Result<(), Error> {
    for (family, _) in &projection.families {
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
