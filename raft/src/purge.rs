//! Keeping the log short.
//!
//! Entries may go when all members have them and the replica's own files cover them. The first is known to the leader, who
//! writes it into its entries; the second the state machine tells. Each replica makes the lesser of both the state that its
//! next "snapshot" stands for, and openraft then purges up to that.
//!
//! A leader that falls silent writes one entry without operations when members have more than its last entry said, so that
//! followers of an idle group can purge too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use terrane_types::GroupId;

use crate::group::Replica;
use crate::log::SharedLog;
use crate::registry::Registry;
use crate::types::Metrics;

/// How often the groups are looked at.
const INTERVAL: Duration = Duration::from_millis(500);

/// Looks at all groups now and then, sooner when the log presses.
pub(crate) async fn run(groups: Arc<Registry>, log: Arc<SharedLog>) {
    loop {
        tokio::select! {
            biased;
            () = log.pressed() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let replicas = groups.all();
        let holders: BTreeMap<GroupId, u64> = log.holders().into_iter().collect();
        relieve(&replicas, &holders);
        let segment = log.totals().newest;
        for replica in &replicas {
            replica.note_matched(segment, holders.get(&replica.spec.group).copied());
            replica.purge().await;
        }
        log.set_held_by(held_by(&replicas, &log));
    }
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

/// Whom the oldest segment waits for, in words.
fn held_by(replicas: &[Arc<Replica>], log: &SharedLog) -> Option<String> {
    let group = log.totals().oldest?;
    let replica = replicas.iter().find(|replica| replica.spec.group == group)?;
    let told = replica.held_by().or_else(|| {
        // A server that one group waits for is most likely what the others wait for too.
        let (_, server) = replicas.iter().filter_map(|replica| replica.straggler()).max()?;
        Some(format!("server {server}, which is behind"))
    });
    Some(told.unwrap_or_else(|| format!("a member of group {group} that is behind (its leader knows which)")))
}

impl Replica {
    /// Takes note of what all members have, and has it told when nothing else is written. `segment` is the log's newest,
    /// `wanted` the last index that has to go where this group holds back a log over its budget.
    fn note_matched(&self, segment: u64, wanted: Option<u64>) {
        let said = self.standing.sequence().least_matched;
        let matched = {
            let metrics = self.metrics.borrow_watched();
            matched_by_all(&metrics)
        };
        let Some((matched, _)) = matched else {
            self.matched_by_all.fetch_max(said, Ordering::Relaxed);
            return;
        };
        self.matched_by_all.fetch_max(matched, Ordering::Relaxed);
        // The entry that says so is itself one more: without this margin each would call for the next. While other groups
        // write, though, the last entries of an idle one would hold back an ever older segment, so that once per segment
        // even a single entry is followed by another.
        let idle_for_a_segment = matched > said && self.hinted_in.load(Ordering::Relaxed) < segment;
        // A full log takes no writes that could say it, and no new segment begins: the one entry left unsaid would keep the
        // log full for ever. Once what has to go is said, no more calls for the next.
        let holds_back = matched > said && wanted.is_some_and(|last| last > said);
        if self.spec.members.len() > 1 && (matched > said + 1 || idle_for_a_segment || holds_back) {
            self.hinted_in.store(segment, Ordering::Relaxed);
            self.queue.hint.notify_one();
        }
    }

    async fn purge(&self) {
        let least = self.machine.durable().index.min(self.least_matched()).min(self.standing.applied_index());
        let (snapshot, purged) = {
            let metrics = self.metrics.borrow_watched();
            (metrics.snapshot.map(|id| id.index), metrics.purged.map(|id| id.index))
        };
        let offered = self.standing.offered();
        if least > 0
            && let Some(mark) = self.standing.mark_at_most(least)
            && offered.is_none_or(|offered| offered < mark.log_id.index)
        {
            self.standing.offer(mark);
        }
        // A replica that stopped will not purge; the host is going down.
        if self.standing.offered() > snapshot {
            self.raft.trigger().snapshot().await.ok();
        } else if snapshot > purged {
            self.raft.trigger().purge_log(snapshot.unwrap_or(0)).await.ok();
        }
    }

    /// Who keeps the oldest entries of this group; `None` when that is a member that only the leader knows.
    fn held_by(&self) -> Option<String> {
        let durable = self.machine.durable();
        if durable.index <= self.least_matched() {
            return Some(durable.held_by.unwrap_or_else(|| format!("group {} on this server", self.spec.group)));
        }
        let metrics = self.metrics.borrow_watched();
        let (_, replica) = matched_by_all(&metrics)?;
        let server = self.spec.members.get(&replica).copied().unwrap_or_default();
        Some(format!("replica {replica} of group {} on server {server}, which is behind", self.spec.group))
    }

    /// The member that lacks most of this group's log, as its leader knows: how many entries, and its server.
    fn straggler(&self) -> Option<(u64, terrane_types::ServerId)> {
        let metrics = self.metrics.borrow_watched();
        let (matched, replica) = matched_by_all(&metrics)?;
        let lacks = metrics.last_log_index.unwrap_or(0).saturating_sub(matched);
        Some((lacks, *self.spec.members.get(&replica)?)).filter(|(lacks, _)| *lacks > 0)
    }
}

/// The least index that a member is known to have, and who that is. Known to the leader alone.
fn matched_by_all(metrics: &Metrics) -> Option<(u64, terrane_types::ReplicaId)> {
    if metrics.state != ServerState::Leader {
        return None;
    }
    let replication = metrics.replication.as_ref()?;
    let members = metrics.membership_config.nodes().map(|(replica, _)| {
        let matched = replication.get(replica).copied().flatten();
        (matched.map_or(0, |id| id.index), *replica)
    });
    members.min()
}
