//! Reads of single rows at one snapshot of a region.
//!
//! Rows are first looked up in memory, on the runtime's thread: most are there. Those that need the disk are read together,
//! off the runtime, at the same snapshot, and put in their places in the order of the request.
//!
//! An answer has a limit, and reading stops there: a row that is too large costs no more than one that just fits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_engine::{Patience, RowRead, Snapshot};
use terrane_env::budget::Share;
use terrane_env::net::Intake;
use terrane_env::task::run_read;
use terrane_filter::Verdict;
use terrane_types::limits::READ_BYTES_MAX;
use terrane_types::row::check_row;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{Error, Invalid, Projection};

use super::filter::{Evaluation, Lookup, RowProgress};
use crate::group::region_state::RegionState;
use crate::replicas::hosted::HostedRegion;

/// Rows looked up on the runtime's thread. The other rows of a longer request are read off it, like those that need the disk.
const ROWS_AT_ONCE_MAX: usize = 512;
/// How long a slice of the rest occupies its thread.
const SLICE_TIME: Duration = Duration::from_millis(10);
/// How long a caller waits when too many answers wait to be sent: by then others have left, or their readers were cut off.
pub const ROOM_RETRY: Duration = Duration::from_millis(200);

/// A request for rows by key.
pub struct GetRequest {
    pub rows: Vec<Bytes>,
    pub lookup: Lookup,
    /// Return rows without their cells.
    pub exists_only: bool,
}

/// How each row is read.
struct RowReader {
    projection: Projection,
    filter: Option<Evaluation>,
    exists_only: bool,
    now_ms: i64,
}

/// Why a row cannot be read.
enum Failure {
    Engine(terrane_engine::Error),
    /// The filter cannot evaluate it.
    Refused(Error),
}

impl From<terrane_engine::Error> for Failure {
    fn from(error: terrane_engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Error> for Failure {
    fn from(refused: Error) -> Self {
        Self::Refused(refused)
    }
}

/// The result of reading from memory.
pub enum Got {
    /// The complete answer: the visible cells of the rows, packed, in the order of the request, without rows that have none.
    Rows(Vec<u8>),
    /// Some rows must be read from disk.
    NeedsDisk(Box<DiskGet>),
}

/// A get with rows that must still be read, off the runtime's thread.
pub struct DiskGet {
    hosted: Arc<HostedRegion>,
    snapshot: Snapshot,
    reader: RowReader,
    /// The rows found in memory.
    found: Vec<u8>,
    /// The other rows, each with its place in `found`.
    missing: VecDeque<(usize, Bytes)>,
    /// The answer so far, and how much of `found` is in it.
    out: Vec<u8>,
    copied: usize,
}

/// Reads the rows as far as possible without waiting for the disk.
pub fn get(hosted: &Arc<HostedRegion>, request: &GetRequest, now_ms: i64) -> Result<Got, Error> {
    let state = hosted.state();
    check_families(&request.lookup, &state)?;
    let snapshot = hosted.engine.snapshot();
    let GetRequest { lookup, exists_only, .. } = request;
    let filter = lookup.evaluation();
    let mut reader = RowReader { projection: lookup.reads().clone(), filter, exists_only: *exists_only, now_ms };
    let mut found = Vec::new();
    let mut missing = VecDeque::new();
    for (looked_at, row) in request.rows.iter().enumerate() {
        check_row(row)?;
        if !state.descriptor.range.contains(row) {
            let what = format!("row {} is not in region {}", terrane_types::escape(row), hosted.region);
            return Err(Error::Invalid(Invalid { what }));
        }
        let place = found.len();
        let is_put_off = terrane_env::buggify!("a row is read off the runtime");
        if is_put_off || looked_at >= ROWS_AT_ONCE_MAX {
            missing.push_back((place, row.clone()));
            continue;
        }
        match reader.read(hosted, &snapshot, row, Patience::MemoryOnly, &mut found) {
            Ok(()) => check_size(&found)?,
            Err(Failure::Engine(terrane_engine::Error::NeedsDisk)) => missing.push_back((place, row.clone())),
            Err(failure) => return Err(RowReader::error(hosted, failure)),
        }
    }
    if missing.is_empty() {
        return Ok(Got::Rows(found));
    }
    let hosted = hosted.clone();
    Ok(Got::NeedsDisk(Box::new(DiskGet { hosted, snapshot, reader, found, missing, out: Vec::new(), copied: 0 })))
}

impl DiskGet {
    /// Reads the rest in slices, off the runtime's threads. What was read counts as an answer waiting to be sent, and the
    /// read ends with `Busy` when there are too many of those.
    pub async fn finish(mut self, intake: &Intake) -> Result<Vec<u8>, Error> {
        let mut share: Option<Share> = None;
        loop {
            let (back, done) = run_read(move || {
                let done = self.slice();
                (self, done)
            })
            .await;
            self = back;
            if done? {
                return Ok(self.out);
            }
            let held = (self.out.len() + self.found.len()) as u64;
            let fits = match &mut share {
                Some(share) => intake.grow_answer(share, held.saturating_sub(share.amount())),
                None => {
                    share = intake.answer(held);
                    share.is_some()
                }
            };
            if !fits {
                return Err(Error::Busy { retry_after: ROOM_RETRY });
            }
        }
    }

    /// Reads for one slice of time. Returns true when nothing is left.
    fn slice(&mut self) -> Result<bool, Error> {
        let began_ns = terrane_env::time::now_ns();
        while let Some((place, row)) = self.missing.pop_front() {
            self.copy_up_to(place);
            let (hosted, snapshot) = (&self.hosted, &self.snapshot);
            let read = self.reader.read(hosted, snapshot, &row, Patience::MayBlock, &mut self.out);
            read.map_err(|failure| RowReader::error(hosted, failure))?;
            check_size(&self.out)?;
            let spent = terrane_env::time::now_ns().saturating_sub(began_ns);
            if Duration::from_nanos(spent) >= SLICE_TIME && !self.missing.is_empty() {
                return Ok(false);
            }
        }
        self.copy_up_to(self.found.len());
        check_size(&self.out)?;
        Ok(true)
    }

    fn copy_up_to(&mut self, place: usize) {
        self.out.extend_from_slice(&self.found[self.copied..place]);
        self.copied = place;
    }
}

impl RowReader {
    /// Appends one packed row, or nothing if it has no visible cell, does not pass the filter, or cannot be read.
    fn read(
        &mut self,
        hosted: &HostedRegion,
        snapshot: &Snapshot,
        row: &[u8],
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.filter.as_ref().is_some_and(|filter| !filter.may_pass(row)) {
            return Ok(());
        }
        if self.filter.is_some() {
            return self.read_filtered(hosted, snapshot, row, patience, out);
        }
        let bytes_max = READ_BYTES_MAX.saturating_sub(out.len());
        let start = begin_row(out, row);
        let read = RowRead { projection: &self.projection, now_ms: self.now_ms, patience, bytes_max };
        let read = hosted.engine.get_row(snapshot, row, read, out);
        if read.is_err() || out.len() == start.cells_start() {
            out.truncate(start.start());
            return Ok(read.map(drop)?);
        }
        end_row(out, start);
        if self.exists_only {
            out.truncate(start.cells_start());
            end_row(out, start);
        }
        Ok(())
    }

    /// The same for a row that a filter judges while it is read.
    fn read_filtered(
        &mut self,
        hosted: &HostedRegion,
        snapshot: &Snapshot,
        row: &[u8],
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        let Some(kept) = &self.filter else { return Ok(()) };
        // A read that fails may be repeated, and the filter begins again.
        let (mut filter, before) = (kept.clone(), out.len());
        let read = RowRead { projection: &self.projection, now_ms: self.now_ms, patience, bytes_max: usize::MAX };
        let mut progress = RowProgress::default();
        let walked = hosted.engine.walk_row(snapshot, row, read, |cell| progress.take(&mut filter, row, cell, out));
        if let Err(error) = walked {
            out.truncate(before);
            return Err(error.into());
        }
        let ended = progress.end(&mut filter, row, out)?;
        self.filter = Some(filter);
        if self.exists_only && matches!(ended, Some((_, Verdict::Shown))) {
            out.truncate(before);
            let start = begin_row(out, row);
            end_row(out, start);
        }
        Ok(())
    }

    fn error(hosted: &HostedRegion, failure: Failure) -> Error {
        match failure {
            Failure::Engine(terrane_engine::Error::RowTooLarge { .. }) => too_much(),
            Failure::Engine(other) => hosted.read_error(other),
            Failure::Refused(refused) => refused,
        }
    }
}

fn check_size(rows: &[u8]) -> Result<(), Error> {
    if rows.len() <= READ_BYTES_MAX { Ok(()) } else { Err(too_much()) }
}

fn too_much() -> Error {
    let what = format!("the requested rows take more than {READ_BYTES_MAX} bytes; request fewer at once, or scan");
    Error::Invalid(Invalid { what })
}

/// Checks that a projection and its filter name only families of the table.
pub fn check_families(lookup: &Lookup, state: &RegionState) -> Result<(), Error> {
    for family in lookup.families() {
        state.schema.check_family(family.as_bytes())?;
    }
    Ok(())
}
