//! Changes of a group's members, step by step, by its leader.
//!
//! A new member joins as a learner: it gets the log (or a copy of the group) and does not count. Once it has caught up, one
//! joint change makes it a voter and lets the member go that it replaces. Each step is idempotent: a caller that did not
//! hear the answer repeats it, at whichever replica leads by then, and a joint change that a leader left half-way is
//! completed by the repetition.
//!
//! Invariants:
//! - A learner becomes a voter only when it has everything that was committed when the step began, and has applied it: an
//!   empty voter would count towards quorums although it has nothing.
//! - A step is refused if the voters after it could not form a quorum of members that answer now.
//! - Members are on distinct servers.

pub(crate) mod apply_watch;
pub(crate) mod applying;
pub(crate) mod followers;
pub(crate) mod lagging;
pub(crate) mod lineage;
pub(crate) mod pace;
pub(crate) mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use openraft::ChangeMembers;
use openraft::errors::{ClientWriteError, RaftError};
use parking_lot::Mutex;
use terrane_types::{ReplicaId, ServerId};
use tokio::time::Instant;

use crate::MembersError;
use crate::groups::group_view::{GroupView, matched};
use crate::members::pace::LeaderProgress;
use crate::proposals::adapter::Raft;
use crate::types::{Member, Metrics, Types};

/// How long a learner may take to get the last entries before it becomes a voter.
const CATCH_UP_MAX: Duration = Duration::from_secs(3);
/// How long a quorum may take to commit one configuration.
const COMMIT_MAX: Duration = Duration::from_secs(5);
/// How often a learner's progress is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How far a member has got, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberProgress {
    /// The member.
    pub replica: ReplicaId,
    /// Its server.
    pub server: ServerId,
    /// Whether it votes; otherwise it is a learner.
    pub voter: bool,
    /// The last entry it is known to have.
    pub matched: u64,
    /// The last entry of those that it is known to have applied.
    pub applied: u64,
    /// It has not applied what the leader had applied two seconds ago. A few entries may take long: they may name files.
    pub lags: bool,
    /// It answered recently.
    pub alive: bool,
    /// Bytes of the copy of the group that is being sent to it; 0 if none is.
    pub copy_bytes: u64,
    /// How many of them it has.
    pub copied_bytes: u64,
}

/// The voters of the newest configuration: during a joint change, those after it.
fn voters_ahead(metrics: &Metrics) -> BTreeSet<ReplicaId> {
    metrics.membership_config.membership().get_joint_config().last().cloned().unwrap_or_default()
}

fn is_joint(metrics: &Metrics) -> bool {
    metrics.membership_config.membership().get_joint_config().len() > 1
}

fn refused(what: String) -> MembersError {
    MembersError::Refused { what }
}

fn later(what: String) -> MembersError {
    MembersError::Later { what }
}

/// The members of a group and their changes, for its leader.
pub(crate) struct MemberChanges {
    view: Arc<GroupView>,
    raft: Raft,
    /// What this replica had applied, and when, while it leads.
    pace: Mutex<LeaderProgress>,
}

impl MemberChanges {
    pub(crate) fn new(view: Arc<GroupView>, raft: Raft) -> MemberChanges {
        MemberChanges { view, raft, pace: Mutex::default() }
    }

    /// The members, as this leader sees them; empty if this replica does not lead.
    pub(crate) fn progress(&self) -> Vec<MemberProgress> {
        let metrics = self.view.metrics();
        if metrics.replication.is_none() {
            return Vec::new();
        }
        let voters = voters_ahead(&metrics);
        let copies = self.view.followers().sending.progress();
        let expected =
            self.pace.lock().expected(metrics.current_term, self.view.applied_state().applied_index(), Instant::now());
        let member = |(replica, member): (&ReplicaId, &Member)| {
            let copy = copies.get(replica).copied().unwrap_or_default();
            let applied = self.view.reached(&metrics, *replica);
            MemberProgress {
                replica: *replica,
                server: member.server,
                voter: voters.contains(replica),
                matched: matched(&metrics, *replica),
                applied,
                lags: applied < expected,
                alive: self.view.is_up(&metrics, *replica),
                copy_bytes: copy.bytes,
                copied_bytes: copy.sent,
            }
        };
        metrics.membership_config.nodes().map(member).collect()
    }

    /// Adds a member that does not vote.
    pub(crate) async fn add_learner(&self, replica: ReplicaId, server: ServerId) -> Result<(), MembersError> {
        {
            let metrics = self.view.metrics();
            let known: BTreeMap<_, _> = metrics.membership_config.nodes().collect();
            match known.get(&replica) {
                Some(member) if member.server == server && self.view.leads() => return Ok(()),
                Some(member) if member.server != server => {
                    return Err(refused(format!("replica {replica} is on server {} already", member.server)));
                }
                _ => {}
            }
            // A server that discarded its replica gets another one, which takes the place of the first.
            let on_server = known.iter().filter(|(_, member)| member.server == server);
            if let Some((other, _)) = on_server.into_iter().find(|(other, _)| self.view.is_up(&metrics, ***other)) {
                let group = self.view.group();
                return Err(refused(format!("group {group} has replica {other} on server {server} already")));
            }
        }
        let added = self.raft.add_learner(replica, Member { server }, false);
        self.committed(added).await
    }

    /// Makes a learner a voter and removes a member, in one change.
    pub(crate) async fn change_voters(
        &self,
        promote: Option<ReplicaId>,
        remove: Option<ReplicaId>,
    ) -> Result<(), MembersError> {
        let change = {
            let metrics = self.view.metrics();
            self.change(&metrics, promote, remove)?
        };
        let Some(change) = change else { return self.check_confirmed() };
        let change = match promote {
            Some(learner) => {
                self.until_caught_up(learner).await?;
                // The voters may have changed meanwhile.
                let metrics = self.view.metrics();
                self.change(&metrics, promote, remove)?
            }
            None => Some(change),
        };
        let Some(change) = change else { return self.check_confirmed() };
        terrane_env::buggify_pause!("a change of members waits after its checks").await;
        let changed = self.raft.change_membership(change, false);
        self.committed(changed).await
    }

    /// Makes exactly these members the voters, in one joint change: learners among them vote, other voters leave.
    pub(crate) async fn set_voters(&self, wanted: BTreeSet<ReplicaId>) -> Result<(), MembersError> {
        let learners: BTreeSet<ReplicaId> = {
            let metrics = self.view.metrics();
            if !self.view.leads() {
                return Err(MembersError::NotLeader);
            }
            let members: BTreeSet<ReplicaId> = metrics.membership_config.nodes().map(|(replica, _)| *replica).collect();
            if let Some(unknown) = wanted.iter().find(|replica| !members.contains(replica)) {
                return Err(refused(format!("replica {unknown} is not a member of group {}", self.view.group())));
            }
            let voters = voters_ahead(&metrics);
            if wanted == voters && !is_joint(&metrics) {
                drop(metrics);
                return self.check_confirmed();
            }
            self.check_stays(&wanted)?;
            let learners = wanted.difference(&voters).copied().collect();
            self.check_quorum(&metrics, &wanted, &learners)?;
            learners
        };
        for learner in learners {
            self.until_caught_up(learner).await?;
        }
        // One that has caught up may have gone since.
        self.check_quorum(&self.view.metrics(), &wanted, &BTreeSet::new())?;
        terrane_env::buggify_pause!("a change of all voters waits after its checks").await;
        let changed = self.raft.change_membership(ChangeMembers::ReplaceAllVoters(wanted), false);
        self.committed(changed).await
    }

    /// Refuses voters without this leader.
    fn check_stays(&self, wanted: &BTreeSet<ReplicaId>) -> Result<(), MembersError> {
        if wanted.contains(&self.view.replica()) {
            return Ok(());
        }
        Err(later(format!(
            "replica {} leads group {}; hand the leadership over first",
            self.view.replica(),
            self.view.group()
        )))
    }

    /// The members are as wanted here. A leader that comes next may not have heard of it.
    fn check_confirmed(&self) -> Result<(), MembersError> {
        let metrics = self.view.metrics();
        let changed = metrics.membership_config.log_id().as_ref().map(|id| id.index);
        if changed <= metrics.local_committed.as_ref().map(|id| id.index) {
            return Ok(());
        }
        Err(later(format!("no quorum of group {} has confirmed the change yet", self.view.group())))
    }

    /// What to order from openraft; `None` if the members are as wanted.
    fn change(
        &self,
        metrics: &Metrics,
        promote: Option<ReplicaId>,
        remove: Option<ReplicaId>,
    ) -> Result<Option<ChangeMembers<ReplicaId, Member>>, MembersError> {
        if !self.view.leads() {
            return Err(MembersError::NotLeader);
        }
        let members: BTreeSet<ReplicaId> = metrics.membership_config.nodes().map(|(replica, _)| *replica).collect();
        if let Some(unknown) = promote.filter(|replica| !members.contains(replica)) {
            return Err(refused(format!("replica {unknown} is not a member of group {}", self.view.group())));
        }
        let voters = voters_ahead(metrics);
        let mut wanted = voters.clone();
        wanted.extend(promote);
        wanted.retain(|replica| Some(*replica) != remove);
        if wanted == voters && !is_joint(metrics) {
            let leaving = remove.filter(|replica| members.contains(replica));
            return Ok(leaving.map(|replica| ChangeMembers::RemoveNodes(BTreeSet::from([replica]))));
        }
        self.check_stays(&wanted)?;
        self.check_quorum(metrics, &wanted, &promote.into_iter().collect())?;
        Ok(Some(ChangeMembers::ReplaceAllVoters(wanted)))
    }

    /// Those in `promoted` count as up: they are waited for.
    fn check_quorum(
        &self,
        metrics: &Metrics,
        wanted: &BTreeSet<ReplicaId>,
        promoted: &BTreeSet<ReplicaId>,
    ) -> Result<(), MembersError> {
        let up = |replica: &&ReplicaId| promoted.contains(replica) || self.view.is_up(metrics, **replica);
        let up = wanted.iter().filter(up).count();
        if up > wanted.len() / 2 {
            return Ok(());
        }
        Err(refused(format!(
            "only {up} of the {} voters that group {} would have answer; bring servers back first",
            wanted.len(),
            self.view.group()
        )))
    }

    /// Waits until a learner has applied everything that is committed now.
    async fn until_caught_up(&self, learner: ReplicaId) -> Result<(), MembersError> {
        let committed = self.view.committed();
        let deadline = Instant::now() + CATCH_UP_MAX;
        loop {
            let applied = {
                let metrics = self.view.metrics();
                if metrics.replication.is_none() {
                    return Err(MembersError::NotLeader);
                }
                self.view.reached(&metrics, learner)
            };
            if applied >= committed {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(later(format!(
                    "replica {learner} has applied the log up to entry {applied} of {committed}; it is still catching up"
                )));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn committed<T>(
        &self,
        change: impl Future<Output = Result<T, RaftError<Types, ClientWriteError<Types>>>>,
    ) -> Result<(), MembersError> {
        match tokio::time::timeout(COMMIT_MAX, change).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(RaftError::Fatal(_))) => Err(MembersError::Stopped),
            Ok(Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_)))) => Err(MembersError::NotLeader),
            Ok(Err(RaftError::APIError(error))) => Err(later(error.to_string())),
            Err(_) => Err(later(format!("no quorum of group {} has confirmed the change yet", self.view.group()))),
        }
    }
}
