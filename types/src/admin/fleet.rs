//! What masters answer to calls about the fleet: balance, moves, checks and recoveries.

use std::time::Duration;

#[cfg(feature = "serde")]
use super::json;
use crate::{GroupId, ReplicaId, ServerId};
/// A server whose intent was changed, with what it had before.
#[derive(Clone, Debug)]
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

/// A plan of moves.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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

/// A move of a region that has begun.
#[derive(Clone, Debug)]
pub struct MoveBegun {
    /// Its id, for `Admin::follow_move`. `Admin::cancel` takes it as `move-ID`.
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

/// Whether a server can be stopped.
#[derive(Clone, Debug)]
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
pub struct CheckFinding {
    /// What it is about: `map`, `regions`, `leader`, `majority`, `members`, `replicas`, `group` or `server`.
    pub kind: String,
    /// A sentence.
    pub what: String,
}

/// What is left of a group whose majority is lost, and what its recovery means.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
