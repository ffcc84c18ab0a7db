//! Turns a failed try into what to do next: the one place where the client decides to go on or to give up.
//!
//! Sans-I/O: a failure, what the call may risk and how often it was refused go in; one [`RetryAction`] comes out. Waiting
//! is exponential with jitter, so that a thousand callers refused together do not come back together.
//!
//! A write whose answer was lost is sent again under the same operation number: servers remember what they applied, so it
//! takes effect once. Only when a server says that it cannot know any more, and an earlier try may have been applied, is
//! the caller told so.

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

/// What comes next. Each is followed by another try after `wait`, except the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryAction {
    /// The location cache learnt from the refusal: look there again.
    Redirect { wait: Duration },
    /// This server cannot do it (it does not lead, or is silent): ask another member of the group.
    AskAnother { wait: Duration },
    /// All members were asked: ask them again, and a master now and then.
    Search { wait: Duration },
    /// Nothing that is known holds: ask a master for the map.
    Relocate { wait: Duration },
    /// The same server, later.
    Again { wait: Duration },
    /// Tell the caller.
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

/// The first wait, and the most that is waited between two tries.
const WAIT_MIN: Duration = Duration::from_millis(5);
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Redirects followed at once. More in a row mean that the map is changing or two servers disagree.
const REDIRECTS_AT_ONCE: u32 = 3;
/// Waits between two questions about who leads: an election takes about a second, and only a few calls ask at a time.
const HOP_WAITS: [(u32, Duration); 3] =
    [(30, Duration::from_millis(4)), (100, Duration::from_millis(20)), (u32::MAX, Duration::from_millis(100))];
/// The same between two rounds over all members.
const ROUND_WAIT: Duration = Duration::from_millis(25);
/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Decides. `tries` counts the [tries of this kind](crate::route::progress::Progress::tries_like) so far, this one included; `jitter` is a random number. An operation
/// that a server has forgotten begins anew under another number, if no earlier try of it may have been applied
/// (`applied_maybe`); otherwise nobody knows.
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
                RetryAction::Again { wait: told(*retry_after, tries, jitter) }
            }
            // It is stopping, or sees no quorum: another may lead by now, and sends us back if not.
            Wire::Unavailable { .. } if tries == 1 => RetryAction::AskAnother { wait: Duration::ZERO },
            Wire::Unavailable { retry_after, .. } => {
                RetryAction::AskAnother { wait: told(*retry_after, tries, jitter) }
            }
            Wire::Uncertain { not_tried: true } => RetryAction::Again { wait: calm() },
            // The leader lost its place during the operation, or is too slow to start it: another member may lead by now.
            Wire::Uncertain { .. } | Wire::DeadlineExceeded => RetryAction::AskAnother { wait: calm() },
            // A region nobody knows there; whether the table is gone is for a master to say.
            Wire::NotFound { .. } => RetryAction::Relocate { wait: calm() },
            Wire::SnapshotTooOld { .. } => RetryAction::Again { wait: calm() },
            // A delete of a whole row met an alteration of its table: the server makes it anew.
            Wire::SchemaChanged { .. } => RetryAction::Again { wait: soon() },
            _ => RetryAction::GiveUp,
        },
    }
}

/// What the server asked for, a little spread, and never less than our own patience after many tries.
fn told(retry_after: Duration, tries: u32, jitter: u64) -> Duration {
    let asked = retry_after.min(RETRY_AFTER_MAX);
    spread(asked.max(WAIT_MIN), jitter).max(if tries > 4 { backoff(tries - 4, jitter) } else { Duration::ZERO })
}

/// Doubles with each try up to the maximum; the upper half of it is random.
fn backoff(tries: u32, jitter: u64) -> Duration {
    half_random(WAIT_MIN.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(WAIT_MAX), jitter)
}

/// Nothing at first, little for about a second, and never much: news of a leader are not worth missing.
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

/// `wait` and up to a quarter more.
fn spread(wait: Duration, jitter: u64) -> Duration {
    wait + part(wait / 4, jitter)
}

fn part(of: Duration, jitter: u64) -> Duration {
    let nanos = u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(if nanos == 0 { 0 } else { jitter % nanos })
}

#[cfg(test)]
mod tests;
