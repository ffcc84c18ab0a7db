//! A server fails at every start, as a supervisor tries again and again: its replicas are replaced all the same.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Size, eventually, let_it_run};

use super::{Bench, Verdict};

/// How long a server may be away, and how much longer the replacement may take.
const REPLACE_AFTER: Duration = Duration::from_secs(10);
const REPLACED_WITHIN: Duration = Duration::from_secs(60);
/// The pause of the shipped systemd unit.
const RESTART_AFTER: Duration = Duration::from_secs(2);

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::planned(&bench.terrane, Size { masters: 1, servers: 4 }, &[])?;
    cluster.add_master_flags(&["--replace-after", "10s"]);
    cluster.start_all()?;
    cluster.succeed(&["table", "create", "t", "--family", "f"])?;
    let victim = cluster.busiest_server()?;
    cluster.servers[victim].kill();
    // A file where the engine's directory belongs: the server registers, and cannot open it.
    let engine = cluster.server_directory(victim).join("engine");
    fs::rename(&engine, engine.with_extension("away")).context("moving the engine away")?;
    fs::write(&engine, b"no directory").context("putting a file in its place")?;
    let (begun, mut starts) = (Instant::now(), 0);
    loop {
        ensure!(cluster.servers[victim].start().is_err(), "the server starts without its engine");
        starts += 1;
        let servers = cluster.json_lines(&["admin", "servers"])?;
        let address = &cluster.addresses[victim];
        let seen = servers.iter().find(|server| server["address"] == **address).context("it is registered")?;
        ensure!(seen["state"] != "live", "a server that fails at every start is live: {seen}");
        if seen["replicas"] == 0 {
            break;
        }
        ensure!(begun.elapsed() < REPLACE_AFTER + REPLACED_WITHIN, "not replaced after {starts} starts: {seen}");
        let_it_run(RESTART_AFTER);
    }
    let replaced = begun.elapsed().as_secs_f64();
    // A setting that cannot work is refused before anything registers.
    let known = cluster.json_lines(&["admin", "servers"])?.len();
    let fresh = cluster.data.path().join("fresh").display().to_string();
    cluster.servers[victim].add_flags(&["--data", &fresh, "--log-limit", "1KiB"]);
    ensure!(cluster.servers[victim].start().is_err(), "a log limit of 1 KiB is accepted");
    let after = cluster.json_lines(&["admin", "servers"])?.len();
    ensure!(after == known, "a refused setting left a server behind: {known} servers, then {after}");
    eventually("the table is served", || cluster.succeed(&["put", "t", "a", "f:q", "v"]))?;
    Ok(Verdict::Held(format!("its replicas were replaced after {replaced:.0} s and {starts} failed starts")))
}
