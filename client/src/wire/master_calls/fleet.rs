//! The calls about the fleet, typed.

use std::time::Duration;

use terrane_proto::v1;
use terrane_types::admin::fleet::{
    BalancePlan, ClusterCheck, GroupRecovery, MastersChange, MoveBegun, RestartVerdict, ServerChanged,
};
use terrane_types::admin::procedures::{EndedProcedure, ProcedureInfo};
use terrane_types::states::MoveStage;
use terrane_types::{GroupId, RegionId, ReplicaId};

use super::{Answer, decode_all, timed};
use crate::api::admin::fleet::{BalanceMode, MoveState, ServerChange};
use crate::error::Error;
use crate::wire::masters::{Kind, Masters};

impl Masters {
    pub(crate) fn change_server(
        &self,
        server: String,
        change: ServerChange,
        timeout: Duration,
    ) -> Answer<'_, ServerChanged> {
        let change = match change {
            ServerChange::Drain => v1::ServerChange::Drain,
            ServerChange::Undrain => v1::ServerChange::Undrain,
            ServerChange::Decommission => v1::ServerChange::Decommission,
        };
        let request = v1::ChangeServerRequest { hello: self.hello(), server, change: change.into() };
        ask!(self, Change, timeout, change_server, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn begin_move(&self, region: RegionId, server: String, timeout: Duration) -> Answer<'_, MoveBegun> {
        let request = v1::BeginMoveRequest { hello: self.hello(), region: region.0, server };
        ask!(self, Change, timeout, begin_move, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn follow_move(&self, id: u64, timeout: Duration) -> Answer<'_, MoveState> {
        let request = v1::FollowMoveRequest { hello: self.hello(), r#move: id };
        ask!(self, Read, timeout, follow_move, request, |reply| {
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

    pub(crate) fn balance(&self, mode: BalanceMode, timeout: Duration) -> Answer<'_, BalancePlan> {
        let mode = match mode {
            BalanceMode::DryRun => v1::BalanceMode::DryRun,
            BalanceMode::Now => v1::BalanceMode::Now,
            BalanceMode::On => v1::BalanceMode::On,
            BalanceMode::Off => v1::BalanceMode::Off,
        };
        let request = v1::BalanceRequest { hello: self.hello(), mode: mode.into() };
        ask!(self, Change, timeout, balance, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn set_replication(&self, replication: u32, timeout: Duration) -> Answer<'_, u32> {
        let request = v1::SetReplicationRequest { hello: self.hello(), replication };
        ask!(self, Change, timeout, set_replication, request, |reply| Ok(reply.before))
    }

    pub(crate) fn set_replace_after(
        &self,
        after: Option<Duration>,
        timeout: Duration,
    ) -> Answer<'_, (Duration, Duration)> {
        // Less than a millisecond is not the same as none: the master says that it is too short.
        let millis = |after: Duration| u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
        let request = v1::SetReplaceAfterRequest { hello: self.hello(), after_ms: after.map_or(0, millis) };
        ask!(self, Change, timeout, set_replace_after, request, |reply| {
            Ok((Duration::from_millis(reply.before_ms), Duration::from_millis(reply.after_ms)))
        })
    }

    pub(crate) fn set_masters(
        &self,
        masters: Vec<String>,
        confirmed: Option<u64>,
        timeout: Duration,
    ) -> Answer<'_, MastersChange> {
        let (confirmed, version) = (confirmed.is_some(), confirmed.unwrap_or_default());
        let request = v1::SetMastersRequest { hello: self.hello(), masters, confirmed, version };
        ask!(self, Change, timeout, set_masters, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn procedures(&self, timeout: Duration) -> Answer<'_, Vec<ProcedureInfo>> {
        let request = v1::ListProceduresRequest { hello: self.hello(), ended: false };
        ask!(self, Read, timeout, list_procedures, request, |reply| Ok(decode_all(reply.procedures)))
    }

    pub(crate) fn ended_procedures(&self, timeout: Duration) -> Answer<'_, Vec<EndedProcedure>> {
        let request = v1::ListProceduresRequest { hello: self.hello(), ended: true };
        ask!(self, Read, timeout, list_procedures, request, |reply| Ok(decode_all(reply.ended)))
    }

    pub(crate) fn cancel(&self, id: String, timeout: Duration) -> Answer<'_, ()> {
        let request = v1::CancelProcedureRequest { hello: self.hello(), id };
        ask!(self, Change, timeout, cancel_procedure, request, |_| Ok(()))
    }

    pub(crate) fn restart_check(&self, server: String, timeout: Duration) -> Answer<'_, Vec<RestartVerdict>> {
        let request = v1::RestartCheckRequest { hello: self.hello(), server };
        ask!(self, Read, timeout, restart_check, request, |reply| Ok(decode_all(reply.servers)))
    }

    pub(crate) fn recover_group(
        &self,
        group: GroupId,
        confirmed: Option<(ReplicaId, u64)>,
        timeout: Duration,
    ) -> Answer<'_, GroupRecovery> {
        let (survivor, version) = confirmed.map_or((0, 0), |(survivor, version)| (survivor.0, version));
        let (hello, group, confirmed) = (self.hello(), group.0, confirmed.is_some());
        let request = v1::RecoverGroupRequest { hello, group, confirmed, survivor, version };
        ask!(self, Change, timeout, recover_group, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn check_cluster(&self, timeout: Duration) -> Answer<'_, ClusterCheck> {
        ask!(self, Read, timeout, check_cluster, self.cluster_request(), |reply| Ok(reply.into()))
    }
}
