//! Servers tell how much their store files have, and how much of their disk is free.

use anyhow::{Result, ensure};
use terrane_client::{Put, TableSpec};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_report_their_store_files_and_the_free_disk() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    admin.create_table(TableSpec::new("t")?.family("f", &[])?).await?;
    let table = client.table("t").await?;
    const VALUE_BYTES: u64 = 100_000;
    // Random enough that no compression hides it.
    let value: Vec<u8> = (0..VALUE_BYTES).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as u8).collect();
    table.put(Put::new("row").set("f", "q", value)).await?;
    admin.flush_table("t", |_| {}).await?;
    eventually("every server reports its files and its disk", SOON, async || {
        let servers = admin.servers().await?;
        let has_file = |files: Option<u64>| files.is_some_and(|bytes| bytes >= VALUE_BYTES / 2);
        ensure!(servers.len() == 3 && servers.iter().all(|server| has_file(server.store_bytes)), "{servers:?}");
        ensure!(servers.iter().all(|server| server.disk_free_bytes.is_some_and(|free| free > 0)), "{servers:?}");
        Ok(())
    })
    .await?;
    cluster.stop_all().await;
    Ok(())
}
