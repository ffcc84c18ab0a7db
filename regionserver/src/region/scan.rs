//! Scans of one region's part of a range, a block at a time.
//!
//! A block is filled in slices of a few milliseconds, between which other tasks run. It ends when it is full, at the limit or
//! the end of the range, or after half a second, with or without rows, so that the caller always gets an answer. No state is
//! kept between blocks except the [`Cursor`], which travels as a resume token.
//!
//! Each block begins on the runtime's thread, with what is in memory: a scan of one row that ends there costs about as much
//! as a get, and one of a hundred short rows ends there, too. Once it needs the disk, the rest of the block is filled off the
//! runtime, slice by slice: cursors that may wait for the disk stay as they are until the block is done.
//!
//! Rows that are skipped or counted are passed over without being packed, and rows that are aggregated are read in place. In
//! a scan for the latest rows of each prefix, the other rows of a prefix are skipped by seeking.
//!
//! A row larger than a block is sent in parts. All parts of a row come from one sequence number. If that has been collected
//! before the row was finished, the row restarts at a later one, and the block says so. Rows after it are read at a new
//! snapshot, as recent as the block.
//!
//! A *snapshot scan* reads all its blocks at one sequence number, which travels in the token. A block holds a snapshot at it,
//! which a stream keeps while it is open. Otherwise the number is valid while the table's history keeps it; after that the
//! scan ends with `SnapshotTooOld`. Where the region moves, is split or gets another leader, what was held is kept there for a minute
//! (`crate::views`, `crate::moves`).

mod block;
mod counting;
mod filtered;
mod parts;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_engine::{CellPosition, Patience, RowScanner, ScanSpec, Snapshot, SnapshotTooOld, Step};
use terrane_env::task::run_read;
use terrane_types::rows::RowRefs;
use terrane_types::{Error, Invalid, KeyRange};

pub use self::block::{Block, Cursor, ScanRequest};
use self::counting::check_aggregate;
use super::filter::{Filtering, key_of};
use super::latest::Cutter;
use super::read::check_families;
use crate::region::resume_token::Position;
use crate::replicas::hosted::HostedRegion;

/// How long a caller waits that requests a sequence number which this replica has not reached.
const BEHIND_RETRY: Duration = Duration::from_millis(10);

/// A block ends after this time even without rows.
const BLOCK_TIME_MAX: Duration = Duration::from_millis(500);
/// How long a slice occupies its thread, and how many steps it makes between two looks at the clock. A step is a row, a run
/// of hidden cells, or several rows that are passed over.
const SLICE_TIME: Duration = Duration::from_millis(10);
/// How long a block stays on the thread on which it begins: a scan of a hundred short rows ends in it.
const FIRST_SLICE_TIME: Duration = Duration::from_micros(50);
/// After its second row, a block reserves room for this many rows of that size.
const ROOM_ROWS: u64 = 128;
const STEPS_PER_LOOK: u32 = 64;
const ROWS_PASSED_PER_STEP: u64 = 64;

/// How far a block gets without waiting.
pub enum Begun {
    Done(Box<Block>),
    Rest(Box<Unfinished>),
}

/// A block that takes longer or needs the disk.
pub struct Unfinished {
    filler: Filler,
    patience: Patience,
    started_ns: u64,
}

/// Begins a block with what is in memory, for a short time.
pub fn begin(
    hosted: &Arc<HostedRegion>,
    request: &Arc<ScanRequest>,
    cursor: Cursor,
    now_ms: i64,
) -> Result<Begun, Error> {
    let started_ns = terrane_env::time::now_ns();
    let mut filler = Filler::open(hosted, request, cursor, now_ms)?;
    // No time passes within a slice of the simulator.
    let ends_at_once = terrane_env::buggify!("the first slice of a scan ends at the first look");
    let slice_time = if ends_at_once { Duration::ZERO } else { FIRST_SLICE_TIME };
    let patience = match filler.run(Patience::MemoryOnly, slice_time)? {
        Slice::Complete => return Ok(Begun::Done(Box::new(filler.complete()))),
        Slice::TimeIsUp => Patience::MemoryOnly,
        Slice::NeedsDisk => Patience::MayBlock,
    };
    Ok(Begun::Rest(Box::new(Unfinished { filler, patience, started_ns })))
}

impl Unfinished {
    /// The approximate size of the block.
    pub fn block_bytes(&self) -> usize {
        self.filler.request.block_bytes
    }

    /// Fills the rest of the block.
    pub async fn finish(self) -> Result<Block, Error> {
        let Self { mut filler, mut patience, started_ns } = self;
        loop {
            let slice = match patience {
                Patience::MemoryOnly => filler.run(patience, SLICE_TIME)?,
                Patience::MayBlock => {
                    let (back, slice) = run_read(move || {
                        let slice = filler.run(patience, SLICE_TIME);
                        (filler, slice)
                    })
                    .await;
                    filler = back;
                    slice?
                }
            };
            match slice {
                Slice::Complete => break,
                // Nothing is lost: the next slice waits for the disk.
                Slice::NeedsDisk => patience = Patience::MayBlock,
                Slice::TimeIsUp if elapsed(started_ns) >= BLOCK_TIME_MAX && !filler.within_hidden => break,
                Slice::TimeIsUp => tokio::task::yield_now().await,
            }
        }
        Ok(filler.complete())
    }
}

fn elapsed(since_ns: u64) -> Duration {
    Duration::from_nanos(terrane_env::time::now_ns().saturating_sub(since_ns))
}

/// How a slice ended.
enum Slice {
    /// The block is complete.
    Complete,
    /// There is more to read.
    TimeIsUp,
    /// There is more to read, and it is not in memory.
    NeedsDisk,
}

/// Why a slice cannot continue.
enum Halt {
    Engine(terrane_engine::Error),
    Refused(Error),
}

impl From<terrane_engine::Error> for Halt {
    fn from(error: terrane_engine::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl From<Invalid> for Halt {
    fn from(error: Invalid) -> Self {
        Self::Refused(error.into())
    }
}

/// A block that is being filled.
struct Filler {
    hosted: Arc<HostedRegion>,
    request: Arc<ScanRequest>,
    now_ms: i64,
    block: Block,
    source: Source,
    /// The last complete row, if any: when the block ends, the cursor is placed after it. One buffer is reused, because every
    /// row passes through it.
    last_row: Vec<u8>,
    /// How prefixes are cut, if the latest rows of each are requested.
    cutter: Option<Cutter>,
    /// The filter, if it needs to see rows.
    filtering: Option<Filtering>,
    /// Where to seek the next rows, once enough rows of the current prefix were returned.
    beyond: Option<Bytes>,
    /// Whether the scan is inside a row at a place that no token can express: if a block ended there, the
    /// next one would begin with the row again, and never get past it.
    within_hidden: bool,
    /// The row of which the block holds a beginning that is not complete: where it starts.
    open_row: Option<usize>,
    /// The scan is inside a row of which nothing is visible up to here.
    unseen: Option<Position>,
}

/// Where rows currently come from.
enum Source {
    /// The rest of a row that earlier blocks began, at the sequence number of its first part.
    Rest {
        scanner: RowScanner,
        row: Bytes,
        sequence: u64,
        /// Nothing of it was sent.
        unseen: bool,
    },
    /// Whole rows.
    Rows {
        scanner: RowScanner,
        sequence: u64,
    },
    Nothing,
}

impl Filler {
    fn open(
        hosted: &Arc<HostedRegion>,
        request: &Arc<ScanRequest>,
        cursor: Cursor,
        now_ms: i64,
    ) -> Result<Self, Error> {
        let state = hosted.state();
        check_families(&request.lookup, &state)?;
        if let Some(aggregate) = &request.aggregate {
            check_aggregate(aggregate, request, &state)?;
        }
        let cutter = match &request.latest {
            Some(latest) => Some(Cutter::new(latest.cut, &state.schema)?),
            None => None,
        };
        let block = Block {
            rows: Vec::new(),
            row_count: 0,
            rows_filtered: 0,
            cursor,
            done: false,
            row_continues: false,
            row_restarted: false,
            ended: false,
            cells_skipped: 0,
            region: state.descriptor.clone(),
            snapshot: None,
        };
        let filtering = request.lookup.filtering();
        let (hosted, request) = (hosted.clone(), request.clone());
        let mut filler = Self {
            hosted,
            request,
            now_ms,
            block,
            source: Source::Nothing,
            last_row: Vec::new(),
            cutter,
            filtering,
            beyond: None,
            within_hidden: false,
            open_row: None,
            unseen: None,
        };
        filler.take_snapshot()?;
        filler.source = filler.first_source()?;
        Ok(filler)
    }

    /// For a snapshot scan: takes a snapshot at its number, which the first block chooses. The receiver of the block may hold
    /// it.
    fn take_snapshot(&mut self) -> Result<(), Error> {
        if !self.request.snapshot {
            self.block.cursor.sequence = None;
            return Ok(());
        }
        let engine = &self.hosted.engine;
        let moves_on = terrane_env::planted!("a snapshot scan moves on with each block");
        let snapshot = match self.block.cursor.sequence.filter(|_| !moves_on) {
            None => engine.snapshot(),
            Some(sequence) if sequence > engine.sequence() => {
                let message =
                    format!("region {} has not reached sequence number {sequence} on this replica", self.hosted.region);
                return Err(Error::Unavailable { message, retry_after: BEHIND_RETRY });
            }
            Some(sequence) => match engine.snapshot_at(sequence) {
                Err(_) if terrane_env::planted!("a scan's read point is forgotten when its region moves") => {
                    engine.snapshot()
                }
                taken => taken.map_err(too_old)?,
            },
        };
        self.block.cursor.sequence = Some(snapshot.sequence());
        self.block.snapshot = Some(snapshot);
        Ok(())
    }

    fn first_source(&mut self) -> Result<Source, Error> {
        let Position::Within { row, sequence, cell, unseen } = self.block.cursor.position.clone() else {
            return Ok(self.rows());
        };
        if !self.block.region.range.contains(&row) || !self.request.range.contains(&row) {
            return Err(Invalid::new("the resume token points into a row outside the range; restart the scan").into());
        }
        // A filter that sees whole rows never returns a part of one: the token belongs to another scan.
        let in_parts = !self.filtering.as_ref().is_some_and(Filtering::needs_whole_rows);
        let mixes = terrane_env::planted!("the parts of a row come from several states");
        let engine = &self.hosted.engine;
        match if mixes { Ok(engine.snapshot()) } else { engine.snapshot_at(sequence) } {
            // A follower may not have reached the number yet. What it would return is older than the parts before.
            Ok(snapshot) if in_parts && (snapshot.sequence() == sequence || mixes) => {
                let from_cell = CellPosition {
                    family: cell.family,
                    qualifier: cell.qualifier,
                    timestamp: cell.timestamp,
                    sequence: cell.sequence,
                };
                let scanner = self.scanner(snapshot, KeyRange::row(&row), Some(from_cell));
                Ok(Source::Rest { scanner, row, sequence, unseen })
            }
            _too_old_or_early_or_whole => {
                self.block.row_restarted = !unseen;
                self.block.cursor.position = Position::At(row);
                Ok(self.rows())
            }
        }
    }

    /// Whole rows from the cursor on, at a new snapshot.
    fn rows(&self) -> Source {
        let request = &self.request;
        let wanted = match &self.block.cursor.position {
            Position::Start => Some(request.range.clone()),
            Position::At(row) | Position::Within { row, .. } => from_row(&request.range, row, request.reverse),
            Position::After(row) if terrane_env::planted!("a scan repeats its last row") => {
                from_row(&request.range, row, request.reverse)
            }
            Position::After(row) => after(&request.range, row, request.reverse),
        };
        self.rows_of(wanted)
    }

    fn rows_of(&self, range: Option<KeyRange>) -> Source {
        let mut range = range.and_then(|range| range.intersect(&self.block.region.range));
        if let (Some(cutter), Some(group), Some(latest)) =
            (&self.cutter, &self.block.cursor.group, &self.request.latest)
            && group.is_full(latest)
        {
            range = range.and_then(|range| cutter.rest(range, &group.prefix, self.request.reverse));
        }
        let range = range.and_then(|range| self.request.lookup.clip(range));
        let Some(range) = range else { return Source::Nothing };
        let snapshot = self.snapshot();
        let sequence = snapshot.sequence();
        Source::Rows { scanner: self.scanner(snapshot, range, None), sequence }
    }

    /// A new snapshot, or that of a snapshot scan.
    fn snapshot(&self) -> Snapshot {
        match self.block.cursor.sequence {
            Some(sequence) => {
                let snapshot = self.hosted.engine.snapshot_at(sequence);
                snapshot.expect("the block holds a snapshot at this number, so none of it is collected")
            }
            None => self.hosted.engine.snapshot(),
        }
    }

    fn scanner(&self, snapshot: Snapshot, range: KeyRange, from_cell: Option<CellPosition>) -> RowScanner {
        let projection = self.request.lookup.reads().clone();
        let (reverse, now_ms, fills_cache) = (self.request.reverse, self.now_ms, self.request.fills_cache);
        self.hosted.engine.scan(snapshot, ScanSpec { range, reverse, projection, now_ms, from_cell, fills_cache })
    }

    /// Works for a slice of about this time, and at least a few steps.
    fn run(&mut self, patience: Patience, slice_time: Duration) -> Result<Slice, Error> {
        let started = terrane_env::time::now_ns();
        loop {
            for _ in 0..STEPS_PER_LOOK {
                match self.step(patience) {
                    Ok(true) => return Ok(Slice::Complete),
                    Ok(false) => {}
                    Err(Halt::Engine(terrane_engine::Error::NeedsDisk)) => return Ok(Slice::NeedsDisk),
                    Err(Halt::Engine(error)) => return Err(self.hosted.read_error(error)),
                    Err(Halt::Refused(error)) => return Err(error),
                }
            }
            if elapsed(started) >= slice_time {
                return Ok(Slice::TimeIsUp);
            }
        }
    }

    /// Advances by some rows, a part of one, or to the end. Returns true when the block is complete.
    fn step(&mut self, patience: Patience) -> Result<bool, Halt> {
        if self.block.cursor.limit_left == Some(0) {
            self.block.done = true;
            self.block.ended |= self.request.lookup.page().is_some();
            return Ok(true);
        }
        let beyond = self.beyond.take();
        match &mut self.source {
            Source::Nothing => {
                self.block.done = true;
                Ok(true)
            }
            Source::Rest { scanner, sequence, .. } => {
                let before = self.open_row.take().unwrap_or(self.block.rows.len());
                let step = scanner.next(&mut self.block.rows, before + self.request.block_bytes, patience)?;
                let sequence = *sequence;
                Ok(self.sent(step, sequence, before))
            }
            Source::Rows { scanner, sequence } => {
                if let Some(beyond) = beyond {
                    // The scanner is at its target even if this fails.
                    scanner.seek_beyond(&beyond, patience)?;
                }
                if self.filtering.is_some() {
                    return self.filter(patience);
                }
                if self.block.cursor.offset_left > 0 || (self.request.count_only && self.request.aggregate.is_none()) {
                    return self.pass(patience);
                }
                if self.request.aggregate.is_some() {
                    return self.sum_up(patience);
                }
                // A row is cut only if it fills a block by itself, not because it is the last one of a block.
                let before = self.open_row.take().unwrap_or(self.block.rows.len());
                let step = scanner.next(&mut self.block.rows, before + self.request.block_bytes, patience)?;
                let sequence = *sequence;
                Ok(self.sent(step, sequence, before))
            }
        }
    }

    /// Handles what was read, which is in the block from `before` on. Returns true when the block is complete.
    fn sent(&mut self, step: Step, sequence: u64, before: usize) -> bool {
        (self.within_hidden, self.unseen) = (false, None);
        match step {
            Step::Row => {
                self.last_row.clear();
                self.last_row.extend_from_slice(key_of(&self.block.rows[before..]));
                self.finish_row(before);
                if self.block.row_count == 2 {
                    self.make_room();
                }
                if terrane_env::buggify!("a block of a scan ends early") {
                    return true;
                }
            }
            Step::Part { position } => return self.part(sequence, position, before),
            Step::Hidden => self.hidden(),
            Step::HiddenPart => {
                self.hidden_part();
                return false;
            }
            Step::End => self.end(),
        }
        let is_full = self.block.rows.len() >= self.request.block_bytes;
        if is_full && before > 0 && terrane_env::planted!("a scan resumes one row late") {
            self.block.rows.truncate(before);
        }
        is_full
    }

    /// Makes room for more rows like the first two.
    fn make_room(&mut self) {
        let rows = &mut self.block.rows;
        let more = self.block.cursor.limit_left.unwrap_or(u64::MAX).min(ROOM_ROWS);
        let bytes = usize::try_from(more).map_or(usize::MAX, |more| more.saturating_mul(rows.len() / 2));
        rows.reserve(bytes.min(self.request.block_bytes.saturating_sub(rows.len())));
    }

    /// Handles a complete row: it is skipped, counted or sent.
    fn finish_row(&mut self, before: usize) {
        if !self.give(1) || self.request.count_only {
            self.block.rows.truncate(before);
        }
    }

    /// Counts rows, of which `last_row` is the last. Returns whether they are shown rather than skipped.
    fn give(&mut self, rows: u64) -> bool {
        let cursor = &mut self.block.cursor;
        let shown = cursor.offset_left == 0;
        if shown {
            self.block.row_count += rows;
            cursor.limit_left = cursor.limit_left.map(|left| left.saturating_sub(rows));
        } else {
            cursor.offset_left = cursor.offset_left.saturating_sub(rows);
        }
        if let (Some(cutter), Some(latest)) = (&self.cutter, &self.request.latest) {
            let group = cursor.group.get_or_insert_default();
            group.count(cutter.prefix(&self.last_row));
            if group.is_full(latest) {
                let beyond = cutter.beyond(&group.prefix, self.request.reverse);
                if beyond.is_empty() && matches!(self.source, Source::Rows { .. }) {
                    self.leave_source();
                }
                self.beyond = Some(beyond);
            }
        }
        shown
    }

    /// Many cells were read and none is visible: the cursor moves past them. (For a row that is sent in parts, the end of the
    /// source says more: it completes the row.)
    fn hidden(&mut self) {
        if let Source::Rows { scanner, .. } = &self.source {
            self.last_row.clear();
            self.last_row.extend_from_slice(scanner.row());
        }
    }

    /// The finished block.
    fn complete(mut self) -> Block {
        if let Some(Position::Within { sequence, .. }) = &self.unseen {
            self.hold(*sequence);
        }
        self.leave_source();
        if let Some(filtering) = self.filtering.take() {
            let is_read = self.block.done && self.block.cursor.limit_left != Some(0);
            let ends_here = || filtering.ends_within(&self.request.range, self.request.reverse);
            self.block.ended |= filtering.is_over() || (is_read && ends_here());
            self.request.lookup.keep(filtering);
        }
        self.place_cursor();
        let (rows, load) = (&self.block.rows, &self.hosted.load);
        if rows.is_empty() {
            load.passed(self.block.row_count, (!self.last_row.is_empty()).then_some(&self.last_row[..]));
        } else {
            let (mut packed, mut passed) = (RowRefs::new(rows), 0);
            load.read(self.block.row_count, rows.len() as u64, |place| {
                if place < passed {
                    (packed, passed) = (RowRefs::new(rows), 0);
                }
                let row = packed.nth(place - passed);
                passed = place + 1;
                Some(row?.ok()?.row)
            });
        }
        self.block
    }

    /// Drops the current source, after taking its statistics.
    fn leave_source(&mut self) -> Source {
        let mut source = std::mem::replace(&mut self.source, Source::Nothing);
        if let Source::Rest { scanner, .. } | Source::Rows { scanner, .. } = &mut source {
            let stats = scanner.take_stats();
            self.block.cells_skipped += stats.cells_seen.saturating_sub(stats.cells_shown);
        }
        source
    }

    /// Places the cursor after the last complete row, if there was one since the cursor was set. Rows are never empty.
    fn place_cursor(&mut self) {
        if let Some(unseen) = self.unseen.take() {
            self.block.cursor.position = unseen;
        } else if !self.last_row.is_empty() {
            self.block.cursor.position = Position::After(Bytes::copy_from_slice(&self.last_row));
        }
    }

    /// The source is at its end: the rest of a row is followed by whole rows, and those by nothing.
    fn end(&mut self) {
        self.source = match self.leave_source() {
            Source::Rest { row, unseen, .. } => {
                if self.last_row.is_empty() {
                    self.last_row.extend_from_slice(&row);
                    if !unseen {
                        // Nothing was left of the row: the last part sent was its end.
                        self.finish_row(self.block.rows.len());
                    }
                }
                self.place_cursor();
                self.rows()
            }
            Source::Rows { .. } | Source::Nothing => Source::Nothing,
        };
    }
}

fn too_old(error: SnapshotTooOld) -> Error {
    Error::SnapshotTooOld { oldest: error.oldest }
}

/// The part of the range after `row`.
fn after(range: &KeyRange, row: &Bytes, reverse: bool) -> Option<KeyRange> {
    let rest = if reverse {
        if row.is_empty() {
            return None;
        }
        KeyRange { start: Bytes::new(), end: row.clone() }
    } else {
        KeyRange { start: KeyRange::row(row).end, end: Bytes::new() }
    };
    range.intersect(&rest)
}

/// The part of the range from `row` on, including it.
fn from_row(range: &KeyRange, row: &Bytes, reverse: bool) -> Option<KeyRange> {
    let rest = if reverse {
        KeyRange { start: Bytes::new(), end: KeyRange::row(row).end }
    } else {
        KeyRange { start: row.clone(), end: Bytes::new() }
    };
    range.intersect(&rest)
}
