//! Files on a server's disk that nothing names: the server removes what it can, and `admin check` names the rest.

#![allow(clippy::disallowed_methods, reason = "files are put into a server's directory behind its back")]

use std::time::Duration;

use anyhow::{Result, ensure};
use terrane_tests::cluster::{Cluster, Settings};
use terrane_tests::eventually::eventually;

use crate::repair::{settled, table};

/// Servers look every 10 s, and name what two looks have found.
const FOUND_WITHIN: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_nothing_names_are_removed_or_found() -> Result<()> {
    let mut cluster = Cluster::start(Settings::default()).await?;
    let client = cluster.client().await?;
    let admin = client.admin();
    table(&client).await?;
    let engine = cluster.data_dir(1).join("engine");
    // As a clean-up leaves it that could not remove it.
    let unnamed = engine.join("tables").join("unnamed");
    std::fs::write(&unnamed, "cells")?;
    // What arrived of a copy of a group that is not here.
    let copy = engine.join("incoming").join("999999");
    std::fs::create_dir_all(copy.join("7"))?;
    std::fs::write(copy.join("7").join("0000000000000001"), [7; 4096])?;

    eventually("what remains is found", FOUND_WITHIN, async || {
        ensure!(!unnamed.exists(), "the engine has not removed what its manifest does not name");
        let findings = admin.check().await?.findings;
        let orphan = findings.iter().find(|found| found.kind == "orphan");
        ensure!(orphan.is_some_and(|found| found.what.contains("1 files with 4096 bytes")), "{findings:?}");
        ensure!(orphan.is_some_and(|found| found.what.contains("999999")), "{findings:?}");
        Ok(())
    })
    .await?;
    std::fs::remove_dir_all(&copy)?;
    settled(&admin, "nothing is found any more", |_| Ok(())).await?;
    cluster.stop_all().await;
    Ok(())
}
