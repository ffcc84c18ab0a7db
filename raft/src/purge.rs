//! Keeping the log short.
//!
//! Entries may go when all members have them and the replica's own files cover them. The first is known to the leader, who
//! writes it into its entries; the second the state machine tells. Each replica makes the lesser of both the state that its
//! next "snapshot" stands for, and openraft then purges up to that.
//!
//! A leader that falls silent writes one entry without operations when members have more than its last entry said, so that
//! followers of an idle group can purge too.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

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
/// After how long a single unsaid entry is said, at first and at most: the pause doubles each time, so that an idle group
/// falls silent all the same.
const SAY_AGAIN_MIN: Duration = Duration::from_secs(2);
const SAY_AGAIN_MAX: Duration = Duration::from_secs(3_600);

/// When a group says next what all members have, though it is one entry only.
#[derive(Debug)]
pub(crate) struct SayAgain {
    since_ns: u64,
    pause: Duration,
}

impl Default for SayAgain {
    fn default() -> Self {
        Self { since_ns: terrane_env::time::now_ns(), pause: SAY_AGAIN_MIN }
    }
}

impl SayAgain {
    /// More than one entry was unsaid: something was written, and what follows it may be wanted soon.
    fn begin_anew(&mut self, now_ns: u64) {
        *self = Self { since_ns: now_ns, pause: SAY_AGAIN_MIN };
    }

    /// Whether the pause is over; the next one is twice as long then.
    fn is_due(&mut self, now_ns: u64) -> bool {
        if u128::from(now_ns.saturating_sub(self.since_ns)) < self.pause.as_nanos() {
            return false;
        }
        *self = Self { since_ns: now_ns, pause: (self.pause * 2).min(SAY_AGAIN_MAX) };
        true
    }
}

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
            self.matched_by_all.fetch_max(said, Relaxed);
            return;
        };
        self.matched_by_all.fetch_max(matched, Relaxed);
        // The entry that says so is itself one more: without this margin each would call for the next. While other groups
        // write, though, the last entries of an idle one would hold back an ever older segment, so that once per segment
        // even a single entry is followed by another.
        let idle_for_a_segment = matched > said && self.hinted_in.load(Relaxed) < segment;
        // A full log takes no writes that could say it, and no new segment begins: the one entry left unsaid would keep the
        // log full for ever. Once what has to go is said, no more calls for the next.
        let holds_back = matched > said && wanted.is_some_and(|last| last > said);
        // Which entry is in the way of whom is known to a member whose log is full, not to a leader whose own has room: so even
        // a single entry is said in the end, after ever longer pauses.
        let now_ns = terrane_env::time::now_ns();
        let is_due = match matched.cmp(&(said + 1)) {
            Ordering::Less => false,
            Ordering::Equal => self.say_again.lock().is_due(now_ns),
            Ordering::Greater => {
                self.say_again.lock().begin_anew(now_ns);
                true
            }
        };
        if self.spec.members.len() > 1 && (is_due || idle_for_a_segment || holds_back) {
            self.hinted_in.store(segment, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_entry_is_said_after_ever_longer_pauses() {
        let start = 1_000;
        let mut again = SayAgain { since_ns: start, pause: SAY_AGAIN_MIN };
        let at = |pauses: u64| start + pauses * 2_000_000_000;
        assert!(!again.is_due(at(1) - 1) && again.is_due(at(1)));
        assert!(!again.is_due(at(2)) && again.is_due(at(3)));
        assert!(!again.is_due(at(6)) && again.is_due(at(7)));
        again.begin_anew(at(7));
        assert!(again.is_due(at(8)));
    }
}
