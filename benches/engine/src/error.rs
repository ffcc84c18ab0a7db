//! Errors that end a benchmark.

use std::io;

use crate::workload::Workload;

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A store failed; the source has its own message.
    #[error("{subject} failed in {workload}")]
    Subject {
        /// The store.
        subject: &'static str,
        /// The workload.
        workload: Workload,
        /// The store's error.
        source: SubjectError,
    },
    /// A store returned a wrong answer, so its figures mean nothing.
    #[error("{subject} gave a wrong answer in {workload}: {what}")]
    Wrong {
        /// The store.
        subject: &'static str,
        /// The workload.
        workload: Workload,
        /// What was wrong.
        what: String,
    },
    /// The directory cannot be used.
    #[error("cannot {doing}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
}

/// A store's error as text: each store has its own error type, and the harness handles none of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SubjectError(String);

impl SubjectError {
    /// Keeps the message of a store's error.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
