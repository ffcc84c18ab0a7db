//! Orders that change which servers have a group's replicas: join, change of members, handover, removal.
//!
//! A replica that is removed leaves the log first and the engine second. What a crash or a full disk leaves in the engine is
//! cells without a group: they cannot be read, because regions are looked up through their group. The log names such
//! replicas until the engine has removed everything, and the removal is tried again at the next start
//! ([`remove_leftovers`]) and periodically ([`Membership::retry_removals`]). A new replica of the group begins with nothing of
//! an old one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use terrane_engine::Engine;
use terrane_env::fs;
use terrane_env::task::run_io;
use terrane_proto::v1;
use terrane_raft::{GroupSpec, Inspection, MemberProgress, MembersError, Recovery};
use terrane_types::{Error, GroupId, Invalid, ReplicaId, ServerId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::edge::Edge;
use crate::edge::error_mapping::{engine_error, not_led, require_leader, stopping};
use crate::group::proposal::{Group, GroupHost};
use crate::replicas::mending::Mending;

/// How long a handover of a leadership may take; it takes milliseconds if the successor has the whole log.
const HANDOVER_MAX: Duration = Duration::from_secs(3);
/// When a step that is not possible yet should be tried again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// How often removals that failed are tried again.
const REMOVAL_RETRY: Duration = Duration::from_secs(5);

/// Carries out the orders.
pub struct Membership {
    pub edge: Arc<Edge>,
    pub engine: Arc<Engine>,
    pub mending: Arc<Mending>,
    /// One replica joins or is removed at a time: what one of them leaves must not mix with what the other brings.
    pub changing: tokio::sync::Mutex<()>,
}

impl Membership {
    /// Creates the local replica of an existing group. A damaged one that is `discard` is removed first: it never comes back,
    /// so to the group it is like one whose disk was lost.
    pub async fn join(&self, spec: GroupSpec, discard: Option<ReplicaId>) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        if let Some(damaged) = self.edge.host.group(spec.group)
            && let replica = damaged.status().replica
            && Some(replica) == discard
        {
            self.mending.admit(&damaged, &self.edge.replicas)?;
            self.edge.host.remove_group(spec.group, replica).await.map_err(raft_error)?;
            terrane_env::buggify_pause!("a discarded replica is still in the engine").await;
        }
        if self.edge.host.group(spec.group).is_none() {
            self.remove_from_engine(spec.group).await?;
        }
        self.edge.host.join_group(spec).await.map_err(raft_error)
    }

    /// Removes the local replica of a group. Does nothing if it is not here.
    pub async fn remove(&self, group: GroupId, replica: ReplicaId) -> Result<(), Error> {
        let _changing = self.changing.lock().await;
        if let Some(local) = self.edge.host.group(group)
            && local.status().replica != replica
        {
            return Ok(());
        }
        if self.edge.replicas.is_damaged(group) {
            self.mending.note(group, replica, Instant::now());
        }
        self.edge.host.remove_group(group, replica).await.map_err(raft_error)?;
        terrane_env::buggify_pause!("a removed replica is still in the engine").await;
        self.remove_from_engine(group).await
    }

    /// Tries again to remove what failed removals have left in the engine, until the server stops.
    pub async fn retry_removals(self: Arc<Self>, stop: CancellationToken) {
        let retry = async {
            loop {
                tokio::time::sleep(REMOVAL_RETRY).await;
                for group in self.edge.host.removed_groups() {
                    let _changing = self.changing.lock().await;
                    if self.edge.host.group(group).is_none()
                        && let Err(error) = self.remove_from_engine(group).await
                    {
                        tracing::warn!(%group, %error, "a removed replica is not out of the engine yet; trying again");
                    }
                }
            }
        };
        stop.run_until_cancelled(retry).await;
    }

    async fn remove_from_engine(&self, group: GroupId) -> Result<(), Error> {
        match self.edge.replicas.machine(group) {
            Some(machine) => machine.remove().await.map_err(engine_error)?,
            None => self.engine.remove_group(group).await.map_err(engine_error)?,
        }
        self.edge.replicas.remove_machine(group);
        remove_incoming(self.engine.incoming_dir(group)).await.map_err(engine_error)?;
        self.edge.host.forget_removed(group);
        Ok(())
    }

    /// Makes one step of a change of members, as the group's leader.
    pub async fn change(&self, request: &v1::ChangeMembersRequest) -> Result<Vec<MemberProgress>, Error> {
        let group = self.led(GroupId(request.group))?;
        if let Some(learner) = &request.learner {
            self.edge.addresses.set([(ServerId(learner.server), learner.address.clone())]);
            let added = group.add_learner(ReplicaId(learner.replica), ServerId(learner.server)).await;
            added.map_err(|error| self.members_error(error, &group))?;
        }
        let replica = |id: u64| (id != 0).then_some(ReplicaId(id));
        if request.promote != 0 || request.remove != 0 {
            let changed = group.change_voters(replica(request.promote), replica(request.remove)).await;
            changed.map_err(|error| self.members_error(error, &group))?;
        }
        Ok(group.members())
    }

    /// Hands a leadership over. Done already if the replica leads.
    pub async fn transfer(&self, group: GroupId, to: ReplicaId) -> Result<(), Error> {
        let group = self.led(group)?;
        if group.status().replica == to {
            return Ok(());
        }
        group.transfer_leader(to).await.map_err(|error| self.members_error(error, &group))?;
        let handed_over = group.wait_for(|status| status.leader.is_some_and(|(leader, _)| leader == to), HANDOVER_MAX);
        handed_over.await.map(drop).ok_or_else(|| later(format!("replica {to} did not take over group {}", group.id())))
    }

    /// What the local replica of a group has.
    pub fn inspect(&self, group: GroupId) -> Result<Inspection, Error> {
        Ok(self.local(group)?.inspect())
    }

    /// Makes the local replica of a group its only member.
    pub async fn recover(&self, request: &v1::RecoverReplicaRequest) -> Result<(), Error> {
        let group = self.local(GroupId(request.group))?;
        let (named, own) = (ReplicaId(request.replica), group.status().replica);
        if named != own {
            let what = format!("replica {named} of group {} is not here, but replica {own}", group.id());
            return Err(Error::Invalid(Invalid { what }));
        }
        let members = request.members.iter().copied().map(ReplicaId).collect();
        let order = Recovery { above_term: request.above_term, members };
        group.recover_alone(&order).await.map_err(|error| self.members_error(error, &group))
    }

    fn local(&self, id: GroupId) -> Result<Group, Error> {
        self.edge.host.group(id).ok_or_else(|| Error::NotFound { what: format!("group {id}") })
    }

    /// A group that this server leads. A follower names the leader.
    fn led(&self, id: GroupId) -> Result<Group, Error> {
        let group = self.local(id)?;
        require_leader(&group, &self.edge.addresses)?;
        Ok(group)
    }

    fn members_error(&self, error: MembersError, group: &Group) -> Error {
        match error {
            MembersError::NotLeader => not_led(group, &group.status(), &self.edge.addresses),
            MembersError::Refused { what } => Error::Invalid(Invalid { what }),
            MembersError::Later { what } => later(what),
            MembersError::Stopped => stopping(),
            other => Error::Internal { message: other.to_string() },
        }
    }
}

/// Removes what crashes left of replicas that are no longer in the log: in the engine, and of copies that arrived for them.
pub async fn remove_leftovers(engine: &Arc<Engine>, host: &GroupHost) -> Result<(), terrane_engine::Error> {
    for group in host.removed_groups().into_iter().filter(|group| host.group(*group).is_none()) {
        engine.remove_group(group).await?;
        remove_incoming(engine.incoming_dir(group)).await?;
        host.forget_removed(group);
    }
    Ok(())
}

/// Removes what has arrived of a copy of a group that is no longer here. Durably: when the removal of the group is forgotten,
/// a power cut must not bring back what nothing names any more.
async fn remove_incoming(dir: PathBuf) -> Result<(), terrane_engine::Error> {
    let removed = run_io(async move { fs::remove_dir_durable(&dir).await });
    let doing = "remove a copy that has arrived in part".to_owned();
    removed.await.map_err(|cause| terrane_engine::Error::Io { doing, cause })
}

/// A member in the wire's form.
pub fn member_progress(member: &MemberProgress) -> v1::MemberProgress {
    v1::MemberProgress {
        replica: member.replica.0,
        server: member.server.0,
        voter: member.voter,
        matched: member.matched,
        alive: member.alive,
        copy_bytes: member.copy_bytes,
        copied_bytes: member.copied_bytes,
        applied: Some(member.applied),
        lags: member.lags,
    }
}

/// What a replica has, in the wire's form.
pub fn inspection(found: Inspection) -> v1::InspectReplicaReply {
    let ids = |voters: BTreeSet<ReplicaId>| voters.into_iter().map(|voter| voter.0).collect();
    v1::InspectReplicaReply {
        replica: found.replica.0,
        term: found.term,
        last_term: found.last.0,
        last_index: found.last.1,
        committed: found.committed,
        applied: found.applied,
        voters: found.voters.into_iter().map(|voters| v1::ReplicaSet { replicas: ids(voters) }).collect(),
        has_leader: found.has_leader,
        failed: found.failed.unwrap_or_default(),
        stuck: found.stuck.unwrap_or_default(),
    }
}

/// The members of a request, and the addresses of their servers.
pub fn members(members: Vec<v1::GroupMember>) -> (BTreeMap<ReplicaId, ServerId>, Vec<(ServerId, String)>) {
    let addresses = members.iter().map(|member| (ServerId(member.server), member.address.clone())).collect();
    (members.iter().map(|member| (ReplicaId(member.replica), ServerId(member.server))).collect(), addresses)
}

/// Maps the error of a group's creation, removal or handover.
pub fn raft_error(error: terrane_raft::Error) -> Error {
    match error {
        terrane_raft::Error::Exists { group } => {
            Error::AlreadyExists { what: format!("group {group} with other members") }
        }
        terrane_raft::Error::Invalid { what } => Error::Invalid(Invalid { what }),
        terrane_raft::Error::Stopped => stopping(),
        other => Error::Internal { message: other.to_string() },
    }
}

fn later(message: String) -> Error {
    Error::Unavailable { message, retry_after: RETRY_AFTER }
}
