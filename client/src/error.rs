//! The client's error type. Its variants are arranged by what the caller can do.
//!
//! Redirects and temporary refusals (`NotLeader`, `StaleEpoch`, `Busy`...) do not reach the caller: the client follows them or
//! waits. When the time of a call runs out, [`Error::Timeout`] contains the last of them.

use std::time::Duration;

use terrane_types::{ClusterId, Invalid, ServerId};

/// Why a call failed.
///
/// `Debug` writes the sentence that `Display` writes, with its causes, because a `main` that returns this error prints it so.
#[non_exhaustive]
#[derive(Clone, thiserror::Error)]
pub enum Error {
    /// The request breaks a rule, and would be refused again: correct it. Nothing was written.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The table, region or server does not exist. Nothing was written.
    #[error("{what} does not exist")]
    NotFound {
        /// What does not exist.
        what: String,
    },
    /// The table or namespace to create exists already.
    #[error("{what} exists already")]
    AlreadyExists {
        /// What exists.
        what: String,
    },
    /// The table exists, and differs from its specification: alter it (`Admin::alter_table`), or correct the specification.
    #[error("{what} differs from its specification: {}", differences.join("; "))]
    Differs {
        /// What differs.
        what: String,
        /// Each difference as a sentence: `family data: versions is 3, not 1`.
        differences: Vec<String>,
    },
    /// The table is read-only. Nothing was written.
    #[error("{what} is read-only")]
    ReadOnly {
        /// What is read-only.
        what: String,
    },
    /// The table is disabled. Nothing was read or written; `Admin::enable_table` enables it.
    #[error("{what} is disabled")]
    Disabled {
        /// What is disabled.
        what: String,
    },
    /// The servers do not support this feature: do without it, or upgrade them.
    #[error("{feature} is not supported by the server")]
    Unsupported {
        /// The feature.
        feature: String,
    },
    /// A server of another cluster answered at this address. Nothing was written. Connect again if the cluster was replaced
    /// on purpose; check the addresses if not.
    #[error(
        "cluster {actual} answers there, and this client belongs to cluster {expected}; nothing was written. \
         Connect again if the cluster was replaced, or check the addresses"
    )]
    WrongCluster {
        /// The cluster this client connected to.
        expected: ClusterId,
        /// The cluster that answered.
        actual: ClusterId,
        /// The server that answered; 0 for a master.
        server: ServerId,
    },
    /// No master could be reached: check that one is running and that the addresses are right.
    #[error("no master answers at {masters}: check that one is running and that the addresses are right")]
    Unreachable {
        /// The addresses that were tried.
        masters: String,
        /// The error of the last one.
        #[source]
        last: Option<Box<Error>>,
    },
    /// Another process than a master answers at an address of a master. Nothing was done. Give the addresses of the masters.
    #[error("{address} is not a master: {found}")]
    NotAMaster {
        /// The address.
        address: String,
        /// What seems to be there.
        found: String,
    },
    /// The call did not succeed within its timeout. The source is the last obstacle. If a write may have been applied,
    /// [`Error::is_uncertain`] is true.
    #[error("no success within {} ms{}", after.as_millis(), if *uncertain { "; the write may have been applied" } else { "" })]
    Timeout {
        /// The timeout of the call.
        after: Duration,
        /// Whether a write may have been applied.
        uncertain: bool,
        /// The last obstacle.
        #[source]
        last: Option<Box<Error>>,
    },
    /// A try failed, and the client's retry budget ([`crate::RetryBudget`]) is spent: too many of its requests are lost, or
    /// refused for other reasons than load. Send less; postpone what can wait. If a write may have been applied,
    /// [`Error::is_uncertain`] is true.
    #[error("not tried again: this client's retry budget is spent{}", if *uncertain { "; the write may have been applied" } else { "" })]
    RetriesSpent {
        /// Whether a write may have been applied.
        uncertain: bool,
        /// Why the last try failed.
        #[source]
        last: Option<Box<Error>>,
    },
    /// The write was sent, its answer was lost, and the servers no longer know whether it was applied: read the row before
    /// you write again. Normally the client sends such a write again without harm. This error occurs when the servers have
    /// dropped their record of the operation by then; docs/errors.md says when.
    #[error("the outcome is unknown: {cause}")]
    Uncertain {
        /// How the answer was lost.
        cause: String,
    },
    /// The write took effect once, but its result (the cells to return, or those that its condition found) is gone: the first
    /// answer was lost, and servers keep no results above 4 KiB for a second. Without a condition the write was applied; with
    /// one, the condition may not have held. Read the row.
    #[error(
        "the write took effect once, but its answer was lost and its result is too large to be kept: read the row \
         (without a condition the write was applied)"
    )]
    ResultLost,
    /// The client or the writer was closed. Nothing was sent.
    #[error("{what} was closed")]
    Closed {
        /// What was closed.
        what: String,
    },
    /// The versions that a snapshot scan reads have been removed: start the scan again. The table's `history` attribute says how
    /// long they are kept.
    #[error("the snapshot of the scan is too old and was removed; start the scan again")]
    SnapshotTooOld,
    /// The cluster cannot serve the call now. Nothing was applied; try again later.
    #[error("{message}")]
    Unavailable {
        /// Why not.
        message: String,
        /// How long to wait before trying again.
        retry_after: Duration,
    },
    /// A server found a damaged file and does not serve its data. Do not retry; an operator must repair it.
    #[error("the server found that {file} is damaged at byte {offset}")]
    Corruption {
        /// The damaged file.
        file: String,
        /// The offset of the damage, in bytes.
        offset: u64,
    },
    /// A bug in the server or the client. Please report it.
    #[error("internal error: {message}")]
    Internal {
        /// What happened.
        message: String,
    },
}

impl std::fmt::Debug for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut said = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            let text = error.to_string();
            // A cause that its parent already quotes is not repeated.
            if !said.contains(&text) {
                said = format!("{said}: {text}");
            }
            cause = error.source();
        }
        f.write_str(&said)
    }
}

impl Error {
    /// Whether the error is [`Error::NotFound`].
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the request itself is wrong: [`Error::Invalid`].
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

    /// Whether it is safe to make the same call again: nothing can be applied twice.
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

    /// Whether the call ran out of time: [`Error::Timeout`].
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// The error of a write, in view of its earlier tries: if one of them may have been applied, "nothing was written" and
    /// "trying again is safe" would be true of the last try only.
    pub(crate) fn of_write(self, applied_maybe: bool) -> Self {
        match self {
            Self::Timeout { after, last, .. } => Self::Timeout { after, uncertain: applied_maybe, last },
            Self::RetriesSpent { last, .. } => Self::RetriesSpent { uncertain: applied_maybe, last },
            // These say already that the write took effect, or may have.
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

/// A server's error as the client's. Redirects become [`Error::Unavailable`]: a caller sees one only as the last obstacle of a
/// call.
impl From<terrane_types::Error> for Error {
    fn from(error: terrane_types::Error) -> Self {
        use terrane_types::Error as Wire;
        match error {
            Wire::Invalid(invalid) => Self::Invalid(invalid),
            Wire::NotFound { what } => Self::NotFound { what },
            Wire::AlreadyExists { what } => Self::AlreadyExists { what },
            Wire::ReadOnly { what } => Self::ReadOnly { what },
            Wire::Disabled { what } => Self::Disabled { what },
            Wire::Unsupported { feature } => Self::Unsupported { feature },
            // The server's point of view: it expects its own cluster.
            Wire::WrongCluster { expected, actual, server } => {
                Self::WrongCluster { expected: actual, actual: expected, server }
            }
            Wire::AlreadyApplied => Self::ResultLost,
            // A deadline in a master's answer: the region server that was to make the change did not answer the master.
            Wire::Uncertain { .. } | Wire::DeadlineExceeded | Wire::InProgress { .. } => {
                Self::Uncertain { cause: error.to_string() }
            }
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
    /// The row that was not written, or whose outcome is unknown.
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
    fn a_write_that_may_have_been_applied_is_never_retry_safe() {
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
    fn a_wrong_cluster_is_named_from_the_clients_side() {
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
