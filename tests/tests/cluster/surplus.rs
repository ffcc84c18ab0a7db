//! Groups beyond those that the servers need are emptied and removed, while clients go on.

use std::time::Duration;

use anyhow::{Result, ensure};
use terrane_client::ProcedureKind;
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::repair::{Writer, settled, table};

/// How long it may take here; each group takes seconds.
const REMOVED_WITHIN: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn surplus_groups_are_emptied_and_removed() -> Result<()> {
    let settings = Settings { groups_per_server: 3, surplus_after: Duration::from_secs(10), ..Settings::default() };
    let mut cluster = Cluster::start(settings).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), table(&client).await?);
    settled(&admin, "the cluster is whole", |_| Ok(())).await?;
    ensure!(admin.groups().await?.len() == 9, "three groups for each of three servers");
    let writer = Writer::start(table.clone());

    // From now on, each server is to lead one group. A group or two would make no difference, six do.
    cluster.stop_master().await;
    cluster.settings.groups_per_server = 1;
    cluster.start_master().await?;
    eventually("the removal of a group is listed", REMOVED_WITHIN, async || {
        let procedures = admin.procedures().await?;
        let listed = procedures.iter().find(|procedure| procedure.kind == ProcedureKind::RemoveGroup);
        ensure!(listed.is_some_and(|listed| listed.id.starts_with("surplus-")), "{procedures:?}");
        Ok(())
    })
    .await?;
    eventually("one group is left for each server", REMOVED_WITHIN, async || {
        let groups = admin.groups().await?;
        ensure!(groups.len() == 3, "{} groups: {:?}", groups.len(), admin.procedures().await?);
        Ok(())
    })
    .await?;
    // Their replicas are gone from the servers, too.
    settled(&admin, "the cluster is whole again", |servers| {
        ensure!(servers.iter().all(|server| server.replicas == 3), "{servers:?}");
        Ok(())
    })
    .await?;
    writer.finish(&table).await?;
    cluster.stop_all().await;
    Ok(())
}
