//! The effect of an interruption on active clients.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;
use terrane_lab::{Cluster, Load, let_it_run};

use super::{Bench, Verdict};

/// Limits of docs/reliability.md.
const STOP_GAP_MS_MAX: f64 = 100.0;
const HANG_P999_US_MAX: u64 = 1_500_000;
const OVERLOAD_GOODPUT_MIN: f64 = 0.8;
const OVERLOAD_GET_MAX: Duration = Duration::from_millis(300);

/// Writers that keep the cluster busy without saturating it, so that the interruption is measured, not a queue.
const WRITERS: &str = "32";

/// SIGTERM: the longest time without an acknowledged write in any region.
pub fn stop(bench: &Bench) -> anyhow::Result<Verdict> {
    let mut cluster = Cluster::start(&bench.terrane, &[])?;
    let mut gaps = Vec::new();
    let quiet = put(&cluster, WRITERS, "6")?.finish()?.0;
    for run in 0..5 {
        let load = put(&cluster, WRITERS, "6")?;
        let_it_run(Duration::from_secs(3));
        let victim = cluster.busiest_server()?;
        cluster.servers[victim].signal("TERM")?;
        let (summary, well, errors) = load.finish()?;
        ensure!(well && summary["errors"] == 0, "run {run}: {summary} {errors}");
        let gap = gap_of(&summary)?;
        println!("   run {}: longest gap {gap:.0} ms at {} puts/s", run + 1, summary["rate"]);
        gaps.push(gap);
        cluster.servers[victim].process.as_mut().context("it was started")?.wait()?;
        cluster.servers[victim].start()?;
        cluster.wait_until_well()?;
    }
    gaps.sort_by(f64::total_cmp);
    let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    let figures = format!(
        "longest gap in any of 12 regions: median {median:.0} ms, worst {worst:.0} ms over {} stops; {:.0} ms without one",
        gaps.len(),
        gap_of(&quiet)?
    );
    ensure!(median <= STOP_GAP_MS_MAX, "{figures}");
    Ok(Verdict::Held(figures))
}

/// SIGSTOP: the p99.9 latency of calls while a server hangs.
pub fn hang(bench: &Bench) -> anyhow::Result<Verdict> {
    let cluster = Cluster::start(&bench.terrane, &[])?;
    let mut lines = Vec::new();
    for workload in ["put", "get"] {
        let flags = ["bench", workload, "--table", "t", "--rows", "10000", "--in-flight", WRITERS];
        let load = cluster.load(&[&flags[..], &["--seconds", "10", "--timeout", "30s"]].concat())?;
        let_it_run(Duration::from_secs(4));
        let victim = cluster.busiest_server()?;
        cluster.servers[victim].signal("STOP")?;
        let outcome = load.finish();
        cluster.servers[victim].signal("CONT")?;
        let (summary, well, errors) = outcome?;
        let p999 = summary["p999_us"].as_u64().context("p999_us")?;
        let line = format!("{workload} p99.9 {} ms, longest gap {:.0} ms", p999 / 1000, gap_of(&summary)?);
        ensure!(well && summary["errors"] == 0 && p999 <= HANG_P999_US_MAX, "{line}: {summary} {errors}");
        lines.push(line);
        cluster.wait_until_well()?;
    }
    Ok(Verdict::Held(lines.join("; ")))
}

/// Ten times the load that saturates the cluster, for a minute.
pub fn overload(bench: &Bench) -> anyhow::Result<Verdict> {
    let cluster = Cluster::start(&bench.terrane, &[])?;
    let peak = put(&cluster, "1000", "15")?.finish()?.0;
    let peak_rate = peak["rate"].as_f64().context("rate")?;
    let mut load = put(&cluster, "10000", "60")?;
    let mut slowest = Duration::ZERO;
    let mut memory = 0;
    let begun = Instant::now();
    let_it_run(Duration::from_secs(5));
    while begun.elapsed() < Duration::from_secs(50) && !load.has_ended() {
        let asked = Instant::now();
        cluster.run(&["get", "t", "0000000000000000000000000000000000000001"])?;
        slowest = slowest.max(asked.elapsed());
        for server in &cluster.servers {
            memory = memory.max(server.memory()?.0);
        }
        let_it_run(Duration::from_secs(1));
    }
    let (summary, _, errors) = load.finish()?;
    let rate = summary["rate"].as_f64().context("rate")?;
    let goodput = rate / peak_rate;
    let figures = format!(
        "goodput {:.0} % of {peak_rate:.0} puts/s, {} errors, slowest get of a new client {} ms, at most {} MiB in a server",
        goodput * 100.0,
        summary["errors"],
        slowest.as_millis(),
        memory >> 20
    );
    let held = goodput >= OVERLOAD_GOODPUT_MIN && slowest <= OVERLOAD_GET_MAX && summary["errors"] == 0;
    ensure!(held, "{figures} {}", errors.lines().take(3).collect::<Vec<_>>().join(" | "));
    Ok(Verdict::Held(figures))
}

fn put(cluster: &Cluster, in_flight: &str, seconds: &str) -> anyhow::Result<Load> {
    let flags = ["bench", "put", "--table", "t", "--rows", "100000", "--in-flight", in_flight];
    cluster.load(&[&flags[..], &["--seconds", seconds, "--timeout", "30s"]].concat())
}

fn gap_of(summary: &Value) -> anyhow::Result<f64> {
    summary["longest_gap_ms"].as_f64().context("longest_gap_ms")
}
