//! One run of a bulk load: the sorted rows of what was one region when the run began, on their way into it.
//!
//! The leader of the region builds files of the rows; the run is committed when it has all of them. Whatever happens before
//! that is repeated: another leader gets all parts again. The commit has an operation number, like a write, so it takes
//! effect once.
//!
//! A region may be split while the run is on its way. Then the run is cut at the boundary, and each piece goes on by itself.
//! An earlier commit of the whole may have taken effect without an answer, so each piece names the numbers that it had before
//! it was cut: a region that knows one of them has the piece's rows. Pieces are only ever cut, never joined, so none can have
//! taken effect in part.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrane_types::{Error as Wire, RegionDescriptor, RegionEpoch, RegionId, ServerId};
use tracing::Instrument;

use crate::error::Error;
use crate::route::observe::CallKind;
use crate::route::operation_numbers::Ticket;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Attempt, Missed, Place, Position, Router};
use crate::route::target::Target;
use crate::wire::bulk::{self, Committed, LoadRow};
use crate::wire::failure::Failure;
use crate::write::first_try::FirstTry;

/// Bytes of rows in one part; a larger row travels alone.
const PART_BYTES_MAX: usize = 1 << 20;
/// Rows in one part.
const PART_ROWS_MAX: usize = 16_384;
/// Answers in a row that the leader lacks parts that it was sent, before the client waits a little.
const STALLS_MAX: u32 = 3;
const STALL_RETRY: Duration = Duration::from_millis(100);

/// The time of cells without one, which all runs of a load share.
#[derive(Debug, Default)]
pub(crate) struct LoadTime {
    timestamp_ms: AtomicU64,
    /// Held by the run that asks a server for the time. The others wait for the answer.
    asking: tokio::sync::Mutex<()>,
}

impl LoadTime {
    pub(crate) fn new(timestamp_ms: Option<u64>) -> Self {
        Self { timestamp_ms: AtomicU64::new(timestamp_ms.unwrap_or(0)), asking: tokio::sync::Mutex::default() }
    }

    /// 0: no server has named it.
    pub(crate) fn get(&self) -> u64 {
        self.timestamp_ms.load(Ordering::Acquire)
    }

    /// The first answer that arrives decides. Returns whether it is this one's time.
    fn learn(&self, timestamp_ms: u64) -> bool {
        let known = self.timestamp_ms.compare_exchange(0, timestamp_ms, Ordering::AcqRel, Ordering::Acquire);
        known.map_or_else(|known| known == timestamp_ms, |_| true)
    }
}

/// Loads sorted rows, each of them once; returns the regions that took them in. On an error, some of the regions may have.
pub(crate) async fn load(
    router: &Router,
    target: &Target,
    rows: &[LoadRow],
    time: &LoadTime,
    timeout: Duration,
) -> Result<BTreeSet<RegionId>, Error> {
    let call = router.observer.begin(CallKind::BulkLoad, target, rows.len())?;
    let mut progress = Progress::new(Risk::WRITE, timeout);
    progress.trace = call.trace();
    let span = tracing::debug_span!("call", kind = "bulk_load", table = %target.table, rows = rows.len());
    let loaded = load_pieces(router, target, rows, time, &mut progress).instrument(span).await;
    call.end(&loaded, progress.tries);
    loaded
}

async fn load_pieces(
    router: &Router,
    target: &Target,
    rows: &[LoadRow],
    time: &LoadTime,
    progress: &mut Progress,
) -> Result<BTreeSet<RegionId>, Error> {
    debug_assert!(rows.is_sorted_by(|one, next| one.row <= next.row), "a run that is not sorted is cut at wrong rows");
    let mut regions = BTreeSet::new();
    let first = Piece { rows: 0..rows.len(), numbers: vec![Arc::new(router.operations.take(1))], tried: None };
    let mut pieces = vec![first];
    while let Some(piece) = pieces.pop() {
        if piece.rows.is_empty() {
            continue;
        }
        let mut sending = Sending::new(rows, piece, time);
        match router.call(target, &mut sending, progress).await? {
            Sent::Loaded(region) => drop(regions.insert(region)),
            Sent::Cut(at) => pieces.extend(sending.piece.cut(at).into_iter().rev()),
        }
    }
    Ok(regions)
}

/// Rows of a run that share their fate.
struct Piece {
    rows: Range<usize>,
    /// Its number, after those that it had before it was cut. All under one identity.
    numbers: Vec<Arc<Ticket>>,
    /// When a commit was first tried, if one may have taken effect.
    tried: Option<FirstTry>,
}

impl Piece {
    /// The rows before `at` and those from there on.
    fn cut(self, at: usize) -> [Self; 2] {
        let Range { start, end } = self.rows;
        assert!(start < at && at < end, "a piece of the rows from {start} to {end} is cut at {at}");
        let half = |rows: Range<usize>| {
            let mut numbers = self.numbers.clone();
            numbers.push(Arc::new(self.numbers[0].another(1)));
            // Where no commit can have taken effect, the numbers before mean nothing.
            let from = if self.tried.is_some() { 0 } else { numbers.len() - 1 };
            Self { rows, numbers: numbers.split_off(from), tried: self.tried }
        };
        [half(self.rows.start..at), half(at..self.rows.end)]
    }
}

/// What became of a piece.
enum Sent {
    Loaded(RegionId),
    /// Its region ends before the row at this index.
    Cut(usize),
}

/// A piece that is sent to the leader of its region.
struct Sending<'a> {
    rows: &'a [LoadRow],
    piece: Piece,
    time: &'a LoadTime,
    /// The id of the run at servers.
    run: [u8; 16],
    parts: Vec<Range<usize>>,
    /// Where parts were sent, and how many are there.
    there: Option<(ServerId, RegionId, RegionEpoch)>,
    next: usize,
}

impl<'a> Sending<'a> {
    fn new(rows: &'a [LoadRow], piece: Piece, time: &'a LoadTime) -> Self {
        let parts = parts_of(rows, &piece.rows);
        Self { rows, piece, time, run: terrane_env::rand::bytes::<16>(), parts, there: None, next: 0 }
    }

    /// The first row after the region, if the piece does not end in it.
    fn cut_at(&self, region: &RegionDescriptor) -> Option<usize> {
        let rows = &self.rows[self.piece.rows.clone()];
        let inside = rows.partition_point(|row| region.range.contains(&row.row));
        (inside < rows.len()).then_some(self.piece.rows.start + inside)
    }

    async fn send(
        &mut self,
        router: &Router,
        target: &Target,
        place: &Place,
        progress: &Progress,
    ) -> Result<(), Failure> {
        let count = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let mut stalls = 0;
        loop {
            let there = if self.next < self.parts.len() {
                self.send_part(router, target, place, progress).await?
            } else {
                match self.commit(router, target, place, progress, count).await? {
                    Committed::Loaded => return Ok(()),
                    Committed::Pending => continue,
                    Committed::Missing { parts } => parts,
                }
            };
            let there = usize::try_from(there).unwrap_or(usize::MAX).min(self.parts.len());
            stalls = if there > self.next { 0 } else { stalls + 1 };
            self.next = there;
            if stalls > STALLS_MAX {
                let message = "the leader has lost rows of a bulk load".to_owned();
                return Err(Failure::Refused(Wire::Unavailable { message, retry_after: STALL_RETRY }));
            }
        }
    }

    /// Sends the next part; returns how many are there.
    async fn send_part(
        &mut self,
        router: &Router,
        target: &Target,
        place: &Place,
        progress: &Progress,
    ) -> Result<u32, Failure> {
        let number = u32::try_from(self.next).unwrap_or(u32::MAX);
        let rows = &self.rows[self.parts[self.next].clone()];
        let asking = if self.time.get() == 0 { Some(self.time.asking.lock().await) } else { None };
        let request = |_| bulk::part(&self.run, number, rows, self.time.get());
        let reply = router.attempt_write(target, place, self.ticket(), progress, request).await?;
        let there = bulk::parts_there(reply)?;
        if there.parts > 0 && !self.time.learn(there.timestamp_ms) {
            // An answer was lost that named another time, under which the leader has begun this run.
            self.run = terrane_env::rand::bytes::<16>();
            return Ok(0);
        }
        drop(asking);
        Ok(there.parts)
    }

    async fn commit(
        &mut self,
        router: &Router,
        target: &Target,
        place: &Place,
        progress: &Progress,
        parts: u32,
    ) -> Result<Committed, Failure> {
        let operations = self.piece.numbers.iter().map(|ticket| ticket.first()).collect();
        let mut first_try = self.piece.tried;
        let request = |now_ms| {
            let tried = first_try.get_or_insert_with(|| FirstTry::now(now_ms));
            tried.seen_by(now_ms);
            bulk::commit(&self.run, parts, operations, tried.cluster_ms)
        };
        let answer = router.attempt_write(target, place, self.ticket(), progress, request).await;
        let answer = answer.and_then(bulk::committed);
        let is_open = match &answer {
            Ok(Committed::Pending) => true,
            Err(failure) => failure.is_uncertain(),
            Ok(_) => false,
        };
        if is_open || self.piece.tried.is_some() {
            self.piece.tried = first_try;
        }
        answer
    }

    fn ticket(&self) -> &Ticket {
        let last = self.piece.numbers.len() - 1;
        &self.piece.numbers[last]
    }
}

impl Attempt for Sending<'_> {
    type Answer = Sent;

    async fn try_once(
        &mut self,
        router: &Router,
        target: &Target,
        progress: &mut Progress,
    ) -> Result<Sent, Box<Missed>> {
        let place = router.place(target, self.position(), &progress.tried).map_err(Missed::nowhere)?;
        if let Some(at) = self.cut_at(&place.region) {
            return Ok(Sent::Cut(at));
        }
        let there = Some((place.server, place.region.region, place.region.epoch));
        if self.there != there {
            (self.there, self.next) = (there, 0);
        }
        match self.send(router, target, &place, progress).await {
            Ok(()) => {
                router.answered(&place);
                Ok(Sent::Loaded(place.region.region))
            }
            Err(failure) => {
                if failure.is_forgotten() && self.piece.tried.is_none() {
                    self.piece.numbers = vec![Arc::new(self.piece.numbers[0].another(1))];
                }
                Err(Missed::at(place, failure))
            }
        }
    }

    fn position(&self) -> Position<'_> {
        Position::Row(&self.rows[self.piece.rows.start].row)
    }

    /// Parts change nothing, so only a commit counts.
    fn applied_maybe(&self, _progress: &Progress) -> bool {
        self.piece.tried.is_some()
    }

    fn given_up(&self, error: Error, _progress: &Progress) -> Error {
        error.of_write(self.piece.tried.is_some())
    }
}

/// Cuts rows into parts.
fn parts_of(rows: &[LoadRow], of: &Range<usize>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (of.start, 0);
    let rows_max = terrane_env::limit!("rows in a part of a bulk load", PART_ROWS_MAX, 1..=8);
    for at in of.clone() {
        let row = rows[at].row.len() + rows[at].cells.len();
        if at > start && (bytes + row > PART_BYTES_MAX || at - start >= rows_max) {
            parts.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes += row;
    }
    if start < of.end {
        parts.push(start..of.end);
    }
    parts
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::route::operation_numbers::Operations;

    fn rows(sizes: &[usize]) -> Vec<LoadRow> {
        let row = |(at, size): (usize, &usize)| LoadRow {
            row: Bytes::from(format!("{at:08}")),
            cells: Bytes::from(vec![0; *size]),
        };
        sizes.iter().enumerate().map(row).collect()
    }

    #[test]
    fn a_part_has_at_most_so_many_bytes_unless_one_row_has_more() {
        let half = PART_BYTES_MAX / 2 - 8;
        let rows = rows(&[half, half, half, 2 * PART_BYTES_MAX, 1]);
        assert_eq!(parts_of(&rows, &(0..5)), [0..2, 2..3, 3..4, 4..5]);
        assert!(parts_of(&rows, &(1..1)).is_empty());
    }

    #[test]
    fn pieces_keep_the_numbers_under_which_they_may_be_there_already() {
        let operations = Operations::new();
        let piece = |tried| Piece { rows: 0..4, numbers: vec![Arc::new(operations.take(1))], tried };
        let numbers = |piece: &Piece| piece.numbers.iter().map(|ticket| ticket.first()).collect::<Vec<_>>();
        let [left, right] = piece(Some(FirstTry::now(5))).cut(1);
        assert_eq!((left.rows.clone(), right.rows.clone()), (0..1, 1..4));
        assert_eq!((numbers(&left), numbers(&right)), (vec![1, 2], vec![1, 3]));
        let [left, right] = piece(None).cut(2);
        assert_eq!((numbers(&left), numbers(&right)), (vec![5], vec![6]), "no commit was tried");
    }
}
