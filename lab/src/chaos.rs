//! `cargo xtask chaos`: real processes under random faults, and clients whose history is checked at the end.
//!
//! Three masters and four servers run on loopback while processes are killed, stopped, continued, terminated and started
//! again, servers are drained, and regions are moved, split and merged, all drawn from a seed. In the middle of
//! the run everything has to be healthy, and a server loses its disk. Clients load the cluster meanwhile and record every call.
//! Then the faults end, every process runs, the cluster must
//! become healthy with a clean `admin check`, and everything is read: acknowledged writes are present, counters exact, and
//! registers linearizable.
//!
//! The seed fixes which faults are drawn and when, not how threads and packets interleave: a failure may need several runs
//! to show again. So a run that fails keeps its directory with the history, the faults and all logs. Verdicts depend on
//! results, never on speed, apart from generous bounds for becoming ready, healthy and done.
//!
//! - `nemesis`: draws the faults and undoes them; `processes`: what it does to processes; `orders`: what it asks of masters;
//! - `journal`: the faults with their times;
//! - `clients`: the load, beside the nemesis; `load` makes its calls, `history` records them, `value` names what they write. What
//!   a history may show is judged by `terrane_oracle::check`.

mod clients;
mod history;
mod journal;
mod load;
mod nemesis;
mod orders;
mod processes;
mod value;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use clap::{Args, value_parser};
use terrane_lab::{Cluster, Size, builds};
use terrane_oracle::check::Conclusion;

use self::clients::Clients;
use self::journal::Journal;
pub use self::load::with_causes;
use self::nemesis::Nemesis;

/// A majority of masters without one of them, and a server more than replicas, so that replicas move.
const SIZE: Size = Size { masters: 3, servers: 4 };
/// Shorter than the longest absence, so that replicas are replaced during the run.
const REPLACE_AFTER: &str = "12s";
/// Small, so that runs meet flushes and compactions.
const SERVER_FLAGS: &[&str] = &["--memtable-budget", "16MiB", "--cache-size", "32MiB", "--disk-reserve", "256MiB"];

/// Random kills, stops, drains, moves, splits and merges under load, and a check of everything that the clients saw.
#[derive(Args)]
pub struct Asked {
    /// Draws the same faults as another run (default: another seed each time).
    #[arg(long, value_name = "N", default_value_t = of_the_clock(), hide_default_value = true)]
    seed: u64,
    /// How long the faults last. The clients' rows and calls are bounded, so a longer run would end without load.
    #[arg(long, value_name = "M", default_value_t = 2, value_parser = value_parser!(u32).range(1..=30))]
    minutes: u32,
    /// Torment this binary instead of a debug build.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
}

fn of_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs() % 1_000_000)
}

impl Asked {
    /// The command that draws the same faults.
    fn replay(&self) -> String {
        let binary = self.binary.as_ref().map_or(String::new(), |binary| format!(" --binary {}", binary.display()));
        format!("cargo xtask chaos --seed {} --minutes {}{binary}", self.seed, self.minutes)
    }
}

/// An error if the run found something.
pub fn run(root: &Path, asked: &Asked) -> anyhow::Result<()> {
    eprintln!("{}", asked.replay());
    let terrane = match &asked.binary {
        Some(binary) => binary.clone(),
        None => builds::debug(root, &["--bin", "terrane"])?.join("terrane"),
    };
    play(&terrane, asked).with_context(|| format!("BROKEN; to repeat: {}", asked.replay()))
}

/// Checks a history once more.
pub fn check(history: &Path) -> anyhow::Result<()> {
    println!("{}", judged(&history::check_file(history)?)?);
    Ok(())
}

/// A verdict in a line; an error if it is about violations, which are printed.
fn judged(verdict: &Conclusion) -> anyhow::Result<String> {
    for finding in &verdict.findings {
        eprintln!("VIOLATION: {finding}");
    }
    for register in &verdict.undecided {
        eprintln!("register {register} is too long to be judged");
    }
    let json = serde_json::json!(verdict);
    ensure!(verdict.violations == 0, "the check of the history fails: {json}");
    Ok(format!("no violation in {}, {} undecided", json["totals"], json["undecided"]))
}

fn play(terrane: &Path, asked: &Asked) -> anyhow::Result<()> {
    let mut cluster = Cluster::planned(terrane, SIZE, SERVER_FLAGS)?;
    cluster.add_master_flags(&["--replace-after", REPLACE_AFTER]);
    let outcome = play_on(&mut cluster, asked);
    if outcome.is_err() {
        cluster.kill_all();
        cluster.data.disable_cleanup(true);
        let kept = cluster.data.path().display();
        eprintln!("kept in {kept}: the history, the faults, and the logs and data of every process");
        let this = std::env::current_exe().context("finding this program")?;
        eprintln!("to check the history once more: {} check {kept}/{HISTORY}", this.display());
    }
    outcome
}

/// The file of the history in the directory of a run.
const HISTORY: &str = "history.jsonl";

fn play_on(cluster: &mut Cluster, asked: &Asked) -> anyhow::Result<()> {
    cluster.start_all()?;
    let mut journal = Journal::create(&cluster.data.path().join("faults.log"))?;
    for (number, address) in cluster.addresses.iter().enumerate() {
        journal.tell(&format!("server-{number} is at {address}"));
    }
    let history = cluster.data.path().join(HISTORY);
    let clients = Clients::start(cluster.master_list(), history, asked.seed)?;
    let mut nemesis = Nemesis::new(cluster, &mut journal, asked.seed);
    let half = Duration::from_secs(30 * u64::from(asked.minutes));
    nemesis.torment(half, || clients.check_running())?;
    nemesis.heal()?;
    nemesis.lose_disk()?;
    nemesis.torment(half, || clients.check_running())?;
    nemesis.heal()?;
    let verdict = judged(&clients.judge()?)?;
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        asked: Asked,
    }

    #[test]
    fn a_replay_is_the_same_run() {
        let parsed = |line: &str| Line::try_parse_from(line.split_whitespace()).map(|line| line.asked);
        let asked = parsed("chaos --seed 7 --minutes 3 --binary /tmp/t").unwrap();
        assert_eq!((asked.seed, asked.minutes), (7, 3));
        let replay = asked.replay();
        assert_eq!(parsed(replay.strip_prefix("cargo xtask ").unwrap()).unwrap().replay(), replay);
        for line in ["chaos --seed", "chaos --seed x", "chaos --minutes 0", "chaos --minutes 99"] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
