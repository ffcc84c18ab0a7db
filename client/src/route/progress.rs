//! The progress of one call: its time, and what has failed so far.

use std::time::Duration;

use terrane_env::trace::TraceContext;
use tokio::time::Instant;

use crate::deadline::TRY_MAX;
use crate::deadline::after;
use crate::error::Error;
use crate::route::lanes::Load;
use crate::route::leader_search::Scout;
use crate::route::locator::Member;
use crate::route::retry::Risk;
use crate::wire::failure::Failure;

/// The progress of one call over all its tries.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) risk: Risk,
    /// Failed tries so far.
    pub(crate) tries: u32,
    /// Those among them that only said that the leader is elsewhere.
    hops: u32,
    /// How often all members of a group were tried and none led.
    pub(crate) rounds: u32,
    /// Members of groups that were tried without success since the last news.
    pub(crate) tried: Vec<Member>,
    /// Held while this call is one of the scouts that look for a leader.
    pub(crate) scout: Option<Scout>,
    /// The call's span, if its trace is recorded: what servers do for it are parts of that.
    pub(crate) trace: Option<TraceContext>,
    started: Instant,
    deadline: Instant,
    /// Whether an earlier try may have been applied.
    uncertain: bool,
    last: Option<Failure>,
    /// Why no master said where to continue, since the last other failure.
    masters: Option<Error>,
}

impl Progress {
    pub(crate) fn new(risk: Risk, timeout: Duration) -> Self {
        Self::since(Instant::now(), risk, timeout)
    }

    /// The progress of a call that continues what was begun at an earlier time, which counts.
    pub(crate) fn since(started: Instant, risk: Risk, timeout: Duration) -> Self {
        let deadline = after(timeout.saturating_sub(started.elapsed()));
        Self {
            risk,
            tries: 0,
            hops: 0,
            rounds: 0,
            masters: None,
            tried: Vec::new(),
            scout: None,
            trace: None,
            started,
            deadline,
            uncertain: false,
            last: None,
        }
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When the current try is given up.
    pub(crate) fn try_until(&self) -> Instant {
        self.deadline.min(Instant::now() + TRY_MAX)
    }

    pub(crate) const fn load(&self) -> Load {
        if self.risk.write { Load::Writes } else { Load::Reads }
    }

    /// Whether an earlier try of a write may have been applied.
    pub(crate) const fn applied_maybe(&self) -> bool {
        self.uncertain
    }

    pub(crate) fn failed(&mut self, failure: Failure) {
        self.tries += 1;
        self.hops += u32::from(failure.is_hop());
        self.rounds += u32::from(matches!(failure, Failure::Leaderless));
        self.record_failure(&failure);
        if !failure.is_about_map() {
            self.masters = None;
        }
        // An earlier failure says more than a missing leader or a queue of other callers.
        if self.last.is_none() || !matches!(failure, Failure::Leaderless | Failure::Queued) {
            self.last = Some(failure);
        }
    }

    /// How often this call has failed in this way. Hops and other failures are counted apart: each kind backs off by itself.
    pub(crate) const fn tries_of_kind(&self, failure: &Failure) -> u32 {
        if failure.is_hop() { self.hops } else { self.tries - self.hops }
    }

    /// Records whether a write may have been applied although it failed.
    pub(crate) fn record_failure(&mut self, failure: &Failure) {
        self.uncertain |= self.risk.write && failure.is_uncertain();
    }

    /// Waits, unless the time of the call would run out meanwhile.
    pub(crate) async fn wait(&mut self, wait: Duration) -> Result<(), Error> {
        if Instant::now() + wait >= self.deadline {
            return Err(self.timeout());
        }
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    /// The error of a call that may not try again because the retry budget is spent.
    pub(crate) fn budget_spent(&mut self) -> Error {
        let write = self.risk.write;
        let last = self.last.take().map(|failure| Box::new(failure.into_error(write)));
        Error::RetriesSpent { uncertain: self.uncertain, last }
    }

    /// The error of a call that ends before its next try, for example because no master answers. The error knows nothing of
    /// earlier tries, so it must not claim that nothing was applied if one of them may have been.
    pub(crate) fn with_doubt(&self, error: Error) -> Error {
        if !self.uncertain || !error.is_retry_safe() {
            return error;
        }
        Error::Timeout { after: self.started.elapsed(), uncertain: true, last: Some(Box::new(error)) }
    }

    /// No master said where the region is, so the call returns to where it was.
    pub(crate) fn without_master(&mut self, error: Error) {
        self.masters = Some(error);
    }

    /// The error of a call whose time is over.
    pub(crate) fn timeout(&mut self) -> Error {
        let write = self.risk.write;
        let last = self.last.take().map(|failure| failure.into_error(write));
        Error::Timeout {
            after: self.deadline - self.started,
            uncertain: self.uncertain,
            last: self.masters.take().or(last).map(Box::new),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> Error {
        Error::Unreachable { masters: "m:7600".to_owned(), last: None }
    }

    #[tokio::test(start_paused = true)]
    async fn what_continues_an_earlier_call_has_the_rest_of_its_time() {
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(8)).await;
        let progress = Progress::since(began, Risk::READ, Duration::from_secs(10));
        assert_eq!(progress.deadline() - Instant::now(), Duration::from_secs(2));
        tokio::time::sleep(Duration::from_secs(8)).await;
        let mut progress = Progress::since(began, Risk::READ, Duration::from_secs(10));
        assert!(progress.wait(Duration::ZERO).await.is_err(), "its time is over");
    }

    #[tokio::test]
    async fn without_a_master_a_write_that_was_tried_before_is_uncertain() {
        let mut progress = Progress::new(Risk::WRITE, Duration::from_secs(1));
        assert!(progress.with_doubt(unreachable()).is_retry_safe(), "nothing was sent yet");
        progress.failed(Failure::Lost("the stream broke".into()));
        let error = progress.with_doubt(unreachable());
        assert!(error.is_uncertain() && !error.is_retry_safe(), "{error}");
        let missing = Error::NotFound { what: "table t".to_owned() };
        assert!(progress.with_doubt(missing).is_not_found(), "what is final stays");
    }
}
