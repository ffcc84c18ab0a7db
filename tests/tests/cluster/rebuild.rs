//! All masters lose their directories, and the catalog is rebuilt from what the region servers have.

#![allow(clippy::disallowed_methods, reason = "a directory is deleted and another put in its place")]

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use terrane_client::{Admin, Put, RegionDescriptor, Scan, TableSpec};
use terrane_master::{Rebuild, rebuild};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::{SOON, all_rows, keys};

/// Schemas and regions, as the master lists them.
async fn listed(admin: &Admin) -> Result<(Vec<String>, Vec<RegionDescriptor>)> {
    let tables = admin.list_tables().await?;
    let regions = admin.regions(None).await?;
    Ok((
        tables.iter().map(|table| format!("{:?} {}", table.schema, table.state)).collect(),
        regions.into_iter().map(|region| region.descriptor).collect(),
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_catalog_is_rebuilt_from_the_servers() -> Result<()> {
    let mut cluster = Cluster::start(Settings { replication: 3, servers: 3, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    let spec = TableSpec::new("t")?.family("f", &[("versions", "3"), ("ttl", "90d")])?.split_at(b"m");
    admin.create_table(spec).await?;
    admin.create_namespace("ns").await?;
    admin.create_table(TableSpec::new("ns:u")?.family("g", &[])?).await?;
    let table = client.table("t").await?;
    let rows: Vec<String> = (0..40).map(|n| format!("{}{n:02}", if n % 2 == 0 { "a" } else { "q" })).collect();
    for row in &rows {
        table.put(Put::new(row.clone()).set("f", "q", "v")).await?;
    }
    let first = admin.regions(Some("t")).await?[0].descriptor.region;
    admin.split(first, Some(b"a20")).await?;
    let before = listed(&admin).await?;

    // The lost servers of the order are named, and nothing is made.
    cluster.stop_master().await;
    let (lost, made) = (cluster.master_dir(), cluster.data_dir(9));
    std::fs::remove_dir_all(&lost)?;
    let address = |index| cluster.server_address(index).to_string();
    let mut order = Rebuild {
        servers: vec!["127.0.0.1:1".to_owned()],
        peers: vec![cluster.masters().to_owned()],
        drop: BTreeSet::new(),
        out: made,
    };
    let refused = rebuild(&order).await.expect_err("no server answers");
    ensure!(refused[0].contains("does not answer"), "{refused:?}");
    order.servers = (0..3).map(address).collect();
    let rebuilt = rebuild(&order).await.map_err(|missing| anyhow::anyhow!("{missing:?}"))?;
    ensure!((rebuilt.tables, rebuilt.regions, rebuilt.servers) == (2, 4, 3), "{rebuilt:?}");
    std::fs::rename(&rebuilt.directories[0].1, &lost)?;
    cluster.start_master().await?;
    cluster.wait_for_leaders().await?;

    let client = cluster.client().await?;
    let admin = client.admin();
    ensure!(listed(&admin).await? == before, "{:?} instead of {before:?}", listed(&admin).await?);
    ensure!(admin.list_namespaces().await?.iter().any(|name| name.as_str() == "ns"));
    let table = client.table("t").await?;
    let mut expected = rows;
    expected.push("z-new".to_owned());
    expected.sort();
    table.put(Put::new("z-new").set("f", "q", "v")).await?;
    ensure!(keys(&all_rows(&table, Scan::all()).await?) == expected, "rows are missing or wrong");
    admin.create_table(TableSpec::new("v")?.family("f", &[])?).await?;
    let new = &admin.regions(Some("v")).await?[0].descriptor;
    ensure!((new.table.0 >> 48, new.region.0 >> 48) == (1, 1), "ids of the lost catalog are used again: {new:?}");
    eventually("the cluster's own check finds nothing", SOON, async || {
        let findings = admin.check().await?.findings;
        ensure!(findings.is_empty(), "{findings:?}");
        Ok(())
    })
    .await?;

    // The masters restart on what they recorded.
    cluster.stop_master().await;
    cluster.start_master().await?;
    cluster.wait_for_leaders().await?;
    let regions = cluster.client().await?.admin().regions(None).await?;
    ensure!(regions.len() == 5, "{regions:?}");
    Ok(())
}
