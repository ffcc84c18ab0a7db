//! Store files and logs that are damaged on one server, and replicas that differ from the others: they are replaced from the
//! others without a person.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "files are damaged behind a server's back")]

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use terrane_client::{Client, Error, Get, Put, Scan};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::forged_log::{Fits, copy_directory, forge};
use crate::repair::settled;
use crate::{NEVER_SPLIT, SOON, all_rows, keys, plain_table};

/// Where store files have cells, and how much of that is overwritten.
const DAMAGE_AT: u64 = 64;
const DAMAGE_BYTES: usize = 64;

/// Overwrites cells in every store file of a stopped server; returns the number of files.
fn damage_files(data_dir: &Path) -> Result<usize> {
    let mut damaged = 0;
    for entry in std::fs::read_dir(data_dir.join("engine").join("tables"))? {
        let mut file = std::fs::OpenOptions::new().write(true).open(entry?.path())?;
        ensure!(file.metadata()?.len() > DAMAGE_AT + DAMAGE_BYTES as u64, "a store file is very short");
        file.seek(SeekFrom::Start(DAMAGE_AT))?;
        file.write_all(&[0xa5; DAMAGE_BYTES])?;
        damaged += 1;
    }
    Ok(damaged)
}

/// What every server holds of every group, as of its last applied entry.
async fn digests(cluster: &Cluster) -> Result<Vec<Vec<String>>> {
    let mut all = Vec::new();
    for index in 0..cluster.settings.servers {
        let server = cluster.server(index).context("it runs")?;
        let digests = server.digests().await.into_iter().collect::<Result<Vec<_>, _>>()?;
        all.push(digests.iter().map(|digest| format!("{digest:?}")).collect());
    }
    Ok(all)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_store_files_are_replaced_from_the_other_replicas() -> Result<()> {
    let expected_errors = &["the region is damaged", "is damaged at offset"];
    let mut cluster = Cluster::start(Settings { expected_errors, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let (admin, table) = (client.admin(), plain_table(&client, "t", NEVER_SPLIT).await?);
    let rows: Vec<String> = (0..500).map(|row| format!("{row:05}")).collect();
    for row in &rows {
        table.put(Put::new(row.clone()).set("f", "q", format!("the value of row {row}"))).await?;
    }
    admin.flush_table("t", |_| {}).await?;

    let victim = 0;
    cluster.stop_server(victim).await;
    ensure!(damage_files(&cluster.data_dir(victim))? > 0, "nothing was flushed");
    cluster.start_server(victim).await?;
    // A compaction reads every file, so it finds damage also where the server does not lead. It fails on this server.
    admin.compact_table("t", |_| {}).await?;
    eventually("the damaged replica has left", SOON, async || {
        // If the server leads at first, readers are told.
        match all_rows(&table, Scan::all()).await {
            Ok(found) => ensure!(keys(&found) == rows, "rows are missing or wrong"),
            Err(error) => match error.downcast_ref::<Error>() {
                Some(error) => ensure!(matches!(error, Error::Corruption { .. }), "{error}"),
                None => return Err(error),
            },
        }
        ensure!(cluster.number(victim, "terrane_server_damaged_replicas_total") >= 1.0, "none has left yet");
        Ok(())
    })
    .await?;
    ensure!(cluster.number(1, "terrane_server_damaged_replicas_total") == 0.0, "a whole replica has left");
    settled(&admin, "three whole copies of everything", |_| Ok(())).await?;
    // Each reads all that it holds.
    eventually("the replicas are equal", SOON, async || {
        let all = digests(&cluster).await?;
        ensure!(all.iter().all(|of_server| *of_server == all[victim]), "they differ: {all:?}");
        Ok(())
    })
    .await?;
    ensure!(keys(&all_rows(&table, Scan::all()).await?) == rows, "rows are missing or wrong");
    cluster.stop_all().await;
    Ok(())
}

/// The value that is changed in the log of one server, and what it becomes.
const VALUE: &str = "the value that was written: 1";
const FORGED: &str = "the value that was written: 2";

/// Writes rows, the last of which is only in memory and in the log, and changes its entry in the log of the last server, which is
/// then started. Returns the server's index.
async fn forge_one_log(cluster: &mut Cluster, client: &Client, fits: Fits) -> Result<usize> {
    let (admin, table) = (client.admin(), plain_table(client, "t", NEVER_SPLIT).await?);
    for row in 0..20 {
        table.put(Put::new(format!("{row:05}")).set("f", "q", format!("row {row}"))).await?;
    }
    admin.flush_table("t", |_| {}).await?;
    table.put(Put::new("last").set("f", "q", VALUE)).await?;
    let region = admin.regions(Some("t")).await?.remove(0);
    let leader = region.leader.clone();
    let servers = 0..cluster.settings.servers;
    let victim = servers.rev().find(|server| cluster.server_address(*server).to_string() != leader);
    let victim = victim.context("some server follows")?;
    // Every member has logged what it applied.
    eventually("all have applied the last row", SOON, async || {
        let all = digests(cluster).await?;
        ensure!(all.iter().all(|of_server| *of_server == all[victim]), "not yet");
        Ok(())
    })
    .await?;
    // A server that stops flushes everything, and would need no log: its engine goes back to what it had before, as after a loss
    // of power. Its log does not: what it has acknowledged stays.
    let (saved, engine) = (tempfile::tempdir()?, cluster.data_dir(victim).join("engine"));
    copy_directory(&engine, saved.path())?;
    cluster.stop_server(victim).await;
    std::fs::remove_dir_all(&engine)?;
    copy_directory(saved.path(), &engine)?;
    let forged = forge(&cluster.data_dir(victim).join("log"), VALUE.as_bytes(), FORGED.as_bytes(), fits)?;
    ensure!(forged == 1, "the row is in {forged} entries of the log");
    cluster.start_server(victim).await?;
    Ok(victim)
}

/// Waits until the replica of the server is replaced and all hold the same.
async fn check_replaced(cluster: &Cluster, client: &Client, victim: usize) -> Result<()> {
    eventually("the replica has left", SOON, async || {
        ensure!(cluster.number(victim, "terrane_server_damaged_replicas_total") >= 1.0, "it has not left yet");
        Ok(())
    })
    .await?;
    for other in (0..cluster.settings.servers).filter(|server| *server != victim) {
        ensure!(cluster.number(other, "terrane_server_damaged_replicas_total") == 0.0, "a whole replica has left");
    }
    settled(&client.admin(), "three whole copies of everything", |_| Ok(())).await?;
    eventually("the replicas are equal", SOON, async || {
        let all = digests(cluster).await?;
        ensure!(all.iter().all(|of_server| *of_server == all[victim]), "they differ: {all:?}");
        Ok(())
    })
    .await?;
    let found = client.table("t").await?.get(Get::new("last")).await?.context("the last row is there")?;
    let value = found.cells().next().map(|cell| cell.value.to_vec());
    ensure!(value.as_deref() == Some(VALUE.as_bytes()), "the last row is {value:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_with_a_damaged_entry_in_its_log_is_replaced() -> Result<()> {
    let expected_errors = &["a replica is damaged", "a replica has failed and stopped"];
    let mut cluster = Cluster::start(Settings { expected_errors, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let victim = forge_one_log(&mut cluster, &client, Fits::Log).await?;
    check_replaced(&cluster, &client, victim).await?;
    cluster.stop_all().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_differs_from_the_others_is_found_and_replaced() -> Result<()> {
    let expected_errors = &["a replica is damaged", "replicas differ"];
    let compare_every = std::time::Duration::from_millis(500);
    let mut cluster = Cluster::start(Settings { expected_errors, compare_every, ..Settings::default() }).await?;
    let client = cluster.client().await?;
    let victim = forge_one_log(&mut cluster, &client, Fits::Entry).await?;
    check_replaced(&cluster, &client, victim).await?;
    ensure!(cluster.total("terrane_server_comparisons_differing_total") >= 1.0, "no comparison found it");
    eventually("the group is compared again", SOON, async || {
        let groups = client.admin().groups().await?;
        let compared = groups.iter().find(|group| group.regions > 0).context("some group has the table's region")?;
        ensure!(compared.compared_regions == compared.regions && compared.compared_ms > 0, "{compared:?}");
        Ok(())
    })
    .await?;
    cluster.stop_all().await;
    Ok(())
}
