//! Keeps servers from leading for a while: because they are stopping, their clock is wrong, or their disk is full or stalls.
//!
//! [`Host::set_abstains`](crate::Host::set_abstains) sets a reason, which holds until it is cleared. While one holds, this
//! server hands over its leaderships and does not stand for election. It still votes, accepts entries and serves as a
//! follower.
//!
//! Reasons differ in weight. A [`Weight::Firm`] reason allows no leadership at all: the server refuses a leadership that
//! another member hands over, and hands over its own even to a member that is unwilling to lead. With a [`Weight::Soft`]
//! reason, a poor leader is better than none: the server keeps a leadership until a willing member can take it, and stands
//! for election again once it has heard no leader for [`LEADERLESS_MAX`]. It also keeps for a while what another member
//! handed to it ([`crate::handover`]).
//!
//! A leader whose order to hand over has come to nothing resigns, unless its reason is firm: openraft has disabled it.
//!
//! A replica that is stuck in applying ([`crate::applying`]) has a soft reason of its own, and refuses a leadership that is
//! handed over: it could not serve. One that has much left to apply stands late, after those that could serve at once. A
//! successor has applied what it has but for a few entries of the last moment, as far as this leader knows.
//!
//! [`Group::set_abstains`](crate::Group::set_abstains) does the same for one replica. The other members do not hear of such a
//! reason, so a leadership may come back to the replica once, and is handed over again.
//!
//! One task per host carries this out ([`run`]). It runs when a reason changes and otherwise every [`LOOK_INTERVAL`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::VoteRequest;
use terrane_types::{GroupId, ReplicaId};
use tokio::time::Instant;

use crate::MembersError;
use crate::abstention::{Abstention, Abstentions, Weight};
use crate::applying::LAG_MAX;
use crate::log::SharedLog;
use crate::registry::Registry;
use crate::replica::Replica;
use crate::stall::Stall;
use crate::types::{Vote, log_id};

/// The subject of the reason of a stalled disk.
pub(crate) const LOG_DISK: &str = "log disk";

/// How often leaderships are compared with the reasons.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// A handover that has not succeeded by then is tried with another member.
const HANDOVER_RETRY: Duration = Duration::from_secs(1);

/// How long an order to openraft may take before the task continues without it.
const ORDER_TIMEOUT: Duration = Duration::from_millis(500);

/// A server with a soft reason stands for election when it has heard no leader for this long: several election timeouts,
/// so that willing members come first.
const LEADERLESS_MAX: Duration = Duration::from_secs(2);

/// Members that lack at most this many entries are equally good successors: they catch up within a round trip or two.
const CAUGHT_UP_ENTRIES: u64 = 256;

/// The attempts to hand over one group in one term.
#[derive(Debug)]
struct Attempts {
    term: u64,
    began: Instant,
    made: usize,
}

impl Attempts {
    fn new(term: u64, now: Instant) -> Attempts {
        Attempts { term, began: now, made: 0 }
    }

    /// The number of the next attempt, if one is due.
    fn next(&mut self, term: u64, now: Instant) -> Option<usize> {
        if self.term != term {
            *self = Attempts::new(term, now);
        }
        if self.made > 0 && now.duration_since(self.began) < HANDOVER_RETRY {
            return None;
        }
        self.began = now;
        self.made += 1;
        Some(self.made - 1)
    }
}

/// Whether a server may stand for election: it has no reason against it, or only a soft one and has heard no leader for
/// `leaderless`.
fn may_stand(reason: Option<Weight>, leaderless: Duration) -> bool {
    match reason {
        None => true,
        Some(Weight::Soft) => leaderless > LEADERLESS_MAX,
        Some(Weight::Firm) => false,
    }
}

/// Compares leaderships with the reasons. Never returns.
pub(crate) async fn run(groups: Arc<Registry>, abstentions: Arc<Abstentions>, log: Arc<SharedLog>) {
    let mut handovers: BTreeMap<GroupId, Attempts> = BTreeMap::new();
    let mut stall = Stall::default();
    loop {
        abstentions.set(LOG_DISK, stall.look(log.sync_times(), terrane_env::time::now_ns()));
        // What waits there would wait for the disk.
        groups.all().iter().for_each(|replica| replica.watch_apply());
        groups.all().iter().filter(|replica| replica.is_stuck()).for_each(|replica| replica.queue.hint.notify_one());
        join_all(groups.all().iter().map(|replica| replica.resign_if_lapsed())).await;
        let due: Vec<_> = groups
            .all()
            .into_iter()
            .filter(|replica| replica.reconsider())
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
fn attempt(handovers: &mut BTreeMap<GroupId, Attempts>, replica: &Replica) -> Option<usize> {
    let (term, now) = (replica.metrics.borrow_watched().current_term, Instant::now());
    handovers.entry(replica.spec.group).or_insert_with(|| Attempts::new(term, now)).next(term, now)
}

async fn hand_over(replica: &Replica, attempt: usize) {
    let Some(to) = replica.successor(attempt) else { return };
    match tokio::time::timeout(ORDER_TIMEOUT, replica.transfer(to)).await {
        Ok(Ok(())) => {
            let reason = replica.abstains().map(|abstention| abstention.reason).unwrap_or_default();
            tracing::info!(group = %replica.spec.group, %to, reason, "handing over a leadership");
        }
        // The group has stopped, or this replica no longer leads.
        Ok(Err(error)) => tracing::debug!(group = %replica.spec.group, %error, "a leadership was not handed over"),
        Err(_) => tracing::warn!(group = %replica.spec.group, "a group does not respond to the order to hand over"),
    }
}

impl Replica {
    /// Why this replica should not lead.
    pub(crate) fn abstains(&self) -> Option<Abstention> {
        match self.clock_reason() {
            Some(reason) => Some(Abstention { reason, weight: Weight::Firm }),
            None => {
                let own = self.own_abstention.lock().clone();
                let own = own.into_iter().chain(self.stuck_abstention());
                self.abstentions.weightiest().into_iter().chain(own).max_by_key(|abstention| abstention.weight)
            }
        }
    }

    /// Why this replica should not lead because it does not get on with applying.
    fn stuck_abstention(&self) -> Option<Abstention> {
        Some(Abstention { reason: self.stuck()?.reason(), weight: Weight::Soft })
    }

    /// Whether much of what is committed is not applied here: many entries, one that waits for files, or one that takes long.
    fn lags(&self) -> bool {
        if self.machine.progress().waits || self.apply_watch.lock().lag(Instant::now()) > LAG_MAX {
            return true;
        }
        let committed = self.metrics.borrow_watched().local_committed.map_or(0, |id| id.index);
        committed.saturating_sub(self.standing.applied_index()) > CAUGHT_UP_ENTRIES
    }

    /// Why its clock keeps this replica from leading.
    pub(crate) fn clock_reason(&self) -> Option<String> {
        let off = self.clock_off.load(Ordering::Relaxed);
        let direction = if off < 0 { "behind" } else { "ahead of" };
        let off = off.unsigned_abs();
        (off > 0).then(|| {
            format!("its clock is {off} ms {direction} the other servers': it leads nothing until it is set right")
        })
    }

    /// Compares this server's clock with the other members'.
    fn judge_clock(&self) {
        self.look_at_clocks();
        let before = self.clock_off.load(Ordering::Relaxed);
        let off = self.clocks.off_ms(&self.servers(), before != 0).unwrap_or(0);
        self.clock_off.store(off, Ordering::Relaxed);
        match (before, off) {
            (0, 1.. | ..=-1) => {
                tracing::warn!(group = %self.spec.group, off_ms = off, "this server's clock is wrong: it does not lead the group");
            }
            (1.. | ..=-1, 0) => tracing::info!(group = %self.spec.group, "this server's clock is right again"),
            _ => {}
        }
    }

    /// Why this replica refuses a leadership that another member hands over, if it does.
    pub(crate) fn declines(&self) -> Option<Abstention> {
        let firm = self.abstains().filter(|abstention| abstention.weight == Weight::Firm);
        firm.or_else(|| self.stuck_abstention())
    }

    /// Allows or forbids this replica to stand for election. True if it leads and should hand over.
    pub(crate) fn reconsider(&self) -> bool {
        self.judge_clock();
        let abstention = self.abstains();
        let weight = abstention.as_ref().map(|abstention| abstention.weight);
        let lags = self.lags().then_some(Weight::Soft);
        let free = may_stand(weight.or(lags), self.leader_heard.lock().elapsed());
        let released = Instant::now() >= self.votes_from;
        self.raft.runtime_config().elect(free && released && !self.is_lost() && !self.leaves_candidate_alone());
        let kept =
            weight == Some(Weight::Soft) && self.stuck().is_none() && self.handovers.lock().keeps(Instant::now());
        let goes = abstention.is_some() && !kept;
        let goes = goes || terrane_env::buggify!("a leadership is handed over for no reason", 32);
        goes && self.metrics.borrow_watched().state == ServerState::Leader
    }

    /// Whether an election is under way that needs more time.
    fn leaves_candidate_alone(&self) -> bool {
        // As of the moment it is handed to the log: the consensus core does nothing else until it is synced, and then stands
        // again before its metrics show the vote.
        let Some(vote) = self.log.vote() else { return false };
        let vote = (vote.leader_id.term, vote.leader_id.voted_for, vote.committed);
        let sync = self.shared_log.sync_times().recent(terrane_env::time::now_ns());
        self.campaigns.lock().is_under_way(self.spec.replica, vote, sync, Instant::now())
    }

    /// The member that should lead instead of this one.
    fn successor(&self, attempt: usize) -> Option<ReplicaId> {
        let weight = self.abstains().map_or(Weight::Soft, |abstention| abstention.weight);
        let candidates = self.candidates();
        // Groups choose differently among equals, so that one server does not get all leaderships.
        let turn = usize::try_from(self.spec.group.0).unwrap_or(0).wrapping_add(attempt);
        choose(&candidates, weight, turn)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let servers = self.servers();
        let (applied_here, now) = (self.standing.applied_index(), Instant::now());
        let metrics = self.metrics.borrow_watched();
        let voters = metrics.membership_config.voter_ids().filter(|voter| *voter != self.spec.replica);
        voters
            .map(|replica| {
                let matched = metrics.replication.as_ref().and_then(|all| all.get(&replica).cloned().flatten());
                Candidate {
                    replica,
                    matched: matched.map_or(0, |id| id.index),
                    applied: self.reached(&metrics, replica),
                    lacks: self.applied.of(replica).lacks_for > 0,
                    lag: self.applied.lag(replica, applied_here, now),
                    alive: self.is_alive(&metrics, replica),
                    willing: self
                        .server_of(&metrics, replica)
                        .is_none_or(|server| self.clocks.is_willing(server, &servers)),
                }
            })
            .collect()
    }

    /// Orders openraft to hand leadership to `to`.
    async fn transfer(&self, to: ReplicaId) -> Result<(), MembersError> {
        let term = self.metrics.borrow_watched().current_term;
        if self.abstains().is_none_or(|abstention| abstention.weight == Weight::Soft) {
            let lacks = u64::from(self.applied.of(to).lacks_for > 0);
            terrane_env::tally!("leaderships handed to members that lack what an entry needs", lacks);
        }
        // From here on this leader reads by quorum rounds: members will follow `to` in spite of the lease.
        self.transferred.fetch_max(term, Ordering::SeqCst);
        self.handovers.lock().ordered(term, Instant::now());
        self.raft.trigger().transfer_leader(to).await.map_err(|_| MembersError::Stopped)
    }

    /// Hands leadership to `to` by order, if it is fit to lead.
    pub(crate) async fn transfer_by_order(&self, to: ReplicaId) -> Result<(), MembersError> {
        if !self.leads() {
            return Err(MembersError::NotLeader);
        }
        let (candidates, newest) = (self.candidates(), self.metrics.borrow_watched().last_log_index.unwrap_or(0));
        let Some(chosen) = candidates.iter().find(|candidate| candidate.replica == to) else {
            let what = format!("replica {to} is not another voter of group {}", self.spec.group);
            return Err(MembersError::Refused { what });
        };
        let declined = self.handovers.lock().has_declined(to, Instant::now());
        match unfit(*chosen, &candidates, newest, declined) {
            Some(what) => Err(MembersError::Later { what }),
            None => {
                self.standing.hands_over().await;
                self.transfer(to).await
            }
        }
    }

    /// Ends a leadership that openraft disabled for a handover which has come to nothing: this replica votes for another
    /// member in the next term. That member has not asked, so the vote elects none; from then on every member may stand.
    async fn resign_if_lapsed(&self) {
        let (term, last) = {
            let metrics = self.metrics.borrow_watched();
            (metrics.current_term, metrics.last_log_index.unwrap_or(0))
        };
        let is_firm = self.abstains().is_some_and(|abstention| abstention.weight == Weight::Firm);
        if is_firm || !self.leads() || !self.handovers.lock().lapses(term, Instant::now()) {
            return;
        }
        let Some(other) = self.candidates().first().map(|candidate| candidate.replica) else { return };
        tracing::warn!(group = %self.spec.group, term, "a leadership was not taken over: resigning");
        // A leader's last entry is always of its own term.
        let last_log_id = log_id(term, last);
        let resign = async {
            let vote = Vote::new(term + 1, other);
            self.raft.vote(VoteRequest { vote, last_log_id: Some(last_log_id), leadership_transfer: true }).await
        };
        // An error means that the group has stopped. If the log's disk hangs, the vote is written when it can be.
        tokio::time::timeout(ORDER_TIMEOUT, resign).await.ok();
    }
}

/// A member that could lead.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    replica: ReplicaId,
    /// The last entry it is known to have.
    matched: u64,
    /// The last of those that it is known to have applied.
    applied: u64,
    /// It lacks what the next one needs.
    lacks: bool,
    /// For how long it has not applied an entry that it has and that is applied here.
    lag: Duration,
    /// It answered recently.
    alive: bool,
    /// It has no reason not to lead, as far as is known.
    willing: bool,
}

impl Candidate {
    /// Whether it could serve at once: it has applied what it has, but for a few entries of the last moment.
    fn has_applied(&self) -> bool {
        if terrane_env::planted!("a successor is chosen that has not applied") {
            return true;
        }
        let few = self.matched.saturating_sub(self.applied) <= CAUGHT_UP_ENTRIES;
        few && !self.lacks && self.lag <= LAG_MAX
    }

    /// Whether it would serve.
    fn is_good(&self) -> bool {
        self.alive && self.willing && self.has_applied()
    }
}

/// Why a leadership must not be handed to `chosen` by order, if so: openraft disables the present leader at once, so an order
/// that cannot succeed would leave the group without a leader. `newest`: the last entry of the leader's log; `declined`: the
/// member refused recently.
fn unfit(chosen: Candidate, candidates: &[Candidate], newest: u64, declined: bool) -> Option<String> {
    let Candidate { replica, matched, alive, willing, .. } = chosen;
    if !alive {
        return Some(format!("replica {replica} does not answer"));
    }
    if declined {
        return Some(format!("replica {replica} refused the leadership a moment ago"));
    }
    if newest.saturating_sub(matched) > CAUGHT_UP_ENTRIES {
        return Some(format!("replica {replica} lacks {} entries", newest - matched));
    }
    if !chosen.has_applied() {
        return Some(format!("replica {replica} has not applied entry {}", chosen.applied + 1));
    }
    // A leader that would rather not lead is better than none: it is refused only where another member would lead.
    let better =
        candidates.iter().find(|other| other.is_good() && newest.saturating_sub(other.matched) <= CAUGHT_UP_ENTRIES);
    let better = better.filter(|_| !willing)?.replica;
    Some(format!("replica {replica} has a reason not to lead, and replica {better} has none"))
}

/// The best successor for a leadership that has to be handed over. `turn` chooses among equals.
fn choose(candidates: &[Candidate], weight: Weight, turn: usize) -> Option<ReplicaId> {
    let better: [fn(&Candidate) -> bool; 4] =
        [Candidate::is_good, |member| member.alive && member.willing, |member| member.alive, |_| true];
    // A soft reason does not justify a handover to a member that may be unable to lead.
    let acceptable = if weight == Weight::Firm { &better[..] } else { &better[..1] };
    let best = acceptable.iter().find_map(|accepts| {
        let accepted: Vec<_> = candidates.iter().filter(|member| accepts(member)).collect();
        (!accepted.is_empty()).then_some(accepted)
    })?;
    let most = best.iter().map(|member| member.matched).max()?;
    let caught_up: Vec<_> = best.iter().filter(|member| most - member.matched <= CAUGHT_UP_ENTRIES).collect();
    Some(caught_up[turn % caught_up.len()].replica)
}

#[cfg(test)]
mod tests;
