//! `rm -rf` of the data directory of a running server, then of a running master: open files take writes and syncs on, so
//! the process has to notice, and end before more than a few seconds of writes counted on it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Role, Size, eventually_within};

use super::{Bench, Verdict};

/// The process looks every 2 s.
const NOTICED_MAX: Duration = Duration::from_secs(10);
/// The masters wait for reports before they call a server silent.
const SEEN_MAX: Duration = Duration::from_secs(5);
/// The writes of the check, which outlast the deletion.
const ROWS: u64 = 300_000;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::planned(&bench.terrane, Size { masters: 3, servers: 3 }, &[])?;
    cluster.start_all()?;
    let rows = ROWS.to_string();
    let load = cluster.load(&["bench", "load", "--table", "t", "--rows", &rows, "--timeout", "60s"])?;
    let directory = cluster.server_directory(0);
    let server = ended_after_deletion(&mut cluster.servers[0], &directory)?;
    let (summary, well, errors) = load.finish()?;
    ensure!(well && summary["rows"] == ROWS, "the other servers do not continue: {summary} {errors}");
    eventually_within(SEEN_MAX, "status says that a server is lost", || {
        let healthy = cluster.json(&["status"])?["healthy"].clone();
        ensure!(healthy == false, "status calls the cluster healthy");
        Ok(())
    })?;
    let count = cluster.json(&["count", "t"])?;
    ensure!(count["count"] == ROWS, "rows are missing: {count}");
    // Its place is free for an empty directory, which the others fill.
    cluster.servers[0].start().context("a server with an empty directory does not start")?;
    let leading = cluster.leading_master()?;
    let directory = cluster.data.path().join(format!("master-{leading}"));
    let master = ended_after_deletion(&mut cluster.masters[leading], &directory)?;
    eventually_within(NOTICED_MAX, "another master leads", || {
        ensure!(cluster.leading_master()? != leading, "master {leading} is still taken for the leader");
        Ok(())
    })?;
    cluster.succeed(&["table", "create", "after", "--family", "f"])?;
    Ok(Verdict::Held(format!(
        "the server ended {server:.1} s after its directory was deleted, the leading master {master:.1} s; no row of {ROWS} is missing"
    )))
}

/// Deletes the directory of a running process; returns the seconds until it ended with a message that says so.
fn ended_after_deletion(role: &mut Role, directory: &std::path::Path) -> anyhow::Result<f64> {
    std::fs::remove_dir_all(directory).with_context(|| format!("deleting {}", directory.display()))?;
    let begun = Instant::now();
    eventually_within(NOTICED_MAX, "the process ends", || {
        ensure!(role.has_ended(), "it runs on without its directory");
        Ok(())
    })?;
    let messages = role.messages();
    ensure!(messages.contains("was deleted, moved or replaced"), "it does not say why it ended: {messages}");
    role.kill();
    Ok(begun.elapsed().as_secs_f64())
}
