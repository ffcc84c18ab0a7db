//! What is known of a call once it has ended, and what a checker says: nothing, or what cannot be.

use std::fmt::{Display, Formatter};

use terrane_types::escape;

/// How a call ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It took effect, whether or not its result is known.
    Applied,
    /// It had no effect: its condition did not hold, or it failed for good.
    Refused,
    /// It may have taken effect, or may still do so.
    Unknown,
}

/// `Ok`, or the violation: a sentence if the caller knows the key, otherwise a [`Violation`].
pub type Verdict<V = String> = Result<(), V>;

/// A violation, and the key that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub key: Vec<u8>,
    pub what: String,
}

impl Violation {
    pub(crate) fn new(key: &[u8], what: impl Into<String>) -> Violation {
        Violation { key: key.to_vec(), what: what.into() }
    }
}

impl Display for Violation {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", escape(&self.key), self.what)
    }
}

impl std::error::Error for Violation {}

/// The violations of a run that goes on after the first one.
#[derive(Debug, Default)]
pub struct Findings {
    pub violations: u64,
    /// The first of them, as text.
    pub first: Vec<String>,
}

/// Findings that are kept; further ones are only counted.
const FINDINGS_MAX: usize = 50;

impl Findings {
    /// Takes note of a violation.
    pub fn add(&mut self, finding: impl FnOnce() -> String) {
        self.violations += 1;
        if self.first.len() < FINDINGS_MAX {
            self.first.push(finding());
        }
    }

    /// Takes note of a violation of this thing, if there is one.
    pub fn judge<V: Display>(&mut self, thing: impl Display, verdict: Verdict<V>) {
        if let Err(violation) = verdict {
            self.add(|| format!("{thing} {violation}"));
        }
    }
}
