//! The error of everything here that checks its input.

/// Input that breaks a rule, said as a full sentence that names what was given and the limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Invalid {
    /// The sentence.
    pub what: String,
}

impl Invalid {
    /// Makes one from its sentence.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}
