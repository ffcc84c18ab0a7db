//! Why one try of a call failed.

use std::time::Duration;

use terrane_types::Error as Wire;

use crate::error::Error;

/// Why one try did not succeed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A server answered with an error.
    Refused(Wire),
    /// A row's own outcome, as the log has it, is an error: it holds for all tries.
    Decided(Wire),
    /// The request never left this process: nothing can have been applied.
    NotSent(String),
    /// The request was sent and the connection broke, or no answer came in time.
    Lost(String),
    /// The client itself has no place to send to: a master must be asked.
    NoPlace,
    /// Every member of the group was asked or is away, and none leads.
    Leaderless,
    /// The call waited for its turn until its time was over: the servers take fewer requests than wait for them.
    Queued,
}

impl Failure {
    /// Whether a write may have been applied in spite of this.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Self::Lost(_)
            | Self::Refused(Wire::Uncertain { not_tried: false } | Wire::DeadlineExceeded | Wire::Internal { .. }) => {
                true
            }
            Self::Refused(_)
            | Self::Decided(_)
            | Self::NotSent(_)
            | Self::NoPlace
            | Self::Leaderless
            | Self::Queued => false,
        }
    }

    /// Whether it only says that the leader is somewhere else.
    pub(crate) const fn is_hop(&self) -> bool {
        matches!(self, Self::Refused(Wire::NotLeader { .. }) | Self::Leaderless)
    }

    /// Whether a server has forgotten what it would need to know; this try was not applied, earlier ones may have been.
    pub(crate) fn is_forgotten(&self) -> bool {
        matches!(self, Self::Refused(Wire::Uncertain { not_tried: true }))
    }

    /// Whether trying again loads a server that works, and so has to be paid for.
    pub(crate) fn costs_a_retry(&self) -> bool {
        match self {
            Self::Refused(Wire::StaleEpoch { .. } | Wire::NotLeader { .. } | Wire::NotFound { .. }) => false,
            // The lanes bound how much of it there is.
            Self::Refused(Wire::Busy { .. } | Wire::LogFull { .. } | Wire::Moving { .. }) => false,
            Self::NotSent(_) | Self::NoPlace | Self::Leaderless | Self::Queued => false,
            Self::Refused(_) | Self::Decided(_) | Self::Lost(_) => true,
        }
    }

    /// Told to the caller.
    pub(crate) fn into_error(self, write: bool) -> Error {
        match self {
            Self::Refused(Wire::Uncertain { .. } | Wire::DeadlineExceeded) if !write => {
                unavailable("the server did not answer in time")
            }
            Self::Refused(error) | Self::Decided(error) => error.into(),
            Self::NotSent(message) => unavailable(message),
            Self::Lost(cause) if write => Error::Uncertain { cause },
            Self::Lost(message) => unavailable(message),
            Self::NoPlace => unavailable("no server is known that hosts the row's region"),
            Self::Queued => unavailable("the servers take fewer requests than wait for them"),
            Self::Leaderless => unavailable("no server that can be reached leads the row's region"),
        }
    }
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::Unavailable { message: message.into(), retry_after: Duration::ZERO }
}

pub(crate) fn broken_reply(message: impl Into<String>) -> Failure {
    Failure::Refused(Wire::Internal { message: message.into() })
}
