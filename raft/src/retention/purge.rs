//! The loop that keeps the log short; [`Retention`](crate::retention::Retention) decides what goes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use terrane_types::GroupId;

use crate::groups::registry::Registry;
use crate::groups::replica::Replica;
use crate::log::{GroupUse, SharedLog};
use crate::peer::Peers;

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
            () = log.over_budget() => {}
            () = tokio::time::sleep(INTERVAL) => {}
        }
        let replicas = groups.all();
        end_if_nothing_works(&replicas);
        let holders: BTreeMap<GroupId, u64> = log.holders().into_iter().collect();
        relieve(&replicas, &holders);
        let segment = log.totals().newest;
        for replica in &replicas {
            if replica.retention.release(segment, holders.get(&replica.view.group()).copied()) {
                replica.queue.hint.notify_one();
            }
            replica.retention.purge().await;
            replica.requested_copies.send(&peers);
            replica.incoming.discard_superseded(replica.view.applied_state().applied_index());
        }
        told.clear();
        told.extend(replicas.iter().flat_map(|replica| replica.retention.notify_refusing(&peers, INTERVAL)));
        let uses: Vec<GroupUse> = replicas.iter().map(|replica| replica.retention.log_use()).collect();
        // Most likely, the groups all wait for the same server.
        let straggler = || replicas.iter().filter_map(|replica| replica.retention.straggler()).max();
        for (replica, of_group) in replicas.iter().zip(&uses) {
            replica.retention.note_holder(of_group, || straggler().map(|(_, server)| server));
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
        if let Some(&index) = holders.get(&replica.view.group())
            && replica.machine.durable().index < index
        {
            replica.machine.relieve(index.min(replica.view.applied_state().applied_index()));
        }
    }
}

/// What prevents most of the log from being purged, for people.
fn held_by(replicas: &[Arc<Replica>], uses: &[GroupUse], log: &SharedLog) -> Option<String> {
    let named = |group: GroupId| {
        let replica = replicas.iter().find(|replica| replica.view.group() == group)?;
        replica.retention.held_by()
    };
    let worth_naming = log.limit_bytes() / NAMED_PART;
    let for_members = uses.iter().max_by_key(|of| of.for_members).filter(|of| of.for_members > worth_naming);
    let largest = || uses.iter().max_by_key(|of| of.all).filter(|of| of.all > worth_naming);
    let group = for_members.map(|of| of.group).or_else(|| log.totals().oldest).or_else(|| largest().map(|of| of.group));
    named(group?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_ends_only_when_no_group_works() {
        let failed = || Some("damaged".to_owned());
        assert_eq!(why_nothing_works(vec![]), None);
        assert_eq!(why_nothing_works(vec![failed(), None]), None);
        assert_eq!(why_nothing_works(vec![failed(), failed()]), failed());
    }
}
