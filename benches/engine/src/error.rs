//! What ends a benchmark.

use std::io;

use crate::Workload;

/// Why a run ended without a report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A store refused. Its own words are in the source.
    #[error("{subject} failed in {workload}")]
    Subject {
        /// Which one.
        subject: &'static str,
        /// During what.
        workload: Workload,
        /// What it said.
        source: SubjectError,
    },
    /// A store answered, and not what was written: its figures mean nothing.
    #[error("{subject} gave a wrong answer in {workload}: {what}")]
    Wrong {
        /// Which one.
        subject: &'static str,
        /// During what.
        workload: Workload,
        /// What was wrong.
        what: String,
    },
    /// The directory could not be used.
    #[error("cannot {doing}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        cause: io::Error,
    },
}

/// What a store said: each has an error type of its own, and nobody here can do anything about any of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SubjectError(String);

impl SubjectError {
    /// Keeps the words of a store's error.
    pub fn new(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}
