//! A master whose directory was lost takes the place of its former replica in the masters' group.
//!
//! It cannot come back as that replica, which may have voted and confirmed entries that are gone. So it gets a new number
//! of the same place, joins as a learner, gets the catalog or its log, and becomes a voter in the change that removes the
//! former one. It drives this itself by repeating one call at the leader, until it is a voter. Each step is idempotent
//! and follows from the group's members, so leaders may change and processes end in between.
//!
//! Invariants: numbers of a place go up, since they contain an index of the log, and the newest takes the place; a
//! replica that answers is not replaced.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use terrane_proto::v1;
use terrane_raft::{MemberProgress, MembersError};
use terrane_types::{Error, Invalid, ReplicaId, ServerId};
use tokio::time::Instant;

use crate::catalog::masters::MasterSet;
use crate::context::MasterContext;

use crate::journal::{Group, Journal};
use crate::masters::numbers::{numbered, place_of};
use crate::masters::peers::{Peers, Replaced};

/// The pause between two calls, and when a refused caller should try again.
const RETRY_AFTER: Duration = Duration::from_millis(200);
/// How often a master looks whether it was removed, and how often it must find that in a row: a leader that was deposed may
/// not know its newest members.
const REMOVED_LOOK: Duration = Duration::from_millis(700);
const REMOVED_SEEN: usize = 3;

/// The next step for the master at a place; 0: it has no number yet. The leader answers.
pub async fn step(
    context: &MasterContext,
    place: usize,
    master: u64,
    address: &str,
) -> Result<v1::ReplaceReply, Error> {
    context.leadership.admit(Instant::now()).await?;
    let journal = &context.journal;
    let _one_at_a_time = context.changing_members.lock().await;
    journal.learn_members();
    if let Some(message) = journal.read(|catalog| changing(catalog.masters(), place, master)) {
        return Err(Error::Unavailable { message, retry_after: RETRY_AFTER });
    }
    let expected = journal.peers().address_at(place);
    if expected.is_none_or(|expected| expected != address) || (master > 0 && place_of(master) != place) {
        return Err(Error::NotFound { what: format!("place {place} of master {master} among the masters") });
    }
    if master == 0 {
        let master = numbered(place, journal.read_index().await?);
        return Ok(v1::ReplaceReply { master, is_voter: false });
    }
    journal.peers().learn([ServerId(master)].into_iter());
    replace_member(journal, master).await?;
    tracing::info!(master, place, "a master has taken the place of one whose directory was lost");
    Ok(v1::ReplaceReply { master, is_voter: true })
}

/// Why a master has to wait for the change of the set that is under way.
fn changing(set: &MasterSet, place: usize, master: u64) -> Option<String> {
    if set.is_adding(master) {
        return Some(format!("master {master} is being added"));
    }
    let removes = set.change.iter().flat_map(|change| &change.remove).any(|peer| peer.place() == place);
    removes.then(|| format!("the master at place {place} is being removed"))
}

async fn replace_member(journal: &Journal, master: u64) -> Result<(), Error> {
    let group = journal.group();
    let former = former(&group.members(), master).map_err(|what| refused(journal, what))?;
    let replica = ReplicaId(master);
    let changed = |outcome: Result<(), MembersError>| outcome.map_err(|what| refused(journal, what));
    changed(group.add_learner(replica, ServerId(master)).await)?;
    let (voters, learners): (Vec<_>, Vec<_>) = former.into_iter().partition(|member| member.voter);
    changed(group.change_voters(Some(replica), voters.first().map(|member| member.replica)).await)?;
    for learner in voters.iter().skip(1).chain(&learners) {
        changed(group.change_voters(None, Some(learner.replica)).await)?;
    }
    Ok(())
}

/// The members that a master replaces.
fn former(members: &[MemberProgress], master: u64) -> Result<Vec<MemberProgress>, MembersError> {
    let at_place =
        |member: &&MemberProgress| place_of(member.server.0) == place_of(master) && member.server.0 != master;
    let former: Vec<MemberProgress> = members.iter().filter(at_place).copied().collect();
    if let Some(newer) = former.iter().find(|member| member.server.0 > master) {
        return Err(MembersError::Refused { what: format!("master {} has replaced master {master}", newer.server) });
    }
    match former.iter().find(|member| member.alive) {
        Some(alive) => {
            Err(MembersError::Later { what: format!("master {} at this place still answers", alive.server) })
        }
        None => Ok(former),
    }
}

fn refused(journal: &Journal, why: MembersError) -> Error {
    match why {
        MembersError::NotLeader => journal.redirect(),
        MembersError::Refused { what } => Error::Invalid(Invalid::new(what)),
        other => Error::Unavailable { message: other.to_string(), retry_after: RETRY_AFTER },
    }
}

/// Asks the leader for a number, for as long as it takes.
pub async fn number(peers: &Peers) -> u64 {
    tracing::warn!("the data directory is new, but the cluster exists: this master replaces its former replica");
    let mut said = false;
    loop {
        match peers.replace(0).await {
            Replaced::Step(reply) if reply.master > 0 => return reply.master,
            Replaced::Refused(why) if !said => {
                said = true;
                tracing::warn!(why, "the leading master does not count this one among the masters");
            }
            _ => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Repeats the call until this master, which is no founder, votes. One that is being added waits for that.
pub async fn until_voter(context: Arc<MasterContext>) {
    let (peers, group) = (context.journal.peers(), context.journal.group());
    let mut refused = 0;
    while !votes(group, peers.own()) {
        match peers.replace(peers.own()).await {
            Replaced::Step(reply) if reply.is_voter => continue,
            Replaced::Refused(why) => {
                refused += 1;
                if refused == REMOVED_SEEN {
                    tracing::warn!(
                        why,
                        "this process was not added to the masters; empty its directory to add it again"
                    );
                    context.leadership.set_removed();
                }
            }
            _ => refused = 0,
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
    tracing::info!(master = peers.own(), "this master votes");
}

/// Returns when this master is one no more: it was removed, or another directory has taken its place.
pub async fn until_removed(context: Arc<MasterContext>) {
    let mut seen = 0;
    while seen < REMOVED_SEEN {
        tokio::time::sleep(REMOVED_LOOK).await;
        let is_removed = !context.leadership.holds() && is_removed(&context.journal).await;
        seen = if is_removed { seen + 1 } else { 0 };
    }
}

/// Whether this master, which starts, was removed while it was away.
pub async fn was_removed(journal: &Journal) -> bool {
    if !is_removed(journal).await {
        return false;
    }
    tokio::time::sleep(REMOVED_LOOK).await;
    is_removed(journal).await
}

/// Whether a leader knows this master as no member of the group any more.
async fn is_removed(journal: &Journal) -> bool {
    let (peers, group) = (journal.peers(), journal.group());
    // One that is being added is no member yet when it starts, and has no log.
    let was_member = peers.is_founder() || group.status().last_index > 0;
    if !was_member || terrane_env::planted!("a removed master does not learn of it") {
        return false;
    }
    let states = join_all(peers.other_places().into_iter().map(|place| peers.state(place))).await;
    let lacks = |state: &v1::MasterStateReply| state.leads && !state.members.contains(&peers.own());
    if states.iter().flatten().any(lacks) {
        return true;
    }
    // The leader may have been added while this master was away; one that it knows names it.
    let known = peers.addresses();
    let leaders: BTreeSet<&str> = states.iter().flatten().map(|state| state.leader.as_str()).collect();
    let added = leaders.into_iter().filter(|leader| !leader.is_empty() && known.iter().all(|known| known != leader));
    join_all(added.map(|leader| peers.state_at(leader))).await.iter().flatten().any(lacks)
}

fn votes(group: &Group, master: u64) -> bool {
    let status = group.status();
    // Without a log, its members are those that it was told when it joined.
    status.last_index > 0 && status.voters.contains(&ReplicaId(master))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::masters::MastersChange;
    use crate::masters::numbers::Peer;

    fn member(number: u64, voter: bool, alive: bool) -> MemberProgress {
        let (replica, server) = (ReplicaId(number), ServerId(number));
        MemberProgress {
            replica,
            server,
            voter,
            matched: 0,
            applied: 0,
            lags: false,
            alive,
            copy_bytes: 0,
            copied_bytes: 0,
        }
    }

    #[test]
    fn a_master_replaces_all_silent_members_of_its_place() {
        let members = [member(1, true, true), member(2, true, false), member(3, true, true), member(10, false, false)];
        let numbers = |former: Vec<MemberProgress>| former.iter().map(|member| member.server.0).collect::<Vec<_>>();
        assert_eq!(numbers(former(&members, 18).unwrap()), [2, 10]);
    }

    #[test]
    fn neither_a_newer_master_nor_one_that_answers_is_replaced() {
        let members = [member(1, true, true), member(10, true, false)];
        assert!(former(&members, 2).unwrap_err().to_string().contains("master 10 has replaced master 2"));
        assert!(matches!(former(&members, 9), Err(MembersError::Later { .. })));
    }

    #[test]
    fn a_master_that_is_being_added_or_removed_does_not_return_meanwhile() {
        let peer = |number: u64| Peer { number, address: format!("{number}:1") };
        let change = MastersChange { add: vec![peer(12)], remove: vec![peer(3)], undo: false, since_ms: 0 };
        let set = MasterSet { version: 0, present: vec![peer(1), peer(2), peer(3)], change: Some(change) };
        assert!(changing(&set, place_of(3), 0).unwrap().contains("being removed"));
        assert!(changing(&set, place_of(3), 19).unwrap().contains("being removed"));
        assert!(changing(&set, place_of(12), 12).unwrap().contains("being added"));
        assert_eq!(changing(&set, place_of(2), 18), None);
        assert_eq!(changing(&MasterSet { change: None, ..set }, place_of(3), 19), None);
    }
}
