//! A server misses a bulk load and comes back: it gets what it lacks from the log, files or a copy of its groups, says so
//! meanwhile, and holds up nothing.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use terrane_lab::{Cluster, Load, eventually_within, let_it_run};

use super::{Bench, Verdict};

/// Rows of the load, large enough for the sweep of files (every 30 s) to fall into the return of the server.
const ROWS: &str = "800000";
const FEW_ROWS: &str = "100000";
const VALUE_BYTES: &str = "4000";
const PUTS: [&str; 8] = ["bench", "put", "--table", "t", "--rows", "10000", "--in-flight", "32"];
/// The server that misses the load.
const BEHIND: usize = 2;

/// Limits of docs/reliability.md.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);
const GAP_MS_MAX: f64 = 2_000.0;
const SPEED_MIN: f64 = 0.9;

/// The server is killed during the load and started again after it. Once all is well, any server may be stopped.
pub fn returns(bench: &Bench) -> anyhow::Result<Verdict> {
    let (mut slowest, mut longest) = (Duration::ZERO, 0.0f64);
    for run in 1..=bench.runs {
        let mut cluster = Cluster::start(&bench.terrane, &[])?;
        let load = bulk(&cluster, ROWS)?;
        let_it_run(Duration::from_secs(8));
        cluster.servers[BEHIND].kill();
        load.succeed().with_context(|| format!("run {run}"))?;
        let took = comes_back(&mut cluster)?;
        let count = cluster.json(&["count", "bulk"])?;
        ensure!(count["count"].as_u64().map(|rows| rows.to_string()).as_deref() == Some(ROWS), "run {run}: {count}");
        let victim = run as usize % cluster.servers.len();
        let load = cluster.load(&[&PUTS[..], &["--seconds", "10"]].concat())?;
        let_it_run(Duration::from_secs(4));
        cluster.servers[victim].kill();
        let summary = load.succeed().with_context(|| format!("run {run}"))?;
        let gap = summary["longest_gap_ms"].as_f64().context("longest_gap_ms")?;
        println!(
            "   run {run}: whole {} ms after the restart, longest gap without server {victim}: {gap:.0} ms",
            took.as_millis()
        );
        ensure!(gap <= GAP_MS_MAX, "run {run}: {summary}");
        (slowest, longest) = (slowest.max(took), longest.max(gap));
    }
    Ok(Verdict::Held(format!(
        "{} runs: whole at most {} ms after the restart, then no group without service for more than {longest:.0} ms",
        bench.runs,
        slowest.as_millis()
    )))
}

/// The files of the load are gone everywhere when the server comes back, as if the others had not kept them. It gets copies,
/// and until then the others are as fast as before.
pub fn without_files(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    let before = puts(&cluster)?;
    let load = bulk(&cluster, FEW_ROWS)?;
    let_it_run(Duration::from_secs(2));
    cluster.servers[BEHIND].kill();
    load.succeed()?;
    for server in (0..cluster.servers.len()).filter(|server| *server != BEHIND) {
        remove_named(&cluster.server_directory(server), "loading")?;
    }
    cluster.servers[BEHIND].start()?;
    let beside = puts(&cluster)?;
    let began = Instant::now();
    cluster.wait_until_well_within(2 * WHOLE_WITHIN)?;
    let took = began.elapsed();
    let figures = format!(
        "{beside:.0} puts/s beside a server that waits for files, {before:.0} without; whole {} ms later",
        took.as_millis()
    );
    ensure!(beside >= SPEED_MIN * before, "{figures}");
    Ok(Verdict::Held(figures))
}

/// Starts the server again; returns when it counts as whole. Status says that nothing is wrong only once that is so.
fn comes_back(cluster: &mut Cluster) -> anyhow::Result<Duration> {
    let began = Instant::now();
    cluster.servers[BEHIND].start()?;
    eventually_within(WHOLE_WITHIN, "the third copy is whole", || {
        let healthy = cluster.json(&["status", "--timeout", "2s"])?["healthy"] == true;
        for address in &cluster.addresses {
            let output = cluster.run(&["admin", "restart-check", address])?;
            ensure!(output.status.success(), "{address} cannot be stopped; status says healthy: {healthy}");
        }
        ensure!(healthy, "status finds something wrong");
        Ok(())
    })?;
    Ok(began.elapsed())
}

fn bulk(cluster: &Cluster, rows: &str) -> anyhow::Result<Load> {
    let flags = ["bench", "bulk", "--table", "bulk", "--rows", rows, "--value-bytes", VALUE_BYTES];
    cluster.load(&[&flags[..], &["--timeout", "120s"]].concat())
}

/// Puts a second.
fn puts(cluster: &Cluster) -> anyhow::Result<f64> {
    let load = cluster.load(&[&PUTS[..], &["--seconds", "8", "--timeout", "30s"]].concat())?;
    load.succeed()?["rate"].as_f64().context("rate")
}

/// Empties the directories with this name anywhere under a directory.
fn remove_named(under: &Path, name: &str) -> anyhow::Result<()> {
    for entry in fs::read_dir(under).context("reading a data directory")? {
        let path = entry.context("reading a data directory")?.path();
        if !path.is_dir() {
            continue;
        }
        if path.file_name().is_some_and(|found| found == name) {
            for inside in fs::read_dir(&path).context("reading the files of loads")? {
                let inside = inside.context("reading the files of loads")?.path();
                let removed = if inside.is_dir() { fs::remove_dir_all(&inside) } else { fs::remove_file(&inside) };
                removed.context("removing a file of a load")?;
            }
        } else {
            remove_named(&path, name)?;
        }
    }
    Ok(())
}
