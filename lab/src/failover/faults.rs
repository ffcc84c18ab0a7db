//! The faults: how each strikes, its bounds, and how the cluster is repaired after a run.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use super::figures::Bounds;
use super::scene::Scene;

/// Regions that are split, merged or moved in one run.
const CHANGED: usize = 10;
/// Longest gap of a fault that clients should not notice: above the noise of an undisturbed run on a quiet machine.
const UNNOTICED_MS: f64 = 100.0;

/// A fault of `cargo xtask failover`.
pub struct Fault {
    pub name: &'static str,
    pub what: &'static str,
    pub bounds: Bounds,
    pub needs: Needs,
    /// Strikes while the load runs.
    pub strike: fn(&mut Scene) -> anyhow::Result<Struck>,
    /// Starts again what the fault stopped.
    pub repair: fn(&mut Scene, &Struck) -> anyhow::Result<()>,
}

/// What a fault needs before the cluster starts or before its first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// A file system for each server that can stall.
    StallingDisks,
    /// A network in which packets of one direction can be lost.
    Network,
    /// Data in the log.
    Log,
}

/// What a fault did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Struck {
    /// The process that it hit, if it was one.
    pub process: usize,
    /// Until a namespace could be created.
    pub administration: Option<Duration>,
}

const fn gap(max: f64) -> Bounds {
    Bounds { p99: None, max: Some(max), silence: None, administration: None }
}

pub const FAULTS: &[Fault] = &[
    Fault {
        name: "none",
        what: "nothing fails: the noise of the machine",
        bounds: Bounds { p99: None, max: None, silence: None, administration: None },
        needs: Needs::Nothing,
        strike: |_| Ok(Struck::default()),
        repair: |_, _| Ok(()),
    },
    Fault {
        name: "kill",
        what: "kill -9 of the busiest server",
        bounds: Bounds { p99: Some(1_500.0), ..gap(2_000.0) },
        needs: Needs::Nothing,
        strike: kill,
        repair: start_server,
    },
    Fault {
        name: "hang",
        what: "SIGSTOP of the busiest server",
        bounds: gap(3_000.0),
        needs: Needs::Nothing,
        strike: hang,
        repair: |scene, struck| scene.cluster.servers[struck.process].signal("CONT"),
    },
    Fault {
        name: "disk",
        what: "the disk of the busiest server holds every write",
        bounds: gap(4_000.0),
        needs: Needs::StallingDisks,
        strike: stall_disk,
        repair: |scene, struck| scene.disks[struck.process].resume(),
    },
    Fault {
        name: "partition",
        what: "all packets from the busiest server are lost, or in every second run all packets to it",
        bounds: gap(5_000.0),
        needs: Needs::Network,
        strike: partition,
        repair: |scene, struck| scene.network()?.repair(u16::try_from(struck.process)?),
    },
    Fault {
        name: "stop",
        what: "SIGTERM of the busiest server",
        bounds: gap(100.0),
        needs: Needs::Nothing,
        strike: stop,
        repair: start_server,
    },
    Fault {
        name: "drain",
        what: "the busiest server is drained of its leaderships and replicas",
        bounds: gap(100.0),
        needs: Needs::Nothing,
        strike: drain,
        repair: undrain,
    },
    Fault {
        name: "split",
        what: "ten regions are split",
        bounds: gap(50.0),
        needs: Needs::Nothing,
        strike: |scene| split(scene).map(|_| Struck::default()),
        repair: |_, _| Ok(()),
    },
    Fault {
        name: "merge",
        what: "ten regions are split, and their daughters merged",
        bounds: gap(100.0),
        needs: Needs::Nothing,
        strike: merge,
        repair: |_, _| Ok(()),
    },
    Fault {
        name: "move",
        what: "ten regions are moved to other servers",
        bounds: gap(200.0),
        needs: Needs::Nothing,
        strike: move_regions,
        repair: |_, _| Ok(()),
    },
    Fault {
        name: "master",
        what: "kill -9 of the leading master; a single one is started again at once",
        bounds: Bounds { administration: Some(3_000.0), ..gap(UNNOTICED_MS) },
        needs: Needs::Nothing,
        strike: kill_master,
        repair: start_master,
    },
    Fault {
        name: "restart",
        what: "all processes are killed and started again",
        bounds: Bounds { silence: Some(10_000.0), ..gap(20_000.0) },
        needs: Needs::Log,
        strike: restart,
        repair: |_, _| Ok(()),
    },
];

fn kill(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    scene.cluster.servers[victim].kill();
    Ok(Struck { process: victim, administration: None })
}

fn start_server(scene: &mut Scene, struck: &Struck) -> anyhow::Result<()> {
    scene.cluster.servers[struck.process].start()
}

fn hang(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    scene.cluster.servers[victim].signal("STOP")?;
    Ok(Struck { process: victim, administration: None })
}

fn stall_disk(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    scene.disks[victim].stall()?;
    Ok(Struck { process: victim, administration: None })
}

fn partition(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    let (network, server) = (scene.network()?, u16::try_from(victim)?);
    if scene.run.is_multiple_of(2) {
        network.lose_to(server)?
    } else {
        network.lose_from(server)?
    }
    Ok(Struck { process: victim, administration: None })
}

fn drain(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    scene.cluster.succeed(&["admin", "drain", &scene.cluster.addresses[victim]])?;
    Ok(Struck { process: victim, administration: None })
}

fn undrain(scene: &mut Scene, struck: &Struck) -> anyhow::Result<()> {
    scene.cluster.succeed(&["admin", "undrain", &scene.cluster.addresses[struck.process]])?;
    Ok(())
}

fn stop(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.busiest;
    scene.cluster.servers[victim].stop()?;
    Ok(Struck { process: victim, administration: None })
}

/// Some regions of the table, from its beginning to its end.
fn some_regions(scene: &Scene) -> anyhow::Result<Vec<Value>> {
    let regions = scene.cluster.json_lines(&["admin", "regions", &scene.table])?;
    ensure!(regions.len() >= CHANGED, "{} regions are too few", regions.len());
    let step = regions.len() / CHANGED;
    Ok(regions.into_iter().step_by(step).take(CHANGED).collect())
}

/// Splits some regions in the middle; returns the daughters of each.
fn split(scene: &mut Scene) -> anyhow::Result<Vec<[String; 2]>> {
    let mut split = Vec::new();
    for region in some_regions(scene)? {
        let start = region["start"].as_str().context("a region has a start")?;
        let first: u64 = if start.is_empty() { 0 } else { start.parse().context("rows are numbers")? };
        let middle = format!("{:040}", first + scene.rows_per_region / 2);
        let region = region["region"].to_string();
        let daughters = scene.cluster.json_lines(&["admin", "split", &region, "--at", &middle])?;
        let daughter = |at: usize| daughters.get(at).map(|daughter| daughter["region"].to_string());
        split.push([daughter(0).context("a first daughter")?, daughter(1).context("a second daughter")?]);
    }
    Ok(split)
}

/// Moves some regions, each to the server after its present one.
fn move_regions(scene: &mut Scene) -> anyhow::Result<Struck> {
    for region in some_regions(scene)? {
        let leader = region["leader"].as_str().context("a region has a leader")?;
        let addresses = &scene.cluster.addresses;
        let at = addresses.iter().position(|address| address == leader).context("the leader is a server")?;
        let to = &addresses[(at + 1) % addresses.len()];
        scene.cluster.succeed(&["admin", "move", &region["region"].to_string(), "--to", to])?;
    }
    Ok(Struck::default())
}

/// Merges daughters: they are in one group, so that only the merge is measured.
fn merge(scene: &mut Scene) -> anyhow::Result<Struck> {
    for [left, right] in split(scene)? {
        scene.cluster.succeed(&["admin", "merge", &left, &right])?;
    }
    Ok(Struck::default())
}

fn kill_master(scene: &mut Scene) -> anyhow::Result<Struck> {
    let victim = scene.cluster.leading_master()?;
    let struck_at = Instant::now();
    scene.cluster.masters[victim].kill();
    if scene.cluster.masters.len() == 1 {
        scene.cluster.masters[victim].start()?;
    }
    scene.cluster.succeed(&["namespace", "create", &format!("n{}", scene.run)])?;
    Ok(Struck { process: victim, administration: Some(struck_at.elapsed()) })
}

fn start_master(scene: &mut Scene, struck: &Struck) -> anyhow::Result<()> {
    let master = &mut scene.cluster.masters[struck.process];
    if master.process.is_some() { Ok(()) } else { master.start() }
}

fn restart(scene: &mut Scene) -> anyhow::Result<Struck> {
    scene.cluster.kill_all();
    scene.cluster.start_processes()?;
    Ok(Struck::default())
}
