//! The retry decision: the one place where the client decides what follows a failed try, and when to give up.
//!
//! Sans-I/O: a failure, what the call may risk and the number of tries go in; a [`RetryAction`] comes out. Waits grow
//! exponentially with jitter, so that a thousand callers refused together do not come back together.
//!
//! A write whose answer was lost is sent again under the same operation number: servers record the numbers they have applied,
//! so it takes effect once. Only when a server has dropped its record, and an earlier try may have been applied, does the
//! caller get an uncertain error.

use std::time::Duration;

use terrane_types::Error as Wire;

use crate::wire::failure::Failure;

/// What a call may risk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Risk {
    /// Whether it writes.
    pub(crate) write: bool,
}

impl Risk {
    /// A call that only reads.
    pub(crate) const READ: Self = Self { write: false };
    /// A call that writes, under operation numbers.
    pub(crate) const WRITE: Self = Self { write: true };
}

/// What follows a failed try: after `wait` another try, except for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAction {
    /// The location cache has learnt from the refusal: look there again.
    Redirect { wait: Duration },
    /// This server cannot serve the request (it does not lead, or is silent): try another member of the group.
    AskAnother { wait: Duration },
    /// All members were tried: try them again, and from time to time a look-up at a master.
    Search { wait: Duration },
    /// The cache is of no use: look the map up at a master.
    Relocate { wait: Duration },
    /// The same server, later.
    Again { wait: Duration },
    /// Return the error to the caller.
    GiveUp,
}

impl RetryAction {
    /// How long to wait first.
    pub(crate) const fn wait(self) -> Duration {
        match self {
            Self::Redirect { wait }
            | Self::AskAnother { wait }
            | Self::Search { wait }
            | Self::Relocate { wait }
            | Self::Again { wait } => wait,
            Self::GiveUp => Duration::ZERO,
        }
    }
}

/// The first and the longest wait between two tries.
const WAIT_MIN: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Redirects followed without a wait. More in a row mean that the map is changing or two servers disagree.
const REDIRECTS_AT_ONCE: u32 = 3;
/// Waits between two tries to find the leader, by the number of tries: an election takes about a second, and only a few calls
/// search at a time.
const HOP_WAITS: [(u32, Duration); 3] =
    [(30, Duration::from_millis(4)), (100, Duration::from_millis(20)), (u32::MAX, Duration::from_millis(100))];
/// The shortest wait between two rounds over all members.
const ROUND_WAIT: Duration = Duration::from_millis(25);
/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Decides what follows a failure. `tries` counts the tries that failed in this way, this one included (`Progress::tries_of_kind`);
/// `jitter` is a random number. An operation whose record a server has dropped gets a new number, unless an earlier try may
/// have been applied (`applied_maybe`): then its outcome is unknown.
pub(crate) fn decide(failure: &Failure, risk: Risk, applied_maybe: bool, tries: u32, jitter: u64) -> RetryAction {
    if risk.write && failure.is_forgotten() && applied_maybe {
        return RetryAction::GiveUp;
    }
    let calm = || backoff(tries, jitter);
    let soon = || if tries <= REDIRECTS_AT_ONCE { Duration::ZERO } else { backoff(tries - REDIRECTS_AT_ONCE, jitter) };
    match failure {
        Failure::NoPlace => RetryAction::Relocate { wait: soon() },
        Failure::Leaderless => RetryAction::Search { wait: half_random(ROUND_WAIT, jitter).max(hop(tries, jitter)) },
        Failure::Decided(_) => RetryAction::GiveUp,
        Failure::Queued => RetryAction::Again { wait: calm() },
        Failure::NotSent(_) | Failure::Lost(_) => RetryAction::AskAnother { wait: soon() },
        Failure::Refused(error) => match error {
            Wire::StaleEpoch { .. } => RetryAction::Redirect { wait: soon() },
            Wire::NotLeader { .. } => RetryAction::AskAnother { wait: hop(tries, jitter) },
            Wire::Busy { retry_after } | Wire::Moving { retry_after, .. } | Wire::LogFull { retry_after, .. } => {
                RetryAction::Again { wait: requested(*retry_after, tries, jitter) }
            }
            // The server is stopping, or sees no quorum: another member may lead by now, or sends us back.
            Wire::Unavailable { .. } if tries == 1 => RetryAction::AskAnother { wait: Duration::ZERO },
            Wire::Unavailable { retry_after, .. } => {
                RetryAction::AskAnother { wait: requested(*retry_after, tries, jitter) }
            }
            Wire::Uncertain { not_tried: true } => RetryAction::Again { wait: calm() },
            // The leader lost its place during the operation, or is too slow to start it: another member may lead by now.
            Wire::Uncertain { .. } | Wire::DeadlineExceeded => RetryAction::AskAnother { wait: calm() },
            // The server does not know the region; a master knows whether the table still exists.
            Wire::NotFound { .. } => RetryAction::Relocate { wait: calm() },
            Wire::SnapshotTooOld { .. } => RetryAction::Again { wait: calm() },
            // The write met an alteration of the table: the server evaluates it again under the new schema.
            Wire::SchemaChanged { .. } => RetryAction::Again { wait: soon() },
            _ => RetryAction::GiveUp,
        },
    }
}

/// The wait that the server asked for, spread a little, and after many tries never shorter than our own backoff.
fn requested(retry_after: Duration, tries: u32, jitter: u64) -> Duration {
    let asked = retry_after.min(RETRY_AFTER_MAX);
    spread(asked.max(WAIT_MIN), jitter).max(if tries > 4 { backoff(tries - 4, jitter) } else { Duration::ZERO })
}

/// Doubles with each try up to the maximum; half of it is random.
fn backoff(tries: u32, jitter: u64) -> Duration {
    half_random(WAIT_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(WAIT_MAX), jitter)
}

/// No wait at first, short waits for about a second, and never a long one: the call should learn of a new leader soon.
fn hop(tries: u32, jitter: u64) -> Duration {
    if tries <= REDIRECTS_AT_ONCE {
        return Duration::ZERO;
    }
    let wait = HOP_WAITS.iter().find(|(up_to, _)| tries <= *up_to).map_or(WAIT_MAX, |(_, wait)| *wait);
    half_random(wait, jitter)
}

fn half_random(wait: Duration, jitter: u64) -> Duration {
    let half = wait / 2;
    half + part(half, jitter)
}

/// `wait`, and up to a quarter more.
fn spread(wait: Duration, jitter: u64) -> Duration {
    wait + part(wait / 4, jitter)
}

fn part(of: Duration, jitter: u64) -> Duration {
    let nanos = u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(if nanos == 0 { 0 } else { jitter % nanos })
}

#[cfg(test)]
mod tests;
