//! What procedures work on.

use terrane_types::{GroupId, TableId};

use crate::catalog::moves::MoveId;

/// What a procedure works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A group that is being created.
    Group(GroupId),
    /// A table that is being created, altered or dropped.
    Table(TableId),
    /// A group whose members are changing.
    Members(GroupId),
    /// A region that moves.
    Move(MoveId),
    /// The masters, which are being changed.
    Masters,
}
