//! The calls about what the leading master has seen, typed.

use std::time::Duration;

use terrane_proto::v1;
use terrane_types::admin::past::{ClusterLoad, EventList, FailoverList, LoadMeasure, TableLoad};

use super::{Answer, timed};
use crate::api::admin::past::LoadQuery;
use crate::wire::masters::{Kind, Masters};

impl Masters {
    pub(crate) fn table_load(&self, table: String, query: LoadQuery, timeout: Duration) -> Answer<'_, TableLoad> {
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
        ask!(self, Read, timeout, load_history, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn cluster_load(&self, timeout: Duration) -> Answer<'_, ClusterLoad> {
        let request = v1::LoadHistoryRequest { hello: self.hello(), ..v1::LoadHistoryRequest::default() };
        ask!(self, Read, timeout, load_history, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn events(&self, before: u64, limit: u32, timeout: Duration) -> Answer<'_, EventList> {
        let request = v1::ListEventsRequest { hello: self.hello(), before, limit };
        ask!(self, Read, timeout, list_events, request, |reply| Ok(reply.into()))
    }

    pub(crate) fn failovers(&self, timeout: Duration) -> Answer<'_, FailoverList> {
        ask!(self, Read, timeout, list_failovers, self.cluster_request(), |reply| Ok(reply.into()))
    }
}
