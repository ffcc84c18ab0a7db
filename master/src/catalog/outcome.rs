//! Outcomes of edits: what group 0's state machine answers.

use terrane_types::{RegionId, ServerId, TableId};

/// The outcome of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It holds.
    Done,
    /// The new server's id.
    Server(ServerId),
    /// The first id of the block.
    RegionIds(RegionId),
    /// The new table's id.
    Table(TableId),
    /// It does not fit, and changed nothing.
    Refused(Refusal),
}

/// Why an edit changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something of this name is there already.
    AlreadyExists(String),
    /// What it names is not there.
    NotFound(String),
    /// The catalog is no longer what the edit was made from; look again.
    Changed(String),
    /// It breaks a rule.
    Invalid(String),
}
