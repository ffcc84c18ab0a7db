//! Questions to a single process: its slow requests, its hottest rows, and the filter of its log.

use std::time::Duration;

use terrane_env::trace::TraceId;
use terrane_proto::v1::diagnostics_client::DiagnosticsClient;
use terrane_proto::{error, v1};
use terrane_types::admin::cluster::RegionLoad;
use terrane_types::{RegionId, TableId};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::api::admin::hot::{HotRegion, HotRow};
use crate::api::admin::slow::{SlowRequest, SlowRequests, SlowStage, SlowThresholdChange};
use crate::wire::masters::Masters;

/// The slow requests of the region server at `address`, the newest first; at most `limit`, 0: all that it keeps.
///
/// # Errors
/// What failed, as a sentence that names the process.
pub(crate) async fn slow_requests(
    masters: &Masters,
    address: &str,
    limit: u32,
    patience: Duration,
) -> Result<SlowRequests, String> {
    let mut client = client(address)?;
    let request = v1::SlowRequestsRequest { hello: masters.hello(), limit };
    let reply = answer(address, patience, client.slow_requests(request)).await?;
    let requests = reply.requests.into_iter().map(|slow| decode(address, slow)).collect();
    let threshold = Some(Duration::from_micros(reply.threshold_us)).filter(|time| !time.is_zero());
    Ok(SlowRequests { requests, total: reply.total, threshold, failures: Vec::new() })
}

/// The hottest rows of the regions that the region server at `address` leads, of a table or of all; at most so many of each.
///
/// # Errors
/// What failed, as a sentence that names the process.
pub(crate) async fn hot_rows(
    masters: &Masters,
    address: &str,
    (table, rows_max): (Option<TableId>, u32),
    patience: Duration,
) -> Result<Vec<HotRegion>, String> {
    let mut client = client(address)?;
    let table = table.map_or(0, |table| table.0);
    let request = v1::HotRowsRequest { hello: masters.hello(), table, rows_max };
    let reply = answer(address, patience, client.hot_rows(request)).await?;
    Ok(reply.regions.into_iter().map(|region| hot_region(address, region)).collect())
}

/// The filter of the log of the process at `address`, after `filter`, unless that is empty, has replaced it.
///
/// # Errors
/// What failed, as a sentence that names the process.
pub(crate) async fn log_filter(
    masters: &Masters,
    address: &str,
    filter: &str,
    patience: Duration,
) -> Result<String, String> {
    let mut client = client(address)?;
    let request = v1::LogFilterRequest { hello: masters.hello(), filter: filter.to_owned() };
    Ok(answer(address, patience, client.log_filter(request)).await?.filter)
}

/// The time above which the region server at `address` keeps requests as slow, and the one that it was started with; after the
/// change.
///
/// # Errors
/// What failed, as a sentence that names the process.
pub(crate) async fn slow_threshold(
    masters: &Masters,
    address: &str,
    change: SlowThresholdChange,
    patience: Duration,
) -> Result<(Duration, Duration), String> {
    let mut client = client(address)?;
    let (threshold, reset) = match change {
        SlowThresholdChange::Keep => (Duration::ZERO, false),
        SlowThresholdChange::Set(threshold) => (threshold, false),
        SlowThresholdChange::Reset => (Duration::ZERO, true),
    };
    let threshold_ns = u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX);
    let request = v1::SlowThresholdRequest { hello: masters.hello(), threshold_ns, reset };
    let reply = answer(address, patience, client.slow_threshold(request)).await?;
    Ok((Duration::from_nanos(reply.threshold_ns), Duration::from_nanos(reply.started_with_ns)))
}

fn client(address: &str) -> Result<DiagnosticsClient<Channel>, String> {
    let channel = terrane_env::net::channel(address).map_err(|invalid| format!("process at {address}: {invalid}"))?;
    Ok(DiagnosticsClient::new(channel))
}

async fn answer<T>(
    address: &str,
    patience: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, String> {
    let failed = |what: String| format!("process at {address}: {what}");
    let silent = |_| failed(format!("it did not answer within {} ms", patience.as_millis()));
    let refused = |status: Status| match status.code() {
        Code::Unimplemented => failed("its build is older and cannot answer this; update it".to_owned()),
        _ => failed(error::from_status(&status).to_string()),
    };
    Ok(timeout(patience, call).await.map_err(silent)?.map_err(refused)?.into_inner())
}

fn decode(address: &str, slow: v1::SlowRequest) -> SlowRequest {
    let stage =
        |stage: v1::slow_request::Stage| SlowStage { name: stage.name, took: Duration::from_micros(stage.took_us) };
    SlowRequest {
        server: address.to_owned(),
        at_ms: slow.at_ms,
        operation: slow.operation,
        table: TableId(slow.table),
        table_name: slow.table_name,
        region: RegionId(slow.region),
        first: slow.first,
        last: slow.last,
        is_range: slow.is_range,
        rows: slow.rows,
        took: Duration::from_micros(slow.took_us),
        stages: slow.stages.into_iter().map(stage).collect(),
        failure: slow.failure,
        trace: slow.trace[..].try_into().ok().map(u128::from_be_bytes).and_then(TraceId::new),
    }
}

fn hot_region(address: &str, region: v1::HotRegion) -> HotRegion {
    let rows = |rows: Vec<v1::HotRow>| {
        let row = |hot: v1::HotRow| HotRow { row: hot.row, share: hot.share.clamp(0.0, 1.0) };
        rows.into_iter().map(row).collect()
    };
    HotRegion {
        server: address.to_owned(),
        region: RegionId(region.region),
        table: TableId(region.table),
        table_name: region.table_name,
        load: RegionLoad { rows_read: region.rows_read, rows_written: region.rows_written, bytes: region.bytes },
        reads: rows(region.reads),
        writes: rows(region.writes),
        split_at: Some(region.split_at).filter(|at| !at.is_empty()),
        heavier_percent: region.heavier_percent,
        grows: region.grows,
    }
}
