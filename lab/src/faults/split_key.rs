//! A split point longer than any row key must be rejected before it reaches the log, where every replica would apply it.

use anyhow::ensure;
use terrane_lab::Cluster;

use super::{Bench, Verdict};

/// The longest row key is 32,767 bytes.
const LENGTHS: [usize; 3] = [32_768, 40_000, 70_000];

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    cluster.succeed(&["table", "create", "t", "--family", "f"])?;
    cluster.succeed(&["table", "create", "u", "--family", "f"])?;
    for row in ["a", "m", "z"] {
        cluster.succeed(&["put", "t", row, "f:q", "v"])?;
        cluster.succeed(&["put", "u", row, "f:q", "v"])?;
    }
    let region = cluster.json_lines(&["admin", "regions", "t"])?[0]["region"].to_string();
    for length in LENGTHS {
        let output = cluster.run(&["admin", "split", &region, "--at", &"k".repeat(length)])?;
        ensure!(!output.status.success(), "a boundary of {length} bytes was accepted");
    }
    let longest = "k".repeat(32_767);
    cluster.succeed(&["admin", "split", &region, "--at", &longest])?;
    cluster.succeed(&["admin", "flush", "t"])?;
    cluster.kill_all();
    cluster.start_all()?;
    for table in ["t", "u"] {
        ensure!(cluster.json(&["count", table])?["count"] == 3, "rows of {table} are missing");
    }
    Ok(Verdict::Held(
        "boundaries over 32,767 bytes are refused; one of 32,767 survives a restart of every process".into(),
    ))
}
