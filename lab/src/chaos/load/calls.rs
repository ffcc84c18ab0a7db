//! How a call of the client ends, as the history tells it.

use terrane_client::Error;
use terrane_oracle::check::Answer;

/// The answer of a write.
pub fn written(result: Result<(), Error>) -> Answer {
    match result {
        // Without a condition it took effect, although its result is lost.
        Ok(()) | Err(Error::ResultLost) => Answer::Written,
        Err(error) => failed(error),
    }
}

/// The answer of a call that failed.
pub fn failed(error: Error) -> Answer {
    let is_uncertain = error.is_uncertain();
    let text = with_causes(error);
    if is_uncertain { Answer::Unknown(text) } else { Answer::Failed(text) }
}

/// An error with its causes, as text.
pub fn with_causes(error: Error) -> String {
    format!("{:#}", anyhow::Error::from(error))
}
