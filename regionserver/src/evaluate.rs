//! What the leader of a group decides for all members: operation numbers seen before, conditions, increments, appends.
//!
//! It decides once, in log order, when it packs an operation into an entry: against what is applied here and its own
//! writes in flight. The entry carries the outcome, final cells and results, so applying only writes. Nothing is locked:
//! a hot counter is incremented in one entry after another without waiting for any of them to land.
//!
//! Parts: [`in_flight`] holds the operation numbers in flight, [`overlay`] the newest versions of columns read lately,
//! [`needs`] says which columns a row needs, [`row`] evaluates it, [`packer`] writes the outcome of all rows.
//!
//! Why the decision still holds when the entry is applied:
//! - An entry takes effect only if exactly those before it in its term did (the raft crate guarantees that). So either
//!   what was in flight is applied by then, or the entry is skipped and its operations are prepared again.
//! - What changes regions or schemas is packed only when nothing is in flight, and nothing is packed after it before it
//!   has landed. So the region is the same in the entry as it is here.
//! - A column is read from the engine only while no write to it is in flight. So it does not matter how far applying is.
//!
//! Invariants:
//! - An operation is either packed as a whole or leaves nothing behind, in the entry and in here.
//! - Losing leadership, or an entry, clears everything: the next operation starts from what is applied.

mod in_flight;
mod needs;
mod overlay;
mod packer;
pub mod prefetch;
mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_engine::Patience;
use terrane_env::task::run_blocking;
use terrane_raft::{Packing, Prepared};
use terrane_types::{ColumnTest, Error, Invalid, Projection, RegionId, TableSchema, Test};

use self::in_flight::InFlight;
use self::needs::{Needs, Part};
use self::overlay::{Look, Overlay};
use self::packer::Packer;
use crate::group::proposal::{CheckedRow, EvaluationId, RowRequest, Write};
use crate::group::reply::Reply;
use crate::operation::{LoggedRow, ResultKind, RowResult, WriteEncoder};
use crate::window::{Kept, Known, NO_CLIENT, Window};

/// What the rows of one write may make the leader read. Nothing else bounds it: a condition is small, the cells that it
/// tests need not be.
const READ_BYTES_MAX: usize = 64 << 20;

/// Where the leader reads columns of a region as they are applied.
pub trait Columns: Send + Sync {
    /// Appends the visible cells of a row.
    fn read(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error>;

    /// Appends the tombstones among what is stored of a row, and nothing else: of that there may be any amount.
    fn read_tombstones(
        &self,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<(), terrane_engine::Error>;

    /// What an error of a read means for the caller.
    fn failure(&self, error: terrane_engine::Error) -> Error;
}

/// What the operation numbers of a write mean.
#[derive(Debug, PartialEq, Eq)]
pub enum Numbers {
    /// All rows are plain and new: the write goes to the log as it is.
    Plain,
    /// One of them is in flight, and may or may not take effect.
    InFlight,
    /// What is recorded of each row's number.
    Each(Vec<Known>),
}

/// The region that a write is for, as it is now applied.
pub struct Target<'a> {
    pub columns: &'a Arc<dyn Columns>,
    pub schema: &'a TableSchema,
}

/// What a group's leader keeps for evaluating.
#[derive(Default)]
pub struct Evaluator {
    term: u64,
    in_flight: InFlight,
    overlay: Overlay,
    /// What is being read for the write prepared last. It is stale for any other write.
    reading: Option<(EvaluationId, Fetching)>,
}

/// Filled by the task that reads.
type Fetching = Arc<Mutex<Option<Result<Fetched, Error>>>>;

/// What was read for a write.
#[derive(Default)]
struct Fetched {
    /// What was read and the cells, by the row's place in the write and what they are for.
    cells: BTreeMap<(usize, Part), (Projection, Vec<u8>)>,
    /// From this row on nothing was read, because it was enough.
    cut: Option<usize>,
}

/// A read to be done.
struct Read {
    at: (usize, Part),
    row: Bytes,
    projection: Projection,
}

impl Evaluator {
    /// Looks up the numbers of a write, in the window as it is applied and among those in flight.
    pub fn look_up(&mut self, packing: &Packing, window: Option<&Window>, write: &Write) -> Numbers {
        self.come_to(packing);
        let client = write.header.client;
        let known = window.and_then(|window| window.client(&client));
        let floor = window.map_or(0, Window::floor);
        // The usual write: no requests, and every number is above all others seen.
        let mut highest = self.in_flight.highest(&client).max(known.map_or(0, |known| known.highest()));
        let mut plain = true;
        for row in write.rows() {
            let numbered = row.operation != 0 && client != NO_CLIENT;
            let was_away = match known {
                Some(known) => known.was_away(row.first_try_ms),
                None => floor > 0 && row.first_try_ms <= floor,
            };
            let is_new = row.operation > highest && !was_away && row.first_try_ms <= packing.stamp;
            plain &= row.request.is_none() && (!numbered || is_new);
            if numbered {
                highest = highest.max(row.operation);
            }
        }
        if plain {
            return Numbers::Plain;
        }
        let mut each = Vec::new();
        let mut own = BTreeSet::new();
        for row in write.rows() {
            let mut known =
                window.map_or(Known::New, |window| window.look_up(&client, row.operation, row.first_try_ms));
            if row.operation != 0 && client != NO_CLIENT {
                if known == Known::New && self.in_flight.contains(&client, row.operation) {
                    return Numbers::InFlight;
                }
                // Twice in one request: only the first can be meant. And a number from the future would, once its client is
                // dropped from the window, pass for one that was first tried after that.
                let from_future = known == Known::New && row.first_try_ms > packing.stamp;
                if !own.insert(row.operation) || from_future {
                    known = Known::TooOld;
                }
            }
            each.push(known);
        }
        Numbers::Each(each)
    }

    fn come_to(&mut self, packing: &Packing) {
        if self.term != packing.term {
            self.forget();
            self.term = packing.term;
        }
        self.in_flight.land(packing.landed);
        self.overlay.land(packing.landed);
    }

    /// Whether writes have to be recorded: something was evaluated lately.
    pub fn is_watching(&self) -> bool {
        self.overlay.is_active()
    }

    /// Packs a write whose rows are plain and new. `target` is needed while [`Evaluator::is_watching`].
    pub fn pack_plain(
        &mut self,
        packing: &Packing,
        write: &Write,
        target: Option<&Target<'_>>,
        entry: &mut Vec<u8>,
    ) -> Prepared<Reply> {
        // What was read for another write does not reflect this one.
        self.reading = None;
        self.overlay.rest(packing.stamp);
        let target = target.filter(|_| self.overlay.is_active());
        let header = &write.header;
        let mut encoder = WriteEncoder::new(entry, header, stamp_of(packing));
        for row in write.rows() {
            let stamped = encoder.push(&logged(row, row.cells.as_bytes(), None));
            if let Some(target) = target {
                self.overlay.note(packing.ordinal, header.region, &row.row, stamped, target.schema);
            }
            if header.client != NO_CLIENT {
                self.in_flight.note(packing.ordinal, header.client, row.operation);
            }
        }
        encoder.finish();
        Prepared::Packed
    }

    /// Packs a write with rows that have to be evaluated, or that were applied before.
    pub fn pack(
        &mut self,
        packing: &Packing,
        write: &Write,
        target: &Target<'_>,
        known: Vec<Known>,
        entry: &mut Vec<u8>,
    ) -> Prepared<Reply> {
        let rows: Vec<_> = write.rows().iter().zip(known).map(|(row, known)| Item::new(row, known)).collect();
        let fetched = match self.take_fetched(write) {
            Some(Ok(fetched)) => fetched,
            Some(Err(error)) => return Prepared::Refused(Reply::failed(error)),
            None => Fetched::default(),
        };
        let evaluates = rows.iter().any(|item| item.request.is_some());
        if evaluates && !self.overlay.is_active() {
            if !packing.alone {
                return Prepared::WhenLanded;
            }
            self.overlay.wake();
        }
        let early = rows.iter().position(|item| item.is_early(stamp_of(packing)));
        if early.is_some() && (write.header.atomic || terrane_env::time::wall_ms() >= packing.stamp) {
            // Others pass it meanwhile: it may name any number of versions that do not exist yet.
            return Prepared::Later;
        }
        let (whole, until) = if evaluates {
            self.overlay.evaluated(packing.stamp);
            match self.gather(packing, write.header.region, &rows, target, fetched) {
                // An atomic batch cannot be cut.
                Gathered::Until(until, _) if until < rows.len() && write.header.atomic => {
                    return Prepared::Refused(Reply::failed(too_much_to_read()));
                }
                Gathered::Until(until, whole)
                    if !write.header.atomic && terrane_env::buggify!("rows are postponed") =>
                {
                    (whole, until.min(1))
                }
                Gathered::Until(until, whole) => (whole, early.map_or(until, |early| early.min(until))),
                Gathered::WhenLanded => return Prepared::WhenLanded,
                Gathered::NeedsDisk(reads, had) => return self.fetch(packing, target, write, reads, had),
                Gathered::Failed(error) => return Prepared::Refused(Reply::failed(error)),
            }
        } else {
            self.overlay.rest(packing.stamp);
            (BTreeMap::new(), rows.len())
        };
        let repeated = if whole.is_empty() { BTreeSet::new() } else { repeated(&rows) };
        let packer = Packer { evaluator: self, packing, write, target, rows: &rows, whole: &whole, repeated, until };
        packer.pack(entry);
        Prepared::Packed
    }

    /// Reads the columns that the rows need into the overlay, for as many of the rows as may be read for at once.
    fn gather(
        &mut self,
        packing: &Packing,
        region: RegionId,
        rows: &[Item<'_>],
        target: &Target<'_>,
        mut fetched: Fetched,
    ) -> Gathered {
        let now_ms = stamp_of(packing);
        let (mut whole, mut reads) = (BTreeMap::new(), Vec::new());
        let mut read_bytes = 0;
        let mut until = fetched.cut.unwrap_or(rows.len());
        for (at, item) in rows.iter().enumerate() {
            let Some((_, needs)) = &item.request else { continue };
            if at >= until || read_bytes > READ_BYTES_MAX {
                until = until.min(at);
                break;
            }
            let mut missing = Vec::new();
            for column in &needs.columns {
                match self.overlay.look(region, &item.row.row, column, target.schema, now_ms) {
                    Look::Known(_) => {}
                    Look::InFlight => return Gathered::WhenLanded,
                    Look::Unknown => missing.push(column.clone()),
                }
            }
            let is_in_flight = match needs.reads_tombstones_only() {
                // Puts in flight make no difference, so that a hot row does not wait for each of them.
                true => needs.reads_whole() && self.overlay.is_delete_in_flight(region, &item.row.row),
                false => self.overlay.is_row_in_flight(region, &item.row.row),
            };
            if is_in_flight {
                return Gathered::WhenLanded;
            }
            if !missing.is_empty() {
                let projection = needs::columns(&missing);
                match read(target.columns, &mut fetched, (at, Part::Newest), &item.row.row, &projection, now_ms) {
                    Ok(cells) => {
                        read_bytes += cells.len();
                        self.overlay.insert(region, &item.row.row, &missing, &cells, target.schema, now_ms);
                    }
                    Err(terrane_engine::Error::NeedsDisk) => {
                        reads.push(Read { at: (at, Part::Newest), row: item.row.row.clone(), projection });
                    }
                    Err(error) => return Gathered::Failed(target.columns.failure(error)),
                }
            }
            for (part, projection) in needs.whole_parts() {
                match read(target.columns, &mut fetched, (at, part), &item.row.row, projection, now_ms) {
                    Ok(cells) => {
                        read_bytes += cells.len();
                        whole.insert((at, part), cells);
                    }
                    Err(terrane_engine::Error::NeedsDisk) => {
                        let projection = projection.clone();
                        reads.push(Read { at: (at, part), row: item.row.row.clone(), projection });
                    }
                    Err(error) => return Gathered::Failed(target.columns.failure(error)),
                }
            }
        }
        if reads.is_empty() {
            return Gathered::Until(until, whole);
        }
        // Memory may not have the next time what it has now, and then this would never end.
        let had = whole.into_iter().filter_map(|((at, part), cells)| {
            let needs = &rows[at].request.as_ref()?.1;
            let (_, projection) = needs.whole_parts().find(|(of, _)| *of == part)?;
            Some(((at, part), (projection.clone(), cells)))
        });
        let had = Fetched { cells: had.collect(), cut: (until < rows.len()).then_some(until) };
        Gathered::NeedsDisk(reads, had)
    }

    /// Reads off the runtime's threads, for when the same write is prepared again.
    fn fetch(
        &mut self,
        packing: &Packing,
        target: &Target<'_>,
        write: &Write,
        reads: Vec<Read>,
        had: Fetched,
    ) -> Prepared<Reply> {
        let fetching = Fetching::default();
        self.reading = write.evaluation().map(|evaluation| (evaluation, fetching.clone()));
        let (columns, now_ms) = (target.columns.clone(), stamp_of(packing));
        Prepared::NeedsDisk(Box::pin(async move {
            let fetched = run_blocking(move || {
                let mut fetched = had;
                let mut read_bytes = 0;
                let first = reads.first().map_or(0, |read| read.at.0);
                for Read { at, row, projection } in reads {
                    if read_bytes > READ_BYTES_MAX && at.0 > first {
                        fetched.cut = Some(fetched.cut.map_or(at.0, |cut| cut.min(at.0)));
                        break;
                    }
                    let mut cells = Vec::new();
                    at.1.read(&*columns, &row, &projection, now_ms, Patience::MayBlock, &mut cells)
                        .map_err(|error| columns.failure(error))?;
                    read_bytes += cells.len();
                    fetched.cells.insert(at, (projection, cells));
                }
                Ok(fetched)
            });
            let fetched = fetched.await;
            *fetching.lock() = Some(fetched);
        }))
    }

    /// What was read for this write, unless another was prepared in between. Nothing was packed since then, so what was read
    /// is still current.
    fn take_fetched(&mut self, write: &Write) -> Option<Result<Fetched, Error>> {
        let (evaluation, fetching) = self.reading.take()?;
        if Some(evaluation) != write.evaluation() {
            return None;
        }
        fetching.lock().take()
    }

    /// Clears everything: only what is applied counts from here.
    pub fn forget(&mut self) {
        let remembers = terrane_env::planted!("an old leader remembers its columns");
        let overlay = if remembers { std::mem::take(&mut self.overlay) } else { Overlay::default() };
        *self = Self { term: self.term, overlay, ..Self::default() };
    }
}

/// A row of a write with what is to be done about it.
struct Item<'a> {
    row: &'a CheckedRow,
    known: Known,
    /// What is to be evaluated; `None` for a plain row, and for one that was applied before.
    request: Option<(&'a RowRequest, Needs)>,
}

impl<'a> Item<'a> {
    fn new(row: &'a CheckedRow, known: Known) -> Self {
        let request = row.request.as_deref().filter(|_| known == Known::New);
        let request = request.map(|request| (request, Needs::of(row, request)));
        Self { row, known, request }
    }

    /// Whether it sets a column on condition that its version has this very stamp. The new version would have the same
    /// timestamp, and a reader of the old one could mistake it for that. So it waits for the next millisecond; where the
    /// clock is behind the log time, which takes longer, its caller waits instead.
    fn is_early(&self, stamp: i64) -> bool {
        let Some((RowRequest { condition: Some(condition), .. }, _)) = &self.request else { return false };
        let tests = |test: &ColumnTest| if test.test == Test::Version(stamp) { Err(()) } else { Ok(()) };
        condition.each_test(&mut { tests }).is_err()
    }

    /// The answer to a row whose number was seen before; `None` for a new one.
    fn answer(&self, stamp: u64) -> Option<Answer> {
        let result = |kind| Answer { result: Some(Bytes::from(RowResult { stamp, kind }.encode())) };
        match &self.known {
            Known::New => None,
            Known::TooOld => Some(result(ResultKind::NotTried)),
            Known::Applied(Kept::Result(kept)) => Some(Answer { result: Some(kept.clone()) }),
            Known::Applied(Kept::Nothing) => Some(Answer { result: None }),
            Known::Applied(Kept::Gone) => Some(result(ResultKind::AlreadyApplied)),
        }
    }
}

/// The answer to a row whose number was seen before.
struct Answer {
    result: Option<Bytes>,
}

enum Gathered {
    /// Everything is there for the rows before this place; for some of them more than newest versions, by their place.
    Until(usize, BTreeMap<(usize, Part), Vec<u8>>),
    WhenLanded,
    /// What is to be read, and what was read for the same write already.
    NeedsDisk(Vec<Read>, Fetched),
    Failed(Error),
}

/// The places of rows whose key came before.
fn repeated(rows: &[Item<'_>]) -> BTreeSet<usize> {
    let mut keys = BTreeSet::new();
    (0..rows.len()).filter(|at| !keys.insert(&rows[*at].row.row)).collect()
}

fn read(
    columns: &Arc<dyn Columns>,
    fetched: &mut Fetched,
    at: (usize, Part),
    row: &[u8],
    projection: &Projection,
    now_ms: i64,
) -> Result<Vec<u8>, terrane_engine::Error> {
    if let Some((asked, cells)) = fetched.cells.remove(&at)
        && asked == *projection
    {
        return Ok(cells);
    }
    let mut cells = Vec::new();
    at.1.read(&**columns, row, projection, now_ms, Patience::MemoryOnly, &mut cells)?;
    Ok(cells)
}

/// The stamp as cells carry it.
fn stamp_of(packing: &Packing) -> i64 {
    stamp_ms(packing.stamp)
}

fn stamp_ms(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX - 1)
}

/// A row in its logged form, with these cells and this result.
fn logged<'a>(row: &'a CheckedRow, cells: &'a [u8], result: Option<&'a [u8]>) -> LoggedRow<&'a [u8]> {
    let CheckedRow { operation, first_try_ms, row, .. } = row;
    LoggedRow { operation: *operation, first_try_ms: *first_try_ms, row, cells, result, untracked: false }
}

fn too_much_to_read() -> Error {
    let what = format!(
        "the conditions, merges and returned cells of this write read more than {READ_BYTES_MAX} bytes: send fewer rows at once"
    );
    Invalid { what }.into()
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests;
