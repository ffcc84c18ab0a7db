//! Regular expressions of filters.
//!
//! They use the `regex` crate, whose matching time is linear in the input for every expression, so that an expression
//! from a client cannot stall a server. It has no backreferences or look-around for that reason. Text and compiled size
//! are limited. An expression matches bytes: `(?-u:\xFF)` names any byte, and a plain `.` one UTF-8 character.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use crate::error::FilterError;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_SIZE_MAX};

/// A compiled regular expression. Two are equal when their texts are.
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`FilterError::Pattern`] when it is malformed, too long, or too large once compiled.
    pub fn new(text: &str) -> Result<Self, FilterError> {
        let refused = |why: String| FilterError::Pattern { pattern: shortened(text), why };
        if text.len() > PATTERN_BYTES_MAX {
            return Err(refused(format!("it has {} bytes; the limit is {PATTERN_BYTES_MAX}", text.len())));
        }
        let built = RegexBuilder::new(text).size_limit(PATTERN_SIZE_MAX).dfa_size_limit(PATTERN_SIZE_MAX).build();
        built.map(Self).map_err(|error| match error {
            regex::Error::CompiledTooBig(limit) => {
                refused(format!("it takes more than {limit} bytes once compiled; use fewer or smaller repetitions"))
            }
            // The last line is the message; those before it mark the place over several lines.
            other => refused(
                other.to_string().lines().last().unwrap_or("malformed").trim().trim_start_matches("error: ").to_owned(),
            ),
        })
    }

    /// The expression's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether it matches anywhere in the bytes.
    #[must_use]
    pub fn is_match(&self, bytes: &[u8]) -> bool {
        self.0.is_match(bytes)
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.as_str())
    }
}
