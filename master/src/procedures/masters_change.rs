//! The next step of a change of the masters, as a function without I/O.
//!
//! The step follows from the journaled change and from the members of the masters' group as its leader sees them, so a
//! step whose outcome is unknown is decided again, by this leader or the next one.
//!
//! ```text
//! each new process takes its number → it joins as a learner → a leader that is to leave hands over
//!     → the new set votes, by one joint change, once the learners have caught up → end
//! ```
//!
//! If no master stays that the leader could hand over to, the new masters vote together with the old ones first.
//!
//! Invariants: the group's voters change at once from the old set to the new one, so there is no moment with an even number
//! of masters, unless none stays; the change ends after the leader has confirmed, in this run, that the voters are those that the
//! end records; a change is undone only while the voters are those of before.

use std::collections::BTreeSet;

use terrane_raft::MemberProgress;

use crate::catalog::masters::{MasterSet, MastersChange};
use crate::masters::numbers::{Peer, place_of};

/// What is known of the masters' group and the new processes.
pub struct Known<'a> {
    /// The number of the leader, which decides.
    pub own: u64,
    /// The members of the group.
    pub members: &'a [MemberProgress],
    /// The processes that have taken their number, in this run.
    pub taken: &'a BTreeSet<u64>,
    /// The masters that did not take over the leadership when ordered to, in this run.
    pub declined: &'a BTreeSet<u64>,
    /// The voters that the leader has confirmed, in this run.
    pub confirmed: Option<&'a BTreeSet<u64>>,
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Order a process to take its number.
    Take(Peer),
    /// Add a learner.
    Learn { number: u64 },
    /// Hand the leadership over.
    Transfer { to: u64 },
    /// Make these the voters.
    Vote { voters: BTreeSet<u64> },
    /// Remove a learner.
    Leave { number: u64 },
    /// Record the end.
    End { undone: bool },
    /// Wait.
    Wait { what: String },
}

/// The next step of the set's change; `None`: it has ended.
pub fn next(set: &MasterSet, known: &Known<'_>) -> Option<Next> {
    let change = set.change.as_ref()?;
    let voters = voters(known.members);
    if change.undo && !votes(set, known.members) {
        return Some(undo(change, known, voters));
    }
    Some(advance(set, change, known, &voters))
}

fn undo(change: &MastersChange, known: &Known<'_>, voters: BTreeSet<u64>) -> Next {
    // A joint change may be on its way, ordered by the former leader.
    if known.confirmed != Some(&voters) {
        return Next::Vote { voters };
    }
    let joining = change.add.iter().find_map(|peer| latest(known.members, peer.place()));
    joining.map_or(Next::End { undone: true }, |number| Next::Leave { number })
}

fn advance(set: &MasterSet, change: &MastersChange, known: &Known<'_>, voters: &BTreeSet<u64>) -> Next {
    let missing = change.add.iter().find(|peer| latest(known.members, peer.place()).is_none());
    if let Some(peer) = missing {
        if known.taken.contains(&peer.number) {
            return Next::Learn { number: peer.number };
        }
        return Next::Take(peer.clone());
    }
    let mut target = BTreeSet::new();
    for peer in set.after() {
        let is_added = change.add.contains(&peer);
        let at_place = |voter: &&u64| place_of(**voter) == peer.place();
        let present =
            if is_added { latest(known.members, peer.place()) } else { voters.iter().rfind(at_place).copied() };
        let Some(number) = present else {
            return Next::Wait { what: format!("the master at {}, which is being replaced", peer.address) };
        };
        target.insert(number);
    }
    if !target.contains(&known.own) {
        return hand_over(known, voters, &target);
    }
    if *voters != target || known.confirmed != Some(&target) {
        return Next::Vote { voters: target };
    }
    let is_leaving = |member: &&MemberProgress| {
        let (number, place) = (member.server.0, place_of(member.server.0));
        !target.contains(&number) && change.remove.iter().chain(&change.add).any(|peer| peer.place() == place)
    };
    let leaving = known.members.iter().find(is_leaving).map(|member| member.server.0);
    leaving.map_or(Next::End { undone: false }, |number| Next::Leave { number })
}

/// The leader is to leave.
fn hand_over(known: &Known<'_>, voters: &BTreeSet<u64>, target: &BTreeSet<u64>) -> Next {
    let staying: Vec<&MemberProgress> =
        known.members.iter().filter(|member| member.voter && target.contains(&member.server.0)).collect();
    if staying.is_empty() {
        return Next::Vote { voters: voters.union(target).copied().collect() };
    }
    let heirs = staying.iter().filter(|member| member.alive && !known.declined.contains(&member.server.0));
    match heirs.max_by_key(|member| member.matched.min(member.applied)) {
        Some(heir) => Next::Transfer { to: heir.server.0 },
        None => Next::Wait { what: "a master that stays, to take over the leadership".to_owned() },
    }
}

/// Whether the change under way can no longer be undone, by the members of the group as its leader sees them.
pub fn is_made(set: &MasterSet, members: &[MemberProgress]) -> bool {
    set.change.is_some() && !members.is_empty() && votes(set, members)
}

/// Whether others vote than before the change.
fn votes(set: &MasterSet, members: &[MemberProgress]) -> bool {
    let places = voters(members).into_iter().map(place_of);
    places.collect::<BTreeSet<_>>() != set.present.iter().map(Peer::place).collect()
}

fn voters(members: &[MemberProgress]) -> BTreeSet<u64> {
    members.iter().filter(|member| member.voter).map(|member| member.server.0).collect()
}

/// The latest member at a place: one that lost its directory is replaced by a later one.
pub fn latest(members: &[MemberProgress], place: usize) -> Option<u64> {
    members.iter().map(|member| member.server.0).filter(|number| place_of(*number) == place).max()
}

#[cfg(test)]
mod tests;
