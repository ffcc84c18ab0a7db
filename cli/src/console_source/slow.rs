//! Slow requests, as the region servers keep them.

use std::time::Duration;

use terrane_client::Client;
use terrane_console::source::{Failure, SlowQuery, SlowRequest, SlowRequests, Stage};

use super::refusal::refused;
use super::{keys, lookup};

/// The latest slow requests to look at; each server keeps 256.
const LOOK_AT: usize = 2_000;

pub(super) async fn requests(client: &Client, query: SlowQuery) -> Result<SlowRequests, Failure> {
    let admin = client.admin();
    if let Some(table) = &query.table {
        lookup::describe(client, table).await?;
    }
    let found = admin.slow_requests(LOOK_AT).await.map_err(refused)?;
    let known = admin.list_tables().await.map_err(refused)?;
    let servers = admin.servers().await.map_err(refused)?;
    let wanted =
        |slow: &&terrane_client::SlowRequest| query.table.as_ref().is_none_or(|table| *table == slow.table_name);
    let mut chosen: Vec<&terrane_client::SlowRequest> = found.requests.iter().filter(wanted).collect();
    if query.slowest_first {
        chosen.sort_by_key(|slow| std::cmp::Reverse(slow.took));
    }
    chosen.truncate(query.limit);
    let shown = chosen.into_iter().map(|slow| {
        let schema = known.iter().map(|table| &table.schema).find(|schema| schema.table == slow.table);
        let key = schema.and_then(|schema| schema.key.as_ref());
        let server = servers.iter().find(|server| server.address == slow.server).map(|server| server.server.0);
        let single = !slow.is_range && slow.first == slow.last;
        SlowRequest {
            time_ms: slow.at_ms.saturating_sub(u64::try_from(slow.took.as_millis()).unwrap_or(0)),
            table: slow.table_name.clone(),
            operation: slow.operation.clone(),
            region: Some(slow.region.0),
            server,
            start: keys::shown(key, &slow.first),
            end: (!single).then(|| keys::shown(key, &slow.last)),
            rows: Some(slow.rows).filter(|rows| *rows > 0),
            bytes: None,
            duration_us: micros(slow.took),
            stages: slow
                .stages
                .iter()
                .map(|stage| Stage { name: stage_name(&stage.name), duration_us: micros(stage.took) })
                .collect(),
            cause: cause(slow),
            trace: slow.trace.map(|trace| trace.to_string()),
        }
    });
    let requests = shown.collect();
    Ok(SlowRequests { threshold_us: micros(found.threshold.unwrap_or_default()), total: found.total, requests })
}

/// A stage as the page's legend names it.
fn stage_name(name: &str) -> String {
    name.replace('_', " ")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The stage that took most of the time, as text.
fn cause(slow: &terrane_client::SlowRequest) -> String {
    if !slow.failure.is_empty() {
        return terrane_types::health::sentence(&format!("it failed: {}", slow.failure));
    }
    let Some(longest) = slow.stages.iter().max_by_key(|stage| stage.took) else {
        return "The server does not say where the time went.".to_owned();
    };
    let what = match longest.name.as_str() {
        "edge" => "checks at the server's edge, or the wait for admission",
        "read_point" => "the wait until the read was sure to see every acknowledged write",
        "read" => "reading: many versions, deleted cells, or blocks that had to come from the disk",
        "queue" => "the wait for the group's earlier writes",
        "commit" => "the log: its sync, or the answers of the other members",
        "apply" => "the wait until the write was applied",
        other => other,
    };
    let percent = longest.took.as_micros() * 100 / slow.took.as_micros().max(1);
    format!("{percent} % of the time was {what}.")
}

#[cfg(test)]
mod tests {
    use terrane_console::source::STAGES;

    use super::*;

    #[test]
    fn every_stage_that_servers_measure_is_in_the_legend() {
        // The names of `terrane.v1.SlowRequest.Stage`.
        for name in ["edge", "read_point", "read", "queue", "commit", "apply"] {
            assert!(STAGES.contains(&stage_name(name).as_str()), "{name}");
        }
    }
}
