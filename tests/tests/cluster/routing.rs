//! The cost of a client: a warm one makes no calls to the master, and a scan of many regions makes only a few.

use anyhow::Result;
use futures::future::try_join_all;
use terrane_client::{Get, KeyRange, Put, Scan, TableSpec};
use terrane_tests::cluster::{Cluster, Settings};

use crate::all_rows;

const REGIONS: u32 = 50;
const ROWS: u32 = 200;
const LOOKUPS_MAX: u64 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warm_client_calls_no_master() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let writer = cluster.client().await?;
    let spec = TableSpec::new("many")?.family("f", &[])?;
    let spec = (1..REGIONS).fold(spec, |spec, region| spec.split_at(&key(region * ROWS / REGIONS)));
    assert_eq!(writer.admin().create_table(spec).await?.regions, REGIONS);
    let table = writer.table("many").await?;
    try_join_all((0..ROWS).map(|row| table.put(Put::new(key(row)).set("f", "q", row.to_be_bytes())))).await?;

    let client = cluster.client().await?;
    let table = client.table("many").await?;
    assert_eq!(all_rows(&table, Scan::all()).await?.len(), ROWS as usize);
    let cold = client.counters();
    assert!(cold.master_lookups <= LOOKUPS_MAX, "a scan over {REGIONS} regions: {cold:?}");

    for row in (0..ROWS).step_by(3) {
        let read = table.get(Get::new(key(row))).await?.expect("was put");
        assert_eq!(read.value("f", "q"), Some(&row.to_be_bytes()[..]));
    }
    let read = table.get_many((0..ROWS).map(|row| Get::new(key(row))).collect::<Vec<_>>()).await?;
    assert!(read.iter().all(Option::is_some));
    table.put(Put::new(key(7)).set("f", "q", "warm")).await?;
    assert_eq!(table.count(KeyRange::all()).await?, u64::from(ROWS));
    assert_eq!(all_rows(&table, Scan::all().reverse()).await?.len(), ROWS as usize);
    let warm = client.counters();
    assert_eq!(warm.master_lookups, cold.master_lookups, "warm reads and writes");
    assert_eq!(warm.master_calls, cold.master_calls, "warm reads and writes");

    // The master may be down: a warm client does not need it.
    cluster.stop_master().await;
    table.put(Put::new(key(8)).set("f", "q", "no master")).await?;
    assert_eq!(all_rows(&table, Scan::all()).await?.len(), ROWS as usize);
    cluster.stop_all().await;
    Ok(())
}

fn key(row: u32) -> Vec<u8> {
    row.to_be_bytes().to_vec()
}
