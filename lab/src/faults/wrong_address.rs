//! A server advertises an address that does not lead to it: it is shown as unreachable, and nothing else suffers.

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Size, eventually};

use super::{Bench, Verdict};

/// Nothing listens here.
const NOWHERE: &str = "127.0.0.1:9";
const TABLES: usize = 9;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::planned(&bench.terrane, Size { masters: 1, servers: 5 }, &[])?;
    cluster.start_masters_and(0..3)?;
    cluster.servers[3].add_flags(&["--advertise", NOWHERE]);
    // The fifth names the address of the first.
    let taken = cluster.addresses[0].clone();
    cluster.servers[4].add_flags(&["--advertise", &taken]);
    cluster.start_servers(3..4)?;
    eventually("the server is unreachable", || {
        let servers = cluster.json_lines(&["admin", "servers"])?;
        let seen = servers.iter().find(|server| server["address"] == NOWHERE).context("it is registered")?;
        ensure!(seen["state"] == "unreachable", "{seen}");
        Ok(())
    })?;
    let status = cluster.json(&["status"])?.to_string();
    for part in [NOWHERE, "cannot be reached", "--advertise"] {
        ensure!(status.contains(part), "status does not say {part}: {status}");
    }
    for table in 0..TABLES {
        cluster.succeed(&["table", "create", &format!("t{table}"), "--family", "f", "--timeout", "20s"])?;
    }
    ensure!(cluster.servers[4].start().is_err(), "a server takes the address of another one");
    let says = cluster.servers[4].messages();
    ensure!(says.contains(&format!("{taken} is the address of server")), "the refusal does not say why: {says}");
    let live = cluster.json(&["status"])?["live"].clone();
    ensure!(live == 3, "{live} servers are live");
    Ok(Verdict::Held(format!("{TABLES} tables were created beside it")))
}
