//! Outcomes of edits: the replies of group 0's state machine.

use terrane_types::{RegionId, ServerId, TableId};

use super::moves::MoveId;

/// The outcome of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied.
    Done,
    /// The new server's id.
    Server(ServerId),
    /// The first id of the block.
    RegionIds(RegionId),
    /// The new table's id.
    Table(TableId),
    /// The new move's id.
    Move(MoveId),
    /// Refused; the catalog is unchanged.
    Refused(Refusal),
}

/// Why an edit was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Something of this name already exists.
    AlreadyExists(String),
    /// What it names does not exist.
    NotFound(String),
    /// The catalog has changed since the edit was made; it has to be made again.
    Changed(String),
    /// It breaks a rule.
    Invalid(String),
}
