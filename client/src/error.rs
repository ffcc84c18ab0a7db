//! The one error of the client, its variants arranged by what the caller can do.
//!
//! Redirects and short refusals (`NotLeader`, `StaleEpoch`, `Busy`...) never reach the caller by themselves: the client
//! follows or waits, and when the time of a call runs out the last of them is found inside [`Error::Timeout`].

use std::time::Duration;

use terrane_types::{ClusterId, Invalid, ServerId};

/// Why a call did not do what it was asked.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The request is wrong and will stay so: correct it. Nothing was written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The table, region or server asked for does not exist. Nothing was written.
    #[error("{what} does not exist")]
    NotFound {
        /// What is not there.
        what: String,
    },
    /// What should be created exists already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// What is there.
        what: String,
    },
    /// The table takes no writes. Nothing was written.
    #[error("{what} is read-only")]
    ReadOnly {
        /// What takes no writes.
        what: String,
    },
    /// The servers do not know this feature: use another one, or upgrade them.
    #[error("{feature} is not supported by the server")]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// A server of another cluster answered at this address. Nothing was written. Connect anew when the change of
    /// clusters was meant; check the addresses when it was not.
    #[error(
        "cluster {actual} answers there, not cluster {expected} that this client belongs to; nothing was written. \
         Connect anew if the cluster was replaced, or check the addresses"
    )]
    WrongCluster {
        /// The cluster this client connected to.
        expected: ClusterId,
        /// The cluster that answered.
        actual: ClusterId,
        /// The server that answered; 0 for a master.
        server: ServerId,
    },
    /// No master could be reached: check that one runs and that the addresses are right.
    #[error("no master answers at {masters}: check that one is running and that the addresses are right")]
    Unreachable {
        /// The addresses that were tried.
        masters: String,
        /// What the last of them said.
        #[source]
        last: Option<Box<Error>>,
    },
    /// The time given to the call ran out. The source says what stood in the way last. When a write may have reached a
    /// server, [`Error::is_uncertain`] is true.
    #[error("no success within {} ms{}", after.as_millis(), if *uncertain { "; the write may have been applied" } else { "" })]
    Timeout {
        /// The time that the call was given.
        after: Duration,
        /// Whether a write may have been applied all the same.
        uncertain: bool,
        /// The last error met on the way.
        #[source]
        last: Option<Box<Error>>,
    },
    /// The call failed, and the client's retry budget ([`crate::RetryBudget`]) is spent: its servers lose too much of what it
    /// sends, or refuse it for other reasons than load. Send less; what can wait should. When a write may have reached a server,
    /// [`Error::is_uncertain`] is true.
    #[error("not tried again: this client's retries are spent{}", if *uncertain { "; the write may have been applied" } else { "" })]
    RetriesSpent {
        /// Whether a write may have been applied all the same.
        uncertain: bool,
        /// What the last try met.
        #[source]
        last: Option<Box<Error>>,
    },
    /// The write was sent, its answer was lost, and the servers cannot tell any more whether it was applied: read what is
    /// there before writing again. Lost answers are normally asked for again without harm; this is met when an operation
    /// is sent again after the servers had to forget it (docs/errors.md says when).
    #[error("the outcome is not known: {cause}")]
    Uncertain {
        /// How the answer was lost.
        cause: String,
    },
    /// The write was decided, once, but its result (what it should return, or what its condition found) is not kept any
    /// more: the first answer was lost, and results above 4 KiB are not kept for a second. Without a condition it was
    /// applied; with one that asks for what it found, it may not have held. Read the row.
    #[error(
        "the write was decided once, but its answer was lost and its result is too large to be kept: read the row \
         (without a condition it was applied)"
    )]
    ResultLost,
    /// The client, or the writer, was closed. Nothing was sent.
    #[error("{what} was closed")]
    Closed {
        /// What was closed.
        what: String,
    },
    /// The moment that a snapshot scan reads at has been collected: begin the scan again. The table's `history` says for how
    /// long moments are kept.
    #[error("the snapshot that the scan reads is too old and was collected; begin the scan again")]
    SnapshotTooOld,
    /// The cluster cannot do it now. Nothing was applied; trying later is safe.
    #[error("{message}")]
    Unavailable {
        /// What is missing.
        message: String,
        /// After what time to try again.
        retry_after: Duration,
    },
    /// A server found damage in a file and serves nothing from it. Do not retry; an operator must look.
    #[error("the server found damage in {file} at byte {offset}")]
    Corruption {
        /// The damaged file.
        file: String,
        /// The offset of the damage.
        offset: u64,
    },
    /// A server or this client met a state that should not exist. Please report it.
    #[error("internal error: {message}")]
    Internal {
        /// What was met.
        message: String,
    },
}

impl Error {
    /// Whether something asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the request itself is wrong.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Invalid(_))
    }

    /// Whether a write may have been applied although it failed.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Uncertain { .. } | Self::Timeout { uncertain: true, .. } | Self::RetriesSpent { uncertain: true, .. }
        )
    }

    /// Whether the same call may be made again and nothing can be applied twice by it.
    #[must_use]
    pub fn is_retry_safe(&self) -> bool {
        matches!(
            self,
            Self::Unavailable { .. }
                | Self::Unreachable { .. }
                | Self::Timeout { uncertain: false, .. }
                | Self::RetriesSpent { uncertain: false, .. }
        )
    }

    /// Whether the time given to the call ran out.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// What ended a write, told with regard to its earlier tries: where one of them may have been applied, "nothing was
    /// written" and "trying again is safe" are true of the last one only, and so would be wrong.
    pub(crate) fn of_write(self, applied_maybe: bool) -> Self {
        match self {
            Self::Timeout { after, last, .. } => Self::Timeout { after, uncertain: applied_maybe, last },
            Self::RetriesSpent { last, .. } => Self::RetriesSpent { uncertain: applied_maybe, last },
            // A lost result was of a write.
            told @ (Self::ResultLost | Self::Uncertain { .. }) => told,
            other if applied_maybe => Self::Uncertain { cause: format!("an answer was lost, and then: {other}") },
            other => other,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(Invalid::new(what))
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::Internal { message: message.into() }
    }
}

/// What servers say, in the client's words. Redirects become [`Error::Unavailable`]: by the time one is shown to a caller
/// it only explains what stood in the way.
impl From<terrane_types::Error> for Error {
    fn from(error: terrane_types::Error) -> Self {
        use terrane_types::Error as Wire;
        match error {
            Wire::Invalid(invalid) => Self::Invalid(invalid),
            Wire::NotFound { what } => Self::NotFound { what },
            Wire::AlreadyExists { what } => Self::AlreadyExists { what },
            Wire::ReadOnly { what } => Self::ReadOnly { what },
            Wire::Unsupported { feature } => Self::Unsupported { feature },
            // The server names the two from where it stands: its own cluster is the expected one to it.
            Wire::WrongCluster { expected, actual, server } => {
                Self::WrongCluster { expected: actual, actual: expected, server }
            }
            Wire::AlreadyApplied => Self::ResultLost,
            // A deadline in a master's answer: the region server that was to make the change did not answer the master.
            Wire::Uncertain { .. } | Wire::DeadlineExceeded => Self::Uncertain { cause: error.to_string() },
            Wire::Corruption { file, offset } => Self::Corruption { file, offset },
            Wire::SnapshotTooOld { .. } => Self::SnapshotTooOld,
            Wire::Internal { message } => Self::Internal { message },
            Wire::Unavailable { message, retry_after } => Self::Unavailable { message, retry_after },
            Wire::Busy { retry_after } | Wire::Moving { retry_after, .. } | Wire::LogFull { retry_after, .. } => {
                Self::Unavailable { message: error.to_string(), retry_after }
            }
            other => Self::Unavailable { message: other.to_string(), retry_after: Duration::ZERO },
        }
    }
}

/// The failure of one row in a call that writes many.
#[derive(Clone, Debug, thiserror::Error)]
#[error("row {}", terrane_types::escape(row))]
pub struct RowError {
    /// The row that was not written, or whose outcome is not known.
    pub row: bytes::Bytes,
    /// Why.
    #[source]
    pub error: Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_its_time_and_keeps_the_last_error() {
        let busy = Error::from(terrane_types::Error::Busy { retry_after: Duration::from_millis(5) });
        let error = Error::Timeout { after: Duration::from_millis(1500), uncertain: false, last: Some(Box::new(busy)) };
        assert_eq!(error.to_string(), "no success within 1500 ms");
        let source = std::error::Error::source(&error).expect("the last error is the source");
        assert!(source.to_string().contains("busy"), "{source}");
        assert!(error.is_retry_safe() && !error.is_uncertain());
    }

    #[test]
    fn an_uncertain_timeout_says_so() {
        let error = Error::Timeout { after: Duration::from_secs(1), uncertain: true, last: None };
        assert!(error.to_string().contains("may have been applied"), "{error}");
        assert!(error.is_uncertain() && !error.is_retry_safe());
    }

    #[test]
    fn a_write_that_may_have_been_applied_is_never_said_to_be_safe_to_repeat() {
        let errors = || {
            [
                Error::Unreachable { masters: "m:1".to_owned(), last: None },
                Error::ReadOnly { what: "table t".to_owned() },
                Error::Unavailable { message: "stopping".to_owned(), retry_after: Duration::ZERO },
                Error::Timeout { after: Duration::from_secs(1), uncertain: false, last: None },
                Error::RetriesSpent { uncertain: false, last: None },
                Error::internal("a reply that cannot be read"),
            ]
        };
        for error in errors() {
            let told = error.of_write(true);
            assert!(told.is_uncertain() && !told.is_retry_safe(), "{told}");
        }
        for error in errors() {
            let told = error.of_write(false);
            assert!(!told.is_uncertain(), "{told}");
        }
        assert!(Error::invalid("no").of_write(true).is_uncertain());
    }

    #[test]
    fn a_foreign_cluster_is_told_from_the_clients_side() {
        let (servers, clients) = (ClusterId([1; 16]), ClusterId([2; 16]));
        let refused = terrane_types::Error::WrongCluster { expected: servers, actual: clients, server: ServerId(3) };
        match Error::from(refused) {
            Error::WrongCluster { expected, actual, server } => {
                assert_eq!((expected, actual, server), (clients, servers, ServerId(3)));
            }
            other => panic!("{other:?}"),
        }
    }
}
