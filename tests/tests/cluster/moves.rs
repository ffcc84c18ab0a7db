//! Moves of regions between groups while clients write, count and scan, also while servers are restarted.

use anyhow::{Context, Result, bail, ensure};
use terrane_client::{Admin, Get, MoveState, Put, RegionDescriptor};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Cluster;
use terrane_tests::eventually::eventually;

use crate::merges::{Clients, regions, split_at};
use crate::splits::{Load, regions_cover_the_table};
use crate::{NEVER_SPLIT, SOON, plain_table, with_engine};

/// Moves a region to a server and waits until it is there.
pub async fn move_to(admin: &Admin, region: &RegionDescriptor, server: &str) -> Result<RegionDescriptor> {
    let begun = admin.begin_move(region.region, server).await?;
    let ended = eventually("the move ends", SOON, async || match admin.follow_move(begun.id).await? {
        MoveState::UnderWay { detail, .. } => bail!("{detail}"),
        ended => Ok(ended),
    });
    match ended.await? {
        MoveState::Moved(moved) => {
            ensure!(moved.region == region.region && moved.range == region.range, "{moved:?} was {region:?}");
            ensure!(moved.epoch > region.epoch && moved.group == begun.to, "{moved:?} was {region:?}");
            Ok(moved)
        }
        other => bail!("the move of {region:?} to {server} ended as {other:?}"),
    }
}

/// Moves each region of a table once, to the server after the one that leads it.
async fn move_all(cluster: &Cluster, admin: &Admin, table: &str) -> Result<()> {
    let addresses = [0, 1, 2].map(|index| cluster.server_address(index).to_string());
    for region in regions(admin, table).await? {
        let leader = eventually("the region has a leader", SOON, async || {
            let all = admin.regions(Some(table)).await?;
            let found = all.into_iter().find(|info| info.descriptor.region == region.region);
            found.and_then(|info| addresses.iter().position(|address| *address == info.leader)).context("none is known")
        });
        move_to(admin, &region, &addresses[(leader.await? + 1) % 3]).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_invisible_to_clients_on_lsm() -> Result<()> {
    a_move_is_invisible_to_clients(BackendKind::Lsm).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_is_invisible_to_clients_on_memory() -> Result<()> {
    a_move_is_invisible_to_clients(BackendKind::Memory).await
}

async fn a_move_is_invisible_to_clients(engine: BackendKind) -> Result<()> {
    let mut cluster = Cluster::start(with_engine(engine)).await?;
    let client = cluster.client().await?;
    let load = Load::new(plain_table(&client, "merge", NEVER_SPLIT).await?);
    let clients = Clients::begin(&client, &load).await?;
    let admin = client.admin();
    split_at(&admin, "merge", &["500", "count-3"]).await?;
    for _ in 0..4 {
        move_all(&cluster, &admin, "merge").await?;
        regions_cover_the_table(&client, "merge").await?;
    }
    clients.end(&client, &load).await?;
    cluster.without_each(async |_| load.check_all().await).await?;
    move_all(&cluster, &admin, "merge").await?;
    load.check_all().await.context("moved after the restarts")?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_an_old_map_finds_a_region_that_moved_and_was_merged() -> Result<()> {
    let mut cluster = Cluster::start(with_engine(BackendKind::Lsm)).await?;
    let client = cluster.client().await?;
    let table = plain_table(&client, "t", NEVER_SPLIT).await?;
    let admin = client.admin();
    split_at(&admin, "t", &["m"]).await?;
    let old = cluster.client().await?;
    let old = old.table("t").await?.with_timeout(SOON);
    for row in ["a", "z"] {
        table.put(Put::new(row).set("f", "q", row)).await?;
        // Now it knows where both regions are.
        ensure!(old.get(Get::new(row)).await?.is_some(), "{row} was just written");
    }
    cluster.wait_for_leaders().await?;
    // Until it is in another group than before, where its new neighbour comes to.
    move_all(&cluster, &admin, "t").await?;
    let [left, right] = &regions(&admin, "t").await?[..] else { bail!("two regions") };
    let merged = admin.merge(left.region, right.region).await?;
    ensure!(regions(&admin, "t").await?.len() == 1, "{merged:?} is all");
    for row in ["a", "z"] {
        ensure!(old.get(Get::new(row)).await?.is_some(), "{row} is there");
        old.put(Put::new(row).set("f", "q", "again")).await?;
    }
    cluster.stop_all().await;
    Ok(())
}
