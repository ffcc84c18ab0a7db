//! The calls about what the leading master has seen, typed.

use std::time::Duration;

use futures::future::BoxFuture;
use terrane_proto::v1;
use terrane_types::RegionId;

use super::timed;
use crate::api::admin::past::{ClusterLoad, EventList, FailoverList, LoadMeasure, LoadQuery, LoadRow, TableLoad};
use crate::error::Error;
use crate::wire::masters::{Kind, Masters};

impl Masters {
    pub(crate) fn table_load(
        &self,
        table: String,
        query: LoadQuery,
        timeout: Duration,
    ) -> BoxFuture<'_, Result<TableLoad, Error>> {
        Box::pin(async move {
            let measure = match query.measure {
                LoadMeasure::Reads => v1::LoadMeasure::Reads,
                LoadMeasure::Writes => v1::LoadMeasure::Writes,
                LoadMeasure::Bytes => v1::LoadMeasure::Bytes,
            };
            let request = v1::LoadHistoryRequest {
                hello: self.hello(),
                table,
                measure: measure.into(),
                from_ms: query.from_ms,
                to_ms: query.to_ms,
                start: query.range.start,
                end: query.range.end,
                columns_max: query.columns_max,
                rows_max: query.rows_max,
            };
            let reply: v1::LoadHistoryReply = ask!(self, Kind::Read, timeout, load_history, request)?;
            let row = |row: v1::LoadRow| LoadRow {
                start: row.start,
                end: row.end,
                region: Some(RegionId(row.region)).filter(|region| region.0 != 0),
                counts: row.counts,
            };
            Ok(TableLoad {
                known_from_ms: known(reply.known_from_ms),
                from_ms: reply.from_ms,
                step_ms: reply.step_ms,
                columns: reply.columns,
                now_ms: reply.now_ms,
                rows: reply.rows.into_iter().map(row).collect(),
            })
        })
    }

    pub(crate) fn cluster_load(&self, timeout: Duration) -> BoxFuture<'_, Result<ClusterLoad, Error>> {
        Box::pin(async move {
            let request = v1::LoadHistoryRequest { hello: self.hello(), ..v1::LoadHistoryRequest::default() };
            let reply: v1::LoadHistoryReply = ask!(self, Kind::Read, timeout, load_history, request)?;
            let minutes = reply.minutes.into_iter().map(Into::into).collect();
            Ok(ClusterLoad { known_from_ms: known(reply.known_from_ms), minutes })
        })
    }

    pub(crate) fn events(&self, before: u64, limit: u32, timeout: Duration) -> BoxFuture<'_, Result<EventList, Error>> {
        Box::pin(async move {
            let request = v1::ListEventsRequest { hello: self.hello(), before, limit };
            let reply: v1::ListEventsReply = ask!(self, Kind::Read, timeout, list_events, request)?;
            let events = reply.events.into_iter().map(Into::into).collect();
            Ok(EventList { known_from_ms: known(reply.known_from_ms), events })
        })
    }

    pub(crate) fn failovers(&self, timeout: Duration) -> BoxFuture<'_, Result<FailoverList, Error>> {
        Box::pin(async move {
            let request = v1::ClusterRequest { hello: self.hello() };
            let reply: v1::ListFailoversReply = ask!(self, Kind::Read, timeout, list_failovers, request)?;
            let failovers = reply.failovers.into_iter().map(Into::into).collect();
            Ok(FailoverList { known_from_ms: known(reply.known_from_ms), failovers })
        })
    }
}

fn known(ms: u64) -> Option<u64> {
    Some(ms).filter(|ms| *ms != 0)
}
