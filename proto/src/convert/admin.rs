//! What masters tell administrators: messages as plain types.
//!
//! A field has the same name in both, or the list below names that of the message. Zero and empty text stand for what is
//! absent where the type has an `Option`.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::admin::cluster::{
    ClusterStatus, GroupInfo, MasterInfo, ProcessVersions, RegionInfo, RegionLoad, RepairProgress, ResourceUsage,
    ServerInfo, TableInfo,
};
use terrane_types::admin::fleet::{
    BalancePlan, BalanceShare, BalanceStep, CheckFinding, ClusterCheck, GroupRecovery, GroupSurvivor, LostMember,
    MastersChange, MoveBegun, RestartVerdict, ServerChanged,
};
use terrane_types::admin::past::{
    ClusterLoad, EventInfo, EventKind, EventList, Failover, FailoverList, LoadMinute, LoadRow, TableLoad,
};
use terrane_types::admin::procedures::{EndedProcedure, ProcedureInfo, ProcedureKind, ProcedureState};
use terrane_types::states::{DrainState, GroupState, MasterState, RegionState, ServerState, TableState};
use terrane_types::{Endpoint, Error, GroupId, Issue, Place, RegionId, ReplicaId, ServerId};

use super::{GroupLocation, health};
use crate::{hello, v1};

/// A field of a message that stands for one of a plain type.
trait Decode<T> {
    fn decode(self) -> T;
}

macro_rules! same {
    ($($kind:ty),*) => {$(
        impl Decode<$kind> for $kind {
            fn decode(self) -> $kind {
                self
            }
        }
    )*};
}
same!(bool, u32, u64, String, Bytes);

macro_rules! ids {
    ($($id:ident),*) => {$(
        impl Decode<$id> for u64 {
            fn decode(self) -> $id {
                $id(self)
            }
        }
    )*};
}
ids!(GroupId, RegionId, ReplicaId, ServerId);

macro_rules! names {
    ($($set:ident),*) => {$(
        impl Decode<$set> for String {
            fn decode(self) -> $set {
                $set::named(&self)
            }
        }
    )*};
}
names!(DrainState, EventKind, GroupState, MasterState, ProcedureKind, ProcedureState, ServerState);

impl Decode<Duration> for u64 {
    fn decode(self) -> Duration {
        Duration::from_millis(self)
    }
}

impl<T> Decode<Option<T>> for u64
where
    Self: Decode<T>,
{
    fn decode(self) -> Option<T> {
        (self != 0).then(|| self.decode())
    }
}

impl<T> Decode<Option<T>> for String
where
    Self: Decode<T>,
{
    fn decode(self) -> Option<T> {
        (!self.is_empty()).then(|| self.decode())
    }
}

impl<M: Decode<T>, T> Decode<Option<T>> for Option<M> {
    fn decode(self) -> Option<T> {
        self.map(Decode::decode)
    }
}

impl<M: Decode<T>, T> Decode<Vec<T>> for Vec<M> {
    fn decode(self) -> Vec<T> {
        self.into_iter().map(Decode::decode).collect()
    }
}

/// Those of later builds may be of kinds that this one does not know.
impl Decode<Vec<Place>> for Vec<v1::Place> {
    fn decode(self) -> Vec<Place> {
        self.into_iter().filter_map(health::place).collect()
    }
}

impl Decode<Issue> for v1::HealthIssue {
    fn decode(self) -> Issue {
        self.into()
    }
}

impl Decode<Endpoint> for v1::Endpoint {
    fn decode(self) -> Endpoint {
        self.into()
    }
}

impl Decode<ProcessVersions> for v1::Versions {
    fn decode(self) -> ProcessVersions {
        let formats = self.formats.into_iter().map(|format| (format.name, format.oldest..=format.newest));
        ProcessVersions {
            build: self.build,
            level: self.level,
            oldest_level: self.oldest_level,
            protocol: self.protocol_min..=self.protocol_max,
            formats: formats.collect(),
        }
    }
}

/// Messages, the plain types that they are, and the fields of these.
macro_rules! decode {
    ($($message:ident => $plain:ident { $($field:ident $(: $of:ident)?),* })*) => {$(
        impl From<v1::$message> for $plain {
            fn from(message: v1::$message) -> Self {
                Self { $($field: decode!(message $field $($of)?).decode(),)* }
            }
        }

        impl Decode<$plain> for v1::$message {
            fn decode(self) -> $plain {
                self.into()
            }
        }
    )*};
    ($message:ident $field:ident) => { $message.$field };
    ($message:ident $field:ident $of:ident) => { $message.$of };
}

decode! {
    ServerInfo => ServerInfo {
        server, address, state, leaders, replicas, regions, zone, drain, replaced_in: replaced_in_ms, memtable_bytes, log_bytes,
        store_bytes, disk_free_bytes, console, engine, log_limit, log_held_by, since_report: since_report_ms, issues, resources,
        versions
    }
    ResourceUsage => ResourceUsage { name, is_bytes: bytes, used, peak, limit, refused }
    RegionLoad => RegionLoad { rows_read, rows_written, bytes }
    RepairInfo => RepairProgress { whole, groups, since: since_ms, left: left_ms, bytes, copied_bytes, waits_for }
    MasterInfo => MasterInfo { address, state, term, applied, lag, endpoints, versions, resources }

    ChangeServerReply => ServerChanged { server, address, replicas, leaders }
    BalanceReply => BalancePlan { on, steps, shares, obstacles }
    BalanceStep => BalanceStep { group, action, reason }
    BalanceShare => BalanceShare {
        server, address, leaders, replicas, leaders_after, replicas_after, regions, regions_after, bytes, bytes_after, load, load_after
    }
    BeginMoveReply => MoveBegun { id: r#move, server, address, from: from_group, to: to_group }
    RestartVerdict => RestartVerdict { server, address, obstacles }
    CheckClusterReply => ClusterCheck { findings, tables, regions, groups, servers }
    CheckFinding => CheckFinding { kind, what }
    RecoverGroupReply => GroupRecovery { group, version, survivor, survivors, lost, losses, begun }
    GroupSurvivor => GroupSurvivor { replica, server, address, last_term, last_index, committed, applied }
    LostMember => LostMember { replica, server, address, quiet_for: quiet_ms, why }
    SetMastersReply => MastersChange { version, before, add, remove }

    ProcedureInfo => ProcedureInfo {
        id, kind, subject, owner, state, reason, steps, steps_done, since: since_ms, waits_for, cancellable, bytes, copied_bytes, detail
    }
    EndedProcedure => EndedProcedure { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places }

    LoadHistoryReply => TableLoad { known_from_ms, from_ms, step_ms, columns, now_ms, rows }
    LoadRow => LoadRow { start, end, region, counts }
    LoadHistoryReply => ClusterLoad { known_from_ms, minutes }
    LoadMinute => LoadMinute { minute_ms, reads, writes, bytes }
    ListEventsReply => EventList { known_from_ms, events }
    EventInfo => EventInfo { number, time_ms, kind, what, reason, places }
    ListFailoversReply => FailoverList { known_from_ms, failovers }
    FailoverInfo => Failover { time_ms, group, regions, from: from_server, to: to_server, reason, blackout_ms }
}

impl From<v1::GroupInfo> for GroupInfo {
    fn from(info: v1::GroupInfo) -> Self {
        let GroupLocation { group, leader, term, members } = info.location.unwrap_or_default().into();
        let (regions, applied, state) = (info.regions, info.applied, info.state.decode());
        let (replicas, compared_regions, compared_ms) = (info.replicas, info.compared_regions, info.compared_ms);
        Self { group, leader, term, members, replicas, regions, applied, state, compared_regions, compared_ms }
    }
}

impl TryFrom<v1::RegionInfo> for RegionInfo {
    type Error = Error;

    fn try_from(info: v1::RegionInfo) -> Result<Self, Error> {
        let v1::RegionInfo { descriptor, table, leader, bytes, state, servers, load } = info;
        let descriptor = descriptor.ok_or_else(|| lacks("the master listed a region without its descriptor"))?;
        let (descriptor, state) = (descriptor.try_into()?, RegionState::named(&state));
        Ok(Self { descriptor, table, leader, bytes, state, servers, load: load.unwrap_or_default().into() })
    }
}

impl TryFrom<v1::TableReply> for TableInfo {
    type Error = Error;

    fn try_from(reply: v1::TableReply) -> Result<Self, Error> {
        let v1::TableReply { schema, state, regions, bytes } = reply;
        let schema = schema.ok_or_else(|| lacks("the master described a table without a schema"))?;
        Ok(Self { schema: schema.try_into()?, state: TableState::named(&state), regions, bytes })
    }
}

impl TryFrom<v1::StatusReply> for ClusterStatus {
    type Error = Error;

    fn try_from(reply: v1::StatusReply) -> Result<Self, Error> {
        Ok(Self {
            cluster: hello::cluster_of(&reply.cluster_id)?.unwrap_or_default(),
            replication: reply.replication,
            servers: reply.servers.decode(),
            tables: reply.tables,
            regions: reply.regions,
            groups: reply.groups,
            groups_without_leader: reply.groups_without_leader,
            issues: reply.issues.decode(),
            waiting_for: reply.waiting_for,
            catalog_index: reply.catalog_index,
            masters: reply.masters.decode(),
            feature_level: reply.feature_level,
            level_waits_for: reply.level_waits_for,
            replace_after: reply.replace_after_ms.decode(),
            replace_after_is_set: reply.replace_after_is_set,
            repair: reply.repair.decode(),
        })
    }
}

fn lacks(message: &str) -> Error {
    Error::Internal { message: message.to_owned() }
}

impl From<EndedProcedure> for v1::EndedProcedure {
    fn from(ended: EndedProcedure) -> Self {
        let EndedProcedure { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places } = ended;
        let (kind, places) = (kind.name().to_owned(), places.into_iter().map(Into::into).collect());
        Self { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places }
    }
}

impl From<Failover> for v1::FailoverInfo {
    fn from(failover: Failover) -> Self {
        let Failover { time_ms, group, regions, from, to, reason, blackout_ms } = failover;
        let to_server = to.map_or(0, |server| server.0);
        Self { time_ms, group: group.0, regions, from_server: from.0, to_server, reason, blackout_ms }
    }
}

impl From<EventInfo> for v1::EventInfo {
    fn from(event: EventInfo) -> Self {
        let EventInfo { number, time_ms, kind, what, reason, places } = event;
        let places = places.into_iter().map(Into::into).collect();
        Self { number, time_ms, kind: kind.name().to_owned(), what, reason, places }
    }
}
