//! The calls about the fleet, typed.

use std::time::Duration;

use futures::future::BoxFuture;
use terrane_proto::v1;
use terrane_types::admin::EndedProcedure;
use terrane_types::states::MoveStage;
use terrane_types::{GroupId, RegionId, ReplicaId, ServerId};

use super::timed;
use crate::api::admin::fleet::{
    BalanceMode, BalancePlan, BalanceShare, BalanceStep, CheckFinding, ClusterCheck, GroupRecovery, GroupSurvivor,
    LostMember, MastersChange, MoveBegun, MoveState, ProcedureInfo, RestartVerdict, ServerChange, ServerChanged,
};
use crate::error::Error;
use crate::wire::masters::{Kind, Masters};

impl Masters {
    pub(crate) fn change_server(
        &self,
        server: String,
        change: ServerChange,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<ServerChanged, Error>> {
        Box::pin(async move {
            let change = match change {
                ServerChange::Drain => v1::ServerChange::Drain,
                ServerChange::Undrain => v1::ServerChange::Undrain,
                ServerChange::Decommission => v1::ServerChange::Decommission,
            };
            let request = v1::ChangeServerRequest { hello: self.hello(), server, change: change.into() };
            let reply: v1::ChangeServerReply = ask!(self, Kind::Change, timeout, change_server, request)?;
            let v1::ChangeServerReply { server, address, replicas, leaders } = reply;
            Ok(ServerChanged { server: ServerId(server), address, replicas, leaders })
        })
    }

    pub(crate) fn begin_move(
        &self,
        region: RegionId,
        server: String,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<MoveBegun, Error>> {
        Box::pin(async move {
            let request = v1::BeginMoveRequest { hello: self.hello(), region: region.0, server };
            let reply: v1::BeginMoveReply = ask!(self, Kind::Change, timeout, begin_move, request)?;
            let v1::BeginMoveReply { r#move: id, server, address, from_group, to_group } = reply;
            let (from, to) = (GroupId(from_group), GroupId(to_group));
            Ok(MoveBegun { id, server: ServerId(server), address, from, to })
        })
    }

    pub(crate) fn follow_move(&self, id: u64, timeout: Duration) -> BoxFuture<'_, Result<MoveState, Error>> {
        Box::pin(async move {
            let request = v1::FollowMoveRequest { hello: self.hello(), r#move: id };
            let reply: v1::FollowMoveReply = ask!(self, Kind::Read, timeout, follow_move, request)?;
            let v1::FollowMoveReply { state, detail, copied_bytes, bytes, region } = reply;
            Ok(match (MoveStage::named(&state), region) {
                (MoveStage::Moved, Some(region)) => MoveState::Moved(region.try_into()?),
                (MoveStage::Moved, None) => {
                    return Err(Error::internal("the master answered a move without its region"));
                }
                (MoveStage::Undone, _) => MoveState::Undone { why: detail },
                (stage, _) => {
                    MoveState::UnderWay { detail, is_frozen: stage == MoveStage::Frozen, bytes, copied_bytes }
                }
            })
        })
    }

    pub(crate) fn balance(&self, mode: BalanceMode, timeout: Duration) -> BoxFuture<'_, Result<BalancePlan, Error>> {
        Box::pin(async move {
            let mode = match mode {
                BalanceMode::DryRun => v1::BalanceMode::DryRun,
                BalanceMode::Now => v1::BalanceMode::Now,
                BalanceMode::On => v1::BalanceMode::On,
                BalanceMode::Off => v1::BalanceMode::Off,
            };
            let request = v1::BalanceRequest { hello: self.hello(), mode: mode.into() };
            let reply: v1::BalanceReply = ask!(self, Kind::Change, timeout, balance, request)?;
            Ok(BalancePlan {
                on: reply.on,
                steps: reply.steps.into_iter().map(balance_step).collect(),
                shares: reply.shares.into_iter().map(balance_share).collect(),
                obstacles: reply.obstacles,
            })
        })
    }

    pub(crate) fn set_replication(&self, replication: u32, timeout: Duration) -> BoxFuture<'_, Result<u32, Error>> {
        Box::pin(async move {
            let request = v1::SetReplicationRequest { hello: self.hello(), replication };
            let reply: v1::SetReplicationReply = ask!(self, Kind::Change, timeout, set_replication, request)?;
            Ok(reply.before)
        })
    }

    pub(crate) fn set_masters(
        &self,
        masters: Vec<String>,
        confirmed: Option<u64>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<MastersChange, Error>> {
        Box::pin(async move {
            let (confirmed, version) = (confirmed.is_some(), confirmed.unwrap_or_default());
            let request = v1::SetMastersRequest { hello: self.hello(), masters, confirmed, version };
            let reply: v1::SetMastersReply = ask!(self, Kind::Change, timeout, set_masters, request)?;
            let v1::SetMastersReply { version, before, add, remove, .. } = reply;
            Ok(MastersChange { version, before, add, remove })
        })
    }

    pub(crate) fn procedures(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<ProcedureInfo>, Error>> {
        Box::pin(async move {
            let request = v1::ListProceduresRequest { hello: self.hello(), ended: false };
            let reply: v1::ListProceduresReply = ask!(self, Kind::Read, timeout, list_procedures, request)?;
            Ok(reply.procedures.into_iter().map(procedure_info).collect())
        })
    }

    pub(crate) fn ended_procedures(&self, timeout: Duration) -> BoxFuture<'_, Result<Vec<EndedProcedure>, Error>> {
        Box::pin(async move {
            let request = v1::ListProceduresRequest { hello: self.hello(), ended: true };
            let reply: v1::ListProceduresReply = ask!(self, Kind::Read, timeout, list_procedures, request)?;
            Ok(reply.ended.into_iter().map(Into::into).collect())
        })
    }

    pub(crate) fn cancel(&self, id: String, timeout: Duration) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let request = v1::CancelProcedureRequest { hello: self.hello(), id };
            ask!(self, Kind::Change, timeout, cancel_procedure, request).map(drop)
        })
    }

    pub(crate) fn restart_check(
        &self,
        server: String,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<Vec<RestartVerdict>, Error>> {
        Box::pin(async move {
            let request = v1::RestartCheckRequest { hello: self.hello(), server };
            let reply: v1::RestartCheckReply = ask!(self, Kind::Read, timeout, restart_check, request)?;
            let verdict = |v1::RestartVerdict { server, address, obstacles }| RestartVerdict {
                server: ServerId(server),
                address,
                obstacles,
            };
            Ok(reply.servers.into_iter().map(verdict).collect())
        })
    }

    pub(crate) fn recover_group(
        &self,
        group: GroupId,
        confirmed: Option<(ReplicaId, u64)>,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<GroupRecovery, Error>> {
        Box::pin(async move {
            let (survivor, version) = confirmed.map_or((0, 0), |(survivor, version)| (survivor.0, version));
            let (hello, group, confirmed) = (self.hello(), group.0, confirmed.is_some());
            let request = v1::RecoverGroupRequest { hello, group, confirmed, survivor, version };
            let reply: v1::RecoverGroupReply = ask!(self, Kind::Change, timeout, recover_group, request)?;
            Ok(group_recovery(reply))
        })
    }

    pub(crate) fn check_cluster(&self, timeout: Duration) -> BoxFuture<'_, Result<ClusterCheck, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::CheckClusterReply = ask!(self, Kind::Read, timeout, check_cluster, request)?;
            let finding = |v1::CheckFinding { kind, what }| CheckFinding { kind, what };
            Ok(ClusterCheck {
                findings: reply.findings.into_iter().map(finding).collect(),
                tables: reply.tables,
                regions: reply.regions,
                groups: reply.groups,
                servers: reply.servers,
            })
        })
    }
}

fn group_recovery(reply: v1::RecoverGroupReply) -> GroupRecovery {
    let survivor = |found: v1::GroupSurvivor| GroupSurvivor {
        replica: ReplicaId(found.replica),
        server: ServerId(found.server),
        address: found.address,
        last_term: found.last_term,
        last_index: found.last_index,
        committed: found.committed,
        applied: found.applied,
    };
    let lost = |member: v1::LostMember| LostMember {
        replica: ReplicaId(member.replica),
        server: ServerId(member.server),
        address: member.address,
        quiet_for: Duration::from_millis(member.quiet_ms),
        why: member.why,
    };
    GroupRecovery {
        group: GroupId(reply.group),
        version: reply.version,
        survivor: ReplicaId(reply.survivor),
        survivors: reply.survivors.into_iter().map(survivor).collect(),
        lost: reply.lost.into_iter().map(lost).collect(),
        losses: reply.losses,
        begun: reply.begun,
    }
}

fn balance_step(step: v1::BalanceStep) -> BalanceStep {
    BalanceStep { group: GroupId(step.group), action: step.action, reason: step.reason }
}

fn balance_share(share: v1::BalanceShare) -> BalanceShare {
    BalanceShare {
        server: ServerId(share.server),
        address: share.address,
        leaders: share.leaders,
        replicas: share.replicas,
        leaders_after: share.leaders_after,
        replicas_after: share.replicas_after,
        regions: share.regions,
        bytes: share.bytes,
        load: share.load,
        regions_after: share.regions_after,
        bytes_after: share.bytes_after,
        load_after: share.load_after,
    }
}

fn procedure_info(info: v1::ProcedureInfo) -> ProcedureInfo {
    ProcedureInfo {
        id: info.id,
        kind: info.kind,
        subject: info.subject,
        owner: info.owner,
        state: info.state,
        reason: info.reason,
        steps: info.steps,
        steps_done: info.steps_done,
        since: Duration::from_millis(info.since_ms),
        waits_for: info.waits_for,
        cancellable: info.cancellable,
        bytes: info.bytes,
        copied_bytes: info.copied_bytes,
        detail: info.detail,
    }
}
