//! Bulk loads while servers are stopped, regions split and move, and tables change.

use anyhow::{Context, Result, ensure};
use terrane_client::{BulkOptions, Client, Error, Get, KeyRange, Put, Scan, Table, TableChange};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::merges::{regions, split_at};
use crate::{NEVER_SPLIT, SOON, all_rows, plain_table, text_of, with_engine};

const ROWS: u64 = 6_000;

/// A load that takes several runs per region.
fn small() -> BulkOptions {
    BulkOptions::default().run_bytes(128 << 10).memory_bytes(512 << 10)
}

fn key(row: u64) -> String {
    format!("row-{row:06}")
}

/// Not in the order of the keys.
fn shuffled() -> impl Iterator<Item = u64> {
    (0..ROWS).map(|row| row * 7_919 % ROWS)
}

fn put(row: u64) -> Put {
    Put::new(key(row)).set("f", "q", format!("value of {row}")).set_at("f", "at", 77, "x")
}

/// Three regions.
async fn split_table(client: &Client) -> Result<Table> {
    let table = plain_table(client, "t", NEVER_SPLIT).await?;
    split_at(&client.admin(), "t", &["row-002", "row-004"]).await?;
    Ok(table)
}

/// Every row is there once, with both cells and the times of the load.
async fn check_rows(table: &Table, timestamp_ms: u64) -> Result<()> {
    let rows = all_rows(table, Scan::all().versions(10)).await?;
    ensure!(rows.len() as u64 == ROWS, "{} rows", rows.len());
    for (at, row) in (0..).zip(&rows) {
        ensure!(row.row()[..] == *key(at).as_bytes(), "row {at} is {:?}", row.row());
        let cells: Vec<_> =
            row.cells().map(|cell| (cell.qualifier.to_vec(), cell.timestamp, cell.value.to_vec())).collect();
        let stamp = i64::try_from(timestamp_ms)?;
        let expected =
            [(b"at".to_vec(), 77, b"x".to_vec()), (b"q".to_vec(), stamp, format!("value of {at}").into_bytes())];
        ensure!(cells == expected, "row {at} has {cells:?}");
    }
    Ok(())
}

/// All replicas of each group hold the same.
async fn replicas_agree(cluster: &Cluster) -> Result<()> {
    eventually("all replicas hold the same", SOON, async || {
        let mut known = std::collections::BTreeMap::new();
        for index in 0..3 {
            let server = cluster.server(index).context("it runs")?;
            for digest in server.digests().await {
                let digest = digest?;
                let group = digest.group;
                let shown = format!("{digest:?}");
                let first = known.entry(group).or_insert_with(|| shown.clone());
                ensure!(*first == shown, "server {index} has {shown}, another one {first}");
            }
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_goes_into_all_regions_once_with_one_time_for_all_cells() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
    let client = cluster.client().await?;
    let table = split_table(&client).await?;
    // What is there already, also in memory, is older than what is loaded.
    table.put(Put::new(key(5)).set_at("f", "at", 77, "before")).await?;
    let mut loader = table.bulk_load(small());
    for row in shuffled() {
        loader.put(put(row)).await?;
    }
    let summary = loader.finish().await?;
    assert_eq!((summary.rows, summary.cells, summary.regions), (ROWS, 2 * ROWS, 3));
    assert!(summary.runs > 3, "{summary:?}");
    check_rows(&table, summary.timestamp_ms).await?;
    replicas_agree(&cluster).await?;
    // What is written later is newer, and what is deleted is gone.
    table.put(Put::new(key(5)).set_at("f", "at", 77, "after")).await?;
    table.delete(terrane_client::Delete::new(key(6))).await?;
    let row = table.get(Get::new(key(5))).await?.context("it is there")?;
    assert_eq!(row.value("f", "at"), Some(&b"after"[..]));
    assert!(table.get(Get::new(key(6))).await?.is_none());
    cluster.without_each(async |_| Ok(())).await?;
    assert_eq!(table.count(KeyRange::all()).await?, ROWS - 1, "after a restart of every server");
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_goes_on_when_servers_stop_and_regions_split_in_the_middle() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
    let client = cluster.client_builder().timeout(SOON).build().await?;
    let table = split_table(&client).await?;
    let mut loader = table.bulk_load(small());
    for (at, row) in shuffled().enumerate() {
        loader.put(put(row)).await?;
        match at {
            1_000 => cluster.stop_server(0).await,
            2_000 => {
                eventually("a region is split", SOON, async || split_at(&client.admin(), "t", &["row-003"]).await)
                    .await?;
            }
            3_000 => {
                cluster.start_server(0).await?;
                cluster.stop_server(1).await;
            }
            4_000 => {
                eventually("a region is split", SOON, async || split_at(&client.admin(), "t", &["row-001"]).await)
                    .await?;
            }
            _ => {}
        }
    }
    let summary = loader.finish().await?;
    check_rows(&table, summary.timestamp_ms).await?;
    cluster.start_server(1).await?;
    cluster.wait_for_leaders().await?;
    replicas_agree(&cluster).await?;
    ensure!(regions(&client.admin(), "t").await?.len() == 5);
    cluster.without_each(async |_| check_rows(&table, summary.timestamp_ms).await).await?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_into_a_table_that_takes_no_writes_is_refused_and_leaves_nothing() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
    let client = cluster.client().await?;
    let table = split_table(&client).await?;
    let mut loader = table.bulk_load(small());
    loader.put(put(1)).await?;
    let unknown = loader.put(Put::new("a").set("nope", "q", "v")).await.expect_err("no such family");
    assert!(matches!(unknown, Error::Invalid(_)), "{}", text_of(&unknown));
    let long = loader.put(Put::new(vec![b'k'; 40_000]).set("f", "q", "v")).await.expect_err("too long");
    assert!(matches!(long, Error::Invalid(_)), "{}", text_of(&long));
    client.admin().alter_table("t", TableChange::new().set("read_only", "true")).await?;
    let refused = loader.finish().await.expect_err("it is read-only");
    assert!(matches!(refused, Error::ReadOnly { .. }), "{}", text_of(&refused));
    assert_eq!(table.count(KeyRange::all()).await?, 0);
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_files_refuses_loads_by_name() -> Result<()> {
    let mut cluster = Cluster::start(Settings { engine: BackendKind::Sled, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    let mut loader = table.bulk_load(BulkOptions::default());
    loader.put(put(1)).await?;
    let refused = text_of(&loader.finish().await.expect_err("sled has no store files"));
    assert!(refused.contains("no store files") && refused.contains("use puts"), "{refused}");
    cluster.stop_all().await;
    Ok(())
}
