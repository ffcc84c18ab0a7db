//! What a replica knows of its group: who leads it, who its members are, and how far it has got.
//!
//! Every part of a replica looks at this. Most of it changes elsewhere, where openraft, the log and the adapter write it; the
//! view's own are the terms of the last order to hand over and of the last recovery, because they overrule what openraft says
//! of the leader.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use parking_lot::Mutex;
use terrane_types::{GroupId, ReplicaId, ServerId};

use crate::log::{GroupLog, SharedLog};
use crate::members::followers::Followers;
use crate::members::lineage::is_lost;
use crate::proposals::adapter::AppliedState;
use crate::types::{LogId, Metrics, Types};
use crate::{GroupSpec, ProposeError};

/// A member that acknowledged a heartbeat within this time is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(1);

/// What a replica knows of its group.
pub(crate) struct GroupView {
    metrics: WatchReceiverOf<Types, Metrics>,
    applied_state: Arc<AppliedState>,
    log: Arc<GroupLog>,
    shared_log: Arc<SharedLog>,
    followers: Arc<Followers>,
    /// The newest term of the group after a recovery, as a master has said; 0: none.
    recovered_term: AtomicU64,
    /// The last term in which this leader was ordered to hand over. Raised before openraft gets the order.
    transferred: AtomicU64,
    /// The members' servers as of a membership.
    servers: Mutex<(Option<LogId>, Arc<[ServerId]>)>,
}

impl GroupView {
    pub(crate) fn new(
        metrics: WatchReceiverOf<Types, Metrics>,
        applied_state: Arc<AppliedState>,
        log: Arc<GroupLog>,
        shared_log: Arc<SharedLog>,
        followers: Arc<Followers>,
        recovered_term: u64,
    ) -> GroupView {
        GroupView {
            metrics,
            applied_state,
            log,
            shared_log,
            followers,
            recovered_term: AtomicU64::new(recovered_term),
            transferred: AtomicU64::new(0),
            servers: Mutex::new((None, Arc::from([]))),
        }
    }

    /// The group and its local replica, as created.
    pub(crate) fn spec(&self) -> &GroupSpec {
        self.log.spec()
    }

    pub(crate) fn group(&self) -> GroupId {
        self.spec().group
    }

    /// The local replica.
    pub(crate) fn replica(&self) -> ReplicaId {
        self.spec().replica
    }

    /// What openraft says of the replica now. Held only for a moment: openraft waits for it.
    pub(crate) fn metrics(&self) -> impl Deref<Target = Metrics> + '_ {
        self.metrics.borrow_watched()
    }

    /// Tells when that changes.
    pub(crate) fn changes(&self) -> WatchReceiverOf<Types, Metrics> {
        self.metrics.clone()
    }

    pub(crate) fn applied_state(&self) -> &AppliedState {
        &self.applied_state
    }

    pub(crate) fn log(&self) -> &Arc<GroupLog> {
        &self.log
    }

    pub(crate) fn shared_log(&self) -> &SharedLog {
        &self.shared_log
    }

    /// What is known of the other members while this replica leads.
    pub(crate) fn followers(&self) -> &Followers {
        &self.followers
    }

    /// The last entry known to be committed.
    pub(crate) fn committed(&self) -> u64 {
        self.metrics().local_committed.map_or(0, |id| id.index)
    }

    /// Whether this replica leads, its first entry applied or not.
    pub(crate) fn leads(&self) -> bool {
        self.metrics().state == ServerState::Leader && !self.is_lost()
    }

    /// The last term in which this replica was ordered to hand over.
    pub(crate) fn transferred_term(&self) -> u64 {
        self.transferred.load(Ordering::SeqCst)
    }

    /// This leader is about to order openraft to hand over.
    pub(crate) fn note_transfer(&self, term: u64) {
        self.transferred.fetch_max(term, Ordering::SeqCst);
    }

    /// The newest term of the group after a recovery that a master has named; 0: none.
    pub(crate) fn recovered_term(&self) -> u64 {
        self.recovered_term.load(Ordering::SeqCst)
    }

    /// A master says that the group was recovered, and has come to this term since. True if the recovery has lost this replica,
    /// which was not known before.
    pub(crate) fn note_recovered(&self, term: u64) -> bool {
        let was_lost = self.is_lost();
        self.recovered_term.fetch_max(term, Ordering::SeqCst);
        self.is_lost() && !was_lost
    }

    /// Whether a recovery of the group has lost this replica, as far as a master has said. One that has never voted for a leader
    /// has just joined.
    pub(crate) fn is_lost(&self) -> bool {
        let voted = self.log.voted_term();
        voted > 0 && is_lost(voted, self.recovered_term())
    }

    /// Whether this replica handed over its leadership and does not know the successor yet. It will in a moment: waiting for
    /// the name is better than making callers search.
    pub(crate) fn awaits_successor(&self) -> bool {
        let metrics = self.metrics();
        let handed_over = self.transferred_term();
        // The successor's term is the next one.
        let recent = handed_over > 0 && metrics.current_term <= handed_over + 1;
        recent && metrics.current_leader.is_none_or(|leader| leader == self.replica())
    }

    /// Whether this replica handed its leadership over because its log's disk stalls, and its core waits for that disk: it
    /// neither serves nor learns of its successor.
    pub(crate) fn is_stuck(&self) -> bool {
        let handed_over = self.transferred_term();
        handed_over > 0
            && self.shared_log.sync_times().are_stalled(terrane_env::time::now_ns())
            && handed_over >= self.metrics().current_term
    }

    /// The error that redirects a caller to the leader.
    pub(crate) fn not_leader(&self) -> ProposeError {
        let metrics = self.metrics();
        let leader = metrics.current_leader.filter(|leader| *leader != self.replica() && !self.is_lost());
        let leader = leader.and_then(|leader| Some((leader, self.server_of(&metrics, leader)?)));
        ProposeError::NotLeader { term: metrics.current_term, leader }
    }

    pub(crate) fn server_of(&self, metrics: &Metrics, replica: ReplicaId) -> Option<ServerId> {
        let member = metrics.membership_config.get_node(&replica).map(|member| member.server);
        member.or_else(|| self.spec().members.get(&replica).copied())
    }

    /// The servers whose clocks make the group's time: those of the voters. A learner does not count, or one that is away would
    /// stop the writes together with one voter. Asked for with every entry, so the list is kept until the membership changes.
    pub(crate) fn servers(&self) -> Arc<[ServerId]> {
        let metrics = self.metrics();
        let as_of = metrics.membership_config.log_id();
        let mut known = self.servers.lock();
        if known.1.is_empty() || known.0 != *as_of {
            let voters: BTreeSet<_> = metrics.membership_config.voter_ids().collect();
            let nodes = metrics.membership_config.nodes().filter(|(replica, _)| voters.contains(replica));
            let members: BTreeSet<_> = nodes.map(|(_, member)| member.server).collect();
            let created = || self.spec().members.values().copied().collect();
            let servers = if members.is_empty() { created() } else { members.into_iter().collect() };
            *known = (*as_of, servers);
        }
        known.1.clone()
    }

    /// Whether this replica is the only voter.
    pub(crate) fn is_alone(&self, metrics: &Metrics) -> bool {
        let mut voters = metrics.membership_config.voter_ids().peekable();
        match voters.peek() {
            Some(_) => voters.all(|voter| voter == self.replica()),
            // Its log has no membership yet.
            None => self.spec().members.len() == 1,
        }
    }

    /// This replica, or a member that acknowledged a heartbeat of this leader recently.
    pub(crate) fn is_up(&self, metrics: &Metrics, replica: ReplicaId) -> bool {
        let heard = metrics.heartbeat.as_ref().and_then(|all| all.get(&replica).copied().flatten());
        replica == self.replica()
            || heard.is_some_and(|at| openraft_rt::Instant::elapsed(&at.into_inner()) < ALIVE_WITHIN)
    }

    /// Up to which entry a member has everything and has applied it, as far as this leader knows.
    pub(crate) fn reached(&self, metrics: &Metrics, replica: ReplicaId) -> u64 {
        let matched = matched(metrics, replica);
        if replica == self.replica() {
            return self.applied_state.applied_index().min(matched);
        }
        self.followers.applied.reached(replica, matched)
    }
}

/// The last entry that a member is known to have by its leader; 0: unknown, or this replica does not lead.
pub(crate) fn matched(metrics: &Metrics, replica: ReplicaId) -> u64 {
    let matched = metrics.replication.as_ref().and_then(|all| all.get(&replica).copied().flatten());
    matched.map_or(0, |id| id.index)
}
