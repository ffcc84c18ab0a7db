//! Gets over many rows: cut into requests by region and selection, sent to all servers at once, and sent again for the rows
//! that failed.
//!
//! Reads need no order, so that nothing waits for anything: all requests to one server are queued on its session together,
//! travel in one message (or a few, when they are large) and come back when they are done. That is one round trip.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use terrane_proto::v1;
use terrane_proto::v1::request;
use terrane_types::{RegionId, Row};
use tracing::Instrument;

use crate::error::Error;
use crate::read::get_requests::rows_of;
use crate::read::row_data::RowData;
use crate::route::consistency::{AsOf, Consistency, older};
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;

/// The rows of one request, and where it goes.
type Asked = (Place, Vec<usize>);

/// Rows read by one request: what comes back is known to the servers only, so there are few.
const REQUEST_ROWS_MAX: usize = 128;

/// A call over many rows.
pub(crate) struct Gather<'a> {
    /// Each row, and which of the projections it is read with.
    pub(crate) rows: &'a [(Bytes, usize)],
    pub(crate) projections: &'a [Arc<v1::Projection>],
    pub(crate) exists_only: bool,
    pub(crate) consistency: Consistency,
}

/// What became of one request.
struct Outcome {
    place: Place,
    indices: Vec<usize>,
    answer: Result<AsOf<Vec<RowData>>, Failure>,
}

impl Gather<'_> {
    /// Reads all rows, answers in their order.
    pub(crate) async fn run(
        &self,
        router: &Router,
        target: &Target,
        timeout: Duration,
    ) -> Result<AsOf<Vec<Option<RowData>>>, Error> {
        let call = router.observer.begin(CallKind::ReadMany, target, self.rows.len())?;
        let mut progress = Progress::new(Risk::READ, timeout);
        let span = tracing::debug_span!("call", kind = "read_many", table = %target.table, rows = self.rows.len());
        let result = self.read_all(router, target, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    async fn read_all(
        &self,
        router: &Router,
        target: &Target,
        progress: &mut Progress,
    ) -> Result<AsOf<Vec<Option<RowData>>>, Error> {
        let mut found = AsOf { value: vec![None; self.rows.len()], as_of_ms: None };
        let mut pending: Vec<usize> = (0..self.rows.len()).collect();
        while !pending.is_empty() {
            let (requests, nowhere) = self.requests(router, target, &pending, progress);
            let sent = requests.into_iter().map(|(place, indices)| self.send(router, target, place, indices, progress));
            let outcomes = join_all(sent).await;
            pending.clear();
            let mut gravest = None;
            for (index, failure) in nowhere {
                gravest.get_or_insert((index, failure));
                pending.push(index);
            }
            for Outcome { place, indices, answer } in outcomes {
                match answer {
                    Ok(answer) => {
                        router.answered_read(&place, self.consistency);
                        self.take(answer, &indices, &mut found);
                    }
                    Err(failure) if Router::gives_up(&failure, false, progress) => {
                        return Err(failure.into_error(false));
                    }
                    Err(failure) => {
                        router.learn(target, &place, &failure, progress);
                        if gravest.is_none() {
                            gravest = indices.first().map(|index| (*index, failure));
                        }
                        pending.extend(indices);
                    }
                }
            }
            if let Some((index, failure)) = gravest {
                let position = Position::Row(&self.rows[index].0);
                router.settle(target, position, failure, false, progress).await?;
            }
        }
        Ok(found)
    }

    /// The requests for these rows, and the rows that cannot be sent anywhere.
    fn requests(
        &self,
        router: &Router,
        target: &Target,
        pending: &[usize],
        progress: &Progress,
    ) -> (Vec<Asked>, Vec<(usize, Failure)>) {
        let mut places: BTreeMap<RegionId, Place> = BTreeMap::new();
        let mut groups: BTreeMap<(RegionId, usize), Vec<usize>> = BTreeMap::new();
        let mut nowhere = Vec::new();
        let mut last: Option<RegionId> = None;
        for &index in pending {
            let (row, projection) = &self.rows[index];
            // Rows often come in order: the region of the one before is tried first.
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
            groups.entry((region, *projection)).or_default().push(index);
        }
        let mut requests = Vec::new();
        for ((region, _), indices) in groups {
            requests.extend(indices.chunks(REQUEST_ROWS_MAX).map(|chunk| (places[&region].clone(), chunk.to_vec())));
        }
        (requests, nowhere)
    }

    async fn send(
        &self,
        router: &Router,
        target: &Target,
        place: Place,
        indices: Vec<usize>,
        progress: &Progress,
    ) -> Outcome {
        // All of one request share their projection.
        let projection = indices.first().map(|index| v1::Projection::clone(&self.projections[self.rows[*index].1]));
        let body = request::Body::Get(v1::Get {
            rows: indices.iter().map(|index| self.rows[*index].0.clone()).collect(),
            projection,
            exists_only: self.exists_only,
            ..v1::Get::default()
        });
        let answer = router.attempt_read(target, &place, self.consistency, body, progress).await;
        Outcome { place, indices, answer: answer.and_then(rows_of) }
    }

    fn take(&self, answer: AsOf<Vec<RowData>>, indices: &[usize], found: &mut AsOf<Vec<Option<RowData>>>) {
        found.as_of_ms = older(found.as_of_ms, answer.as_of_ms.unwrap_or(0));
        let rows: BTreeMap<Row, RowData> = answer.value.into_iter().map(|row| (row.row().clone(), row)).collect();
        for &index in indices {
            found.value[index] = rows.get(&self.rows[index].0[..]).cloned();
        }
    }
}
