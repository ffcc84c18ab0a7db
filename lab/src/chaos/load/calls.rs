//! How a call of the client ends, as the history tells it.

use std::error::Error as _;
use std::fmt::Write as _;

use terrane_client::Error;

use crate::check::Answer;

/// The answer of a write.
pub fn written(result: Result<(), Error>) -> Answer {
    match result {
        // Without a condition it took effect, although its result is lost.
        Ok(()) | Err(Error::ResultLost) => Answer::Written,
        Err(error) => failed(&error),
    }
}

/// The answer of a call that failed.
pub fn failed(error: &Error) -> Answer {
    if error.is_uncertain() { Answer::Unknown(chain(error)) } else { Answer::Failed(chain(error)) }
}

/// An error with its causes.
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        // Writing to a string cannot fail.
        write!(text, ": {next}").ok();
        cause = next.source();
    }
    text
}
