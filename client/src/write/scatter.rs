//! Writes of many rows: grouped by the region that holds each, sent to all servers at once, and sent again for the rows
//! that failed, until none is left or the time is over.
//!
//! Requests to one region follow one another, so that two mutations of one row arrive in the order given.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use terrane_types::RegionId;
use tracing::Instrument;

use crate::error::Error;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::write::submit::Many;

/// Bytes of rows in one request; a single larger row travels alone.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Rows in one request.
const WRITE_ROWS_MAX: usize = 4096;

/// What became of the rows sent to one place.
struct Outcome {
    place: Option<Place>,
    failed: Vec<(usize, Failure)>,
    /// Not sent for the sake of order, because others before them failed.
    held_back: Vec<usize>,
}

/// Writes all rows; answers those that failed, by index.
///
/// # Errors
/// [`Error::Closed`].
pub(crate) async fn run(
    router: &Router,
    target: &Target,
    job: &Many,
    timeout: Duration,
) -> Result<Vec<(usize, Error)>, Error> {
    let call = router.observer.begin(CallKind::WriteMany, target, job.len())?;
    let mut progress = Progress::new(Risk::WRITE, timeout);
    let span = tracing::debug_span!("call", kind = "write_many", table = %target.table, rows = job.len());
    let given_up = rounds(router, target, job, &mut progress).instrument(span).await;
    let done = Ok(given_up);
    call.end(&done, progress.tries);
    done
}

async fn rounds(router: &Router, target: &Target, job: &Many, progress: &mut Progress) -> Vec<(usize, Error)> {
    let mut pending: Vec<usize> = (0..job.len()).collect();
    let mut given_up = Vec::new();
    while !pending.is_empty() {
        let outcomes = round(router, target, job, &pending, progress).await;
        pending = retry(router, target, job, outcomes, progress, &mut given_up).await;
    }
    given_up.sort_by_key(|(index, _)| *index);
    given_up
}

/// Sends every pending row once.
async fn round(router: &Router, target: &Target, job: &Many, pending: &[usize], progress: &Progress) -> Vec<Outcome> {
    let mut by_region: BTreeMap<RegionId, (Place, Vec<usize>)> = BTreeMap::new();
    let mut outcomes = Vec::new();
    let mut nowhere = Vec::new();
    let mut last: Option<RegionId> = None;
    for &index in pending {
        let row = job.row(index);
        // Rows often come in order: the region of the one before is tried first.
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
    if !nowhere.is_empty() {
        outcomes.push(Outcome { place: None, failed: nowhere, held_back: Vec::new() });
    }
    let sent = by_region.into_values().map(|(place, indices)| send(router, target, job, place, indices, progress));
    outcomes.extend(join_all(sent).await);
    outcomes
}

/// Sends rows to one region in as many requests as they need; after a failure the rest is not sent.
async fn send(
    router: &Router,
    target: &Target,
    job: &Many,
    place: Place,
    indices: Vec<usize>,
    progress: &Progress,
) -> Outcome {
    let mut failed = Vec::new();
    let mut rest = &indices[..];
    while !rest.is_empty() && failed.is_empty() {
        let (chunk, behind) = rest.split_at(chunk_len(job, rest));
        rest = behind;
        let body = |now_ms| job.body(chunk, now_ms);
        let answer = router.attempt_write(target, &place, job.ticket(), progress, body).await;
        match answer.and_then(|answer| job.finish(chunk, answer)) {
            Ok(rows) => {
                router.answered(&place);
                failed.extend(rows);
            }
            Err(failure) => failed.extend(chunk.iter().map(|index| (*index, failure.clone()))),
        }
    }
    Outcome { place: Some(place), failed, held_back: rest.to_vec() }
}

fn chunk_len(job: &Many, rest: &[usize]) -> usize {
    let mut bytes = 0;
    let fits = rest.iter().take(WRITE_ROWS_MAX).take_while(|index| {
        bytes += job.bytes(**index);
        bytes <= REQUEST_BYTES_MAX
    });
    fits.count().max(1)
}

/// Sorts failed rows into those to send again and those given up; learns, waits and asks a master once for all of them.
async fn retry(
    router: &Router,
    target: &Target,
    job: &Many,
    outcomes: Vec<Outcome>,
    progress: &mut Progress,
    given_up: &mut Vec<(usize, Error)>,
) -> Vec<usize> {
    let mut again: Vec<usize> = Vec::new();
    let mut gravest: Option<(usize, Failure)> = None;
    for Outcome { place, failed, held_back } in outcomes {
        again.extend(held_back);
        let mut learnt = false;
        for (index, failure) in failed {
            let applied_maybe = job.applied_maybe(index);
            job.failed(index, &failure);
            if Router::gives_up(&failure, applied_maybe, progress) {
                given_up.push((index, failure.into_error(progress.risk.write)));
                continue;
            }
            progress.saw(&failure);
            again.push(index);
            // All rows of one request fail alike: their servers told the same news of the map.
            if let Some(place) = place.as_ref().filter(|_| !std::mem::replace(&mut learnt, true)) {
                router.learn(target, place, &failure, progress);
            }
            if gravest.as_ref().is_none_or(|(_, known)| urgency(&failure) > urgency(known)) {
                gravest = Some((index, failure));
            }
        }
    }
    if let Some((index, failure)) = gravest {
        let position = Position::Row(job.row(index));
        // Rows for which there is nothing to be done are sorted out already.
        if let Err(error) = router.settle(target, position, failure, false, progress).await {
            given_up.extend(again.drain(..).map(|index| (index, error.clone())));
        }
    }
    again.sort_unstable();
    again
}

/// Of many failures the gravest is recovered from; the others were learnt from already.
fn urgency(failure: &Failure) -> u8 {
    match failure {
        Failure::NoPlace => 3,
        Failure::Refused(terrane_types::Error::NotFound { .. }) => 2,
        Failure::Refused(_) | Failure::Decided(_) | Failure::Leaderless | Failure::Queued => 1,
        Failure::Lost(_) | Failure::NotSent(_) => 0,
    }
}
