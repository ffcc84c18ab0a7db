//! Why a source has no answer, said to the person at the page: what happened and what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};
use terrane_types::closest;

/// What kind of failure it is; the HTTP status follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The named thing does not exist (404).
    NotFound,
    /// The request is wrong, whatever the state of the cluster (400).
    BadInput,
    /// The request is fine, and the cluster cannot answer it now (503).
    Unavailable,
}

/// A request that the source could not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What kind of failure it is.
    pub status: Status,
    /// What happened and why, as a sentence.
    pub message: String,
    /// What to do next, as a sentence.
    pub next: String,
}

impl Failure {
    /// The named thing does not exist.
    #[must_use]
    pub fn not_found(message: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { status: Status::NotFound, message: message.into(), next: next.into() }
    }

    /// The request is wrong.
    #[must_use]
    pub fn bad_input(message: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { status: Status::BadInput, message: message.into(), next: next.into() }
    }

    /// The cluster cannot answer now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>, next: impl Into<String>) -> Failure {
        Failure { status: Status::Unavailable, message: message.into(), next: next.into() }
    }

    /// There is no `kind` (`"table"`, `"region"`) of this name. Suggests the nearest of the `known` names, or says where
    /// to find them all.
    #[must_use]
    pub fn unknown<'a>(kind: &str, name: &str, known: impl IntoIterator<Item = &'a str>) -> Failure {
        let next = match closest(name, known) {
            Some(near) => format!("Did you mean {near}?"),
            None => format!("The page of all {kind}s lists the names there are."),
        };
        Failure::not_found(format!("There is no {kind} {name}."), next)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.message, self.next)
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_suggests_the_nearest() {
        let failure = Failure::unknown("table", "actoins", ["actions", "weather"]);
        assert_eq!(failure.to_string(), "There is no table actoins. Did you mean actions?");
        let failure = Failure::unknown("table", "zebra", ["actions", "weather"]);
        assert_eq!(failure.next, "The page of all tables lists the names there are.");
    }
}
