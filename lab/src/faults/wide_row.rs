//! A row far larger than a reply: gets are rejected while they read, scans send it in parts, and neither buffers all of it.

use std::fmt::Write as _;
use std::fs;
use std::process::Stdio;

use anyhow::{Context, ensure};
use terrane_lab::Cluster;

use super::{Bench, Verdict};

const CELLS: usize = 200;
const CELL_BYTES: usize = 1_000_000;
const ROW_BYTES: usize = CELLS * CELL_BYTES;
const GETS: usize = 8;
/// Limits of docs/reliability.md.
const MEMORY_MAX: u64 = 200 << 20;
const SCAN_MB_PER_SECOND_MIN: f64 = 100.0;

pub fn run(bench: &Bench) -> anyhow::Result<Verdict> {
    let cluster = Cluster::start(&bench.terrane, &[])?;
    cluster.succeed(&["table", "create", "wide", "--family", "f"])?;
    write_row(&cluster)?;
    cluster.succeed(&["admin", "flush", "wide"])?;
    cluster.succeed(&["admin", "compact", "wide"])?;
    let leader = cluster.leader_of("wide")?;
    let (growth, refusal) = gets(&cluster, leader)?;
    // The best of three, because other work on the machine can only slow a scan down.
    let mut speed: f64 = 0.0;
    for _ in 0..3 {
        let flags = ["bench", "fullscan", "--table", "wide", "--rows", "1", "--in-flight", "1"];
        let scanned = cluster.json(&flags)?;
        ensure!(scanned["rows"] == 1 && scanned["errors"] == 0, "the scan gave {scanned}");
        let seconds = scanned["seconds"].as_f64().context("seconds")?.max(1e-3);
        speed = speed.max(ROW_BYTES as f64 / 1e6 / seconds);
    }
    ensure!(cluster.json(&["count", "wide"])?["count"] == 1, "the row is not counted");
    let figures =
        format!("{GETS} gets refused ({refusal}), {} MiB more memory; the scan runs at {speed:.0} MB/s", growth >> 20);
    ensure!(growth < MEMORY_MAX && speed >= SCAN_MB_PER_SECOND_MIN, "{figures}");
    Ok(Verdict::Held(figures))
}

/// Writes one cell at a time, because the row does not fit one mutation.
fn write_row(cluster: &Cluster) -> anyhow::Result<()> {
    let mut lines = String::new();
    for cell in 0..CELLS {
        // Different bytes in each, so that the row does not compress.
        let mut random = cell as u64 + 1;
        let value: String = std::iter::repeat_with(|| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'a' + u8::try_from((random >> 33) % 26).unwrap_or(0))
        })
        .take(CELL_BYTES)
        .collect();
        writeln!(lines, "row\tf:c{cell:04}\t{}\t{value}", cell + 1).context("writing to memory")?;
    }
    let file = cluster.data.path().join("wide.tsv");
    fs::write(&file, lines).context("writing the row's file")?;
    let imported = cluster.json(&["import", "wide", "--format", "tsv", &file.display().to_string()])?;
    ensure!(imported["refused"] == 0 && imported["malformed"] == 0, "the import gave {imported}");
    Ok(())
}

fn gets(cluster: &Cluster, leader: usize) -> anyhow::Result<(u64, String)> {
    let server = &cluster.servers[leader];
    server.reset_peak()?;
    let (before, _) = server.memory()?;
    let mut running = Vec::new();
    for _ in 0..GETS {
        let mut command = cluster.command(&["get", "wide", "row"]);
        running.push(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().context("starting a get")?);
    }
    let mut refusal = String::new();
    for get in running {
        let output = get.wait_with_output().context("waiting for a get")?;
        ensure!(output.status.code() == Some(1), "a get of the whole row ended with {}", output.status);
        refusal = String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or_default().to_owned();
    }
    let (_, peak) = server.memory()?;
    Ok((peak.saturating_sub(before), refusal))
}
