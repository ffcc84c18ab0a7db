//! What changes in the map is reported at once, not with the next periodic report.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;
use terrane_types::RegionEpoch;

use crate::{NEVER_SPLIT, plain_table, with_engine};

/// Between two periodic reports; none comes while the test looks.
const REPORT_EVERY: Duration = Duration::from_secs(40);
const BEFORE_THE_NEXT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_split_and_a_new_leader_are_in_the_map_long_before_the_next_report() -> Result<()> {
    let settings = Settings { report_every: REPORT_EVERY, ..with_engine(BackendKind::default()) };
    let mut cluster = Cluster::start(settings).await?;
    let client = cluster.client().await?;
    plain_table(&client, "t", NEVER_SPLIT).await?;
    let region = client.admin().regions(Some("t")).await?.pop().context("the table has a region")?.descriptor.region;
    let leader = (0..3).find(|index| {
        let server = cluster.server(*index);
        server.is_some_and(|server| server.region_orders().region(region).is_ok())
    });
    let leader = leader.context("a server leads the region")?;

    // The master does not order it, so it hears of it from the server alone.
    let orders = cluster.server(leader).context("it runs")?.region_orders();
    orders.split(region, RegionEpoch(0), Some(Bytes::from_static(b"m"))).await?;
    eventually("the daughters are in the map", BEFORE_THE_NEXT, async || {
        let regions = client.admin().regions(Some("t")).await?;
        ensure!(regions.len() == 2, "{regions:?}");
        Ok(())
    })
    .await?;

    let before = cluster.server_address(leader).to_string();
    cluster.stop_server(leader).await;
    eventually("the daughters have another leader", BEFORE_THE_NEXT, async || {
        let regions = client.admin().regions(Some("t")).await?;
        let is_led = |leader: &str| !leader.is_empty() && leader != before;
        ensure!(regions.iter().all(|region| is_led(&region.leader)), "{regions:?}");
        Ok(())
    })
    .await?;
    cluster.stop_all().await;
    Ok(())
}
