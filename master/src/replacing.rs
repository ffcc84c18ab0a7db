//! A master whose directory was lost takes the place of its former replica in the masters' group.
//!
//! It cannot come back as that replica, which may have voted and confirmed entries that are gone. So it gets a new number
//! of the same place, joins as a learner, gets the catalog or its log, and becomes a voter in the change that removes the
//! former one. It drives this itself by repeating one call at the leader, until it is a voter. Each step is idempotent
//! and follows from the group's members, so leaders may change and processes end in between.
//!
//! Invariants: numbers of a place go up, since they contain an index of the log, and the newest takes the place; a
//! replica that answers is not replaced.

use std::sync::Arc;
use std::time::Duration;

use terrane_proto::v1;
use terrane_raft::{MemberProgress, MembersError};
use terrane_types::{Error, Invalid, ReplicaId, ServerId};
use tokio::time::Instant;

use crate::context::MasterContext;
use crate::identity::{numbered, place_of};
use crate::journal::{Group, Journal};
use crate::peers::Peers;

/// The pause between two calls, and when a refused caller should try again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The next step for the master at a place; 0: it has no number yet. The leader answers.
pub async fn step(context: &MasterContext, place: usize, master: u64) -> Result<v1::ReplaceReply, Error> {
    context.leadership.admit(Instant::now()).await?;
    let journal = &context.journal;
    if place >= journal.peers().addresses().len() || (master > 0 && place_of(master) != place) {
        return Err(Error::Invalid(Invalid::new(format!(
            "master {master} has no place {place} in the list of masters"
        ))));
    }
    if master == 0 {
        let master = numbered(place, journal.read_index().await?);
        return Ok(v1::ReplaceReply { master, is_voter: false });
    }
    journal.peers().learn([ServerId(master)].into_iter());
    take_in(journal, master).await?;
    tracing::info!(master, place, "a master has taken the place of one whose directory was lost");
    Ok(v1::ReplaceReply { master, is_voter: true })
}

async fn take_in(journal: &Journal, master: u64) -> Result<(), Error> {
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
    loop {
        match peers.replace(0).await {
            Some(reply) if reply.master > 0 => return reply.master,
            _ => tokio::time::sleep(RETRY_AFTER).await,
        }
    }
}

/// Repeats the call until this master, which is no founder, votes.
pub async fn until_voter(context: Arc<MasterContext>) {
    let (peers, group) = (context.journal.peers(), context.journal.group());
    while !votes(group, peers.own()) {
        if peers.replace(peers.own()).await.is_none_or(|reply| !reply.is_voter) {
            tokio::time::sleep(RETRY_AFTER).await;
        }
    }
    tracing::info!(master = peers.own(), "this master votes");
}

/// Whether a leader knows this master as no member of the group any more.
pub async fn is_replaced(peers: &Peers) -> bool {
    let others = (0..peers.addresses().len()).filter(|place| *place != peers.own_place());
    let states = futures::future::join_all(others.map(|place| peers.state(place))).await;
    // One that replaces another is no member yet when it starts.
    let lacks = |state: &v1::MasterStateReply| state.leads && !state.members.contains(&peers.own());
    peers.is_founder() && states.iter().flatten().any(lacks)
}

fn votes(group: &Group, master: u64) -> bool {
    let status = group.status();
    // Without a log, its members are those that it was told when it joined.
    status.last_index > 0 && status.voters.contains(&ReplicaId(master))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(number: u64, voter: bool, alive: bool) -> MemberProgress {
        let (replica, server) = (ReplicaId(number), ServerId(number));
        MemberProgress { replica, server, voter, matched: 0, alive, copy_bytes: 0, copied_bytes: 0 }
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
}
