//! The service `Diagnostics`: the slow requests and the hottest rows of this server, and the filter of its log.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_env::log_control;
use terrane_env::net::peer_of;
use terrane_proto::hello::Identity;
use terrane_proto::{error, hello, v1};
use terrane_types::{Invalid, TableId};
use tonic::{Request, Response, Status};

use crate::background::hot::{HotRegion, hot_regions};
use crate::edge::Edge;
use crate::edge::slow::{SlowRequest, Stages};
use crate::metrics::Operation;
use crate::region::hot_rows::HotRow;

/// The edge for people's questions.
pub struct DiagnosticsService {
    pub identity: Identity,
    pub edge: Arc<Edge>,
}

#[tonic::async_trait]
impl v1::diagnostics_server::Diagnostics for DiagnosticsService {
    async fn slow_requests(
        &self,
        request: Request<v1::SlowRequestsRequest>,
    ) -> Result<Response<v1::SlowRequestsReply>, Status> {
        let v1::SlowRequestsRequest { hello, limit } = request.into_inner();
        self.check(hello.as_ref())?;
        let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let requests = self.edge.slow.newest(limit).into_iter().map(|slow| self.encode(slow)).collect();
        let (threshold_us, total) = (self.edge.slow.threshold_us(), self.edge.metrics.slow_requests.get());
        Ok(Response::new(v1::SlowRequestsReply { requests, threshold_us, total }))
    }

    async fn hot_rows(&self, request: Request<v1::HotRowsRequest>) -> Result<Response<v1::HotRowsReply>, Status> {
        let v1::HotRowsRequest { hello, table, rows_max } = request.into_inner();
        self.check(hello.as_ref())?;
        let rows_max = if rows_max == 0 { usize::MAX } else { usize::try_from(rows_max).unwrap_or(usize::MAX) };
        let table = Some(TableId(table)).filter(|table| table.0 != 0);
        let regions = hot_regions(&self.edge, table).into_iter().map(|region| hot_region(region, rows_max)).collect();
        Ok(Response::new(v1::HotRowsReply { regions }))
    }

    async fn slow_threshold(
        &self,
        request: Request<v1::SlowThresholdRequest>,
    ) -> Result<Response<v1::SlowThresholdReply>, Status> {
        let peer = peer_of(request.extensions());
        let v1::SlowThresholdRequest { hello, threshold_ns, reset } = request.into_inner();
        self.check(hello.as_ref())?;
        let slow = &self.edge.slow;
        if reset || threshold_ns > 0 {
            let threshold = Some(Duration::from_nanos(threshold_ns)).filter(|_| !reset);
            slow.set_threshold(threshold);
            let subject = format!("{:?}", slow.threshold());
            tracing::info!(target: "audit", action = "slow requests", subject, peer, outcome = "done");
        }
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let (threshold_ns, started_with_ns) = (ns(slow.threshold()), ns(slow.started_with()));
        Ok(Response::new(v1::SlowThresholdReply { threshold_ns, started_with_ns }))
    }

    async fn log_filter(&self, request: Request<v1::LogFilterRequest>) -> Result<Response<v1::LogFilterReply>, Status> {
        let peer = peer_of(request.extensions());
        let v1::LogFilterRequest { hello, filter } = request.into_inner();
        self.check(hello.as_ref())?;
        let changed = log_control::change_filter_for(&peer, &filter);
        let filter = changed.map_err(|why| error::status(&Invalid::new(why).into()))?;
        Ok(Response::new(v1::LogFilterReply { filter }))
    }
}

impl DiagnosticsService {
    fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Status> {
        hello::check_cluster(hello, self.identity, false).map_err(|refused| error::status(&refused))
    }

    fn table_name(&self, table: TableId) -> String {
        let hosted = self.edge.replicas.regions.all();
        let state = hosted.iter().map(|hosted| hosted.state()).find(|state| state.descriptor.table == table);
        state.map(|state| state.schema.name.to_string()).unwrap_or_default()
    }

    fn encode(&self, slow: SlowRequest) -> v1::SlowRequest {
        v1::SlowRequest {
            at_ms: slow.at_ms,
            operation: slow.operation.name().to_owned(),
            table: slow.table.0,
            table_name: self.table_name(slow.table),
            region: slow.region.0,
            first: slow.first,
            last: slow.last,
            is_range: slow.is_range,
            rows: slow.rows,
            took_us: slow.took_ns / 1_000,
            stages: stages(slow.operation, &slow.stages),
            failure: slow.failure.unwrap_or_default(),
            trace: slow.trace.map(|trace| Bytes::copy_from_slice(&trace.get().to_be_bytes())).unwrap_or_default(),
        }
    }
}

fn hot_region(region: HotRegion, rows_max: usize) -> v1::HotRegion {
    let HotRegion { state, load, hot, split } = region;
    let rows = |rows: Vec<HotRow>| {
        let row = |hot: HotRow| v1::HotRow { row: hot.row, share: hot.share };
        rows.into_iter().take(rows_max).map(row).collect()
    };
    let (split_at, heavier) = split.unwrap_or_default();
    v1::HotRegion {
        region: state.descriptor.region.0,
        table: state.descriptor.table.0,
        table_name: state.schema.name.to_string(),
        rows_read: load.rows_read,
        rows_written: load.rows_written,
        bytes: load.bytes,
        reads: rows(hot.reads),
        writes: rows(hot.writes),
        split_at: split_at.into(),
        heavier_percent: u32::try_from(heavier).unwrap_or(100),
        grows: hot.grows,
    }
}

/// The stages that an operation passes, in their order.
fn stages(operation: Operation, stages: &Stages) -> Vec<v1::slow_request::Stage> {
    let log = &stages.log;
    let passed: &[(&str, u64)] = match operation {
        Operation::Get | Operation::Scan => {
            &[("edge", stages.edge_ns), ("read_point", stages.read_point_ns), ("read", stages.read_ns)]
        }
        Operation::Write => {
            &[("edge", stages.edge_ns), ("queue", log.queue_ns), ("commit", log.commit_ns), ("apply", log.apply_ns)]
        }
        Operation::Bulk => &[("edge", stages.edge_ns)],
    };
    let stage = |(name, ns): &(&str, u64)| v1::slow_request::Stage { name: (*name).to_owned(), took_us: ns / 1_000 };
    passed.iter().map(stage).collect()
}
