//! Calls about the fleet: drains, moves of regions, balance, replication, procedures and checks.

use std::time::Duration;

use terrane_types::admin::fleet::{
    BalancePlan, ClusterCheck, GroupRecovery, MastersChange, MoveBegun, RestartVerdict, ServerChanged,
};
use terrane_types::admin::procedures::{EndedProcedure, ProcedureInfo};
use terrane_types::{GroupId, RegionDescriptor, RegionId};

use super::Admin;
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

    /// Changes how long a server may be away before its replicas are replaced; `None`: as each master was started. Returns the
    /// times before and after.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is too short; [`Error::Uncertain`] when the answer was lost: repeat the call.
    pub async fn set_replace_after(&self, after: Option<Duration>) -> Result<(Duration, Duration), Error> {
        self.masters().set_replace_after(after, self.timeout).await
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
