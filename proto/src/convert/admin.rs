//! What masters tell administrators.

use terrane_types::admin::{EndedProcedure, EventInfo, EventKind, Failover, LoadMinute};
use terrane_types::{GroupId, ServerId};

use super::health::place;
use crate::v1;

impl From<EndedProcedure> for v1::EndedProcedure {
    fn from(ended: EndedProcedure) -> Self {
        let EndedProcedure { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places } = ended;
        let places = places.into_iter().map(Into::into).collect();
        Self { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places }
    }
}

impl From<v1::EndedProcedure> for EndedProcedure {
    fn from(ended: v1::EndedProcedure) -> Self {
        let v1::EndedProcedure { id, kind, subject, owner, reason, failed, outcome, started_ms, ended_ms, places } =
            ended;
        let places = places.into_iter().filter_map(place).collect();
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

impl From<v1::FailoverInfo> for Failover {
    fn from(failover: v1::FailoverInfo) -> Self {
        let v1::FailoverInfo { time_ms, group, regions, from_server, to_server, reason, blackout_ms } = failover;
        let to = Some(ServerId(to_server)).filter(|server| server.0 != 0);
        Self { time_ms, group: GroupId(group), regions, from: ServerId(from_server), to, reason, blackout_ms }
    }
}

impl From<v1::LoadMinute> for LoadMinute {
    fn from(minute: v1::LoadMinute) -> Self {
        let v1::LoadMinute { minute_ms, reads, writes, bytes } = minute;
        Self { minute_ms, reads, writes, bytes }
    }
}

impl From<EventInfo> for v1::EventInfo {
    fn from(event: EventInfo) -> Self {
        let EventInfo { number, time_ms, kind, what, reason, places } = event;
        let places = places.into_iter().map(Into::into).collect();
        Self { number, time_ms, kind: kind.name().to_owned(), what, reason, places }
    }
}

impl From<v1::EventInfo> for EventInfo {
    fn from(event: v1::EventInfo) -> Self {
        let v1::EventInfo { number, time_ms, kind, what, reason, places } = event;
        let places = places.into_iter().filter_map(place).collect();
        Self { number, time_ms, kind: EventKind::named(&kind), what, reason, places }
    }
}
