//! Changes of tables, groups, servers and masters that take several steps: those under way and those that have ended.

use std::time::Duration;

#[cfg(feature = "serde")]
use super::json;
use crate::Place;
use crate::named::named;

named! {
    /// The kinds of procedures.
    ProcedureKind, else Other {
        /// A table is created.
        CreateTable = "create table",
        /// The schema of a table changes.
        AlterTable = "alter table",
        /// A table is removed.
        DropTable = "drop table",
        /// A group is created.
        CreateGroup = "create group",
        /// A surplus group is emptied and removed.
        RemoveGroup = "remove group",
        /// A group that has lost its majority continues from one survivor.
        RecoverGroup = "recover group",
        /// A member of a group takes the place of another.
        ReplaceReplica = "replace replica",
        /// A group gets another member.
        AddReplica = "add replica",
        /// A group loses a member.
        RemoveReplica = "remove replica",
        /// A region moves to another group.
        MoveRegion = "move region",
        /// The replicas of a server go to other servers.
        DrainServer = "drain server",
        /// The set of masters changes.
        ChangeMasters = "change masters",
        /// One that only a later build knows.
        Other = "other",
    }
}

named! {
    /// How far a procedure is.
    ProcedureState, else Other {
        /// What it creates is being created.
        Creating = "creating",
        /// The group that it creates serves with a majority; the other members create their replicas.
        Partial = "partial",
        /// The newest schema is rolled out.
        Altering = "altering",
        /// The regions of the table are removed.
        Dropping = "dropping",
        /// The new replica catches up.
        Joining = "joining",
        /// The voters of the group change.
        Promoting = "promoting",
        /// One replica becomes the only member of the group.
        Recovering = "recovering",
        /// The files of the region are copied.
        Copying = "copying",
        /// The last of the region is copied, and requests to it wait.
        Frozen = "frozen",
        /// The masters change.
        Changing = "changing",
        /// What it did is undone.
        Undoing = "undoing",
        /// Replicas leave the server.
        Draining = "draining",
        /// Regions leave the group.
        Emptying = "emptying",
        /// The group has no regions any more.
        Empty = "empty",
        /// One that only a later build knows.
        Other = "other",
    }
}

/// An unfinished change of a table, a group or a server.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProcedureInfo {
    /// Names it in `Admin::cancel`.
    pub id: String,
    /// What kind of change it is.
    pub kind: ProcedureKind,
    /// What it works on.
    pub subject: String,
    /// The address of the master that drives it.
    pub owner: String,
    /// How far it is.
    pub state: ProcedureState,
    /// Why it was begun; empty: by an administrator's call.
    pub reason: String,
    /// Its steps.
    pub steps: u32,
    /// The steps that are done.
    pub steps_done: u32,
    /// How long ago it began, or since when its owner knows it.
    #[cfg_attr(feature = "serde", serde(rename = "since_seconds", serialize_with = "json::seconds"))]
    pub since: Duration,
    /// What it waits for; empty: nothing.
    pub waits_for: String,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// The bytes that it copies; 0: not known, or none.
    pub bytes: u64,
    /// The bytes that are copied.
    pub copied_bytes: u64,
    /// What it does now; empty: not known.
    pub detail: String,
}

/// A change of a table, a group, a server or the masters that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct EndedProcedure {
    /// Its id while it ran. Only drains of one server share theirs, and changes of the masters.
    pub id: String,
    /// What kind of change it was.
    pub kind: ProcedureKind,
    /// What it worked on.
    pub subject: String,
    /// The address of the master that drove it.
    pub owner: String,
    /// Why it was begun; empty: by an administrator's call.
    pub reason: String,
    /// Whether it did not reach its aim.
    pub failed: bool,
    /// `done`, or what happened instead.
    pub outcome: String,
    /// When it began, or since when its owner knew it, in milliseconds since 1970.
    pub started_ms: u64,
    /// When it ended.
    pub ended_ms: u64,
    /// What it changed.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub places: Vec<Place>,
}
