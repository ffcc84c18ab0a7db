//! Reads of single rows at one snapshot of a region.

use bytes::Bytes;
use terrane_types::limits::BATCH_BYTES_MAX;
use terrane_types::row::check_row;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{Error, Invalid, Projection};

use crate::faults::engine_error;
use crate::group::state::RegionState;
use crate::registry::Hosted;

/// Rows asked for by key.
pub struct GetRequest {
    pub rows: Vec<Bytes>,
    pub projection: Projection,
}

/// The visible cells of the rows, packed, in the order asked; rows without any are left out.
pub fn get(hosted: &Hosted, request: &GetRequest, now_ms: i64) -> Result<Vec<u8>, Error> {
    let state = hosted.state();
    check_projection(&request.projection, &state)?;
    let snapshot = hosted.engine.snapshot();
    let mut out = Vec::new();
    for row in &request.rows {
        check_row(row)?;
        if !state.descriptor.range.contains(row) {
            let what = format!("row {} is not in region {}", terrane_types::escape(row), hosted.region);
            return Err(Error::Invalid(Invalid { what }));
        }
        let start = begin_row(&mut out, row);
        hosted.engine.get(&snapshot, row, &request.projection, now_ms, &mut out).map_err(engine_error)?;
        if out.len() == start.cells_start() {
            out.truncate(start.start());
        } else {
            end_row(&mut out, start);
        }
        if out.len() > BATCH_BYTES_MAX {
            let what =
                format!("the rows asked for take more than {BATCH_BYTES_MAX} bytes: ask for fewer at once, or scan");
            return Err(Error::Invalid(Invalid { what }));
        }
    }
    Ok(out)
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
