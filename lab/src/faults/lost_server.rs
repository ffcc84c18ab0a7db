//! A server is lost with its disk, while the logs of the others have little room: writes must continue, because no log is
//! kept for a server that is away.

use std::fs;

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Size, eventually};

use super::{Bench, Verdict};

/// Room in the log of each server; the rows are many times that.
const LOG_LIMIT: &str = "64MiB";
const ROWS: u64 = 500_000;
const ROW_BYTES: u64 = 1_000;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::planned(&bench.terrane, Size::SMALL, &["--log-limit", LOG_LIMIT])?;
    cluster.start_all()?;
    // The table has to be there, with replicas on the server that is lost.
    write(&cluster, 1_000)?;
    let victim = cluster.busiest_server()?;
    cluster.servers[victim].kill();
    fs::remove_dir_all(cluster.server_directory(victim)).context("wiping the lost server's disk")?;
    write(&cluster, ROWS)?;
    let logged: u64 = (ROWS * ROW_BYTES) >> 20;
    // With its empty disk it is a new server; the others must not take it for the old one.
    cluster.servers[victim].start().context("the server does not start with an empty disk")?;
    eventually("the server with the empty disk is registered", || {
        let status = cluster.json(&["status"])?;
        ensure!(status["live"] == 3, "{} servers are live", status["live"]);
        Ok(())
    })?;
    write(&cluster, 1_000)?;
    let count = cluster.json(&["count", "t"])?;
    ensure!(count["count"] == ROWS, "rows are missing: {count}");
    Ok(Verdict::Held(format!(
        "{ROWS} rows ({logged} MiB) were acknowledged without the lost server, with room for {LOG_LIMIT} of log"
    )))
}

fn write(cluster: &Cluster, rows: u64) -> anyhow::Result<()> {
    let [rows_flag, bytes] = [rows, ROW_BYTES].map(|number| number.to_string());
    let flags = ["bench", "load", "--table", "t", "--rows", &rows_flag, "--value-bytes", &bytes, "--timeout", "60s"];
    let summary = cluster.load(&flags)?.succeed()?;
    ensure!(summary["rows"] == rows, "writes are missing: {summary}");
    Ok(())
}
