//! Clients and servers of another cluster, and a full log.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use terrane_client::{Error, Get, KeyRange, Put, Scan};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::{NEVER_SPLIT, SOON, all_rows, plain_table, text_of};

/// A client of an old cluster finds a new one on the same ports, with the same ids of tables and regions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_of_another_cluster_is_refused_and_writes_nothing() -> Result<()> {
    let yesterday = Cluster::start(Settings { groups_per_server: 1, ..Settings::default() }).await?;
    let stale = yesterday.client_builder().timeout(SOON).build().await?;
    let stale_table = plain_table(&stale, "t", NEVER_SPLIT).await?;
    stale_table.put(Put::new("r").set("f", "q", "yesterday")).await?;

    let mut today = yesterday.replaced().await?;
    let client = today.client().await?;
    assert_ne!(client.cluster_id(), stale.cluster_id());
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    assert_eq!(table.id(), stale_table.id(), "the ids are the same, so only the hello can tell the clusters apart");

    for failed in [
        stale_table.put(Put::new("r").set("f", "q", "stray")).await.err(),
        stale_table.get(Get::new("r")).await.err(),
        all_rows(&stale_table, Scan::all()).await.err().and_then(|error| error.downcast().ok()),
        stale.admin().list_tables().await.err(),
    ] {
        let error = failed.context("a stale client was served")?;
        assert!(matches!(error, Error::WrongCluster { .. }), "{}", text_of(&error));
    }
    assert_eq!(table.count(KeyRange::all()).await?, 0, "nothing was written");
    today.stop_all().await;
    Ok(())
}

/// A server with the directory of an old cluster does not join the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_cluster_is_refused_by_its_directory() -> Result<()> {
    let settings = Settings { servers: 1, replication: 1, groups_per_server: 1, ..Settings::default() };
    let mut yesterday = Cluster::start(settings.clone()).await?;
    yesterday.stop_all().await;
    let mut today = Cluster::start(settings).await?;
    today.stop_server(0).await;
    let error = today.start_server_over(0, &yesterday.data_dir(0)).await.expect_err("a stranger joined");
    let said = format!("{error:#}");
    assert!(said.contains("cluster") && said.contains(&yesterday.data_dir(0).display().to_string()), "{said}");
    today.stop_all().await;
    Ok(())
}

const TINY_LOG: u64 = 1 << 20;
const VALUE_BYTES: usize = 16 << 10;
/// Longer than a purge on a busy machine, but short enough to wait for a log that stays full.
const PATIENCE: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_names_what_holds_it_back_and_reads_continue() -> Result<()> {
    // This engine cannot copy a group, so the log is kept for a member that is away.
    let mut cluster = Cluster::start(Settings { engine: BackendKind::Sled, ..tiny_log() }).await?;
    let client = cluster.client_builder().timeout(PATIENCE).build().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    table.put(Put::new("first").set("f", "q", "1")).await?;

    // While all servers run, far more than the limit can be written: entries that every member has are purged.
    for row in 0..u64::from(4 * TINY_LOG as u32) / VALUE_BYTES as u64 {
        write(&table, row).await.with_context(|| format!("row {row} with all servers up"))?;
    }

    let (down, address) = (2, cluster.server_address(2).to_string());
    let server = cluster.server(down).context("it runs")?.server_id();
    cluster.stop_server(down).await;
    let mut written = 0;
    let full = loop {
        match write(&table, written).await {
            Ok(()) => written += 1,
            Err(error) if text_of(&error).contains("log") && text_of(&error).contains("full") => break error,
            // The stopped server's groups elect other leaders.
            Err(error) => ensure!(error.is_retry_safe() || error.is_uncertain(), "{}", text_of(&error)),
        }
        ensure!(written < 1_000, "the log never was full");
    };
    let said = text_of(&full);
    assert!(said.contains(&format!("server {server}")) || said.contains(&address), "who holds it back? {said}");

    let first = table.get(Get::new("first")).await?.expect("was put");
    assert_eq!(first.value("f", "q"), Some(&b"1"[..]), "reads continue");
    assert!(all_rows(&table, Scan::all()).await?.len() as u64 > written.min(1));

    cluster.start_server(down).await?;
    eventually("a write once the server is back", SOON, async || Ok(write(&table, written).await?)).await?;
    cluster.stop_all().await;
    Ok(())
}

fn tiny_log() -> Settings {
    Settings {
        groups_per_server: 1,
        log_limit: TINY_LOG,
        log_purge_budget: TINY_LOG / 4,
        segment_bytes: 128 << 10,
        ..Settings::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_server_stops_no_write_and_catches_up_from_a_copy_when_it_is_back() -> Result<()> {
    let mut cluster = Cluster::start(tiny_log()).await?;
    let client = cluster.client_builder().timeout(SOON).build().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    let down = 2;
    write(&table, 0).await?;
    cluster.stop_server(down).await;
    let rows = u64::from(8 * TINY_LOG as u32) / VALUE_BYTES as u64;
    for row in 1..rows {
        write(&table, row).await.with_context(|| format!("row {row} with a server down"))?;
    }
    cluster.start_server(down).await?;
    for row in rows..rows + 8 {
        write(&table, row).await.with_context(|| format!("row {row} with the server back"))?;
    }
    eventually("all replicas are equal", SOON, async || {
        let mut digests = Vec::new();
        for index in 0..3 {
            let of_server = cluster.server(index).context("it runs")?.digests().await;
            digests.push(of_server.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        ensure!(digests[0].len() == 3, "{} of 3 groups are complete", digests[0].len());
        ensure!(digests.iter().all(|of_server| *of_server == digests[0]), "they differ");
        Ok(())
    })
    .await?;
    assert_eq!(all_rows(&table, Scan::all()).await?.len() as u64, rows + 8);
    cluster.stop_all().await;
    Ok(())
}

async fn write(table: &terrane_client::Table, row: u64) -> Result<(), Error> {
    table.put(Put::new(row.to_be_bytes()).set("f", "q", vec![b'x'; VALUE_BYTES])).await
}
