//! Hedged reads: when a follower takes unusually long to answer, another member is asked too, and the first answer wins.
//!
//! Only reads that any member may answer are hedged, so that hedging never makes an answer weaker than what was asked
//! for. How long is unusual is learnt: about one read in twenty takes longer than the delay. Each second request is
//! paid for from the retry budget, so a cluster that is slow as a whole is not asked everything twice.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::{Either, select};
use terrane_proto::v1::{reply, request};
use tokio::time::{Instant, sleep};

use crate::route::consistency::Consistency;
use crate::route::progress::Progress;
use crate::route::router::{Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::Failure;

/// The delay before anything is known, and its bounds.
const DELAY_FIRST: Duration = Duration::from_millis(10);
const DELAY_MIN: Duration = Duration::from_micros(500);
const DELAY_MAX: Duration = Duration::from_secs(1);
/// A slow read moves the delay up by a fiftieth; a quick one moves it down by a nineteenth of that. The two balance where
/// one read in twenty is slow.
const STEP: u64 = 50;
const QUICK_FOR_SLOW: u64 = 19;

/// Learns after what time a read is slow.
#[derive(Debug)]
pub(crate) struct Hedging {
    /// Nanoseconds. Lost updates of readers that collide do no harm.
    delay: AtomicU64,
}

impl Hedging {
    pub(crate) fn new() -> Self {
        Self { delay: AtomicU64::new(nanos(DELAY_FIRST)) }
    }

    fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Ordering::Relaxed))
    }

    fn learn(&self, took: Duration) {
        let delay = self.delay.load(Ordering::Relaxed);
        let step = delay / STEP;
        let moved = if nanos(took) > delay { delay + step } else { delay - step / QUICK_FOR_SLOW };
        self.delay.store(moved.clamp(nanos(DELAY_MIN), nanos(DELAY_MAX)), Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Router {
    /// One try of a read that any member may answer; `place` becomes the one that answered.
    pub(crate) async fn attempt_hedged(
        &self,
        hedging: &Hedging,
        target: &Target,
        row: &[u8],
        place: &mut Place,
        body: &impl Fn() -> request::Body,
        progress: &Progress,
    ) -> Result<reply::Body, Failure> {
        let began = Instant::now();
        let near = place.clone();
        let first = std::pin::pin!(self.attempt_read(target, &near, Consistency::Stale, body(), progress));
        let delay = std::pin::pin!(sleep(hedging.delay()));
        let first = match select(first, delay).await {
            Either::Left((answer, _)) => {
                hedging.learn(began.elapsed());
                return answer;
            }
            Either::Right(((), first)) => first,
        };
        hedging.learn(began.elapsed().max(hedging.delay() + Duration::from_nanos(1)));
        let mut tried = progress.tried.clone();
        tried.push((near.region.group, near.server));
        let other = self.place_of_any(target, Position::Row(row), &tried, terrane_env::rand::u64());
        let Some(other) = other.ok().filter(|other| other.server != near.server && self.may_retry()) else {
            return first.await;
        };
        self.counting.hedged_reads.add();
        let second = std::pin::pin!(self.attempt_read(target, &other, Consistency::Stale, body(), progress));
        match select(first, second).await {
            Either::Left((Ok(answer), _)) => Ok(answer),
            Either::Right((Ok(answer), _)) => {
                *place = other.clone();
                Ok(answer)
            }
            // One failed: what the other says counts.
            Either::Left((Err(_), second)) => {
                *place = other.clone();
                second.await
            }
            Either::Right((Err(_), first)) => first.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_settles_where_one_read_in_twenty_is_slower() {
        let hedging = Hedging::new();
        // Reads take 1 to 100 ms, evenly: the 95th takes 95.
        for round in 0..200_000u64 {
            hedging.learn(Duration::from_millis(round * 37 % 100 + 1));
        }
        let delay = hedging.delay();
        assert!(delay > Duration::from_millis(85) && delay <= Duration::from_millis(101), "{delay:?}");
    }

    #[test]
    fn the_delay_has_bounds() {
        let hedging = Hedging::new();
        (0..1_000_000).for_each(|_| hedging.learn(Duration::ZERO));
        assert_eq!(hedging.delay(), DELAY_MIN);
        (0..10_000).for_each(|_| hedging.learn(Duration::from_secs(100)));
        assert_eq!(hedging.delay(), DELAY_MAX);
    }
}
