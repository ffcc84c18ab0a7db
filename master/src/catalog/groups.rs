//! The log groups: their replicas, the servers of these, and the planned leaders.
//!
//! The present leader of a group is known from reports and kept in memory (`crate::servers::inventory`). The planned leader
//! starts the first election and is the first server to ask.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{GroupId, ReplicaId, ServerId, states};

use super::Refusal;
use super::changes::MemberChange;
use super::codec::{ByteWriter as _, DecodeError, Reader};

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupState {
    /// Journaled; its members are creating their replicas.
    Creating,
    /// It serves with a majority; the other members create their replicas when their servers are live.
    Partial,
    /// Every member has its replica.
    Open,
}

impl GroupState {
    /// As it is shown while it has its majority.
    pub const fn shown(self) -> states::GroupState {
        match self {
            Self::Creating => states::GroupState::Creating,
            Self::Partial => states::GroupState::Partial,
            Self::Open => states::GroupState::Open,
        }
    }

    /// Its name in output.
    pub const fn name(self) -> &'static str {
        self.shown().name()
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
    /// Raised by every change of the members.
    pub version: u64,
    /// The unfinished change of the members.
    pub change: Option<MemberChange>,
}

impl GroupEntry {
    /// A group to be created.
    pub const fn creating(planned_leader: ServerId, members: BTreeMap<ReplicaId, ServerId>) -> Self {
        Self { state: GroupState::Creating, planned_leader, members, version: 0, change: None }
    }

    /// Whether it serves.
    pub fn is_open(&self) -> bool {
        self.state != GroupState::Creating
    }

    /// The server of a replica that is a member or is to become one.
    pub fn server_of(&self, replica: ReplicaId) -> Option<ServerId> {
        let joining = self.change.and_then(|change| change.add).filter(|(joining, _)| *joining == replica);
        self.members.get(&replica).copied().or(joining.map(|(_, server)| server))
    }

    /// The servers that have a replica or are to get one.
    pub fn servers(&self) -> BTreeSet<ServerId> {
        let joining = self.change.and_then(|change| change.add).map(|(_, server)| server);
        self.members.values().copied().chain(joining).collect()
    }

    /// The server that joined takes over the planned leadership of one that left.
    pub(super) fn keep_planned_leader(&mut self, joined: Option<ServerId>) {
        if !self.is_on(self.planned_leader) {
            let joined = joined.filter(|server| self.is_on(*server));
            let other = joined.or_else(|| self.members.values().next().copied());
            self.planned_leader = other.unwrap_or(self.planned_leader);
        }
    }

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

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
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

    /// The number of groups with a replica on this server, or with one that is to join there.
    pub fn replicas_on(&self, server: ServerId) -> usize {
        self.by_id.values().filter(|group| group.servers().contains(&server)).count()
    }

    pub(super) fn get_mut(&mut self, group: GroupId) -> Option<&mut GroupEntry> {
        self.by_id.get_mut(&group)
    }

    /// The group, if its members have this version.
    pub(super) fn at_version(&self, group: GroupId, version: u64) -> Result<&GroupEntry, Refusal> {
        let entry = self.get(group).ok_or_else(|| unknown_group(group))?;
        if entry.version == version {
            return Ok(entry);
        }
        Err(Refusal::Changed(format!("the members of group {group} have version {}, not {version}", entry.version)))
    }

    pub(super) fn at_version_mut(&mut self, group: GroupId, version: u64) -> Result<&mut GroupEntry, Refusal> {
        self.at_version(group, version)?;
        self.get_mut(group).ok_or_else(|| unknown_group(group))
    }

    pub(super) fn remove(&mut self, group: GroupId) {
        self.by_id.remove(&group);
    }

    pub(super) fn add(&mut self, group: GroupId, entry: GroupEntry) {
        let before = self.by_id.insert(group, entry);
        assert!(before.is_none(), "group id {group} was handed out twice");
    }

    pub(super) fn enter(&mut self, group: GroupId, state: GroupState) -> Result<(), Refusal> {
        let entry = self.get_mut(group).ok_or_else(|| unknown_group(group))?;
        // A late edit must not take a group back.
        entry.state = entry.state.max(state);
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.by_id.iter(), |out, (group, entry)| {
            out.u64(group.0);
            out.u8(match entry.state {
                GroupState::Creating => 0,
                GroupState::Open => 1,
                GroupState::Partial => 2,
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
                2 => GroupState::Partial,
                found => return Err(DecodeError::Tag { what: "group state", found }),
            };
            let planned_leader = ServerId(from.u64()?);
            let members = from.list(|from| Ok::<_, DecodeError>((ReplicaId(from.u64()?), ServerId(from.u64()?))))?;
            Ok((group, GroupEntry { state, ..GroupEntry::creating(planned_leader, members.into_iter().collect()) }))
        })?;
        Ok(Self { by_id: groups.into_iter().collect() })
    }
}

pub(super) fn unknown_group(group: GroupId) -> Refusal {
    Refusal::NotFound(format!("group {group}"))
}
