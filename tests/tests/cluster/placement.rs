//! Regions that the master moves between groups under load: across its restart, before a merge, and to a new server.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use terrane_client::{Admin, MoveState, RegionInfo};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::repair::{Writer, is_even, settled, table};

/// How long one move may take here; it takes less than a second.
const MOVED_WITHIN: Duration = Duration::from_secs(90);

async fn regions(admin: &Admin) -> Result<Vec<RegionInfo>> {
    Ok(admin.regions(Some("t")).await?)
}

/// Waits until a move has ended.
async fn ended(admin: &Admin, id: u64) -> Result<MoveState> {
    eventually("the move has ended", MOVED_WITHIN, async || match admin.follow_move(id).await? {
        MoveState::UnderWay { detail, .. } => bail!("the move is under way: {detail}"),
        state => Ok(state),
    })
    .await
}

/// A server that does not lead a region.
fn elsewhere(cluster: &Cluster, region: &RegionInfo) -> String {
    let addresses = (0..3).map(|server| cluster.server_address(server).to_string());
    addresses.into_iter().find(|address| *address != region.leader).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_continue_after_the_master_restarts() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    let writer = Writer::start(table.clone());
    settled(&admin, "the cluster is whole", |_| Ok(())).await?;
    let mut begun = Vec::new();
    for region in regions(&admin).await? {
        begun.push(admin.begin_move(region.descriptor.region, &elsewhere(&cluster, &region)).await?.id);
    }
    cluster.stop_master().await;
    cluster.start_master().await?;
    for id in begun {
        let state = ended(&admin, id).await?;
        ensure!(matches!(state, MoveState::Moved(_)), "move {id} ended as {state:?}");
    }
    settled(&admin, "everything agrees after the moves", |_| Ok(())).await?;
    writer.finish(&table).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_of_two_groups_are_merged() -> Result<()> {
    let cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin().with_timeout(MOVED_WITHIN), table(&client).await?);
    let writer = Writer::start(table.clone());
    settled(&admin, "the cluster is whole", |_| Ok(())).await?;
    loop {
        let regions = regions(&admin).await?;
        let [left, right, ..] = regions.as_slice() else { break };
        let merged = admin.merge(right.descriptor.region, left.descriptor.region).await?;
        ensure!(merged.range.end == right.descriptor.range.end, "{merged:?} of {left:?} and {right:?}");
    }
    settled(&admin, "everything agrees after the merges", |_| Ok(())).await?;
    writer.finish(&table).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_gets_its_share_of_regions() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    let writer = Writer::start(table.clone());
    settled(&admin, "the cluster is whole", |servers| is_even(servers, |server| server.regions)).await?;
    cluster.add_server().await?;
    settled(&admin, "the new server has its share", |servers| {
        ensure!(servers.len() == 4, "four servers");
        is_even(servers, |server| server.replicas)?;
        is_even(servers, |server| server.leaders)?;
        is_even(servers, |server| server.regions)
    })
    .await?;
    writer.finish(&table).await
}
