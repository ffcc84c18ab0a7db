//! Where reads go and what their headers say, by the consistency they ask for.
//!
//! Linearizable reads go where writes go, to the leader. Those that a follower may answer are spread: each asks a member
//! chosen at random, the leader last, and goes on to the others when one cannot answer. An answer of a follower says
//! nothing about who leads, so the location cache learns nothing from it.

use bytes::Bytes;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use tokio::time::Instant;
use tracing::Instrument;

use crate::error::Error;
use crate::route::consistency::Consistency;
use crate::route::lanes::Load;
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::router::{Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;

impl Router {
    /// Where to read next for `position`.
    pub(crate) fn place_to_read(
        &self,
        target: &Target,
        position: Position<'_>,
        progress: &Progress,
        consistency: Consistency,
    ) -> Result<Place, Failure> {
        match consistency {
            Consistency::Linearizable | Consistency::Strict => self.place(target, position, &progress.tried),
            Consistency::Stale => self.place_of_any(target, position, &progress.tried, terrane_env::rand::u64()),
        }
    }

    pub(crate) fn read_header(
        &self,
        target: &Target,
        place: &Place,
        consistency: Consistency,
        until: Instant,
    ) -> v1::RequestHeader {
        let consistency = v1::Consistency::from(consistency).into();
        v1::RequestHeader { consistency, ..self.header(target, &place.region, until) }
    }

    /// One request that reads, answered or failed within the time of one try.
    pub(crate) async fn attempt_read(
        &self,
        target: &Target,
        place: &Place,
        consistency: Consistency,
        body: request::Body,
        progress: &Progress,
    ) -> Result<reply::Body, Failure> {
        self.sent();
        let _turn = self.lanes.enter(place.region.group, Load::Reads, progress.deadline()).await?;
        let room = place.session.room(progress.deadline()).await?;
        let until = progress.try_until();
        let header = self.read_header(target, place, consistency, until);
        let answered = place.session.call(room, header, body, until).await?;
        target.saw_schema_version(answered.schema_version);
        Ok(answered.body)
    }

    /// A server answered a read: if only the leader does so, it is known to lead.
    pub(crate) fn answered_read(&self, place: &Place, consistency: Consistency) {
        if consistency != Consistency::Stale {
            self.answered(place);
        }
    }

    /// Reads from whoever may answer for `row` until it is done or the time is over.
    pub(crate) async fn read_row<T>(
        &self,
        target: &Target,
        row: &[u8],
        consistency: Consistency,
        mut progress: Progress,
        body: impl Fn() -> request::Body,
        finish: impl Fn(reply::Body) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let kind = if matches!(body(), request::Body::Get(_)) { CallKind::Read } else { CallKind::Page };
        let call = self.observer.begin(kind, target, 1)?;
        let span = tracing::debug_span!("call", kind = kind.name(), table = %target.table);
        let reading = self.try_reading(target, row, consistency, &mut progress, body, finish);
        let result = reading.instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    async fn try_reading<T>(
        &self,
        target: &Target,
        row: &[u8],
        consistency: Consistency,
        progress: &mut Progress,
        body: impl Fn() -> request::Body,
        finish: impl Fn(reply::Body) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        loop {
            let mut place = self.place_to_read(target, Position::Row(row), progress, consistency);
            let failure = match &mut place {
                Ok(place) => {
                    let answer = match &self.hedging {
                        Some(hedging) if consistency == Consistency::Stale => {
                            Box::pin(self.attempt_hedged(hedging, target, row, place, &body, progress)).await
                        }
                        _ => self.attempt_read(target, place, consistency, body(), progress).await,
                    };
                    match answer.and_then(&finish) {
                        Ok(done) => {
                            self.answered_read(place, consistency);
                            return Ok(done);
                        }
                        Err(failure) => failure,
                    }
                }
                Err(failure) => failure.clone(),
            };
            // Rare, and large: kept apart, so that the future of a call that goes well stays small.
            Box::pin(self.recover(target, Position::Row(row), place.as_ref().ok(), failure, progress)).await?;
        }
    }

    /// Asks masters until the cache knows the regions from `start` to `end` (empty: the table's end) or the time is over;
    /// answers where the regions begin that begin behind `start`, each with the server that most likely answers for it,
    /// and first that of `start`'s own.
    pub(crate) async fn regions_of(
        &self,
        target: &Target,
        start: &Bytes,
        end: &Bytes,
        mut progress: Progress,
    ) -> Result<Vec<(Bytes, Place)>, Error> {
        let mut regions = Vec::new();
        let mut at = start.clone();
        loop {
            match self.place(target, Position::Row(&at), &progress.tried) {
                Ok(place) => {
                    let next = place.region.range.end.clone();
                    regions.push((std::mem::replace(&mut at, next), place));
                    if at.is_empty() || (!end.is_empty() && at >= *end) {
                        return Ok(regions);
                    }
                }
                Err(failure) => self.recover(target, Position::Row(&at), None, failure, &mut progress).await?,
            }
        }
    }
}
