//! Keeps the log short.
//!
//! Entries may be purged when they are not kept for other members and the replica's own files cover them. The leader decides
//! the first (`release.rs`) and writes it into its entries; the state machine reports the second. Each replica offers the
//! state as of the lesser of both to openraft as its "snapshot", and openraft then purges up to it.
//!
//! An idle leader writes an entry without operations when it has released more than its last entry said (`announcing.rs`),
//! so that the followers of an idle group can purge too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use terrane_types::{GroupId, ReplicaId};
use tokio::time::Instant;

use crate::log::{GroupUse, Role, SharedLog};
use crate::peer::{Call, Lane, Message, Peers};
use crate::registry::Registry;
use crate::release::{MemberLog, Pressure, is_lost, released};
use crate::replica::Replica;
use crate::types::Metrics;

type Replied = tokio::sync::oneshot::Receiver<Message>;

/// How often the groups are checked.
const INTERVAL: Duration = Duration::from_millis(500);
/// A group with less than this fraction of the log's limit is not named as holding it back.
const NAMED_PART: u64 = 16;

/// Checks all groups periodically, and at once when the log grows beyond its budget. Never returns.
pub(crate) async fn run(groups: Arc<Registry>, log: Arc<SharedLog>, peers: Arc<Peers>) {
    // Kept until the next check: a call whose receiver is dropped is not sent.
    let mut told = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = log.pressed() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let replicas = groups.all();
        end_if_nothing_works(&replicas);
        let holders: BTreeMap<GroupId, u64> = log.holders().into_iter().collect();
        relieve(&replicas, &holders);
        let segment = log.totals().newest;
        for replica in &replicas {
            replica.note_released(segment, holders.get(&replica.spec.group).copied());
            replica.purge().await;
            replica.send_asked_copies(&peers);
            replica.incoming.discard_superseded(replica.standing.applied_index());
        }
        told.clear();
        told.extend(replicas.iter().flat_map(|replica| replica.tell_refusing(&peers)));
        let uses: Vec<GroupUse> = replicas.iter().map(|replica| replica.log_use()).collect();
        for (replica, of_group) in replicas.iter().zip(&uses) {
            *replica.held_by.lock() = replica.name_holder(&replicas, of_group);
        }
        log.set_held_by(held_by(&replicas, &uses, &log));
        log.share_out(&uses);
    }
}

/// Ends a process in which every group has failed: it is of no use, its end is noticed at once, and the next start reports
/// what is wrong.
fn end_if_nothing_works(replicas: &[Arc<Replica>]) {
    for replica in replicas {
        replica.note_failure();
    }
    // A damaged replica is replaced while the process runs.
    let failed = |replica: &Arc<Replica>| replica.status().failed.filter(|_| replica.machine.damage().is_none());
    let failures: Vec<Option<String>> = replicas.iter().map(failed).collect();
    if let Some(why) = why_nothing_works(failures) {
        terrane_env::task::abort_process(&format!("every group of this process has failed; the first one: {why}"));
    }
}

/// The first failure, if there are groups and all of them have failed.
fn why_nothing_works(failures: Vec<Option<String>>) -> Option<String> {
    failures.into_iter().collect::<Option<Vec<String>>>()?.into_iter().next()
}

/// Asks the state machines that hold back a log over its budget to flush.
fn relieve(replicas: &[Arc<Replica>], holders: &BTreeMap<GroupId, u64>) {
    for replica in replicas {
        if let Some(&index) = holders.get(&replica.spec.group)
            && replica.machine.durable().index < index
        {
            replica.machine.relieve(index.min(replica.standing.applied_index()));
        }
    }
}

/// What prevents most of the log from being purged, for people.
fn held_by(replicas: &[Arc<Replica>], uses: &[GroupUse], log: &SharedLog) -> Option<String> {
    let named = |group: GroupId| {
        let replica = replicas.iter().find(|replica| replica.spec.group == group)?;
        replica.held_by.lock().clone()
    };
    let worth_naming = log.limit_bytes() / NAMED_PART;
    let for_members = uses.iter().max_by_key(|of| of.for_members).filter(|of| of.for_members > worth_naming);
    let largest = || uses.iter().max_by_key(|of| of.all).filter(|of| of.all > worth_naming);
    let group = for_members.map(|of| of.group).or_else(|| log.totals().oldest).or_else(|| largest().map(|of| of.group));
    named(group?)
}

impl Replica {
    /// Records up to where the log is not kept for members, and requests an announcement if one is due. `segment` is the log's newest;
    /// `wanted` is the last index that must be purged, if this group holds back a log over its budget.
    fn note_released(&self, segment: u64, wanted: Option<u64>) {
        let said = self.standing.sequence().released;
        let Some(released) = self.released(wanted) else {
            self.released.fetch_max(said, Relaxed);
            self.silence.lock().forget();
            return;
        };
        self.released.fetch_max(released, Relaxed);
        let now_ns = terrane_env::time::now_ns();
        let alone = self.is_alone(&self.metrics.borrow_watched());
        let due = !alone && self.announcer.lock().is_due(said, released, segment, wanted, now_ns);
        if due {
            self.queue.hint.notify_one();
        }
    }

    /// Up to where the log is not kept for members, if this replica leads.
    fn released(&self, wanted: Option<u64>) -> Option<u64> {
        let metrics = self.metrics.borrow_watched();
        if metrics.state != ServerState::Leader {
            return None;
        }
        let replication = metrics.replication.as_ref()?;
        let committed = metrics.local_committed.map_or(0, |id| id.index);
        let (now, mut silence) = (Instant::now(), self.silence.lock());
        let kept = self.log.bytes_through(committed);
        let mut member = |replica: ReplicaId| {
            let mut applied = self.reached(&metrics, replica);
            if terrane_env::planted!("files go with the holder's log") {
                applied = replication.get(&replica).copied().flatten().map_or(0, |id| id.index);
            }
            let alive = replica == self.spec.replica || self.is_alive(&metrics, replica);
            let gets_on = alive && !self.applied.of(replica).asks;
            let lacks = kept.saturating_sub(self.log.bytes_through(applied));
            let files = applied < committed && self.machine.keeps_files_after(applied);
            let lost = is_lost(silence.of(replica, gets_on, now), lacks, files);
            MemberLog { replica, applied, lost }
        };
        let members: Vec<MemberLog> = metrics.membership_config.nodes().map(|(replica, _)| member(*replica)).collect();
        let full = self.shared_log.refusal(self.spec.group, Role::Leader).is_some() || !self.refused_by.by().is_empty();
        let pressure = Pressure { committed, wanted, full, sending: self.sending.keeps_after() };
        Some(released(&members, pressure, self.machine.can_be_copied()))
    }

    /// Logs once that this replica has failed. Its status reports the failure from then on.
    fn note_failure(&self) {
        if let Some(why) = self.status().failed
            && !self.failure_logged.swap(true, Relaxed)
        {
            tracing::error!(group = %self.spec.group, replica = %self.spec.replica, why, "a replica has failed and stopped");
            if let Some(what) = self.log.damage() {
                self.machine.note_damage(what);
            }
        }
    }

    /// The bytes that this group has in the log.
    fn log_use(&self) -> GroupUse {
        let covered = self.machine.durable().index.min(self.standing.applied_index());
        let for_members = if self.least_released() < covered { self.log.bytes_through(covered) } else { 0 };
        GroupUse { group: self.spec.group, all: self.log.bytes(), for_members }
    }

    /// Tells members that refuse entries up to where the log is not kept for members. Entries would tell them, and it lets them
    /// purge.
    fn tell_refusing(&self, peers: &Peers) -> Vec<Replied> {
        let refusing = self.refused_by.by();
        if refusing.is_empty() {
            return Vec::new();
        }
        if !self.leads() {
            return Vec::new();
        }
        let released = self.least_released();
        let tell = |replica| {
            let server = self.server_of(&self.metrics.borrow_watched(), replica)?;
            let (group, message) = (self.spec.group, Message::Released(released));
            let deadline = Instant::now() + INTERVAL;
            peers.link(server, Lane::Votes).call(Call { group, replica, message, deadline })
        };
        refusing.into_iter().filter_map(tell).collect()
    }

    async fn purge(&self) {
        if terrane_env::buggify!("a purge waits for the next look") {
            return;
        }
        let applied = self.standing.applied_index();
        let early = terrane_env::planted!("the log is purged beyond what is flushed");
        let durable = if early { applied } else { self.machine.durable().index };
        let least = not_needed(durable, self.least_released(), applied);
        let (snapshot, purged) = {
            let metrics = self.metrics.borrow_watched();
            (metrics.snapshot.map(|id| id.index), metrics.purged.map(|id| id.index))
        };
        if let Some(mark) = self.standing.mark_at_most(least).filter(|_| least > 0)
            && may_offer(mark.log_id.index, self.standing.offered(), least)
        {
            self.standing.offer(mark);
        }
        // An error means that the replica stopped: it purges nothing, and the host is going down.
        match next_step(self.standing.offered(), snapshot, purged) {
            Step::Snapshot => drop(self.raft.trigger().snapshot().await),
            Step::Purge(index) => drop(self.raft.trigger().purge_log(index).await),
            Step::Nothing => {}
        }
    }

    /// What keeps this group's entries in the log, for people.
    fn name_holder(&self, replicas: &[Arc<Replica>], of_group: &GroupUse) -> Option<String> {
        if of_group.all == 0 {
            return None;
        }
        let durable = self.machine.durable();
        if durable.index <= self.least_released() {
            return Some(durable.held_by.unwrap_or_else(|| format!("group {} on this server", self.spec.group)));
        }
        let group = self.spec.group;
        let behind = self.applied_by_all(&self.metrics.borrow_watched());
        if let Some((_, replica)) = behind {
            let server = self.server_of(&self.metrics.borrow_watched(), replica).unwrap_or_default();
            return Some(format!("replica {replica} of group {group} on server {server}, which is behind"));
        }
        // Most likely, the groups all wait for the same server.
        let server = replicas.iter().filter_map(|replica| replica.straggler()).max().map(|(_, server)| server);
        let known = server.map(|server| format!("server {server}, which is behind"));
        Some(known.unwrap_or_else(|| format!("a member of group {group} that is behind (its leader knows which)")))
    }

    /// The lowest index that a member is known to have applied, and the member. Only the leader knows.
    fn applied_by_all(&self, metrics: &Metrics) -> Option<(u64, ReplicaId)> {
        if metrics.state != ServerState::Leader || metrics.replication.is_none() {
            return None;
        }
        let members = metrics.membership_config.nodes();
        members.map(|(replica, _)| (self.reached(metrics, *replica), *replica)).min()
    }

    /// The member that lacks most of this group's log, if this replica leads: the number of entries, and its server.
    fn straggler(&self) -> Option<(u64, terrane_types::ServerId)> {
        let metrics = self.metrics.borrow_watched();
        let (applied, replica) = self.applied_by_all(&metrics)?;
        let lacks = metrics.last_log_index.unwrap_or(0).saturating_sub(applied);
        Some((lacks, self.server_of(&metrics, replica)?)).filter(|(lacks, _)| *lacks > 0)
    }
}

/// The last index that is no longer needed: in synced files here, not kept for members, and applied.
fn not_needed(durable: u64, released: u64, applied: u64) -> u64 {
    durable.min(released).min(applied)
}

/// Whether the state as of `mark` becomes the next snapshot, in place of the one as of `offered`. `least` is the last index
/// that is not needed.
fn may_offer(mark: u64, offered: Option<u64>, least: u64) -> bool {
    assert!(mark <= least, "purging up to {mark} would remove entries after {least} that are still needed");
    offered.is_none_or(|offered| offered < mark)
}

/// What to order from openraft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Read the newest snapshot.
    Snapshot,
    /// Purge up to the snapshot it knows.
    Purge(u64),
    Nothing,
}

/// openraft first reads a snapshot, and purges up to it at a later check.
fn next_step(offered: Option<u64>, snapshot: Option<u64>, purged: Option<u64>) -> Step {
    match snapshot {
        _ if offered > snapshot => Step::Snapshot,
        Some(index) if snapshot > purged => Step::Purge(index),
        _ => Step::Nothing,
    }
}

#[cfg(test)]
mod tests;
