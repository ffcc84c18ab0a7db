//! Store files that are damaged on one server: its replicas are replaced from the others without a person.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "files are damaged behind a server's back")]

use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use terrane_client::{Error, Put, Scan};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

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
