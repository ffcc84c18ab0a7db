//! `cargo xtask chaos`: real processes under random faults, and clients whose history is checked at the end.
//!
//! Three masters and four servers run on loopback while processes are killed, stopped, continued, terminated and started
//! again, servers are drained, and regions are moved, split and merged, all drawn from a seed. In the middle of
//! the run everything has to be healthy, and a server loses its disk. `terrane-chaos` (the package
//! `chaos`) loads the cluster meanwhile and records every call. Then the faults end, every process runs, the cluster must
//! become healthy with a clean `admin check`, and everything is read: acknowledged writes are present, counters exact, and
//! registers linearizable.
//!
//! The seed fixes which faults are drawn and when, not how threads and packets interleave: a failure may need several runs
//! to show again. So a run that fails keeps its directory with the history, the faults and all logs. Verdicts depend on
//! results, never on speed, apart from generous bounds for becoming ready, healthy and done.
//!
//! - `arguments`: the command line; `dice`: the seed's numbers;
//! - `nemesis`: draws the faults and undoes them; `processes`: what it does to processes; `orders`: what it asks of masters;
//! - `journal`: the faults with their times; `clients`: the load.

mod arguments;
mod clients;
mod dice;
mod journal;
mod nemesis;
mod orders;
mod processes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use self::arguments::Asked;
use self::clients::Clients;
use self::journal::Journal;
use self::nemesis::Nemesis;
use crate::faults::cluster::{Cluster, Size};
use crate::processes::{cargo, succeeds};

/// A majority of masters without one of them, and a server more than replicas, so that replicas move.
const SIZE: Size = Size { masters: 3, servers: 4 };
/// Shorter than the longest absence, so that replicas are replaced during the run.
const REPLACE_AFTER: &str = "12s";
/// Small, so that runs meet flushes and compactions.
const SERVER_FLAGS: &[&str] = &["--memtable-budget", "16MiB", "--cache-size", "32MiB", "--disk-reserve", "256MiB"];
/// The seed of the run in CI.
const CI_SEED: u64 = 14;
const CI_MINUTES: u32 = 2;

/// Runs with the arguments of the command line.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    match arguments::parse(arguments) {
        Ok(asked) if holds(root, &asked) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}\n{}", arguments::USAGE);
            ExitCode::from(2)
        }
    }
}

/// The run of CI.
pub fn ci_succeeds(root: &Path) -> bool {
    holds(root, &Asked { seed: CI_SEED, minutes: CI_MINUTES, binary: None })
}

/// Whether a run found nothing.
fn holds(root: &Path, asked: &Asked) -> bool {
    eprintln!("{}", asked.replay());
    let outcome = programs(root, asked).and_then(|programs| play(&programs, asked));
    outcome.inspect_err(|error| eprintln!("BROKEN: {error:#}\nto repeat: {}", asked.replay())).is_ok()
}

struct Programs {
    terrane: PathBuf,
    clients: PathBuf,
}

/// Builds what the run needs, with the same features as the tests, so that nothing is compiled again after them.
fn programs(root: &Path, asked: &Asked) -> anyhow::Result<Programs> {
    let mut build = cargo(root);
    build.args(["build", "--workspace", "--quiet", "--bin", "terrane-chaos"]);
    if asked.binary.is_none() {
        build.args(["--bin", "terrane"]);
    }
    ensure!(succeeds(&mut build), "the programs do not build");
    let this = std::env::current_exe().context("finding this program")?;
    let folder = this.parent().context("a program is in a directory")?;
    let terrane = asked.binary.clone().unwrap_or_else(|| folder.join("terrane"));
    Ok(Programs { terrane, clients: folder.join("terrane-chaos") })
}

fn play(programs: &Programs, asked: &Asked) -> anyhow::Result<()> {
    let mut cluster = Cluster::planned(&programs.terrane, SIZE, SERVER_FLAGS)?;
    cluster.add_master_flags(&["--replace-after", REPLACE_AFTER]);
    let outcome = play_on(&mut cluster, programs, asked);
    if outcome.is_err() {
        cluster.kill_all();
        cluster.data.disable_cleanup(true);
        let kept = cluster.data.path().display();
        eprintln!("kept in {kept}: the history, the faults, and the logs and data of every process");
        eprintln!("to check the history once more: {} check {kept}/{HISTORY}", programs.clients.display());
    }
    outcome
}

/// The file of the history in the directory of a run.
const HISTORY: &str = "history.jsonl";

fn play_on(cluster: &mut Cluster, programs: &Programs, asked: &Asked) -> anyhow::Result<()> {
    cluster.start_all()?;
    let mut journal = Journal::create(&cluster.data.path().join("faults.log"))?;
    for (number, address) in cluster.addresses.iter().enumerate() {
        journal.tell(&format!("server-{number} is at {address}"));
    }
    let history = cluster.data.path().join(HISTORY);
    let masters = cluster.master_addresses.join(",");
    let mut clients = Clients::start(&programs.clients, &masters, &history, asked)?;
    let mut nemesis = Nemesis::new(cluster, &mut journal, asked.seed);
    let half = Duration::from_secs(30 * u64::from(asked.minutes));
    nemesis.torment(half, || clients.check_running())?;
    nemesis.heal()?;
    nemesis.lose_disk()?;
    nemesis.torment(half, || clients.check_running())?;
    nemesis.heal()?;
    let verdict = clients.judge()?;
    if let Some(panicked) = panicked(cluster)? {
        bail!("a process panicked: {panicked}");
    }
    println!("seed {}: {}; {verdict}", asked.seed, journal.summary());
    Ok(())
}

/// A panic in the log of a process: tasks that panic do not end it.
fn panicked(cluster: &Cluster) -> anyhow::Result<Option<String>> {
    for entry in std::fs::read_dir(cluster.data.path()).context("listing the logs")? {
        let path = entry.context("listing the logs")?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let text = std::fs::read(&path).context("reading a log")?;
            let text = String::from_utf8_lossy(&text);
            if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
                return Ok(Some(format!("{}: {line}", path.display())));
            }
        }
    }
    Ok(None)
}
