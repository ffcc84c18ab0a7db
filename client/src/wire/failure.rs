//! Why one try of a call failed.

use std::time::Duration;

use terrane_types::Error as Wire;

use crate::error::Error;

/// Why one try of a call to a region server failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A server answered with an error.
    Refused(Wire),
    /// The outcome of a row, as the log has it, is an error: it holds for all tries.
    Decided(Wire),
    /// The request never left this process: nothing can have been applied.
    NotSent(String),
    /// The request was sent, and the connection broke or no answer came in time.
    Lost(String),
    /// The client knows no server to send to: a master must be called.
    NoPlace,
    /// Every member of the group was tried or is away, and none leads.
    Leaderless,
    /// The call waited in its lane until its time was over: more requests wait than the servers accept.
    Queued,
}

impl Failure {
    /// Whether a write may have been applied in spite of this failure.
    ///
    /// The client gave up after sending (`Lost`), or the server saw the write enter the log and not its end (`Uncertain`), or
    /// failed inside (`Internal`). Every other refusal comes before the write is proposed, `DeadlineExceeded` too: a server
    /// answers it for a request that it has not started.
    pub(crate) fn is_uncertain(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Refused(Wire::Uncertain { not_tried: false } | Wire::Internal { .. }) => true,
            Self::Refused(_)
            | Self::Decided(_)
            | Self::NotSent(_)
            | Self::NoPlace
            | Self::Leaderless
            | Self::Queued => false,
        }
    }

    /// Whether it only says that the leader is elsewhere.
    pub(crate) const fn is_hop(&self) -> bool {
        matches!(self, Self::Refused(Wire::NotLeader { .. }) | Self::Leaderless)
    }

    /// Whether it says nothing but that the map or a leader is missing, so that what a master said about it says more.
    pub(crate) const fn is_about_map(&self) -> bool {
        let Self::Refused(refused) = self else {
            return matches!(self, Self::NoPlace | Self::Leaderless | Self::Queued);
        };
        matches!(refused, Wire::StaleEpoch { .. } | Wire::NotFound { .. })
    }

    /// Whether the server has dropped its record of the operation. It did not apply this try; it may have applied earlier ones.
    pub(crate) fn is_forgotten(&self) -> bool {
        matches!(self, Self::Refused(Wire::Uncertain { not_tried: true }))
    }

    /// Whether another try puts load on a working server, so that the retry budget pays for it.
    pub(crate) fn costs_a_retry(&self) -> bool {
        match self {
            Self::Refused(Wire::StaleEpoch { .. } | Wire::NotLeader { .. } | Wire::NotFound { .. }) => false,
            // The lanes bound these.
            Self::Refused(Wire::Busy { .. } | Wire::LogFull { .. } | Wire::Moving { .. }) => false,
            Self::NotSent(_) | Self::NoPlace | Self::Leaderless | Self::Queued => false,
            Self::Refused(_) | Self::Decided(_) | Self::Lost(_) => true,
        }
    }

    /// The error that the caller sees.
    pub(crate) fn into_error(self, write: bool) -> Error {
        match self {
            Self::Refused(Wire::DeadlineExceeded) => {
                unavailable("the server did not start the request before its deadline")
            }
            Self::Refused(Wire::Uncertain { .. }) if !write => unavailable("the server did not answer in time"),
            Self::Refused(error) | Self::Decided(error) => error.into(),
            Self::NotSent(message) => unavailable(message),
            Self::Lost(cause) if write => Error::Uncertain { cause },
            Self::Lost(message) => unavailable(message),
            Self::NoPlace => unavailable("no server is known that hosts the row's region"),
            Self::Queued => unavailable("more requests wait than the servers accept"),
            Self::Leaderless => unavailable("no reachable server leads the row's region"),
        }
    }
}

/// A reply that does not fit its request.
pub(crate) fn broken_reply(message: impl Into<String>) -> Failure {
    Failure::Refused(Wire::Internal { message: message.into() })
}

fn unavailable(message: impl Into<String>) -> Error {
    Error::Unavailable { message: message.into(), retry_after: Duration::ZERO }
}
