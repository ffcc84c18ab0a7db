//! What a checker says: nothing, or what cannot be.

use std::fmt::{Display, Formatter};

use terrane_types::escape;

/// `Ok`, or a sentence that describes the violation. The caller knows the key.
pub type Verdict = Result<(), String>;

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
