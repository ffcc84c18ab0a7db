//! Recovery of a group whose majority is lost for good, from one survivor.
//!
//! Nothing else brings such a group back: the members that are left cannot elect a leader. A person decides that the others
//! are gone and accepts that entries which only they had are lost. Then one survivor, the one with the longest log, becomes
//! the only member: it is sent a configuration with itself alone as if a leader of a later term had written it, and elects
//! itself. Everything in its log is kept, committed or not.
//!
//! Members that were lost may return all the same, and a majority of them is still one by the old configuration. So a
//! recovery skips so many terms that no election reaches them, and the survivor refuses to hear anyone whose term is that far
//! behind: it answers no vote and takes no entries. It does not tell its own term either, or the next election of the lost
//! members would begin from there. They can only go on among themselves, until a master tells their servers of the recovery:
//! with the answer to the registration, which a restarted replica has before it stands, or to a report.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::ServerState;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use openraft_rt::Instant as _;
use terrane_types::{ReplicaId, ServerId};

use crate::MembersError;
use crate::groups::replica::Replica;
use crate::types::{Entry, Member, Membership, Payload, Vote, log_id, term_of};

/// A group whose leader was not heard for this long has none: several election timeouts.
const LEADER_GONE_AFTER: Duration = Duration::from_secs(3);
/// How long the survivor may take to elect itself.
const ELECTED_WITHIN: Duration = Duration::from_secs(5);
/// No replica has this id: the configuration is not written by a member.
const NO_MEMBER: ReplicaId = ReplicaId(u64::MAX);

/// What a replica has, for the choice of the one that survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The replica.
    pub replica: ReplicaId,
    /// The newest term that it knows.
    pub term: u64,
    /// Term and index of the last entry of its log.
    pub last: (u64, u64),
    /// Last index that it knows to be committed.
    pub committed: u64,
    /// Last index that it has applied.
    pub applied: u64,
    /// The voters by its newest configuration; during a joint change, those before and those after it.
    pub voters: Vec<BTreeSet<ReplicaId>>,
    /// Whether the group has a leader, as far as this replica can know.
    pub has_leader: bool,
    /// Why the replica applies nothing although more is committed, if that has been so for a while.
    pub stuck: Option<String>,
    /// Why the replica failed, if it did.
    pub failed: Option<String>,
}

/// The order to recover a group from one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The replica becomes leader in a later term than this one: at least [`RECOVERY_TERMS`](crate::RECOVERY_TERMS) above that
    /// of the lost members.
    pub above_term: u64,
    /// The members that the order was given for. A late order does not break the majority of others.
    pub members: BTreeSet<ReplicaId>,
}

impl Replica {
    /// What this replica has.
    pub(crate) fn inspect(&self) -> Inspection {
        let has_leader = self.has_quorum();
        let status = self.status();
        let last = self.view.log().ends().1.map_or((0, 0), |last| (term_of(&last), last.index));
        let configured = self.view.metrics().membership_config.membership().get_joint_config().clone();
        let created = || vec![self.view.spec().members.keys().copied().collect()];
        Inspection {
            replica: self.view.replica(),
            term: status.term,
            last,
            committed: status.committed,
            applied: status.applied,
            voters: if configured.is_empty() { created() } else { configured },
            has_leader,
            stuck: status.stuck,
            failed: status.failed,
        }
    }

    /// Makes this replica the only member of its group. Idempotent.
    pub(crate) async fn recover_alone(&self, order: &Recovery) -> Result<(), MembersError> {
        if !self.view.is_alone(&self.view.metrics()) {
            self.check_recovery(order)?;
            self.append_sole_membership(order).await?;
            terrane_env::buggify_pause!("a survivor is alone and has not elected itself").await;
        }
        if self.status().is_leader {
            return Ok(());
        }
        self.raft.trigger().elect(false).await.map_err(|_| MembersError::Stopped)?;
        let elected = self.wait_for(|status| status.is_leader, ELECTED_WITHIN).await;
        let what = || format!("replica {} has not elected itself yet", self.view.replica());
        elected.map(drop).ok_or_else(|| MembersError::Later { what: what() })
    }

    /// A master says that the group was recovered, and has come to this term since. If the recovery has lost this replica, it
    /// stands for no election from now on, hears no other lost one, and no longer counts as leader.
    pub(crate) fn note_recovered(&self, term: u64) {
        if self.view.note_recovered(term) {
            self.warn_of_loss();
            self.leadership.reconsider();
        }
    }

    pub(crate) fn warn_of_loss(&self) {
        let (group, replica, term) = (self.view.group(), self.view.replica(), self.view.recovered_term());
        tracing::warn!(%group, %replica, term, "the group was recovered without this replica, which takes part no more");
    }

    fn check_recovery(&self, order: &Recovery) -> Result<(), MembersError> {
        let found = self.inspect();
        let group = self.view.group();
        if found.has_leader {
            let what = format!("group {group} has a leader; replace its members instead of recovering it");
            return Err(MembersError::Refused { what });
        }
        if let Some(other) = found.voters.iter().flatten().find(|voter| !order.members.contains(voter)) {
            let what = format!("replica {other} votes in group {group}, and the order to recover it does not know it");
            return Err(MembersError::Refused { what });
        }
        Ok(())
    }

    /// Appends the configuration with this replica alone, as a leader of a later term would.
    async fn append_sole_membership(&self, order: &Recovery) -> Result<(), MembersError> {
        let (own, group) = (self.view.replica(), self.view.group());
        let term = self.view.metrics().current_term.max(order.above_term) + 1;
        let last = self.view.log().ends().1;
        let members = BTreeMap::from([(own, Member { server: self.own_server() })]);
        let membership = Membership::new(vec![BTreeSet::from([own])], members)
            .map_err(|error| MembersError::Refused { what: error.to_string() })?;
        let index = last.as_ref().map_or(0, |last| last.index + 1);
        let entry = Entry { log_id: log_id(term, index), payload: Payload::Membership(membership) };
        let vote = Vote::new_committed(term, NO_MEMBER);
        let request = AppendEntriesRequest { vote, prev_log_id: last, entries: vec![entry], leader_commit: None };
        match self.raft.append_entries(request).await {
            Ok(AppendEntriesResponse::Success) => {}
            Ok(other) => return Err(MembersError::Later { what: format!("the survivor refused it: {other}") }),
            Err(_) => return Err(MembersError::Stopped),
        }
        tracing::warn!(%group, replica = %own, term, index, "the group continues with this replica alone");
        Ok(())
    }

    /// Whether the group has a leader with a quorum, as far as this replica can know: a majority answered it, or a leader was
    /// heard, which a leader without a majority stops soon.
    fn has_quorum(&self) -> bool {
        let metrics = self.view.metrics();
        if metrics.state == ServerState::Leader {
            let answered = metrics.last_quorum_acked.map(|at| at.into_inner().elapsed());
            return answered.is_some_and(|ago| ago < LEADER_GONE_AFTER);
        }
        self.election.leaderless() < LEADER_GONE_AFTER
    }

    fn own_server(&self) -> ServerId {
        let metrics = self.view.metrics();
        self.view.server_of(&metrics, self.view.replica()).unwrap_or_default()
    }
}
