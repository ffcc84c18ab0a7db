//! The next step of a change of a group's members, as a function without I/O.
//!
//! The step follows from the journaled change and from what the group's leader and the servers last reported, and from
//! nothing else. A step whose outcome is unknown is therefore simply decided again, by this master or the next one: every
//! order is idempotent, and one that was made shows in what the leader names as members.
//!
//! ```text
//! Joining    the target creates its replica → it joins as a learner → it catches up → record Promoting
//! Promoting  a leader that is to leave hands over → the learner votes and the old member leaves, as one joint change → end
//! Undoing    the new replica leaves again → end
//! Recovering the survivor of a lost majority becomes the only member → end
//! ```
//!
//! Invariants: voters change only after `Promoting` is recorded, and that only once the new replica has caught up; the
//! change ends with the members that the leader named after it confirmed, in this run, that they are committed; an undo ends only after the leader has
//! confirmed, in this run, that the new replica is no member, since an earlier order may still be on its way. A replica
//! that is no longer a member removes its files by a separate order (`crate::fleet::strays`), whenever its server is live.
//!
//! A damaged replica makes way on its own server if no other can take the new one: the order to create the new one names it, and
//! the server discards it first. That is ordered only while a majority of the voters is whole and caught up without it; its
//! number never comes back, as that of a server whose disk was emptied.
//!
//! A change whose new replica gets no further is undone: it would keep other changes of its servers from beginning. The time
//! is measured by one run, so another master begins it again.

use std::collections::BTreeSet;
use std::time::Duration;

use terrane_types::{GroupId, ReplicaId, ServerId};

use crate::catalog::changes::{ChangeReason, ChangeState, MemberChange};
use crate::catalog::groups::GroupEntry;
use crate::servers::inventory::{GroupView, MemberSeen};
use crate::servers::liveness::Moment;

/// How long a target that does not report is waited for before the change is undone and another server chosen.
const TARGET_PATIENCE: Duration = Duration::from_secs(10);
/// How long a new replica on a live server may leave its leader without an answer: it has failed, or is not there.
const SILENT_PATIENCE: Duration = Duration::from_secs(120);
/// How long a new replica that answers may get no further, the time aside in which it verifies a copy.
const STUCK_PATIENCE: Duration = Duration::from_secs(900);
/// Bytes a second at which a copy is verified at least.
const VERIFIED_PER_SECOND: u64 = 20 << 20;

/// What is known of the group and its servers.
pub struct Known<'a> {
    /// The live server that leads the group.
    pub leader: Option<ServerId>,
    /// The group as its leader last reported it.
    pub view: Option<&'a GroupView>,
    /// The servers that are live.
    pub live: &'a BTreeSet<ServerId>,
    /// Whether the target has reported its new replica, or created it by order.
    pub joined: bool,
    /// The replica of the group that the target has reported.
    pub present: Option<ReplicaId>,
    /// The servers whose replicas of the group are damaged.
    pub damaged: &'a BTreeSet<ServerId>,
    /// How long the target has not reported.
    pub target_quiet_for: Duration,
    /// How long the new replica has got no further, in this run.
    pub stuck_for: Duration,
    /// The members that did not take over the leadership when ordered to, in this run.
    pub declined: &'a BTreeSet<ReplicaId>,
    /// The members as the leader named them after it last confirmed a change of the voters, in this run.
    pub named: Option<&'a [ReplicaId]>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Order the target to create its replica, in place of a damaged one that it has.
    Join { replica: ReplicaId, server: ServerId, discard: Option<ReplicaId> },
    /// Order the leader to add the replica as a learner.
    Learn { replica: ReplicaId, server: ServerId },
    /// Order the leader to change the voters.
    Vote { promote: Option<ReplicaId>, remove: Option<ReplicaId> },
    /// Order the leader to hand over to another member.
    Transfer { to: ReplicaId },
    /// Order the replica to become the only member.
    Recover { replica: ReplicaId, server: ServerId },
    /// Record that the voters may change from now on.
    Promote,
    /// Record that the change is undone.
    Undo { why: String },
    /// Record the end, with these members.
    End { members: Vec<ReplicaId> },
    /// Look again later.
    Wait { what: String },
}

/// The next step of the group's change; `None` if its members are not changing.
pub fn next(group: GroupId, entry: &GroupEntry, known: &Known<'_>) -> Option<Next> {
    let change = entry.change?;
    if change.state == ChangeState::Recovering {
        return Some(recovering(&change, known));
    }
    if let Some(undo) = give_up(entry, &change, known) {
        return Some(undo);
    }
    if change.state == ChangeState::Joining
        && let Some((replica, server)) = change.add
    {
        if !known.live.contains(&server) {
            return Some(wait(format!("server {server}, which is to get a replica, does not report")));
        }
        if !known.joined {
            return Some(match making_way(entry, &change).filter(|old| known.present == Some(*old)) {
                Some(old) => discarding(group, (replica, server), old, &change, known),
                None => Next::Join { replica, server, discard: None },
            });
        }
    }
    let (Some(_), Some(view)) = (known.leader, known.view.filter(|view| !view.members.is_empty())) else {
        return Some(wait(format!("group {group} has no leader that has reported")));
    };
    Some(match change.state {
        ChangeState::Joining => joining(&change, view),
        ChangeState::Promoting => promoting(entry, &change, view, known),
        ChangeState::Undoing => undoing(entry, &change, view, known),
        ChangeState::Recovering => recovering(&change, known),
    })
}

/// How many steps of the change are made, of how many.
pub fn progress(entry: &GroupEntry, view: Option<&GroupView>) -> (u32, u32) {
    const STEPS: u32 = 4;
    let Some(change) = entry.change else { return (STEPS, STEPS) };
    let member = change.add.and_then(|(replica, _)| view?.member(replica));
    let done = match (change.state, member) {
        (ChangeState::Joining, None) => 0,
        (ChangeState::Joining, Some(_)) => 1,
        (ChangeState::Promoting, Some(member)) if member.voter => 3,
        (ChangeState::Promoting, _) => 2,
        (ChangeState::Recovering, _) if view.is_some_and(|view| is_alone(&change, view)) => 3,
        (ChangeState::Undoing | ChangeState::Recovering, _) => 0,
    };
    (done, STEPS)
}

/// Reasons to undo the change that hold at every step before the voters have changed.
fn give_up(entry: &GroupEntry, change: &MemberChange, known: &Known<'_>) -> Option<Next> {
    let (replica, server) = change.add.filter(|_| change.state != ChangeState::Undoing)?;
    let member = known.view.and_then(|view| view.member(replica));
    if member.is_some_and(|member| member.voter) {
        return None;
    }
    if !known.live.contains(&server) && known.target_quiet_for >= TARGET_PATIENCE {
        return Some(Next::Undo { why: format!("server {server}, which was to get a replica, does not report") });
    }
    if let Some(why) = known.view.zip(member).and_then(|(view, member)| stuck(view, member, known.stuck_for)) {
        return Some(Next::Undo { why });
    }
    // A restart forgets what was damaged. It is found again.
    if change.state == ChangeState::Joining
        && making_way(entry, change).is_some_and(|old| known.present == Some(old))
        && !known.damaged.contains(&server)
    {
        return Some(Next::Undo { why: format!("the replica on server {server} is no longer known to be damaged") });
    }
    // A server that is back before its replica was replaced keeps it.
    let old = change.remove.filter(|_| change.reason == ChangeReason::Lost && change.state == ChangeState::Joining)?;
    let server = entry.members.get(&old).filter(|server| known.live.contains(server))?;
    let view = known.view?;
    let is_back = view.member(old).is_some_and(|member| member.voter && view.is_caught_up(member));
    is_back.then(|| Next::Undo { why: format!("server {server} is back, and its replica has caught up") })
}

/// Why a new replica that has got no further for so long is not waited for any more.
fn stuck(view: &GroupView, member: &MemberSeen, stuck_for: Duration) -> Option<String> {
    if view.is_caught_up(member) {
        return None;
    }
    let verifying = Duration::from_secs(member.copy_bytes / VERIFIED_PER_SECOND);
    let patience = if member.alive { STUCK_PATIENCE + verifying } else { SILENT_PATIENCE };
    let (server, seconds) = (member.server, stuck_for.as_secs());
    (stuck_for >= patience).then(|| format!("the new replica on server {server} has got no further for {seconds} s"))
}

/// The damaged replica that is to make way for the new one on its own server.
fn making_way(entry: &GroupEntry, change: &MemberChange) -> Option<ReplicaId> {
    let (_, server) = change.add?;
    change.remove.filter(|old| entry.members.get(old) == Some(&server))
}

/// Orders the server to discard its damaged replica, once that costs the group neither its quorum nor its last whole copy.
fn discarding(
    group: GroupId,
    (replica, server): (ReplicaId, ServerId),
    old: ReplicaId,
    change: &MemberChange,
    known: &Known<'_>,
) -> Next {
    let (Some(leader), Some(view)) = (known.leader, known.view.filter(|view| !view.members.is_empty())) else {
        return wait(format!("group {group} has no leader that has reported"));
    };
    if leader == server {
        return match successor(change, view, known) {
            Some(to) => Next::Transfer { to },
            None => wait("another member that is live and caught up, to take over the leadership".to_owned()),
        };
    }
    let is_whole = |member: &&MemberSeen| {
        member.replica != old
            && view.is_caught_up(member)
            && known.live.contains(&member.server)
            && !known.damaged.contains(&member.server)
    };
    let whole = view.members.iter().filter(|member| member.voter).filter(is_whole).count();
    let is_safe = whole > voters(view).len() / 2 && !known.damaged.contains(&leader);
    if !is_safe {
        return wait(format!("a majority of group {group} that is whole and caught up without replica {old}"));
    }
    Next::Join { replica, server, discard: Some(old) }
}

/// How far the new replica got, in one run of its change.
#[derive(Debug, Default)]
pub struct Advance {
    /// The furthest that was seen: entries, and bytes of a copy. One that begins again has not got further.
    furthest: Option<(u64, u64)>,
    since: Option<Moment>,
}

impl Advance {
    /// Notes how far it has got; returns how long it has got no further.
    pub fn look(&mut self, member: Option<&MemberSeen>, now: Moment) -> Duration {
        let seen = member.map(|member| (member.matched.saturating_add(member.applied), member.copied_bytes));
        let further = match (seen, self.furthest) {
            (Some((entries, bytes)), Some((most_entries, most_bytes))) => entries > most_entries || bytes > most_bytes,
            (seen, furthest) => seen.is_some() != furthest.is_some(),
        };
        if further {
            let (entries, bytes) = self.furthest.unwrap_or_default();
            self.furthest = seen.map(|seen| (seen.0.max(entries), seen.1.max(bytes)));
            self.since = Some(now);
        }
        now.since(*self.since.get_or_insert(now))
    }
}

fn joining(change: &MemberChange, view: &GroupView) -> Next {
    let Some((replica, server)) = change.add else { return Next::Promote };
    match view.member(replica) {
        None => Next::Learn { replica, server },
        Some(member) if view.is_caught_up(member) => Next::Promote,
        Some(member) => wait(catching_up(view, member)),
    }
}

fn catching_up(view: &GroupView, member: &MemberSeen) -> String {
    let server = member.server;
    if !member.alive {
        return format!("the new replica on server {server} does not answer its leader");
    }
    if member.copied_bytes < member.copy_bytes {
        let percent = member.copied_bytes.saturating_mul(100) / member.copy_bytes;
        return format!("the copy to server {server}: {percent} % of {} bytes", member.copy_bytes);
    }
    let newest = view.members.iter().map(|member| member.matched).max().unwrap_or(0);
    format!("the new replica on server {server}, which lacks {} entries", newest.saturating_sub(member.reached()))
}

fn promoting(entry: &GroupEntry, change: &MemberChange, view: &GroupView, known: &Known<'_>) -> Next {
    let new = change.add.map(|(replica, server)| (replica, server, view.member(replica)));
    if let Some((replica, server, None)) = new {
        // The leader has lost it, or an older leader's report is late. To learn again is idempotent.
        return Next::Learn { replica, server };
    }
    let promote =
        new.filter(|(_, _, member)| member.is_some_and(|member| !member.voter)).map(|(replica, _, _)| replica);
    let remove = change.remove.filter(|old| view.member(*old).is_some());
    if promote.is_none() && remove.is_none() || terrane_env::planted!("a change of members ends before its vote") {
        return confirmed(change, view, known);
    }
    let old_server = remove.and_then(|old| entry.members.get(&old));
    if old_server.is_some() && old_server.copied() == known.leader {
        return match successor(change, view, known) {
            Some(to) => Next::Transfer { to },
            // The only voter: the new one votes first, then it takes over.
            None if promote.is_some() => Next::Vote { promote, remove: None },
            None => wait("another member that is live and caught up, to take over the leadership".to_owned()),
        };
    }
    Next::Vote { promote, remove }
}

/// The end of a change whose voters are as wanted, once the leader has confirmed it: before, they could be what a leader has
/// that loses its leadership, and the next one has not.
fn confirmed(change: &MemberChange, view: &GroupView, known: &Known<'_>) -> Next {
    let (promote, remove) = (change.add.map(|(replica, _)| replica), change.remove);
    let is_made = |members: &[ReplicaId]| {
        promote.is_none_or(|new| members.contains(&new)) && remove.is_none_or(|old| !members.contains(&old))
    };
    if known.named.is_some_and(is_made) || terrane_env::planted!("a change of members ends before its vote") {
        return Next::End { members: voters(view) };
    }
    Next::Vote { promote, remove }
}

/// The live, caught-up voter that takes over from a leader that is to leave.
fn successor(change: &MemberChange, view: &GroupView, known: &Known<'_>) -> Option<ReplicaId> {
    let stays = |member: &&MemberSeen| {
        let leaves = Some(member.replica) == change.remove || Some(member.server) == known.leader;
        member.voter && !leaves && known.live.contains(&member.server) && view.is_caught_up(member)
    };
    // One that did not take over when ordered to has a reason, and is tried again only if there is no other.
    let rank = |member: &&MemberSeen| (!known.declined.contains(&member.replica), member.reached(), member.replica);
    view.members.iter().filter(stays).max_by_key(rank).map(|member| member.replica)
}

fn undoing(entry: &GroupEntry, change: &MemberChange, view: &GroupView, known: &Known<'_>) -> Next {
    let Some((new, server)) = change.add else { return Next::End { members: voters(view) } };
    let old_left = change.remove.is_some_and(|old| view.member(old).is_none());
    if old_left && view.member(new).is_some_and(|member| member.voter) {
        // The voters changed before the undo: to remove the new one, too, would leave a replica less.
        return Next::End { members: voters(view) };
    }
    if let Some(members) = known.named.filter(|members| !members.contains(&new)) {
        let members = members.iter().copied().filter(|replica| entry.members.contains_key(replica)).collect();
        return Next::End { members };
    }
    // Of two replicas on one server, only a voter leads.
    if known.leader == Some(server) && view.member(new).is_some_and(|member| member.voter) {
        let to = view.members.iter().find(|member| {
            member.voter && member.replica != new && known.live.contains(&member.server) && view.is_caught_up(member)
        });
        return to.map_or_else(
            || wait("another member that is live and caught up, to take over the leadership".to_owned()),
            |member| Next::Transfer { to: member.replica },
        );
    }
    Next::Vote { promote: None, remove: Some(new) }
}

/// The survivor leads alone, or the group has turned out to be alive: then its members stay as they are. They do only if the
/// survivor hears that leader, because otherwise it could still follow an order that is on its way.
fn recovering(change: &MemberChange, known: &Known<'_>) -> Next {
    let Some((replica, server)) = change.add else { return wait("a survivor".to_owned()) };
    if let (Some(_), Some(view)) = (known.leader, known.view) {
        if is_alone(change, view) && known.leader == Some(server) {
            return Next::End { members: vec![replica] };
        }
        let answers = |member: &&MemberSeen| member.alive || Some(member.server) == known.leader;
        let up = view.members.iter().filter(|member| member.voter).filter(answers).count();
        let hears = view.member(replica).is_some_and(|survivor| answers(&survivor));
        if hears && up > 1 && up > voters(view).len() / 2 {
            return Next::End { members: voters(view) };
        }
    }
    if known.live.contains(&server) {
        Next::Recover { replica, server }
    } else {
        wait(format!("server {server}, which has the replica that survives, does not report"))
    }
}

/// Whether the survivor of a lost majority is the only member.
fn is_alone(change: &MemberChange, view: &GroupView) -> bool {
    change.add.is_some_and(
        |(survivor, _)| matches!(view.members.as_slice(), [only] if only.replica == survivor && only.voter),
    )
}

fn voters(view: &GroupView) -> Vec<ReplicaId> {
    view.members.iter().filter(|member| member.voter).map(|member| member.replica).collect()
}

fn wait(what: String) -> Next {
    Next::Wait { what }
}

#[cfg(test)]
mod tests;
