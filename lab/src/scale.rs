//! `cargo xtask scale`: servers join a loaded cluster: 3, then 6, then 9.
//!
//! `terrane-lab history` reads and writes all regions at a steady rate and checks every answer, while servers join and take
//! their share, and again when all is spread. Printed for each size: how rows, leaderships, replicas and load spread, the gap
//! that clients saw while servers joined, and the processor time of all servers: at rest, and per call beyond that. The
//! command fails if the cluster does not spread, if a call fails or contradicts an earlier one, or if the processor time per
//! call is not flat.
//!
//! The rate is one that this machine can sustain with all servers: a saturated one groups waiting writes into larger
//! entries of the log, which would make the time per call depend on how many groups share the load.

mod spread;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Args, value_parser};
use serde_json::{Value, json};
use terrane_lab::builds;
use terrane_lab::{Cluster, Size, eventually, let_it_run};

use self::spread::Spread;
use crate::history;

/// Servers that join at a time, and how often.
const JOIN: u16 = 3;
const STAGES: u16 = 3;
const MASTERS: u16 = 3;
const ROWS_PER_REGION: u64 = 20;
/// Load before servers join.
const CALM: Duration = Duration::from_secs(2);
/// Time limit for the spread after servers joined.
const SPREAD_MAX: Duration = Duration::from_secs(180);
/// How long the servers are watched at rest.
const REST: Duration = Duration::from_secs(5);
/// How often a size is measured; the median counts.
const MEASURED: usize = 3;
/// The least part of the rate that the load must have reached.
const RATE_MIN: f64 = 0.95;
/// The largest deviation of the processor time per call from that of the smallest cluster.
const CPU_DEVIATION_MAX: f64 = 0.1;

/// 3, 6 and 9 servers under load: how it spreads, the gap that clients see, and the processor time per call.
#[derive(Args)]
pub struct Asked {
    /// Length of each load.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=1_000))]
    seconds: u32,
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u32).range(1..=1_000))]
    regions: u32,
    /// Client tasks that read and write.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = value_parser!(u32).range(1..=1_000))]
    tasks: u32,
    /// Calls per second.
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Print one JSON object per size.
    #[arg(long)]
    json: bool,
    /// Measure this binary instead of the release build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

/// The figures of one size.
struct Stage {
    servers: usize,
    rows: Spread,
    leaders: Spread,
    replicas: Spread,
    /// Rows and KiB per second that each server is asked for.
    load: Spread,
    /// Until all was spread, and the longest gap of any region meanwhile; not for the first size.
    joined: Option<(Duration, f64)>,
    rate: f64,
    /// Processors that all servers together use at rest.
    cpu_at_rest: f64,
    cpu_us_per_call: f64,
}

/// Runs all sizes.
pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    let terrane = builds::release_unless(asked.binary.as_deref(), root)?;
    grow(&terrane, asked).and_then(|stages| check(&stages, asked))
}

fn grow(terrane: &Path, asked: &Asked) -> anyhow::Result<Vec<Stage>> {
    let mut cluster = Cluster::planned(terrane, Size { masters: MASTERS, servers: JOIN * STAGES }, &[])?;
    let join = usize::from(JOIN);
    cluster.start_masters_and(0..join)?;
    cluster.wait_until_well()?;
    let mut stages: Vec<Stage> = Vec::new();
    for servers in (1..=usize::from(STAGES)).map(|stage| stage * join) {
        let joined = if stages.is_empty() {
            // The first load creates the table.
            load(&mut cluster, asked, |_| Ok(()))?;
            None
        } else {
            Some(join_servers(&mut cluster, asked, servers - join..servers)?)
        };
        let stage = measure(&mut cluster, asked, servers, joined)?;
        print_stage(&stage, asked.json, stages.is_empty());
        stages.push(stage);
    }
    Ok(stages)
}

/// Starts servers under load; returns the time until everything was spread, and the longest gap meanwhile.
fn join_servers(
    cluster: &mut Cluster,
    asked: &Asked,
    joining: std::ops::Range<usize>,
) -> anyhow::Result<(Duration, f64)> {
    let begun = Instant::now();
    let count = joining.end;
    let summary = load(cluster, asked, |cluster| cluster.start_servers(joining))?;
    let mut gap = longest_gap(&summary)?;
    loop {
        let ((leaders, replicas), rows) = (spread_of_groups(cluster, count)?, spread_of_rows(cluster, count)?);
        if leaders.is_even() && replicas.is_even() && rows.is_even() {
            return Ok((begun.elapsed(), gap));
        }
        ensure!(
            begun.elapsed() < SPREAD_MAX,
            "not spread over {count} servers within {} s: leaderships {leaders}, replicas {replicas}, rows {rows}",
            SPREAD_MAX.as_secs()
        );
        gap = gap.max(longest_gap(&load(cluster, asked, |_| Ok(()))?)?);
    }
}

fn measure(
    cluster: &mut Cluster,
    asked: &Asked,
    servers: usize,
    joined: Option<(Duration, f64)>,
) -> anyhow::Result<Stage> {
    eventually("all servers are live", || {
        let status = cluster.json(&["status", "--timeout", "2s"])?;
        ensure!(status["live"] == servers, "{} are live", status["live"]);
        Ok(())
    })?;
    let (cpu_before, begun) = (cpu(cluster, servers)?, Instant::now());
    let_it_run(REST);
    let cpu_at_rest = (cpu(cluster, servers)? - cpu_before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let mut measured = Vec::new();
    let mut asked_for = None;
    while measured.len() < MEASURED {
        let (cpu_before, begun) = (cpu(cluster, servers)?, Instant::now());
        let summary = load(cluster, asked, |cluster| {
            let_it_run(Duration::from_secs(asked.seconds.into()).saturating_sub(CALM * 2));
            asked_for = Some(spread_of_load(cluster, servers)?);
            Ok(())
        })?;
        let cpu_total = (cpu(cluster, servers)? - cpu_before).as_secs_f64();
        let cpu_of_calls = cpu_total - cpu_at_rest * begun.elapsed().as_secs_f64();
        let calls = summary["operations"].as_f64().context("operations")?.max(1.0);
        measured.push((cpu_of_calls * 1e6 / calls, summary["rate"].as_f64().context("rate")?));
    }
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (cpu_us_per_call, rate) = measured[MEASURED / 2];
    let (leaders, replicas) = spread_of_groups(cluster, servers)?;
    Ok(Stage {
        servers,
        rows: spread_of_rows(cluster, servers)?,
        leaders,
        replicas,
        load: asked_for.context("the load was looked at")?,
        joined,
        rate,
        cpu_at_rest,
        cpu_us_per_call,
    })
}

/// Runs a load, and something in the middle of it.
fn load(
    cluster: &mut Cluster,
    asked: &Asked,
    meanwhile: impl FnOnce(&mut Cluster) -> anyhow::Result<()>,
) -> anyhow::Result<Value> {
    let rows = ROWS_PER_REGION * u64::from(asked.regions);
    let numbers = [asked.regions, asked.tasks, asked.rate, asked.seconds].map(|of| of.to_string());
    let (rows, [regions, tasks, rate, seconds]) = (rows.to_string(), numbers);
    let flags = ["--table", "t", "--rows", &rows, "--regions", &regions, "--in-flight", &tasks];
    let more = ["--rate", &rate, "--seconds", &seconds, "--timeout", "60s"];
    let load = history::load(cluster, &[&flags[..], &more].concat())?;
    let_it_run(CALM);
    let done = meanwhile(cluster);
    let summary = load.succeed();
    done?;
    summary
}

fn longest_gap(summary: &Value) -> anyhow::Result<f64> {
    summary["longest_gap_ms"].as_f64().context("longest_gap_ms")
}

/// Leaderships and replicas of each server.
fn spread_of_groups(cluster: &Cluster, servers: usize) -> anyhow::Result<(Spread, Spread)> {
    let listed = cluster.json_lines(&["admin", "servers"])?;
    let of = |name: &str| -> anyhow::Result<Spread> {
        let numbers = listed.iter().map(|server| server[name].as_u64().context("a number"));
        let numbers = numbers.collect::<anyhow::Result<Vec<_>>>()?;
        ensure!(numbers.len() == servers, "{} servers are listed", numbers.len());
        Ok(Spread(numbers))
    };
    Ok((of("leaders")?, of("replicas")?))
}

/// Rows that each server serves, as the leader of their regions.
fn spread_of_rows(cluster: &Cluster, servers: usize) -> anyhow::Result<Spread> {
    let regions = cluster.json_lines(&["admin", "regions", "t"])?;
    let led = |address: &String| regions.iter().filter(|region| region["leader"] == **address).count() as u64;
    Ok(Spread(cluster.addresses[..servers].iter().map(|address| led(address) * ROWS_PER_REGION).collect()))
}

/// What each server is asked for, as the planner of region moves sees it.
fn spread_of_load(cluster: &Cluster, servers: usize) -> anyhow::Result<Spread> {
    let plan = cluster.json(&["admin", "balance", "--dry-run"])?;
    let shares = plan["servers"].as_array().context("servers")?;
    ensure!(shares.len() == servers, "{} servers have shares", shares.len());
    let loads = shares.iter().map(|share| share["load"].as_u64().context("a load"));
    Ok(Spread(loads.collect::<anyhow::Result<_>>()?))
}

fn cpu(cluster: &Cluster, servers: usize) -> anyhow::Result<Duration> {
    cluster.servers[..servers].iter().map(|server| server.cpu()).sum()
}

fn print_stage(stage: &Stage, json: bool, is_first: bool) {
    if json {
        let line = json!({
            "servers": stage.servers,
            "rows": stage.rows.0,
            "leaders": stage.leaders.0,
            "replicas": stage.replicas.0,
            "load": stage.load.0,
            "spread_seconds": stage.joined.map(|(took, _)| took.as_secs_f64()),
            "longest_gap_ms": stage.joined.map(|(_, gap)| gap),
            "rate": stage.rate,
            "cpu_at_rest": stage.cpu_at_rest,
            "cpu_us_per_call": stage.cpu_us_per_call,
        });
        println!("{line}");
        return;
    }
    if is_first {
        println!(
            "servers  rows per server  leaderships  replicas  load per server  spread after  longest gap  calls/s  CPUs at rest  CPU per call"
        );
    }
    let (took, gap) = match stage.joined {
        Some((took, gap)) => (format!("{:.0} s", took.as_secs_f64()), format!("{gap:.0} ms")),
        None => ("-".to_owned(), "-".to_owned()),
    };
    println!(
        "{:>7}  {:>15}  {:>11}  {:>8}  {:>15}  {took:>12}  {gap:>11}  {:>7.0}  {:>12.2}  {:>9.0} us",
        stage.servers,
        stage.rows.to_string(),
        stage.leaders.to_string(),
        stage.replicas.to_string(),
        stage.load.to_string(),
        stage.rate,
        stage.cpu_at_rest,
        stage.cpu_us_per_call
    );
}

fn check(stages: &[Stage], asked: &Asked) -> anyhow::Result<()> {
    let first = stages.first().context("there are stages")?.cpu_us_per_call;
    for stage in stages {
        ensure!(
            stage.rate >= f64::from(asked.rate) * RATE_MIN,
            "{} servers answered {:.0} calls/s of {}: this machine needs a lower --rate, or rest",
            stage.servers,
            stage.rate,
            asked.rate
        );
        ensure!(stage.rows.is_even(), "{} servers serve {} rows each: not spread", stage.servers, stage.rows);
        let deviation = (stage.cpu_us_per_call - first) / first;
        ensure!(
            deviation <= CPU_DEVIATION_MAX,
            "{} servers take {:.0} % more processor time per call than {JOIN}",
            stage.servers,
            deviation * 100.0
        );
    }
    Ok(())
}
