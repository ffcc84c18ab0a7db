//! Whether the local replica should lead, and how it gives a leadership away; `abstain.rs` has the rules.

pub(crate) mod abstain;
pub(crate) mod abstention;
pub(crate) mod campaign;
pub(crate) mod election;
pub(crate) mod handover;
pub(crate) mod stall;
pub(crate) mod successor;

use std::sync::Arc;
use std::time::Duration;

use openraft::ServerState;
use openraft::raft::VoteRequest;
use parking_lot::Mutex;
use terrane_types::ReplicaId;
use tokio::time::Instant;

use crate::MembersError;
use crate::groups::group_view::{GroupView, matched};
use crate::leadership::abstention::{Abstention, Abstentions, Weight};
use crate::leadership::election::Election;
use crate::leadership::handover::Handovers;
use crate::leadership::successor::{Candidate, choose, unfit};
use crate::members::apply_watch::ApplyWatch;
use crate::proposals::adapter::Raft;
use crate::time::group_time::GroupTime;
use crate::types::{Vote, log_id};

/// How long an order to openraft may take before the task continues without it.
pub(crate) const ORDER_TIMEOUT: Duration = Duration::from_millis(500);

/// A server with a soft reason stands for election when it has heard no leader for this long: several election timeouts,
/// so that willing members come first.
const LEADERLESS_MAX: Duration = Duration::from_secs(2);

/// Whether a server may stand for election: it has no reason against it, or only a soft one and has heard no leader for
/// `leaderless`.
pub(crate) fn may_campaign(reason: Option<Weight>, leaderless: Duration) -> bool {
    match reason {
        None => true,
        Some(Weight::Soft) => leaderless > LEADERLESS_MAX,
        Some(Weight::Firm) => false,
    }
}

/// The leadership of a group, as far as its local replica has a say in it.
pub(crate) struct Leadership {
    view: Arc<GroupView>,
    raft: Raft,
    time: Arc<GroupTime>,
    applying: Arc<ApplyWatch>,
    election: Arc<Election>,
    /// What is remembered of handovers, to this replica and by it; the connections to the members write it, too.
    handovers: Arc<Mutex<Handovers>>,
    /// Why this server should lead nothing at present.
    abstentions: Arc<Abstentions>,
    /// Why this replica should not lead at present, though others of its server may.
    own: Mutex<Option<Abstention>>,
}

impl Leadership {
    pub(crate) fn new(
        view: Arc<GroupView>,
        raft: Raft,
        time: Arc<GroupTime>,
        applying: Arc<ApplyWatch>,
        election: Arc<Election>,
        handovers: Arc<Mutex<Handovers>>,
        abstentions: Arc<Abstentions>,
    ) -> Leadership {
        Leadership { view, raft, time, applying, election, handovers, abstentions, own: Mutex::default() }
    }

    /// Why this replica should not lead.
    pub(crate) fn abstains(&self) -> Option<Abstention> {
        match self.time.reason() {
            Some(reason) => Some(Abstention { reason, weight: Weight::Firm }),
            None => {
                let own = self.own.lock().clone();
                let own = own.into_iter().chain(self.applying.abstention());
                self.abstentions.weightiest().into_iter().chain(own).max_by_key(|abstention| abstention.weight)
            }
        }
    }

    /// Sets or clears the reason why this replica should not lead, though others of its server may.
    pub(crate) fn set_abstains(&self, reason: Option<Abstention>) {
        *self.own.lock() = reason;
    }

    /// Why this replica refuses a leadership that another member hands over, if it does.
    pub(crate) fn declines(&self) -> Option<Abstention> {
        let firm = self.abstains().filter(|abstention| abstention.weight == Weight::Firm);
        firm.or_else(|| self.applying.abstention())
    }

    /// Another member hands its leadership to this replica.
    pub(crate) fn note_handover(&self) {
        self.handovers.lock().given(Instant::now());
    }

    /// Allows or forbids this replica to stand for election. True if it leads and should hand over.
    pub(crate) fn reconsider(&self) -> bool {
        self.time.judge();
        let abstention = self.abstains();
        let weight = abstention.as_ref().map(|abstention| abstention.weight);
        let lags = self.applying.lags().then_some(Weight::Soft);
        let free = may_campaign(weight.or(lags), self.election.leaderless());
        let released = !self.election.is_bound();
        let stands = free && released && !self.view.is_lost() && !self.election.leaves_candidate_alone();
        self.raft.runtime_config().elect(stands);
        let kept = weight == Some(Weight::Soft)
            && self.applying.stuck().is_none()
            && self.handovers.lock().keeps(Instant::now());
        let goes = abstention.is_some() && !kept;
        let goes = goes || terrane_env::buggify!("a leadership is handed over for no reason", 32);
        goes && self.view.metrics().state == ServerState::Leader
    }

    /// The member that should lead instead of this one.
    pub(crate) fn successor(&self, attempt: usize) -> Option<ReplicaId> {
        let weight = self.abstains().map_or(Weight::Soft, |abstention| abstention.weight);
        let candidates = self.candidates();
        // Groups choose differently among equals, so that one server does not get all leaderships.
        let turn = usize::try_from(self.view.group().0).unwrap_or(0).wrapping_add(attempt);
        choose(&candidates, weight, turn)
    }

    fn candidates(&self) -> Vec<Candidate> {
        let servers = self.view.servers();
        let (applied_here, said) = (self.view.applied_state().applied_index(), &self.view.followers().applied);
        let now = Instant::now();
        let metrics = self.view.metrics();
        let voters = metrics.membership_config.voter_ids().filter(|voter| *voter != self.view.replica());
        voters
            .map(|replica| {
                let server = self.view.server_of(&metrics, replica);
                Candidate {
                    replica,
                    matched: matched(&metrics, replica),
                    applied: self.view.reached(&metrics, replica),
                    lacks: said.of(replica).lacks_for > 0,
                    lag: said.lag(replica, applied_here, now),
                    alive: self.view.is_up(&metrics, replica),
                    willing: server.is_none_or(|server| self.time.is_willing(server, &servers)),
                }
            })
            .collect()
    }

    /// Orders openraft to hand leadership to `to`.
    pub(crate) async fn transfer(&self, to: ReplicaId) -> Result<(), MembersError> {
        let term = self.view.metrics().current_term;
        if self.abstains().is_none_or(|abstention| abstention.weight == Weight::Soft) {
            let lacks = u64::from(self.view.followers().applied.of(to).lacks_for > 0);
            terrane_env::tally!("leaderships handed to members that lack what an entry needs", lacks);
        }
        // From here on this leader reads by quorum rounds: members will follow `to` in spite of the lease.
        self.view.note_transfer(term);
        self.handovers.lock().ordered(term, Instant::now());
        self.raft.trigger().transfer_leader(to).await.map_err(|_| MembersError::Stopped)
    }

    /// Hands leadership to `to` by order, if it is fit to lead.
    pub(crate) async fn transfer_by_order(&self, to: ReplicaId) -> Result<(), MembersError> {
        if !self.view.leads() {
            return Err(MembersError::NotLeader);
        }
        let (candidates, newest) = (self.candidates(), self.view.metrics().last_log_index.unwrap_or(0));
        let Some(chosen) = candidates.iter().find(|candidate| candidate.replica == to) else {
            let what = format!("replica {to} is not another voter of group {}", self.view.group());
            return Err(MembersError::Refused { what });
        };
        let declined = self.handovers.lock().has_declined(to, Instant::now());
        match unfit(*chosen, &candidates, newest, declined) {
            Some(what) => Err(MembersError::Later { what }),
            None => {
                self.view.applied_state().hands_over().await;
                self.transfer(to).await
            }
        }
    }

    /// Ends a leadership that openraft disabled for a handover which has come to nothing: this replica votes for another
    /// member in the next term. That member has not asked, so the vote elects none; from then on every member may stand.
    pub(crate) async fn resign_if_lapsed(&self) {
        let (term, last) = {
            let metrics = self.view.metrics();
            (metrics.current_term, metrics.last_log_index.unwrap_or(0))
        };
        let is_firm = self.abstains().is_some_and(|abstention| abstention.weight == Weight::Firm);
        if is_firm || !self.view.leads() || !self.handovers.lock().lapses(term, Instant::now()) {
            return;
        }
        let Some(other) = self.candidates().first().map(|candidate| candidate.replica) else { return };
        tracing::warn!(group = %self.view.group(), term, "a leadership was not taken over: resigning");
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
