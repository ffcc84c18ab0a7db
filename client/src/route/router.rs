//! The one retry loop of the client: every call to a region server is an [`Attempt`], and [`Router::call`] repeats it until it
//! succeeds, cannot succeed, or its time is over.
//!
//! The warm path takes two short read locks and calls no master. No lock is held across an await.
//!
//! - `places`: from a row to the server that hosts it;
//! - `exchange`: one request and its reply;
//! - `recovery`: what a failed try teaches, and what happens before the next one.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use terrane_types::ClusterId;
use tokio::time::Instant;

use crate::error::Error;
use crate::route::budget::{Bucket, RetryBudget};
use crate::route::counters::Counting;
use crate::route::hedge::Hedging;
use crate::route::lanes::Lanes;
use crate::route::leader_search::Searches;
use crate::route::locator::Locator;
use crate::route::observe::Observer;
use crate::route::operation_numbers::Operations;
use crate::route::progress::Progress;
use crate::route::sessions::Sessions;
use crate::route::target::Target;
use crate::wire::failure::Failure;
use crate::wire::masters::Masters;

mod exchange;
mod places;
mod recovery;

pub(crate) use exchange::RowRead;
pub(crate) use places::Place;
use recovery::UnansweredLookups;

pub(crate) use crate::route::locator::Position;

/// The location cache, the sessions and the masters of one client.
pub(crate) struct Router {
    pub(crate) cluster: ClusterId,
    pub(crate) masters: Masters,
    pub(crate) counting: Counting,
    pub(crate) operations: Operations,
    pub(crate) observer: Observer,
    locator: RwLock<Locator>,
    sessions: Sessions,
    searches: Searches,
    lanes: Lanes,
    hedging: Option<Hedging>,
    /// Held during a look-up at a master, so that a thousand callers that need the map look it up once.
    lookup: tokio::sync::Mutex<UnansweredLookups>,
    /// Look-ups so far: tells those who waited for `lookup` that another caller has finished one.
    lookups_done: AtomicU64,
    retries: Bucket,
    began: Instant,
    boot: u64,
}

/// A call, as the retry loop sees it: what one try does, and what it is about.
pub(crate) trait Attempt: Send {
    /// What a successful try returns.
    type Answer;

    /// One try. A call over many rows keeps the rows that are done, and misses while any is left.
    fn try_once(
        &mut self,
        router: &Router,
        target: &Target,
        progress: &mut Progress,
    ) -> impl Future<Output = Result<Self::Answer, Box<Missed>>> + Send;

    /// What the last failure was about: the row or bound to look up before the next try.
    fn position(&self) -> Position<'_>;

    /// Whether an earlier try of what failed last may have been applied.
    fn applied_maybe(&self, progress: &Progress) -> bool {
        progress.applied_maybe()
    }

    /// The error of a call that is given up, as its caller is to see it.
    fn given_up(&self, error: Error, _progress: &Progress) -> Error {
        error
    }
}

/// A try that did not succeed.
pub(crate) enum Missed {
    /// It failed at this place. `None`: no request was sent, or the call has learnt from the failure itself.
    Failed(Option<Place>, Failure),
    /// No further try can change the outcome.
    Final(Error),
}

impl Missed {
    pub(crate) fn at(place: Place, failure: Failure) -> Box<Self> {
        Box::new(Self::Failed(Some(place), failure))
    }

    pub(crate) fn nowhere(failure: Failure) -> Box<Self> {
        Box::new(Self::Failed(None, failure))
    }

    pub(crate) fn finally(error: impl Into<Error>) -> Box<Self> {
        Box::new(Self::Final(error.into()))
    }
}

impl Router {
    pub(crate) fn new(
        cluster: ClusterId,
        masters: Masters,
        boot: u64,
        budget: RetryBudget,
        hedging: Option<Hedging>,
        observer: Observer,
    ) -> Self {
        Self {
            cluster,
            masters,
            counting: Counting::default(),
            operations: Operations::new(),
            observer,
            locator: RwLock::default(),
            sessions: Sessions::default(),
            searches: Searches::default(),
            lanes: Lanes::default(),
            hedging,
            lookup: tokio::sync::Mutex::default(),
            lookups_done: AtomicU64::new(0),
            retries: Bucket::new(budget),
            began: Instant::now(),
            boot,
        }
    }

    /// Tries until the attempt succeeds, cannot succeed, or the time of the call is over.
    pub(crate) async fn call<A: Attempt>(
        &self,
        target: &Target,
        attempt: &mut A,
        progress: &mut Progress,
    ) -> Result<A::Answer, Error> {
        loop {
            let missed = match attempt.try_once(self, target, progress).await {
                Ok(answer) => return Ok(answer),
                Err(missed) => missed,
            };
            let (place, failure) = match *missed {
                Missed::Failed(place, failure) => (place, failure),
                Missed::Final(error) => return Err(error),
            };
            let applied_maybe = attempt.applied_maybe(progress);
            // Rare and large, so it has a box of its own: the future of a call that succeeds stays small.
            let recovery =
                Box::pin(self.recover(target, attempt.position(), place, failure, applied_maybe, progress)).await;
            recovery.map_err(|error| attempt.given_up(error, progress))?;
        }
    }

    /// Refuses new calls, waits for those in flight, and ends all sessions.
    pub(crate) async fn close(&self) {
        self.observer.close().await;
        self.sessions.clear();
    }

    /// Drops what is known of a table's regions, after it was dropped.
    pub(crate) fn forget_table(&self, target: &Target) {
        self.locator.write().forget_table(target.table);
    }

    /// Takes one retry from the budget; false when it is spent.
    fn may_retry(&self) -> bool {
        self.retries.spend(self.began.elapsed())
    }

    /// Counts a request, which earns a share of a retry.
    fn sent(&self) {
        self.counting.requests.add();
        self.retries.deposit();
    }

    fn lookups_done(&self) -> u64 {
        self.lookups_done.load(Ordering::Acquire)
    }
}
