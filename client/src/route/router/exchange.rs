//! One request and its reply.

use std::time::Duration;

use terrane_env::rand;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::{Attempt, Missed, Place, Position, Router};
use crate::consistency::Consistency;
use crate::error::Error;
use crate::route::hedge::Hedging;
use crate::route::lanes::Load;
use crate::route::observe::CallKind;
use crate::route::operation_numbers::Ticket;
use crate::route::progress::Progress;
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::message::{Header, Reply, Request};
use crate::wire::scan::RegionScan;
use crate::wire::scan_stream::ScanStream;
use futures::future::{Either, select};

impl Router {
    /// One write, under the operation numbers of `ticket`. `request` is called when the request is about to be queued, with
    /// the cluster time of the server.
    pub(crate) async fn attempt_write(
        &self,
        target: &Target,
        place: &Place,
        ticket: &Ticket,
        progress: &Progress,
        request: impl FnOnce(u64) -> Request,
    ) -> Result<Reply, Failure> {
        self.sent();
        let _turn = self.lanes.enter(place.region.group, Load::Writes, progress.deadline()).await?;
        if place.session.clock_is_in_doubt() {
            Box::pin(place.session.refresh_clock(progress.try_until())).await?;
        }
        let permit = place.session.permit(progress.deadline()).await?;
        let until = progress.try_until();
        let header = Header {
            operations: Some(ticket.header(place.region.region)),
            ..header(target, place, Consistency::Linearizable, progress, until)
        };
        // There is a permit only after the server's hello, which says the time.
        let now_ms = place.session.cluster_time_ms().unwrap_or_default();
        let answered = place.session.call(permit, header, request(now_ms), until).await?;
        if terrane_env::buggify!("the answer to a write is lost", 8) {
            return Err(Failure::Lost("the answer to a write is lost on purpose".to_owned()));
        }
        target.saw_schema_version(answered.schema_version);
        Ok(answered.reply)
    }

    /// One read, answered or failed within the time of one try.
    pub(crate) async fn attempt_read(
        &self,
        target: &Target,
        place: &Place,
        consistency: Consistency,
        request: Request,
        progress: &Progress,
    ) -> Result<Reply, Failure> {
        self.sent();
        let _turn = self.lanes.enter(place.region.group, Load::Reads, progress.deadline()).await?;
        let permit = place.session.permit(progress.deadline()).await?;
        let until = progress.try_until();
        let header = header(target, place, consistency, progress, until);
        let answered = place.session.call(permit, header, request, until).await?;
        target.saw_schema_version(answered.schema_version);
        Ok(answered.reply)
    }

    /// One read that any member may answer. When it takes unusually long, a second member gets it too, and the first answer
    /// counts; `place` becomes the one that answered.
    async fn attempt_hedged(
        &self,
        hedging: &Hedging,
        target: &Target,
        row: &[u8],
        place: &mut Place,
        request: &Request,
        progress: &Progress,
    ) -> Result<Reply, Failure> {
        let began = Instant::now();
        let near = place.clone();
        let first = std::pin::pin!(self.attempt_read(target, &near, Consistency::Stale, request.clone(), progress));
        let at_once = terrane_env::buggify!("a read is hedged at once");
        let delay = std::pin::pin!(sleep(if at_once { Duration::ZERO } else { hedging.delay() }));
        let first = match select(first, delay).await {
            Either::Left((answer, _)) => {
                hedging.learn(began.elapsed());
                return answer;
            }
            Either::Right(((), first)) => first,
        };
        hedging.learn_slow(began.elapsed());
        let mut tried = progress.tried.clone();
        tried.push((near.region.group, near.server));
        let other = self.place_of_any(target, Position::Row(row), &tried, rand::u64());
        let Some(other) = other.ok().filter(|other| other.server != near.server && self.may_retry()) else {
            return first.await;
        };
        self.counting.hedged_reads.add();
        let second = std::pin::pin!(self.attempt_read(target, &other, Consistency::Stale, request.clone(), progress));
        match select(first, second).await {
            Either::Left((Ok(answer), _)) => Ok(answer),
            Either::Right((Ok(answer), _)) => {
                *place = other.clone();
                Ok(answer)
            }
            // One failed: the other one's answer counts.
            Either::Left((Err(_), second)) => {
                *place = other.clone();
                second.await
            }
            Either::Right((Err(_), first)) => first.await,
        }
    }

    /// Opens a stream of blocks for the rest of a scan in one region.
    pub(crate) async fn open_scan(
        &self,
        target: &Target,
        place: &Place,
        consistency: Consistency,
        scan: RegionScan,
        progress: &Progress,
    ) -> Result<ScanStream, Failure> {
        self.counting.requests.add();
        let until = progress.try_until();
        // The stream lives as long as its reader reads. It has no deadline; each wait for a block has one.
        let header = Header { time_left: None, ..header(target, place, consistency, progress, until) };
        ScanStream::open(&place.session, header, scan, until).await
    }

    /// A server answered as only a leader does: news, if it was not known to lead.
    pub(crate) fn answered(&self, place: &Place) {
        if !place.leads {
            self.locator.write().answered(place.region.group, place.server);
        }
        if self.searches.is_any() {
            self.searches.found(place.region.group);
        }
    }

    /// A server answered a read. Unless any member may answer, it leads.
    pub(crate) fn answered_read(&self, place: &Place, consistency: Consistency) {
        if consistency != Consistency::Stale {
            self.answered(place);
        }
    }

    /// Sends one read about `row` until it is answered or its time is over.
    pub(crate) async fn read_row<T>(
        &self,
        target: &Target,
        kind: CallKind,
        read: RowRead<'_, impl Fn(Reply) -> Result<T, Failure> + Send + Sync>,
        mut progress: Progress,
    ) -> Result<T, Error> {
        let call = self.observer.begin(kind, target, 1)?;
        let span = tracing::debug_span!("call", kind = kind.name(), table = %target.table);
        progress.trace = call.trace();
        let mut read = read;
        let result = self.call(target, &mut read, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }
}

fn header(target: &Target, place: &Place, consistency: Consistency, progress: &Progress, until: Instant) -> Header {
    Header {
        table: target.table,
        region: place.region.region,
        epoch: place.region.epoch,
        schema_version: target.schema_version(),
        time_left: Some(until.saturating_duration_since(Instant::now())),
        consistency,
        operations: None,
        trace: progress.trace,
    }
}

/// A read of one row, or of anything that the server of that row's region answers.
pub(crate) struct RowRead<'a, F> {
    pub(crate) row: &'a [u8],
    pub(crate) consistency: Consistency,
    pub(crate) request: Request,
    /// Reads the reply.
    pub(crate) finish: F,
}

impl<T, F: Fn(Reply) -> Result<T, Failure> + Send + Sync> Attempt for RowRead<'_, F> {
    type Answer = T;

    async fn try_once(&mut self, router: &Router, target: &Target, progress: &mut Progress) -> Result<T, Box<Missed>> {
        let (consistency, request) = (self.consistency, &self.request);
        let place = router.place_to_read(target, Position::Row(self.row), progress, consistency);
        let mut place = place.map_err(Missed::nowhere)?;
        let answer = match &router.hedging {
            Some(hedging) if consistency == Consistency::Stale => {
                Box::pin(router.attempt_hedged(hedging, target, self.row, &mut place, request, progress)).await
            }
            _ => router.attempt_read(target, &place, consistency, request.clone(), progress).await,
        };
        match answer.and_then(&self.finish) {
            Ok(done) => {
                router.answered_read(&place, consistency);
                Ok(done)
            }
            Err(failure) => Err(Missed::at(place, failure)),
        }
    }

    fn position(&self) -> Position<'_> {
        Position::Row(self.row)
    }
}
