//! Keeps servers from leading for a while: because they are stopping, their clock is wrong, or their disk is full or stalls.
//!
//! [`Host::set_abstains`](crate::Host::set_abstains) sets a reason, which holds until it is cleared. While one holds, this
//! server hands over its leaderships and does not stand for election. It still votes, accepts entries and serves as a
//! follower.
//!
//! Reasons differ in weight. A [firm](crate::Weight::Firm) reason allows no leadership at all: the server refuses a leadership that
//! another member hands over, and hands over its own even to a member that is unwilling to lead. With a
//! [soft](crate::Weight::Soft) reason, a poor leader is better than none: the server keeps a leadership until a willing member can take it, and stands
//! for election again once it has heard no leader for two seconds. It also keeps for a while what another member
//! handed to it ([`crate::leadership::handover`]).
//!
//! A leader whose order to hand over has come to nothing resigns, unless its reason is firm: openraft has disabled it.
//!
//! A replica that is stuck in applying ([`crate::members::applying`]) has a soft reason of its own, and refuses a leadership that is
//! handed over: it could not serve. One that has much left to apply stands late, after those that could serve at once. A
//! successor has applied what it has but for a few entries of the last moment, as far as this leader knows.
//!
//! [`Group::set_abstains`](crate::Group::set_abstains) does the same for one replica. The other members do not hear of such a
//! reason, so a leadership may come back to the replica once, and is handed over again.
//!
//! One task per host carries this out ([`run`]). It runs when a reason changes and otherwise every [`LOOK_INTERVAL`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use terrane_types::GroupId;
use tokio::time::Instant;

use crate::groups::registry::Registry;
use crate::groups::replica::Replica;
use crate::leadership::ORDER_TIMEOUT;
use crate::leadership::abstention::Abstentions;
use crate::leadership::stall::Stall;
use crate::log::SharedLog;

/// The subject of the reason of a stalled disk.
pub(crate) const LOG_DISK: &str = "log disk";

/// How often leaderships are compared with the reasons.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A handover that has not succeeded by then is tried with another member.
const HANDOVER_RETRY: Duration = Duration::from_secs(1);

/// The attempts to hand over one group in one term.
#[derive(Debug)]
struct HandoverAttempts {
    term: u64,
    began: Instant,
    made: usize,
}

impl HandoverAttempts {
    fn new(term: u64, now: Instant) -> HandoverAttempts {
        HandoverAttempts { term, began: now, made: 0 }
    }

    /// The number of the next attempt, if one is due.
    fn next(&mut self, term: u64, now: Instant) -> Option<usize> {
        if self.term != term {
            *self = HandoverAttempts::new(term, now);
        }
        if self.made > 0 && now.duration_since(self.began) < HANDOVER_RETRY {
            return None;
        }
        self.began = now;
        self.made += 1;
        Some(self.made - 1)
    }
}

/// Compares leaderships with the reasons. Never returns.
pub(crate) async fn run(groups: Arc<Registry>, abstentions: Arc<Abstentions>, log: Arc<SharedLog>) {
    let mut handovers: BTreeMap<GroupId, HandoverAttempts> = BTreeMap::new();
    let mut stall = Stall::default();
    loop {
        abstentions.set(LOG_DISK, stall.look(log.sync_times(), terrane_env::time::now_ns()));
        // What waits there would wait for the disk.
        groups.all().iter().for_each(|replica| replica.applying.look());
        groups
            .all()
            .iter()
            .filter(|replica| replica.view.is_stuck())
            .for_each(|replica| replica.queue.hint.notify_one());
        join_all(groups.all().iter().map(|replica| replica.leadership.resign_if_lapsed())).await;
        let due: Vec<_> = groups
            .all()
            .into_iter()
            .filter(|replica| replica.leadership.reconsider())
            .filter_map(|replica| attempt(&mut handovers, &replica).map(|attempt| (replica, attempt)))
            .collect();
        join_all(due.iter().map(|(replica, attempt)| hand_over(replica, *attempt))).await;
        tokio::select! {
            biased;
            () = abstentions.changed() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// The number of the next attempt to hand over, if one is due.
fn attempt(handovers: &mut BTreeMap<GroupId, HandoverAttempts>, replica: &Replica) -> Option<usize> {
    let (term, now) = (replica.view.metrics().current_term, Instant::now());
    handovers.entry(replica.view.group()).or_insert_with(|| HandoverAttempts::new(term, now)).next(term, now)
}

async fn hand_over(replica: &Replica, attempt: usize) {
    let (group, leadership) = (replica.view.group(), &replica.leadership);
    let Some(to) = leadership.successor(attempt) else { return };
    match tokio::time::timeout(ORDER_TIMEOUT, leadership.transfer(to)).await {
        Ok(Ok(())) => {
            let reason = leadership.abstains().map(|abstention| abstention.reason).unwrap_or_default();
            tracing::info!(%group, %to, reason, "handing over a leadership");
        }
        // The group has stopped, or this replica no longer leads.
        Ok(Err(error)) => tracing::debug!(%group, %error, "a leadership was not handed over"),
        Err(_) => tracing::warn!(%group, "a group does not respond to the order to hand over"),
    }
}

#[cfg(test)]
mod tests;
