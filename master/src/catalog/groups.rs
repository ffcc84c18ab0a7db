//! The log groups: their replicas, the servers of these, and the planned leaders.
//!
//! The present leader of a group is known from reports and kept in memory (`crate::inventory`). The planned leader
//! starts the first election and is the first server to ask.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{GroupId, ReplicaId, ServerId};

use super::codec::{DecodeError, Reader, Writer};

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Journaled; its members are creating their replicas.
    Creating,
    /// Every member has its replica.
    Open,
}

impl GroupState {
    /// Its name in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Open => "open",
        }
    }
}

/// One group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// Its state.
    pub state: GroupState,
    /// The server that starts the first election.
    pub planned_leader: ServerId,
    /// Its replicas and the servers they are on.
    pub members: BTreeMap<ReplicaId, ServerId>,
}

impl GroupEntry {
    /// Whether the group has a replica on this server.
    pub fn is_on(&self, server: ServerId) -> bool {
        self.members.values().any(|member| *member == server)
    }
}

/// A planned group; ids are assigned when the edit is applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPlan {
    /// The planned leader, one of `servers`.
    pub leader: ServerId,
    /// The servers of its replicas, all distinct.
    pub servers: Vec<ServerId>,
}

impl GroupPlan {
    pub(super) fn is_sound(&self) -> bool {
        let distinct: BTreeSet<_> = self.servers.iter().collect();
        distinct.len() == self.servers.len() && self.servers.contains(&self.leader)
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.u64(self.leader.0);
        out.list(self.servers.iter(), |out, server| out.u64(server.0));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { leader: ServerId(from.u64()?), servers: from.list(|from| from.u64().map(ServerId))? })
    }
}

/// All groups by id, except the master's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Groups {
    by_id: BTreeMap<GroupId, GroupEntry>,
}

impl Groups {
    /// The group of this id.
    pub fn get(&self, group: GroupId) -> Option<&GroupEntry> {
        self.by_id.get(&group)
    }

    /// All groups, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (GroupId, &GroupEntry)> {
        self.by_id.iter().map(|(group, entry)| (*group, entry))
    }

    /// The number of groups.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether there are no groups yet.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The number of groups with a replica on this server.
    pub fn replicas_on(&self, server: ServerId) -> usize {
        self.by_id.values().filter(|group| group.is_on(server)).count()
    }

    pub(super) fn add(&mut self, group: GroupId, entry: GroupEntry) {
        let before = self.by_id.insert(group, entry);
        assert!(before.is_none(), "group id {group} was handed out twice");
    }

    pub(super) fn open(&mut self, group: GroupId) -> bool {
        self.by_id.get_mut(&group).map(|entry| entry.state = GroupState::Open).is_some()
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.list(self.by_id.iter(), |out, (group, entry)| {
            out.u64(group.0);
            out.u8(match entry.state {
                GroupState::Creating => 0,
                GroupState::Open => 1,
            });
            out.u64(entry.planned_leader.0);
            out.list(entry.members.iter(), |out, (replica, server)| {
                out.u64(replica.0);
                out.u64(server.0);
            });
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let groups = from.list(|from| {
            let group = GroupId(from.u64()?);
            let state = match from.u8()? {
                0 => GroupState::Creating,
                1 => GroupState::Open,
                found => return Err(DecodeError::Tag { what: "group state", found }),
            };
            let planned_leader = ServerId(from.u64()?);
            let members = from.list(|from| Ok::<_, DecodeError>((ReplicaId(from.u64()?), ServerId(from.u64()?))))?;
            Ok((group, GroupEntry { state, planned_leader, members: members.into_iter().collect() }))
        })?;
        Ok(Self { by_id: groups.into_iter().collect() })
    }
}
