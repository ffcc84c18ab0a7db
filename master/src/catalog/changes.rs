//! A change of a group's members as a value: who joins, who leaves, why, and how far it is.

use terrane_types::admin::procedures::ProcedureState;
use terrane_types::{GroupId, ReplicaId, ServerId};

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// Why the members of a group change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeReason {
    /// A member's server does not return.
    Lost,
    /// A member's server is drained.
    Drain,
    /// Servers have different numbers of replicas, or members share a zone.
    Balance,
    /// The cluster's replication has changed.
    Replication,
    /// Some of a member's store files are damaged.
    Damaged,
    /// The majority of the group is lost, and an administrator recovers it from a survivor.
    LostMajority,
}

impl ChangeReason {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost server",
            Self::Drain => "drain",
            Self::Balance => "balance",
            Self::Replication => "replication",
            Self::Damaged => "damaged files",
            Self::LostMajority => "lost majority",
        }
    }

    const fn code(self) -> u8 {
        match self {
            Self::Lost => 0,
            Self::Drain => 1,
            Self::Balance => 2,
            Self::Replication => 3,
            Self::LostMajority => 4,
            Self::Damaged => 5,
        }
    }

    fn of_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Lost, Self::Drain, Self::Balance, Self::Replication, Self::LostMajority, Self::Damaged]
            .into_iter()
            .find(|reason| reason.code() == code)
            .ok_or(DecodeError::Tag { what: "reason of a change of members", found: code })
    }
}

/// How far a change of members is journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeState {
    /// The new replica joins as a learner and catches up. No vote has changed.
    Joining,
    /// The voters change.
    Promoting,
    /// The new replica leaves again.
    Undoing,
    /// One replica becomes the only member.
    Recovering,
}

impl ChangeState {
    /// As it is shown.
    pub const fn shown(self) -> ProcedureState {
        match self {
            Self::Joining => ProcedureState::Joining,
            Self::Promoting => ProcedureState::Promoting,
            Self::Undoing => ProcedureState::Undoing,
            Self::Recovering => ProcedureState::Recovering,
        }
    }

    /// Its name in output.
    pub const fn name(self) -> &'static str {
        self.shown().name()
    }

    const fn code(self) -> u8 {
        match self {
            Self::Joining => 0,
            Self::Promoting => 1,
            Self::Undoing => 2,
            Self::Recovering => 3,
        }
    }

    fn of_code(code: u8) -> Result<Self, DecodeError> {
        [Self::Joining, Self::Promoting, Self::Undoing, Self::Recovering]
            .into_iter()
            .find(|state| state.code() == code)
            .ok_or(DecodeError::Tag { what: "state of a change of members", found: code })
    }
}

/// A change of a group's members that has begun and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// The replica that joins, or the one that the group is recovered from, and its server.
    pub add: Option<(ReplicaId, ServerId)>,
    /// The replica that leaves.
    pub remove: Option<ReplicaId>,
    /// Why.
    pub reason: ChangeReason,
    /// How far it is.
    pub state: ChangeState,
    /// The stamp of the entry that began it, in milliseconds since 1970.
    pub since_ms: u64,
}

/// A change of members to begin; the id of the new replica is assigned when the edit is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangePlan {
    /// The group.
    pub group: GroupId,
    /// The version of the group's members that the plan is based on.
    pub version: u64,
    /// The server that gets a replica.
    pub add: Option<ServerId>,
    /// The replica that leaves.
    pub remove: Option<ReplicaId>,
    /// Why.
    pub reason: ChangeReason,
}

impl ChangePlan {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.group.0);
        out.u64(self.version);
        out.u64(self.add.map_or(0, |server| server.0));
        out.u64(self.remove.map_or(0, |replica| replica.0));
        out.u8(self.reason.code());
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            group: GroupId(from.u64()?),
            version: from.u64()?,
            add: Some(ServerId(from.u64()?)).filter(|server| server.0 != 0),
            remove: Some(ReplicaId(from.u64()?)).filter(|replica| replica.0 != 0),
            reason: ChangeReason::of_code(from.u8()?)?,
        })
    }
}

impl MemberChange {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (replica, server) = self.add.unwrap_or((ReplicaId(0), ServerId(0)));
        out.u64(replica.0);
        out.u64(server.0);
        out.u64(self.remove.map_or(0, |replica| replica.0));
        out.u8(self.reason.code());
        out.u8(self.state.code());
        out.u64(self.since_ms);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (replica, server, remove) = (ReplicaId(from.u64()?), ServerId(from.u64()?), ReplicaId(from.u64()?));
        Ok(Self {
            add: (replica.0 != 0).then_some((replica, server)),
            remove: (remove.0 != 0).then_some(remove),
            reason: ChangeReason::of_code(from.u8()?)?,
            state: ChangeState::of_code(from.u8()?)?,
            since_ms: from.u64()?,
        })
    }
}
