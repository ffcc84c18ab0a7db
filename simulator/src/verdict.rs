//! How a run ended.
//!
//! There are three verdicts. A run that violated nothing, but in which too little happened for that to mean anything, is not
//! proven; it fails like a broken one, so that a harness that stopped testing is noticed.

use std::fmt::{Display, Formatter, Result};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every check held.
    Held,
    /// A check was violated.
    Broken(Failure),
    /// Nothing was violated, but too little happened.
    NotProven(String),
}

/// A violation, and what it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was violated.
    pub what: String,
    /// Texts that the concerned lines of the trace contain: a key, a region, a host.
    pub about: Vec<String>,
}

impl Failure {
    /// A violation that concerns no particular key or region.
    pub fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), about: Vec::new() }
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Verdict::Held => f.write_str("held"),
            Verdict::Broken(failure) => write!(f, "BROKEN: {}", failure.what.replace('\n', " ")),
            Verdict::NotProven(why) => write!(f, "NOT PROVEN: {}", why.replace('\n', " ")),
        }
    }
}
