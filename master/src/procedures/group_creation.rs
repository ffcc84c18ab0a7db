//! The order in which the members of a new group create their replicas, as a state machine without I/O.
//!
//! A group is open when all members have their replicas, or a majority has and the servers of the others are not live.
//!
//! First as many followers as make a quorum with the leader, then the planned leader, then the other followers. The
//! leader starts an election as soon as it has its replica, and wins it only if a quorum can answer. It counts as created once a
//! quorum has the group's first entry: before that, only the leader knows who the members are, and with it the group would be
//! lost. If the planned leader's server is not live by then, a member whose server is takes its place. Should both start the first
//! election, that does no harm: they begin with the same members, and one of them wins.
//!
//! A member that has voted and got no entry cannot start an election. If that leaves none, the group stays as it is: it holds
//! nothing yet, and is abandoned and planned again (`crate::fleet::strays`).

use std::collections::BTreeSet;

use terrane_types::ReplicaId;

use crate::catalog::groups::{GroupEntry, GroupState};

/// How far a group's creation has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// The replica that is to start the first election, until a leader has been elected: the planned leader's, or that of its
    /// stand-in.
    leader: Option<ReplicaId>,
    /// Followers without a replica.
    followers: BTreeSet<ReplicaId>,
    /// Followers that may lack a replica when the leader creates its own.
    followers_to_spare: usize,
}

impl GroupCreation {
    /// The creation that a group's state in the catalog asks for; `None` if the group is open. In a group that serves,
    /// no member is the first.
    pub fn resume(entry: &GroupEntry) -> Option<Self> {
        let begins = entry.state == GroupState::Creating;
        let is_leader = |replica: &ReplicaId| begins && entry.members[replica] == entry.planned_leader;
        let (leader, followers): (BTreeSet<_>, BTreeSet<_>) = entry.members.keys().copied().partition(is_leader);
        let quorum = entry.members.len() / 2 + 1;
        let followers_to_spare = entry.members.len() - quorum;
        let leader = leader.first().copied();
        (entry.state != GroupState::Open).then_some(Self { leader, followers, followers_to_spare })
    }

    /// Lets a member that `is_live` accepts start the first election if the one that was to start it is not live. `members`:
    /// of the group.
    pub fn stand_in(&mut self, members: impl IntoIterator<Item = ReplicaId>, is_live: impl Fn(ReplicaId) -> bool) {
        let Some(away) = self.leader.filter(|leader| !is_live(*leader)) else { return };
        // One that has its replica already is told once more.
        if let Some(other) = members.into_iter().find(|member| is_live(*member)) {
            self.followers.insert(away);
            self.followers.remove(&other);
            self.leader = Some(other);
        }
    }

    /// Whether a replica is to start the first election.
    pub fn is_first(&self, replica: ReplicaId) -> bool {
        self.leader == Some(replica)
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

    /// The number of replicas that are not created.
    pub fn missing(&self) -> usize {
        self.followers.len() + usize::from(self.leader.is_some())
    }

    /// Whether a majority has its replica, with the leader among it, and the members that `can_follow` rejects are all that
    /// is left. Such a group serves; the others get their replicas when their servers are live.
    pub fn serves_without(&self, can_follow: impl Fn(ReplicaId) -> bool) -> bool {
        self.phase() >= Phase::Rest && !self.followers.iter().any(|replica| can_follow(*replica))
    }

    /// A member has created its replica; the one that starts the first election, once a majority has the group's first entry.
    pub fn created(&mut self, replica: ReplicaId) {
        let before = self.phase();
        let was_missing = self.followers.remove(&replica) || self.leader.take_if(|leader| *leader == replica).is_some();
        assert!(was_missing, "replica {replica} was created twice");
        let after = self.phase();
        assert!(before as u8 <= after as u8, "the creation of a group went back from {before:?} to {after:?}");
    }
}
