//! Gets of many rows: split into requests by region and selection, sent to all servers at once, and sent again for the rows
//! that failed.
//!
//! Reads need no order, so no request waits for another: all requests to one server are queued on its session together,
//! travel in one message (or a few large ones), and complete as they are answered. That is one round trip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use terrane_types::{RegionId, Row};
use tracing::Instrument;

use crate::consistency::{AsOf, Consistency, older};
use crate::error::Error;
use crate::read::row_data::RowData;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Attempt, Missed, Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::get::{self, ReadSpec};

/// Rows in one request. Only the servers know how large the answer is, so there are few.
const REQUEST_ROWS_MAX: usize = 128;

/// What a call over many rows reads.
pub(crate) struct Gather<'a> {
    /// Each row, and which of the specs it is read with.
    pub(crate) rows: &'a [(Bytes, usize)],
    pub(crate) specs: &'a [Arc<ReadSpec>],
    pub(crate) exists_only: bool,
    pub(crate) consistency: Consistency,
}

/// The rows of one request, and where it goes.
type Addressed = (Place, Vec<usize>);

/// What became of one request.
struct Sent {
    place: Place,
    indices: Vec<usize>,
    answer: Result<AsOf<Vec<RowData>>, Failure>,
}

/// A call in progress: the rows found, and those still to be read.
struct Gathering<'a> {
    gather: &'a Gather<'a>,
    found: AsOf<Vec<Option<RowData>>>,
    pending: Vec<usize>,
    /// The row of the first failure of the last round.
    failed_at: usize,
}

impl Gather<'_> {
    /// Reads all rows; the answers come in the order of the rows.
    pub(crate) async fn run(
        &self,
        router: &Router,
        target: &Target,
        timeout: Duration,
    ) -> Result<AsOf<Vec<Option<RowData>>>, Error> {
        let call = router.observer.begin(CallKind::ReadMany, target, self.rows.len())?;
        let mut progress = Progress::new(Risk::READ, timeout);
        progress.trace = call.trace();
        let span = tracing::debug_span!("call", kind = "read_many", table = %target.table, rows = self.rows.len());
        let mut gathering = Gathering {
            gather: self,
            found: AsOf { value: vec![None; self.rows.len()], as_of_ms: None },
            pending: (0..self.rows.len()).collect(),
            failed_at: 0,
        };
        let result = router.call(target, &mut gathering, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result.map(|()| gathering.found)
    }

    /// The requests for these rows, and the rows for which no server is known.
    fn requests(
        &self,
        router: &Router,
        target: &Target,
        pending: &[usize],
        progress: &Progress,
    ) -> (Vec<Addressed>, Vec<(usize, Failure)>) {
        let mut places: BTreeMap<RegionId, Place> = BTreeMap::new();
        let mut groups: BTreeMap<(RegionId, usize), Vec<usize>> = BTreeMap::new();
        let mut nowhere = Vec::new();
        let mut last: Option<RegionId> = None;
        for &index in pending {
            let (row, spec) = &self.rows[index];
            // Rows often come in order: the region of the row before is tried first.
            let near = last.filter(|region| places.get(region).is_some_and(|place| place.region.range.contains(row)));
            let region = match near {
                Some(region) => region,
                None => match router.place_to_read(target, Position::Row(row), progress, self.consistency) {
                    Ok(place) => {
                        let region = place.region.region;
                        places.entry(region).or_insert(place);
                        region
                    }
                    Err(failure) => {
                        nowhere.push((index, failure));
                        continue;
                    }
                },
            };
            last = Some(region);
            groups.entry((region, *spec)).or_default().push(index);
        }
        let mut requests = Vec::new();
        for ((region, _), indices) in groups {
            requests.extend(indices.chunks(REQUEST_ROWS_MAX).map(|chunk| (places[&region].clone(), chunk.to_vec())));
        }
        (requests, nowhere)
    }

    async fn send(&self, router: &Router, target: &Target, (place, indices): Addressed, progress: &Progress) -> Sent {
        // All rows of one request share their spec.
        let spec = &self.specs[self.rows[indices[0]].1];
        let rows = indices.iter().map(|index| self.rows[*index].0.clone()).collect();
        let request = get::request(rows, spec, self.exists_only);
        let answer = router.attempt_read(target, &place, self.consistency, request, progress).await;
        Sent { place, indices, answer: answer.and_then(|reply| get::rows(reply, RowData::from)) }
    }
}

impl Attempt for Gathering<'_> {
    type Answer = ();

    /// One round: sends every pending row once.
    async fn try_once(&mut self, router: &Router, target: &Target, progress: &mut Progress) -> Result<(), Box<Missed>> {
        let gather = self.gather;
        let (requests, nowhere) = gather.requests(router, target, &self.pending, progress);
        let sending = requests.into_iter().map(|request| gather.send(router, target, request, progress));
        let sent = join_all(sending).await;
        self.pending.clear();
        let mut first_failure = None;
        for (index, failure) in nowhere {
            first_failure.get_or_insert((index, failure));
            self.pending.push(index);
        }
        for Sent { place, indices, answer } in sent {
            match answer {
                Ok(answer) => {
                    router.answered_read(&place, gather.consistency);
                    self.take(answer, &indices);
                }
                // An error of one row is an error of the call.
                Err(failure) if Router::gives_up(&failure, false, progress) => {
                    return Err(Missed::finally(failure.into_error(false)));
                }
                Err(failure) => {
                    router.learn(target, &place, &failure, progress);
                    first_failure.get_or_insert((indices[0], failure));
                    self.pending.extend(indices);
                }
            }
        }
        match first_failure {
            None => Ok(()),
            Some((index, failure)) => {
                self.failed_at = index;
                Err(Missed::nowhere(failure))
            }
        }
    }

    fn position(&self) -> Position<'_> {
        Position::Row(&self.gather.rows[self.failed_at].0)
    }
}

impl Gathering<'_> {
    fn take(&mut self, answer: AsOf<Vec<RowData>>, indices: &[usize]) {
        self.found.as_of_ms = older(self.found.as_of_ms, answer.as_of_ms);
        let rows: BTreeMap<Row, RowData> = answer.value.into_iter().map(|row| (row.row().clone(), row)).collect();
        for &index in indices {
            self.found.value[index] = rows.get(&self.gather.rows[index].0[..]).cloned();
        }
    }
}
