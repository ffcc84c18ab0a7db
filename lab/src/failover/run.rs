//! The runs of one fault: a cluster, a load that checks every answer, and the fault in the middle of it.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use terrane_lab::{Cluster, Load, Size, eventually, let_it_run};

use super::arguments::Asked;
use super::disk::StallingDisk;
use super::faults::{Fault, Needs, Struck};
use super::figures::{Figures, Run, quantile};
use super::network::Network;
use super::scene::Scene;
use crate::history;

/// Rows of each region: so few that a scan of all regions is short.
const ROWS_PER_REGION: u64 = 20;
/// Load before the fault, and in all. A run lasts until its last call is answered.
const CALM: Duration = Duration::from_secs(2);
const SECONDS: u32 = 8;
/// A call that takes longer has failed.
const CALL_TIMEOUT: &str = "60s";
/// Memory for memtables where data must stay in the log.
const MEMTABLES: &str = "4GiB";
const ROW_BYTES: u64 = 1_024;
/// Replicas of each row: each has a log.
const COPIES: u64 = 3;
/// Regions of the table that fills the log.
const FILL_REGIONS: &str = "50";
/// Clusters that are tried until the logs are full enough.
const FILLS_MAX: u32 = 30;
/// Until servers that have just joined have their shares, and how often that is asked.
const EVEN_WITHIN: Duration = Duration::from_secs(60);
const EVEN_LOOK: Duration = Duration::from_secs(1);
/// Until servers have reported what they use.
const REPORTED_AFTER: Duration = Duration::from_secs(2);

/// Runs a fault as often as asked; `None` if this machine cannot cause it.
pub fn measure(terrane: &Path, asked: &Asked, fault: &'static Fault) -> anyhow::Result<Option<Figures>> {
    let Some(mut scene) = prepare(terrane, asked, fault)? else { return Ok(None) };
    scene.cluster.start_all()?;
    let mut runs = Vec::new();
    for run in 1..=asked.runs {
        if run > 1 && fault.needs == Needs::Log {
            // A log that was filled before is flushed for before it is full again.
            drop(scene);
            scene = prepare(terrane, asked, fault)?.context("this machine could cause the fault before")?;
            scene.cluster.start_all()?;
        }
        // A table for each run, because a fault may change its regions.
        scene.table = format!("history{run}");
        scene.run = run;
        if fault.needs == Needs::Log {
            fill_log(&mut scene, terrane, asked, fault)?;
        }
        let found = one_run(&mut scene, asked, fault).with_context(|| format!("run {run} of {}", asked.runs))?;
        eprintln!("   run {run}: {}", told(&found));
        runs.push(found);
        if run < asked.runs {
            scene.cluster.succeed(&["table", "drop", &scene.table])?;
        }
    }
    Ok(Some(Figures { fault: fault.name, runs }))
}

/// The cluster, with what the fault needs; nothing runs yet. `None` if this machine cannot cause the fault.
fn prepare(terrane: &Path, asked: &Asked, fault: &Fault) -> anyhow::Result<Option<Scene>> {
    let flags: &[&str] = if fault.needs == Needs::Log { &["--memtable-budget", MEMTABLES] } else { &[] };
    let mut network = None;
    if fault.needs == Needs::Network {
        network = Network::create(asked.servers);
        if network.is_none() {
            eprintln!("== {}: skipped: network namespaces need root", fault.name);
            return Ok(None);
        }
    }
    let size = Size { masters: asked.masters, servers: asked.servers };
    let mut cluster = match &network {
        Some(network) => Cluster::planned_on(terrane, size.masters, &network.host(), &network.server_hosts(), flags)?,
        None => Cluster::planned(terrane, size, flags)?,
    };
    let mut disks = Vec::new();
    for server in (0..cluster.servers.len()).filter(|_| fault.needs == Needs::StallingDisks) {
        let image = cluster.data.path().join(format!("disk-{server}.img"));
        let Some(disk) = StallingDisk::mount(&image, &cluster.server_directory(server)) else {
            eprintln!("== {}: skipped: a file system that stalls needs root, a loop device and fsfreeze", fault.name);
            return Ok(None);
        };
        disks.push(disk);
        // It is small.
        cluster.servers[server].add_flags(&["--disk-reserve", "64MiB"]);
    }
    let rows_per_region = ROWS_PER_REGION.max(u64::from(asked.tasks.div_ceil(asked.regions)));
    Ok(Some(Scene { cluster, disks, network, table: String::new(), rows_per_region, run: 0, busiest: 0 }))
}

fn one_run(scene: &mut Scene, asked: &Asked, fault: &Fault) -> anyhow::Result<Run> {
    let load = start_load(scene, asked)?;
    let_it_run(CALM);
    scene.busiest = scene.cluster.busiest_server()?;
    let struck = (fault.strike)(scene);
    let finished = load.finish();
    // Also after a failure: a stalled disk keeps its server from being killed.
    let repaired = struck.as_ref().map_or(Ok(()), |struck| (fault.repair)(scene, struck));
    let struck = struck.context("the fault could not be caused")?;
    let (summary, well, errors) = finished?;
    repaired.context("the cluster could not be repaired")?;
    let found = read(&summary, struck)?;
    let is_clean = found.violations == 0 && found.failed == 0;
    ensure!(well || !is_clean, "the load failed: {summary} {errors}");
    if !is_clean {
        eprintln!("{errors}");
    }
    scene.cluster.wait_until_well()?;
    eventually("`admin check` finds nothing wrong", || scene.cluster.succeed(&["admin", "check"]))?;
    Ok(found)
}

fn start_load(scene: &Scene, asked: &Asked) -> anyhow::Result<Load> {
    let rows = scene.rows_per_region * u64::from(asked.regions);
    let [rows, regions, tasks, seconds] =
        [rows, u64::from(asked.regions), u64::from(asked.tasks), u64::from(SECONDS)].map(|number| number.to_string());
    let flags = ["--table", &scene.table, "--timeout", CALL_TIMEOUT, "--rows", &rows, "--regions", &regions];
    history::load(&scene.cluster, &[&flags[..], &["--in-flight", &tasks, "--seconds", &seconds]].concat())
}

fn read(summary: &Value, struck: Struck) -> anyhow::Result<Run> {
    let number = |name: &str| summary[name].as_f64().with_context(|| format!("{name} in {summary}"));
    let count = |name: &str| summary[name].as_u64().with_context(|| format!("{name} in {summary}"));
    let gaps = summary["gaps_ms"].as_array().context("gaps_ms")?;
    Ok(Run {
        gaps: gaps.iter().map(|gap| gap.as_f64().context("a gap is a number")).collect::<anyhow::Result<_>>()?,
        silence: number("silence_ms")?,
        longest_call: number("longest_call_ms")?,
        administration: struck.administration.map(|back| back.as_secs_f64() * 1e3),
        failed: count("errors")?,
        violations: count("violations")?,
        rate: number("rate")?,
    })
}

fn told(run: &Run) -> String {
    let administration = run.administration.map_or(String::new(), |back| format!(", administration back {back:.0} ms"));
    format!(
        "gaps p50 {:.0} p99 {:.0} max {:.0} ms, longest call {:.0} ms{administration}, {:.0} calls/s, {} failed, {} violations",
        quantile(&run.gaps, 0.5),
        quantile(&run.gaps, 0.99),
        quantile(&run.gaps, 1.0),
        run.longest_call,
        run.rate,
        run.failed,
        run.violations
    )
}

/// Writes rows until the logs of all servers hold so much that no flush has made superfluous.
///
/// The rows are spread over many regions, so that no memtable is full, and a server flushes for the sake of its log only
/// when that is much longer than its share. Where servers have uneven shares one of them does, and a new cluster begins again.
fn fill_log(scene: &mut Scene, terrane: &Path, asked: &Asked, fault: &'static Fault) -> anyhow::Result<()> {
    let mib = u64::from(asked.log_mib);
    for attempt in 1..=FILLS_MAX {
        if attempt > 1 {
            let (table, run) = (scene.table.clone(), scene.run);
            *scene = prepare(terrane, asked, fault)?.context("this machine could cause the fault before")?;
            scene.cluster.start_all()?;
            (scene.table, scene.run) = (table, run);
        }
        until_even(&scene.cluster)?;
        let begun = Instant::now();
        load_rows(&scene.cluster, (mib << 20) / (ROW_BYTES * COPIES))?;
        // Reports are up to a second old.
        let_it_run(REPORTED_AFTER);
        let (logged, unflushed) = (used_mib(&scene.cluster, "log")?, used_mib(&scene.cluster, "memtables")?);
        let seconds = begun.elapsed().as_secs_f64();
        eprintln!("   the logs of all servers have {logged} MiB, {unflushed} MiB are not flushed ({seconds:.0} s)");
        if logged.min(unflushed) >= mib {
            return Ok(());
        }
    }
    bail!("the logs do not hold {mib} MiB that are not flushed: with more servers, each has a smaller part")
}

/// Waits until the servers have even shares of the replicas: servers that have just joined have not.
fn until_even(cluster: &Cluster) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let plan = cluster.json(&["admin", "balance", "--dry-run"])?;
        let steps = plan["steps"].as_array().context("steps")?;
        if steps.is_empty() {
            return Ok(());
        }
        ensure!(begun.elapsed() < EVEN_WITHIN, "the servers are not even: {} steps are left", steps.len());
        let_it_run(EVEN_LOOK);
    }
}

fn load_rows(cluster: &Cluster, rows: u64) -> anyhow::Result<()> {
    let rows = rows.to_string();
    let flags = ["bench", "load", "--table", "fill", "--rows", &rows, "--regions", FILL_REGIONS];
    let more = ["--value-bytes", "1000", "--timeout", CALL_TIMEOUT];
    cluster.load(&[&flags[..], &more].concat())?.succeed().context("filling the log")?;
    Ok(())
}

/// What a resource of all servers uses, as they last reported it.
fn used_mib(cluster: &Cluster, name: &str) -> anyhow::Result<u64> {
    let status = cluster.json(&["status"])?;
    let resources = status["resources"].as_array().context("resources")?;
    let named = resources.iter().filter(|resource| resource["name"] == name);
    Ok(named.filter_map(|resource| resource["used"].as_u64()).sum::<u64>() >> 20)
}
