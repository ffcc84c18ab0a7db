//! While the master is down, restarted servers must form quorums again, and clients with cached locations must continue.

use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, let_it_run};

use super::{Bench, Verdict};

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    cluster.succeed(&["table", "create", "t", "--family", "f"])?;
    cluster.succeed(&["put", "t", "a", "f:q", "v"])?;
    // A client that caches the locations before the master stops.
    let flags = ["bench", "put", "--table", "warm", "--rows", "10000", "--in-flight", "8"];
    let load = cluster.load(&[&flags[..], &["--seconds", "50", "--timeout", "40s"]].concat())?;
    let_it_run(Duration::from_secs(3));
    cluster.masters[0].kill();
    for server in [0, 1] {
        cluster.servers[server].kill();
        cluster.servers[server].start()?;
    }
    // Longer than a server once waited for a master before it gave up.
    let_it_run(Duration::from_secs(35));
    for (index, server) in cluster.servers.iter_mut().enumerate() {
        ensure!(!server.has_ended(), "server {index} ended: {}", server.messages());
    }
    let summary = load.succeed().context("a client with cached locations")?;
    cluster.masters[0].start()?;
    cluster.wait_until_well()?;
    ensure!(cluster.json(&["count", "t"])?["count"] == 1, "the row is missing");
    let gap = summary["longest_gap_ms"].as_f64().unwrap_or(f64::NAN);
    Ok(Verdict::Held(format!(
        "two restarts without a master: {} puts, no error, longest gap in a region {gap:.0} ms",
        summary["operations"]
    )))
}
