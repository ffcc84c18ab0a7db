//! The order in which the members of a new group create their replicas, as a state machine without I/O.
//!
//! First as many followers as make a quorum with the leader, then the planned leader, then the other followers. The
//! leader starts an election as soon as it has its replica, and wins it only if a quorum can answer.

use std::collections::BTreeSet;

use terrane_types::ReplicaId;

use crate::catalog::groups::{GroupEntry, GroupState};

/// How far a group's creation has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Followers create their replicas, until a quorum is reached with the leader.
    Quorum,
    /// The planned leader creates its replica.
    Leader,
    /// The other followers create theirs.
    Rest,
    /// Every member has its replica.
    Complete,
}

/// The creation of one group.
#[derive(Debug)]
pub struct GroupCreation {
    /// The planned leader's replica, until it is created.
    leader: Option<ReplicaId>,
    /// Followers without a replica.
    followers: BTreeSet<ReplicaId>,
    /// Followers that may lack a replica when the leader creates its own.
    followers_to_spare: usize,
}

impl GroupCreation {
    /// The creation that a group's state in the catalog asks for; `None` if the group is open.
    pub fn resume(entry: &GroupEntry) -> Option<Self> {
        let is_leader = |replica: &ReplicaId| entry.members[replica] == entry.planned_leader;
        let (leader, followers): (BTreeSet<_>, BTreeSet<_>) = entry.members.keys().copied().partition(is_leader);
        let quorum = entry.members.len() / 2 + 1;
        let followers_to_spare = entry.members.len() - quorum;
        let leader = leader.first().copied();
        (entry.state == GroupState::Creating).then_some(Self { leader, followers, followers_to_spare })
    }

    /// How far the creation has got.
    pub fn phase(&self) -> Phase {
        match (self.leader, self.followers.len()) {
            (Some(_), left) if left > self.followers_to_spare => Phase::Quorum,
            (Some(_), _) => Phase::Leader,
            (None, 0) => Phase::Complete,
            (None, _) => Phase::Rest,
        }
    }

    /// The replicas to order now.
    pub fn next(&self) -> Vec<ReplicaId> {
        match self.phase() {
            Phase::Leader => self.leader.into_iter().collect(),
            Phase::Quorum | Phase::Rest | Phase::Complete => self.followers.iter().copied().collect(),
        }
    }

    /// A member has created its replica.
    pub fn created(&mut self, replica: ReplicaId) {
        let before = self.phase();
        let was_missing = self.followers.remove(&replica) || self.leader.take_if(|leader| *leader == replica).is_some();
        assert!(was_missing, "replica {replica} was created twice");
        let after = self.phase();
        assert!(before as u8 <= after as u8, "the creation of a group went back from {before:?} to {after:?}");
    }
}
