//! What a group keeps in the log, and what it purges.
//!
//! Entries may be purged when they are not kept for other members and the replica's own files cover them. The leader decides
//! the first (`release.rs`) and writes it into its entries; the state machine reports the second. Each replica offers the
//! state as of the lesser of both to openraft as its "snapshot", and openraft then purges up to it.
//!
//! An idle leader writes an entry without operations when it has released more than its last entry said (`announcing.rs`),
//! so that the followers of an idle group can purge too.

pub(crate) mod announcing;
pub(crate) mod purge;
pub(crate) mod release;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use openraft::ServerState;
use parking_lot::Mutex;
use terrane_types::{ReplicaId, ServerId};
use tokio::time::Instant;

use crate::groups::group_view::{GroupView, matched};
use crate::log::{GroupUse, Refusal, Role};
use crate::peer::{Call, Lane, Message, Peers};
use crate::proposals::adapter::Raft;
use crate::proposals::erased::Machine;
use crate::retention::announcing::Announcer;
use crate::retention::release::{LastContact, MemberLog, Pressure, is_lost, released};
use crate::types::Metrics;

type PendingReply = tokio::sync::oneshot::Receiver<Message>;

/// What a group keeps in the log.
pub(crate) struct Retention {
    view: Arc<GroupView>,
    raft: Raft,
    machine: Arc<dyn Machine>,
    /// The index up to which the log is not kept for members, as of the last check.
    released: AtomicU64,
    /// Since when this leader has not heard its members.
    silence: Mutex<LastContact>,
    /// Decides when this leader announces that index.
    announcer: Mutex<Announcer>,
    /// What keeps this group's entries in the log, for people, as of the last check.
    held_by: Mutex<Option<String>>,
}

impl Retention {
    pub(crate) fn new(view: Arc<GroupView>, raft: Raft, machine: Arc<dyn Machine>) -> Retention {
        Retention {
            view,
            raft,
            machine,
            released: AtomicU64::new(0),
            silence: Mutex::default(),
            announcer: Mutex::new(Announcer::new(terrane_env::time::now_ns())),
            held_by: Mutex::default(),
        }
    }

    /// The index up to which the log is not kept for members: as this leader decided, or from leaders' entries.
    pub(crate) fn least_released(&self) -> u64 {
        self.released.load(Relaxed)
    }

    /// A leader says that the log is not kept for members up to this index.
    pub(crate) fn note_released(&self, index: u64) {
        self.released.fetch_max(index, Relaxed);
    }

    /// Decides up to where the log is not kept for members. True if that is to be announced now. `segment` is the log's newest;
    /// `wanted` is the last index that must be purged, if this group holds back a log over its budget.
    pub(crate) fn release(&self, segment: u64, wanted: Option<u64>) -> bool {
        let said = self.view.applied_state().sequence().released;
        let Some(released) = self.to_release(wanted) else {
            self.note_released(said);
            self.silence.lock().forget();
            return false;
        };
        self.note_released(released);
        let now_ns = terrane_env::time::now_ns();
        let alone = self.view.is_alone(&self.view.metrics());
        !alone && self.announcer.lock().is_due(said, released, segment, wanted, now_ns)
    }

    /// Up to where the log is not kept for members, if this replica leads.
    fn to_release(&self, wanted: Option<u64>) -> Option<u64> {
        let metrics = self.view.metrics();
        if metrics.state != ServerState::Leader || metrics.replication.is_none() {
            return None;
        }
        let (log, followers) = (self.view.log(), self.view.followers());
        let committed = metrics.local_committed.map_or(0, |id| id.index);
        let (now, mut silence) = (Instant::now(), self.silence.lock());
        let kept = log.bytes_through(committed);
        let mut member = |replica: ReplicaId| {
            let mut applied = self.view.reached(&metrics, replica);
            if terrane_env::planted!("files go with the holder's log") {
                applied = matched(&metrics, replica);
            }
            let gets_on = self.view.is_up(&metrics, replica) && !followers.applied.of(replica).asks;
            let lacks = kept.saturating_sub(log.bytes_through(applied));
            let files = applied < committed && self.machine.keeps_files_after(applied);
            let lost = is_lost(silence.of(replica, gets_on, now), lacks, files);
            MemberLog { replica, applied, lost }
        };
        let members: Vec<MemberLog> = metrics.membership_config.nodes().map(|(replica, _)| member(*replica)).collect();
        let full = self.view.shared_log().refusal(self.view.group(), Role::Leader).is_some();
        let full = full || !followers.refused_by.by().is_empty();
        let pressure = Pressure { committed, wanted, full, sending: followers.sending.keeps_after() };
        Some(released(&members, pressure, self.machine.can_be_copied()))
    }

    /// The bytes that this group has in the log.
    pub(crate) fn log_use(&self) -> GroupUse {
        let covered = self.machine.durable().index.min(self.view.applied_state().applied_index());
        let log = self.view.log();
        let for_members = if self.least_released() < covered { log.bytes_through(covered) } else { 0 };
        GroupUse { group: self.view.group(), all: log.bytes(), for_members }
    }

    /// Tells members that refuse entries up to where the log is not kept for members. Entries would tell them, and it lets them
    /// purge.
    pub(crate) fn notify_refusing(&self, peers: &Peers, within: Duration) -> Vec<PendingReply> {
        let refusing = self.view.followers().refused_by.by();
        if refusing.is_empty() || !self.view.leads() {
            return Vec::new();
        }
        let released = self.least_released();
        let tell = |replica| {
            let server = self.view.server_of(&self.view.metrics(), replica)?;
            let (group, message) = (self.view.group(), Message::Released(released));
            let deadline = Instant::now() + within;
            peers.link(server, Lane::Votes).call(Call { group, replica, message, deadline })
        };
        refusing.into_iter().filter_map(tell).collect()
    }

    pub(crate) async fn purge(&self) {
        if terrane_env::buggify!("a purge waits for the next look") {
            return;
        }
        let applied = self.view.applied_state().applied_index();
        let early = terrane_env::planted!("the log is purged beyond what is flushed");
        let durable = if early { applied } else { self.machine.durable().index };
        let least = not_needed(durable, self.least_released(), applied);
        let (snapshot, purged) = {
            let metrics = self.view.metrics();
            (metrics.snapshot.map(|id| id.index), metrics.purged.map(|id| id.index))
        };
        if let Some(mark) = self.view.applied_state().mark_at_most(least).filter(|_| least > 0)
            && may_offer(mark.log_id.index, self.view.applied_state().offered(), least)
        {
            self.view.applied_state().offer(mark);
        }
        // An error means that the replica stopped: it purges nothing, and the host is going down.
        match next_step(self.view.applied_state().offered(), snapshot, purged) {
            Step::Snapshot => drop(self.raft.trigger().snapshot().await),
            Step::Purge(index) => drop(self.raft.trigger().purge_log(index).await),
            Step::Nothing => {}
        }
    }

    /// What keeps this group's entries in the log, for people, as of the last check.
    pub(crate) fn held_by(&self) -> Option<String> {
        self.held_by.lock().clone()
    }

    /// Names what keeps them. `straggler`: the server that all groups most likely wait for.
    pub(crate) fn note_holder(&self, of_group: &GroupUse, straggler: impl FnOnce() -> Option<ServerId>) {
        *self.held_by.lock() = self.holder(of_group, straggler);
    }

    fn holder(&self, of_group: &GroupUse, straggler: impl FnOnce() -> Option<ServerId>) -> Option<String> {
        if of_group.all == 0 {
            return None;
        }
        let durable = self.machine.durable();
        if durable.index <= self.least_released() {
            return Some(durable.held_by.unwrap_or_else(|| format!("group {} on this server", self.view.group())));
        }
        let group = self.view.group();
        let behind = self.applied_by_all(&self.view.metrics());
        if let Some((_, replica)) = behind {
            let server = self.view.server_of(&self.view.metrics(), replica).unwrap_or_default();
            return Some(format!("replica {replica} of group {group} on server {server}, which is behind"));
        }
        let known = straggler().map(|server| format!("server {server}, which is behind"));
        Some(known.unwrap_or_else(|| format!("a member of group {group} that is behind (its leader knows which)")))
    }

    /// The lowest index that a member is known to have applied, and the member. Only the leader knows.
    fn applied_by_all(&self, metrics: &Metrics) -> Option<(u64, ReplicaId)> {
        if metrics.state != ServerState::Leader || metrics.replication.is_none() {
            return None;
        }
        let members = metrics.membership_config.nodes();
        members.map(|(replica, _)| (self.view.reached(metrics, *replica), *replica)).min()
    }

    /// The member that lacks most of this group's log, if this replica leads: the number of entries, and its server.
    pub(crate) fn straggler(&self) -> Option<(u64, ServerId)> {
        let metrics = self.view.metrics();
        let (applied, replica) = self.applied_by_all(&metrics)?;
        let lacks = metrics.last_log_index.unwrap_or(0).saturating_sub(applied);
        Some((lacks, self.view.server_of(&metrics, replica)?)).filter(|(lacks, _)| *lacks > 0)
    }

    /// What prevents a group that used up its share of the log from purging, for people.
    pub(crate) fn refusal(&self, refusal: &Refusal) -> String {
        let holder = self.held_by().unwrap_or_else(|| format!("group {}", self.view.group()));
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        format!(
            "{holder} ({} MiB held, this group's share is {} MiB)",
            mebibytes(refusal.used),
            mebibytes(refusal.share)
        )
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
