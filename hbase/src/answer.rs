//! What a call becomes: an answer or an exception.

use prost::Message;

use crate::exception::Exception;

/// An answer: its message, encoded, and its cells.
#[derive(Debug, Default)]
pub struct Answer {
    pub(crate) message: Vec<u8>,
    pub(crate) cells: Vec<u8>,
}

impl Answer {
    /// An answer of a message alone.
    #[must_use]
    pub fn of(message: &impl Message) -> Self {
        Self { message: message.encode_to_vec(), cells: Vec::new() }
    }

    /// An answer whose message refers to cells.
    #[must_use]
    pub fn with_cells(message: &impl Message, cells: Vec<u8>) -> Self {
        Self { message: message.encode_to_vec(), cells }
    }
}

/// What a call becomes.
pub type Outcome = Result<Answer, Exception>;
