//! The events of a history, one JSON object per line.
//!
//! Each operation has two lines, its call and its return. The call is written before the request is sent, and the return
//! after the answer was received, so the order of lines is an order that the clients can prove. An operation without a
//! return may take effect at any time.

use serde::{Deserialize, Serialize};

use crate::verdict::Fate;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Milliseconds since the load began; shown, never judged.
    pub ms: u64,
    /// The number of the operation.
    pub op: u64,
    #[serde(flatten)]
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Call(Action),
    Return(Answer),
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Writes a row that is written only once.
    Put {
        row: String,
        value: String,
    },
    Get {
        row: String,
    },
    /// Reads the rows of `[start, stop)`; an empty `stop` is the end of the table.
    Scan {
        start: String,
        stop: String,
    },
    /// Adds to a counter.
    Add {
        counter: String,
        by: u64,
    },
    Count {
        counter: String,
    },
    /// Reads a register.
    Read {
        register: String,
    },
    Write {
        register: String,
        value: String,
    },
    /// Writes if the register has this value.
    Swap {
        register: String,
        from: String,
        value: String,
    },
}

/// What the client learns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Written,
    /// The value of a row or register, or that it does not exist.
    Found(Option<String>),
    /// The rows of a scan, each with its value.
    Rows(Vec<(String, String)>),
    /// A counter, after the addition if it was one.
    Number(i64),
    /// The condition of a swap did not hold.
    NotHeld,
    /// It certainly had no effect; for a read, it has no answer.
    Failed(String),
    /// It may have taken effect, or may still do so.
    Unknown(String),
}

impl Answer {
    /// How a write ended with this answer.
    #[must_use]
    pub const fn fate(&self) -> Fate {
        match self {
            Self::Failed(_) | Self::NotHeld => Fate::Refused,
            Self::Unknown(_) => Fate::Unknown,
            Self::Written | Self::Found(_) | Self::Rows(_) | Self::Number(_) => Fate::Applied,
        }
    }
}
