//! Slow requests are kept with what they asked for and where their time went.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{Get, Put, Scan, SlowRequest, TableSpec};
use terrane_tests::cluster::{Cluster, Settings};

fn stages(slow: &SlowRequest) -> Vec<&str> {
    slow.stages.iter().map(|stage| stage.name.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_above_the_threshold_are_listed_newest_first() -> Result<()> {
    // Everything is slow by this measure.
    let settings = Settings { slow_request: Duration::from_nanos(1), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    admin.create_table(TableSpec::new("t")?.family("f", &[])?).await?;
    let table = client.table("t").await?;
    table.put(Put::new("a row").set("f", "q", "v")).await?;
    table.get(Get::new("a row")).await?.context("the row is there")?;
    let mut rows = table.scan(Scan::rows("a".."c")).await?;
    while let Some(row) = rows.next().await {
        row?;
    }
    let found = admin.slow_requests(100).await?;
    ensure!(found.failures.is_empty(), "{found:?}");
    let first = |operation: &str| {
        let slow = found.requests.iter().find(|slow| slow.operation == operation && slow.table_name == "t");
        slow.with_context(|| format!("no {operation}: {found:#?}"))
    };
    let (write, get, scan) = (first("write")?, first("get")?, first("scan")?);
    ensure!((&write.first[..], write.rows, write.is_range) == (b"a row", 1, false), "{write:?}");
    ensure!(stages(write) == ["edge", "queue", "commit", "apply"], "{write:?}");
    ensure!(write.stages.iter().any(|stage| stage.name == "commit" && !stage.took.is_zero()), "{write:?}");
    ensure!((&get.last[..], get.rows) == (b"a row", 1) && stages(get) == ["edge", "read_point", "read"], "{get:?}");
    ensure!((&scan.first[..], &scan.last[..], scan.is_range) == (b"a", b"c", true), "{scan:?}");
    for slow in &found.requests {
        let sum: Duration = slow.stages.iter().map(|stage| stage.took).sum();
        ensure!(sum <= slow.took + Duration::from_micros(10), "the stages take longer than the request: {slow:?}");
        ensure!(slow.failure.is_empty() && slow.at_ms > 0, "{slow:?}");
    }
    ensure!(found.requests.windows(2).all(|pair| pair[0].at_ms >= pair[1].at_ms), "not the newest first: {found:?}");
    ensure!(admin.slow_requests(1).await?.requests.len() == 1, "a limit is kept");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quick_requests_are_not_listed_and_a_server_that_is_gone_is_left_out() -> Result<()> {
    let settings = Settings { slow_request: Duration::from_secs(3_600), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await?;
    let client = cluster.client().await?;
    client.admin().create_table(TableSpec::new("t")?.family("f", &[])?).await?;
    client.table("t").await?.put(Put::new("r").set("f", "q", "v")).await?;
    let found = client.admin().slow_requests(100).await?;
    ensure!(found.requests.is_empty() && found.failures.is_empty(), "{found:?}");
    cluster.stop_server(0).await;
    let found = client.admin().with_timeout(Duration::from_secs(5)).slow_requests(100).await?;
    ensure!(found.requests.is_empty() && found.failures.len() <= 1, "{found:?}");
    cluster.stop_all().await;
    Ok(())
}
