//! Calls about the fleet: drains, moves of regions, balance, replication, procedures and checks.

use std::time::Duration;

use terrane_types::admin::EndedProcedure;
use terrane_types::{GroupId, RegionDescriptor, RegionId, ReplicaId, ServerId};

use super::Admin;
#[cfg(feature = "serde")]
use super::json;
use crate::error::Error;

/// What an administrator intends for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerChange {
    /// Its leaderships and then its replicas go to other servers, and it gets no new ones.
    Drain,
    /// The drain ends, and it gets replicas again.
    Undrain,
    /// It leaves the cluster; it must have no replicas.
    Decommission,
}

/// A server whose intent was changed, with what it had before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerChanged {
    /// The server.
    pub server: ServerId,
    /// Its address.
    pub address: String,
    /// Its replicas.
    pub replicas: u32,
    /// The groups it led.
    pub leaders: u32,
}

/// What to do about the spread of replicas and leaderships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BalanceMode {
    /// Only show the plan.
    DryRun,
    /// Begin the plan now, also while balancing is off.
    Now,
    /// Spread without being asked; the default.
    On,
    /// Only repair and drain.
    Off,
}

/// A plan of moves.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BalancePlan {
    /// Whether the cluster balances without being asked.
    pub on: bool,
    /// The steps, in their order.
    pub steps: Vec<BalanceStep>,
    /// What each server has, and will have.
    #[cfg_attr(feature = "serde", serde(rename = "servers"))]
    pub shares: Vec<BalanceShare>,
    /// What keeps replicas from being placed, as sentences.
    pub obstacles: Vec<String>,
}

/// A step of a plan.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BalanceStep {
    /// The group that it is about.
    pub group: GroupId,
    /// What is done.
    pub action: String,
    /// Why.
    pub reason: String,
}

/// What a server has before and after a plan.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BalanceShare {
    /// The server.
    pub server: ServerId,
    /// Its address.
    pub address: String,
    /// Groups that it leads.
    pub leaders: u32,
    /// Its replicas.
    pub replicas: u32,
    /// Groups that it leads after the plan.
    pub leaders_after: u32,
    /// Its replicas after the plan.
    pub replicas_after: u32,
    /// Regions of the groups that it leads.
    pub regions: u32,
    /// Those after the plan.
    pub regions_after: u32,
    /// Bytes of those regions.
    pub bytes: u64,
    /// Those after the plan.
    pub bytes_after: u64,
    /// Rows and KiB per second that those regions are asked for.
    pub load: u64,
    /// Those after the plan.
    pub load_after: u64,
}

/// An unfinished change of a table, a group or a server.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ProcedureInfo {
    /// Names it in [`Admin::cancel`].
    pub id: String,
    /// `create table`, `replace replica`, `drain server` and so on.
    pub kind: String,
    /// What it works on.
    pub subject: String,
    /// The address of the master that drives it.
    pub owner: String,
    /// How far it is.
    pub state: String,
    /// Why it was begun; empty: by an administrator's call.
    pub reason: String,
    /// Its steps.
    pub steps: u32,
    /// The steps that are done.
    pub steps_done: u32,
    /// How long ago it began, or since when its owner knows it.
    #[cfg_attr(feature = "serde", serde(rename = "since_seconds", serialize_with = "json::seconds"))]
    pub since: Duration,
    /// What it waits for; empty: nothing.
    pub waits_for: String,
    /// Whether it can be cancelled.
    pub cancellable: bool,
    /// The bytes that it copies; 0: not known, or none.
    pub bytes: u64,
    /// The bytes that are copied.
    pub copied_bytes: u64,
    /// What it does now; empty: not known.
    pub detail: String,
}

/// A move of a region that has begun.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MoveBegun {
    /// Its id, for [`Admin::follow_move`]. [`Admin::cancel`] takes it as `move-ID`.
    pub id: u64,
    /// The server that the region moves to.
    pub server: ServerId,
    /// Its address.
    pub address: String,
    /// The group that the region was in.
    pub from: GroupId,
    /// The group that it moves to.
    pub to: GroupId,
}

/// How far a move of a region is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum MoveState {
    /// It is under way.
    UnderWay {
        /// What it does or waits for.
        detail: String,
        /// Whether requests to the region wait.
        is_frozen: bool,
        /// The bytes of the region's files.
        bytes: u64,
        /// The bytes that are copied.
        copied_bytes: u64,
    },
    /// The region is in its new group.
    Moved(RegionDescriptor),
    /// The region stays where it was.
    Undone {
        /// Why.
        why: String,
    },
}

/// Whether a server can be stopped.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RestartVerdict {
    /// The server.
    pub server: ServerId,
    /// Its address.
    pub address: String,
    /// What speaks against stopping it, as sentences; empty: nothing.
    pub obstacles: Vec<String>,
}

/// The result of a check of the whole cluster.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterCheck {
    /// What is wrong; empty: nothing.
    pub findings: Vec<CheckFinding>,
    /// The tables that were checked.
    pub tables: u32,
    /// The regions that were checked.
    pub regions: u32,
    /// The groups that were checked.
    pub groups: u32,
    /// The servers that were checked.
    pub servers: u32,
}

/// Something that is wrong.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckFinding {
    /// What it is about: `map`, `regions`, `leader`, `majority`, `members`, `replicas`, `group` or `server`.
    pub kind: String,
    /// A sentence.
    pub what: String,
}

/// What is left of a group whose majority is lost, and what its recovery means.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GroupRecovery {
    /// The group.
    pub group: GroupId,
    /// The version of its members.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub version: u64,
    /// The replica that it is recovered from: the one with the longest log.
    pub survivor: ReplicaId,
    /// The members that answer.
    pub survivors: Vec<GroupSurvivor>,
    /// The members that do not.
    pub lost: Vec<LostMember>,
    /// What may be lost, as sentences.
    pub losses: Vec<String>,
    /// Whether the recovery has begun.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub begun: bool,
}

/// A member that answers.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct GroupSurvivor {
    /// The replica.
    pub replica: ReplicaId,
    /// Its server.
    pub server: ServerId,
    /// The server's address.
    pub address: String,
    /// Term of the last entry of its log.
    pub last_term: u64,
    /// Index of that entry.
    pub last_index: u64,
    /// The last entry that it knows to be committed.
    pub committed: u64,
    /// The last entry that it has applied.
    pub applied: u64,
}

/// A member that does not answer.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct LostMember {
    /// The replica.
    pub replica: ReplicaId,
    /// Its server.
    pub server: ServerId,
    /// The server's address.
    pub address: String,
    /// The time since the server's last report, or since the master began to lead.
    #[cfg_attr(feature = "serde", serde(rename = "quiet_seconds", serialize_with = "json::seconds"))]
    pub quiet_for: Duration,
    /// What asking it gave.
    pub why: String,
}

/// A change of the set of masters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MastersChange {
    /// The version of the set that it is described for.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub version: u64,
    /// The addresses of the present masters.
    pub before: Vec<String>,
    /// Those that are added.
    pub add: Vec<String>,
    /// Those that are removed.
    pub remove: Vec<String>,
}

impl Admin {
    /// Begins or ends the drain of a server, or removes a drained one. The server is named by its id or address.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when it cannot work, with what would; [`Error::Uncertain`] when the answer was
    /// lost: repeat the call.
    pub async fn change_server(&self, server: &str, change: ServerChange) -> Result<ServerChanged, Error> {
        self.masters().change_server(server.to_owned(), change, self.timeout).await
    }

    /// Begins to move a region to a server, which is named by its id or address. It moves into a group that this server
    /// leads; if there is none, into one that the server has a replica of and leads afterwards.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when it cannot work, with what would; [`Error::Uncertain`] when the answer was
    /// lost: repeat the call.
    pub async fn begin_move(&self, region: RegionId, server: &str) -> Result<MoveBegun, Error> {
        self.masters().begin_move(region, server.to_owned(), self.timeout).await
    }

    /// How far a move is, or how it ended.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there was no such move, or it ended long ago.
    pub async fn follow_move(&self, id: u64) -> Result<MoveState, Error> {
        self.masters().follow_move(id, self.timeout).await
    }

    /// Shows or begins the plan of balancing, or switches balancing on or off.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn balance(&self, mode: BalanceMode) -> Result<BalancePlan, Error> {
        self.masters().balance(mode, self.timeout).await
    }

    /// Changes how many replicas each group has: 1, 3 or 5. Returns the number before.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are too few servers; [`Error::Uncertain`] when the answer was lost: repeat the call.
    pub async fn set_replication(&self, replication: u32) -> Result<u32, Error> {
        self.masters().set_replication(replication, self.timeout).await
    }

    /// What a change of the masters to these addresses would do. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the cluster cannot have these masters, with what would work.
    pub async fn describe_masters(&self, masters: &[String]) -> Result<MastersChange, Error> {
        self.masters().set_masters(masters.to_vec(), None, self.timeout).await
    }

    /// Begins to change the masters to these addresses, as it was described. [`Admin::procedures`] shows the progress.
    ///
    /// # Errors
    /// As [`Admin::describe_masters`]; [`Error::Invalid`] when the masters have changed since; [`Error::Uncertain`] when the
    /// answer was lost: look at the procedures.
    pub async fn set_masters(&self, masters: &[String], described: &MastersChange) -> Result<MastersChange, Error> {
        self.masters().set_masters(masters.to_vec(), Some(described.version), self.timeout).await
    }

    /// Unfinished changes of tables, groups and servers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn procedures(&self) -> Result<Vec<ProcedureInfo>, Error> {
        self.masters().procedures(self.timeout).await
    }

    /// The procedures that have ended since the leading master leads, newest first; it keeps the latest 500, in memory.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ended_procedures(&self) -> Result<Vec<EndedProcedure>, Error> {
        self.masters().ended_procedures(self.timeout).await
    }

    /// Undoes a procedure.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when it cannot be undone, with what would work.
    pub async fn cancel(&self, procedure: &str) -> Result<(), Error> {
        self.masters().cancel(procedure.to_owned(), self.timeout).await
    }

    /// Whether a server can be stopped now without taking any group's majority; `None`: each server by itself.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub async fn restart_check(&self, server: Option<&str>) -> Result<Vec<RestartVerdict>, Error> {
        self.masters().restart_check(server.unwrap_or_default().to_owned(), self.timeout).await
    }

    /// What is left of a group whose majority is lost, and what its recovery would lose. Changes nothing.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Invalid`] when a majority of the group lives, or nothing of it.
    pub async fn describe_recovery(&self, group: GroupId) -> Result<GroupRecovery, Error> {
        self.masters().recover_group(group, None, self.timeout).await
    }

    /// Begins the recovery of a group as it was described. Entries that only lost members have are lost; the lost members
    /// must not return with their directories. [`Admin::procedures`] shows the progress.
    ///
    /// # Errors
    /// As [`Admin::describe_recovery`]; [`Error::Invalid`] when the group has changed since; [`Error::Uncertain`] when the
    /// answer was lost: look at the procedures.
    pub async fn recover_group(&self, described: &GroupRecovery) -> Result<GroupRecovery, Error> {
        let confirmed = Some((described.survivor, described.version));
        self.masters().recover_group(described.group, confirmed, self.timeout).await
    }

    /// Compares the catalog, the groups and the servers. Reports are up to half a second old: right after a change, repeat it
    /// before you believe a finding.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn check(&self) -> Result<ClusterCheck, Error> {
        self.masters().check_cluster(self.timeout).await
    }
}
