//! Writes of many rows: grouped by region, sent to all servers at once, and sent again for the rows that failed, until none
//! is left or the time is over.
//!
//! Requests to one region follow one another, so two mutations of one row arrive in the order given.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use terrane_types::{Error as Wire, RegionId};
use tracing::Instrument;

use crate::error::Error;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Attempt, Missed, Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::mutate::RowWrite;
use crate::write::many::{Outcomes, RowBatch};

/// Bytes of rows in one request; a larger row travels alone.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Rows in one request.
const WRITE_ROWS_MAX: usize = 4096;

/// Writes many rows, each by itself.
pub(crate) async fn send_many(router: &Router, target: &Target, rows: Vec<RowWrite>, timeout: Duration) -> Outcomes {
    let many = RowBatch::new(&router.operations, rows);
    let call = match router.observer.begin(CallKind::WriteMany, target, many.len()) {
        Ok(call) => call,
        Err(closed) => {
            let all = (0..many.len()).map(|index| (index, closed.clone())).collect();
            return many.into_outcomes(all);
        }
    };
    let mut progress = Progress::new(Risk::WRITE, timeout);
    progress.trace = call.trace();
    let span = tracing::debug_span!("call", kind = "write_many", table = %target.table, rows = many.len());
    let pending = (0..many.len()).collect();
    let mut scatter = Scatter { many: &many, pending, given_up: Vec::new(), failed_at: 0 };
    if let Err(error) = router.call(target, &mut scatter, &mut progress).instrument(span).await {
        scatter.give_all_up(&error);
    }
    let Scatter { pending, given_up, .. } = scatter;
    assert!(pending.is_empty(), "{} rows that were not written would be reported as written", pending.len());
    // The call itself succeeds: each row has its own outcome.
    call.end(&Ok::<(), Error>(()), progress.tries);
    many.into_outcomes(given_up)
}

/// The rows that are not written yet, and those that were given up.
struct Scatter<'a> {
    many: &'a RowBatch,
    pending: Vec<usize>,
    given_up: Vec<(usize, Error)>,
    /// The row of the gravest failure of the last round.
    failed_at: usize,
}

/// What became of the rows sent to one place.
struct Sent {
    place: Option<Place>,
    failed: Vec<(usize, Failure)>,
    /// Not sent, to keep the order, because rows before them failed.
    held_back: Vec<usize>,
}

impl Attempt for Scatter<'_> {
    type Answer = ();

    /// One round: sends every pending row once.
    async fn try_once(&mut self, router: &Router, target: &Target, progress: &mut Progress) -> Result<(), Box<Missed>> {
        while !self.pending.is_empty() {
            let sent = self.round(router, target, progress).await;
            if let Some((index, failure)) = self.sort_out(router, target, sent, progress) {
                self.failed_at = index;
                return Err(Missed::nowhere(failure));
            }
        }
        Ok(())
    }

    fn position(&self) -> Position<'_> {
        Position::Row(self.many.row(self.failed_at))
    }

    /// Rows without hope are sorted out already, each by its own tries.
    fn applied_maybe(&self, _progress: &Progress) -> bool {
        false
    }
}

impl Scatter<'_> {
    fn give_all_up(&mut self, error: &Error) {
        let pending = std::mem::take(&mut self.pending);
        self.given_up.extend(pending.into_iter().map(|index| (index, error.clone())));
    }

    /// Sends every pending row once, to all regions at once.
    async fn round(&self, router: &Router, target: &Target, progress: &Progress) -> Vec<Sent> {
        let mut by_region: BTreeMap<RegionId, (Place, Vec<usize>)> = BTreeMap::new();
        let mut nowhere = Vec::new();
        let mut last: Option<RegionId> = None;
        for &index in &self.pending {
            let row = self.many.row(index);
            // Rows often come in order: the region of the row before is tried first.
            if let Some((place, indices)) = last.and_then(|region| by_region.get_mut(&region))
                && place.region.range.contains(row)
            {
                indices.push(index);
                continue;
            }
            match router.place(target, Position::Row(row), &progress.tried) {
                Ok(place) => {
                    last = Some(place.region.region);
                    by_region.entry(place.region.region).or_insert_with(|| (place, Vec::new())).1.push(index);
                }
                Err(failure) => nowhere.push((index, failure)),
            }
        }
        let mut sent = Vec::new();
        if !nowhere.is_empty() {
            sent.push(Sent { place: None, failed: nowhere, held_back: Vec::new() });
        }
        let sending =
            by_region.into_values().map(|(place, indices)| self.send(router, target, place, indices, progress));
        sent.extend(join_all(sending).await);
        sent
    }

    /// Sends rows to one region in as many requests as they need; after a failure the rest is not sent.
    async fn send(
        &self,
        router: &Router,
        target: &Target,
        place: Place,
        indices: Vec<usize>,
        progress: &Progress,
    ) -> Sent {
        let many = self.many;
        let mut failed = Vec::new();
        let mut rest = &indices[..];
        while !rest.is_empty() && failed.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(many, rest));
            rest = after;
            let request = |now_ms| many.request(chunk, now_ms);
            let answer = router.attempt_write(target, &place, many.ticket(), progress, request).await;
            match answer.and_then(|reply| many.finish(chunk, reply)) {
                Ok(rows) => {
                    router.answered(&place);
                    failed.extend(rows);
                }
                Err(failure) => failed.extend(chunk.iter().map(|index| (*index, failure.clone()))),
            }
        }
        Sent { place: Some(place), failed, held_back: rest.to_vec() }
    }

    /// Sorts failed rows into those to send again and those given up; learns from each place. Returns the gravest failure
    /// among the rows to send again.
    fn sort_out(
        &mut self,
        router: &Router,
        target: &Target,
        sent: Vec<Sent>,
        progress: &mut Progress,
    ) -> Option<(usize, Failure)> {
        let mut again: Vec<usize> = Vec::new();
        let mut gravest: Option<(usize, Failure)> = None;
        for Sent { place, failed, held_back } in sent {
            if !terrane_env::planted!("rows held back count as written") {
                again.extend(held_back);
            }
            let mut learnt = false;
            for (index, failure) in failed {
                let applied_maybe = self.many.applied_maybe(index);
                self.many.failed(index, &failure);
                if Router::gives_up(&failure, applied_maybe, progress) {
                    self.given_up.push((index, failure.into_error(progress.risk.write)));
                    continue;
                }
                progress.record_failure(&failure);
                again.push(index);
                // All rows of one request fail alike: their failures say the same about the map.
                if let Some(place) = place.as_ref().filter(|_| !std::mem::replace(&mut learnt, true)) {
                    router.learn(target, place, &failure, progress);
                }
                if gravest.as_ref().is_none_or(|(_, known)| severity(&failure) > severity(known)) {
                    gravest = Some((index, failure));
                }
            }
        }
        again.sort_unstable();
        assert!(again.is_sorted_by(|one, next| one < next), "a row is to be sent twice in one round");
        self.pending = again;
        gravest
    }
}

fn chunk_len(many: &RowBatch, rest: &[usize]) -> usize {
    let mut bytes = 0;
    let rows_max = terrane_env::limit!("rows in a request", WRITE_ROWS_MAX, 1..=8);
    let fits = rest.iter().take(rows_max).take_while(|index| {
        bytes += many.bytes(**index);
        bytes <= REQUEST_BYTES_MAX
    });
    fits.count().max(1)
}

/// The call recovers from the gravest of several failures; it has learnt from the others already.
fn severity(failure: &Failure) -> u8 {
    match failure {
        Failure::NoPlace => 3,
        Failure::Refused(Wire::NotFound { .. }) => 2,
        Failure::Refused(_) | Failure::Decided(_) | Failure::Leaderless | Failure::Queued => 1,
        Failure::Lost(_) | Failure::NotSent(_) => 0,
    }
}
