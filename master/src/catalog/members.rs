//! Changes of a group's members: a replica joins, leaves or is replaced, one change of a group at a time.
//!
//! A change is journaled when it begins, before it may become irrevocable (`Promoting`), and when it ends. The edit that
//! ends it names the members that the group's leader confirmed: a change that was undone too late therefore ends as
//! the change that was made. In between, the next step follows from this record and from what the leader reports
//! (`crate::procedures::member_change`), so any later master continues the change.
//!
//! A group that lost its majority is recovered from one survivor. That replaces a change that was under way, whose replica
//! counts as a member from then on: the log may have made it one.
//!
//! Invariants: every edit names the version of the group's members that it was made for, so of two masters that begin a
//! change one is refused; a replica's id is taken when its change begins and never used again; a group never loses its
//! last member.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{GroupId, ReplicaId, ServerId};

use super::changes::{ChangePlan, ChangeReason, ChangeState, MemberChange};
use super::codec::{ByteWriter as _, DecodeError, Reader};
use super::groups::{GroupEntry, GroupState, Groups, unknown_group};
use super::{Catalog, Outcome, Refusal};

impl Catalog {
    pub(super) fn begin_change(&mut self, plan: &ChangePlan, stamp: u64) -> Result<Outcome, Refusal> {
        let entry = self.groups.at_version(plan.group, plan.version)?;
        check_begin(plan, entry)?;
        if let Some(server) = plan.add.filter(|server| self.servers.get(*server).is_none()) {
            return Err(Refusal::NotFound(format!("server {server}")));
        }
        let state = if plan.add.is_some() { ChangeState::Joining } else { ChangeState::Promoting };
        let add = plan.add.map(|server| (self.ids.replica(), server));
        let change = MemberChange { add, remove: plan.remove, reason: plan.reason, state, since_ms: stamp };
        let entry = self.groups.at_version_mut(plan.group, plan.version)?;
        let is_new = add.is_none_or(|(replica, _)| !entry.members.contains_key(&replica));
        assert!(is_new, "the id of a replica of group {} was handed out twice", plan.group);
        entry.change = Some(change);
        Ok(Outcome::Done)
    }

    pub(super) fn step_change(&mut self, group: GroupId, version: u64, to: ChangeState) -> Result<Outcome, Refusal> {
        let entry = self.groups.at_version_mut(group, version)?;
        let Some(change) = &mut entry.change else { return Err(no_change(group)) };
        match (change.state, to) {
            (from, to) if from == to => {}
            (ChangeState::Joining, ChangeState::Promoting) => change.state = to,
            // A removal alone has nothing to undo.
            (ChangeState::Joining | ChangeState::Promoting, ChangeState::Undoing) if change.add.is_some() => {
                change.state = to;
            }
            (from, to) => {
                let (from, to) = (from.name(), to.name());
                return Err(Refusal::Changed(format!("the change of group {group} is {from} and cannot be {to}")));
            }
        }
        Ok(Outcome::Done)
    }

    /// The intent to recover a group from one replica. The version is raised, so that an edit of the change that it replaces is
    /// refused.
    pub(super) fn recover_members(
        &mut self,
        group: GroupId,
        version: u64,
        survivor: ReplicaId,
        stamp: u64,
    ) -> Result<Outcome, Refusal> {
        let entry = self.groups.at_version_mut(group, version)?;
        if !entry.is_open() {
            return Err(Refusal::Changed(format!("group {group} is {}", entry.state.name())));
        }
        let Some(server) = entry.server_of(survivor) else {
            return Err(Refusal::Invalid(format!("replica {survivor} is not a member of group {group}")));
        };
        entry.members.extend(entry.change.and_then(|change| change.add));
        // What it lacks of its creation is lost.
        entry.state = GroupState::Open;
        let (add, state, reason) = (Some((survivor, server)), ChangeState::Recovering, ChangeReason::LostMajority);
        entry.change = Some(MemberChange { add, remove: None, reason, state, since_ms: stamp });
        entry.version += 1;
        Ok(Outcome::Done)
    }

    pub(super) fn end_change(
        &mut self,
        group: GroupId,
        version: u64,
        confirmed: &[ReplicaId],
    ) -> Result<Outcome, Refusal> {
        let entry = self.groups.at_version_mut(group, version)?;
        let Some(change) = entry.change else { return Err(no_change(group)) };
        let known: BTreeMap<ReplicaId, ServerId> =
            entry.members.iter().map(|(replica, server)| (*replica, *server)).chain(change.add).collect();
        let confirmed: BTreeSet<ReplicaId> = confirmed.iter().copied().collect();
        if let Some(stranger) = confirmed.iter().find(|replica| !known.contains_key(replica)) {
            return Err(Refusal::Invalid(format!("replica {stranger} has never been a member of group {group}")));
        }
        if confirmed.is_empty() {
            return Err(Refusal::Invalid(format!("group {group} must keep a member")));
        }
        entry.members = known.into_iter().filter(|(replica, _)| confirmed.contains(replica)).collect();
        entry.change = None;
        entry.version += 1;
        entry.keep_planned_leader(change.add.map(|(_, server)| server));
        Ok(Outcome::Done)
    }

    /// Removes an open group that has nothing in it. Its replicas are strays from then on.
    pub(super) fn remove_group(&mut self, group: GroupId) -> Result<Outcome, Refusal> {
        let entry = self.groups.get(group).ok_or_else(|| unknown_group(group))?;
        if !entry.is_open() || entry.change.is_some() {
            return Err(Refusal::Changed(format!("group {group} is being created, or its members change")));
        }
        if self.regions.per_group().contains_key(&group) {
            return Err(Refusal::Invalid(format!("group {group} has regions")));
        }
        if let Some((id, _)) = self.moves.iter().find(|(_, known)| known.to == group || known.region.group == group) {
            return Err(Refusal::Changed(format!("a region moves from or to group {group} (move-{id})")));
        }
        self.groups.remove(group);
        Ok(Outcome::Done)
    }

    /// Removes a group that was never opened, so that it is planned again with other servers.
    pub(super) fn abandon_group(&mut self, group: GroupId) -> Result<Outcome, Refusal> {
        let entry = self.groups.get(group).ok_or_else(|| unknown_group(group))?;
        if entry.state != GroupState::Creating {
            return Err(Refusal::Changed(format!("group {group} is {}", entry.state.name())));
        }
        if self.regions.per_group().contains_key(&group) {
            return Err(Refusal::Invalid(format!("group {group} has regions")));
        }
        self.groups.remove(group);
        Ok(Outcome::Done)
    }
}

fn check_begin(plan: &ChangePlan, entry: &GroupEntry) -> Result<(), Refusal> {
    let group = plan.group;
    if entry.change.is_some() {
        return Err(Refusal::Changed(format!("the members of group {group} are already changing")));
    }
    if !entry.is_open() {
        return Err(Refusal::Changed(format!("group {group} is {}", entry.state.name())));
    }
    if plan.add.is_none() && plan.remove.is_none() {
        return Err(Refusal::Invalid("a change of members adds a replica, removes one, or both".into()));
    }
    // A damaged replica makes way for the new one on its own server.
    let makes_way = plan.remove.filter(|_| plan.reason == ChangeReason::Damaged);
    let is_taken = |server: &ServerId| {
        entry.members.iter().any(|(replica, member)| member == server && Some(*replica) != makes_way)
    };
    if let Some(server) = plan.add.filter(is_taken) {
        return Err(Refusal::Changed(format!("group {group} already has a replica on server {server}")));
    }
    if let Some(replica) = plan.remove.filter(|replica| !entry.members.contains_key(replica)) {
        return Err(Refusal::Changed(format!("replica {replica} is not a member of group {group}")));
    }
    if plan.add.is_none() && entry.members.len() == 1 {
        return Err(Refusal::Invalid(format!("group {group} must keep a member")));
    }
    Ok(())
}

fn no_change(group: GroupId) -> Refusal {
    Refusal::Changed(format!("the members of group {group} are not changing"))
}

/// Appends the version of the members of each group that has changed them, and the unfinished change.
pub(super) fn encode_changes(groups: &Groups, out: &mut Vec<u8>) {
    let noted: Vec<_> = groups.iter().filter(|(_, entry)| entry.version != 0 || entry.change.is_some()).collect();
    out.list(noted.into_iter(), |out, (group, entry)| {
        out.u64(group.0);
        out.u64(entry.version);
        out.option(entry.change.as_ref(), |out, change| change.encode(out));
    });
}

pub(super) fn decode_changes(groups: &mut Groups, from: &mut Reader<'_>) -> Result<(), DecodeError> {
    let noted = from.list(|from| {
        let (group, version) = (GroupId(from.u64()?), from.u64()?);
        let change = match from.u8()? {
            0 => None,
            1 => Some(MemberChange::decode(from)?),
            found => return Err(DecodeError::Tag { what: "mark of a change of members", found }),
        };
        Ok((group, version, change))
    })?;
    for (group, version, change) in noted {
        let entry = groups.get_mut(group).ok_or_else(|| DecodeError::Rule(format!("group {group} does not exist")))?;
        (entry.version, entry.change) = (version, change);
    }
    Ok(())
}
