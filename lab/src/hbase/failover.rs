//! `hbase failover`: how long HBase's Java client waits when servers fail, and whether it is answered right.
//!
//! `hbase/java/Failover.java` writes, counts, reads and scans with stock settings against a cluster of processes, and checks
//! every answer. One process runs through all phases; each begins with what happens to the cluster and ends with a report.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;
use terrane_lab::process::lines;
use terrane_lab::{Cluster, Size, let_it_run};

use super::SOURCES;

const SIZE: Size = Size { masters: 3, servers: 3 };
const REGIONS: u32 = 12;
/// Regions that are split, merged or moved in one phase.
const CHANGED: usize = 3;
/// Static rows in the middle of a region's.
const SPLIT_AT: &str = "-s020";
/// Load after what happens, so that its consequences show.
const AFTERWARDS: Duration = Duration::from_secs(3);
/// Load before the first phase: the program is compiled while it runs.
const WARM_UP: Duration = Duration::from_secs(8);
/// Load after the first split. At the first exception of its life the JVM loads some hundred classes, for which every thread
/// of the client waits up to 0.3 s on two processors. That is the same with any server, so neither this split nor the merge
/// that undoes it is measured.
const FIRST_RETRIES: Duration = Duration::from_secs(2);
/// Until the program has made its table and every thread had an answer; until it has reported.
const READY_MAX: Duration = Duration::from_secs(120);
const REPORT_MAX: Duration = Duration::from_secs(120);
const KILL_GAP_MAX_MS: u64 = 3_000;
const TRANSFER_GAP_MAX_MS: u64 = 500;

/// What happens to the cluster, and the longest gap that it may cause.
struct Phase {
    name: &'static str,
    gap_max_ms: u64,
    happens: fn(&mut Cluster) -> anyhow::Result<()>,
}

const PHASES: &[Phase] = &[
    Phase { name: "nothing", gap_max_ms: TRANSFER_GAP_MAX_MS, happens: |_| Ok(()) },
    Phase { name: "split", gap_max_ms: TRANSFER_GAP_MAX_MS, happens: split },
    Phase { name: "merge", gap_max_ms: TRANSFER_GAP_MAX_MS, happens: merge },
    Phase { name: "move", gap_max_ms: TRANSFER_GAP_MAX_MS, happens: move_regions },
    Phase { name: "transfer", gap_max_ms: TRANSFER_GAP_MAX_MS, happens: transfer },
    Phase { name: "kill", gap_max_ms: KILL_GAP_MAX_MS, happens: kill },
    Phase { name: "master", gap_max_ms: KILL_GAP_MAX_MS, happens: kill_master },
];

/// Runs every phase so many times.
pub fn run(root: &Path, terrane: &Path, jars: &Path, rounds: u32) -> anyhow::Result<()> {
    let mut cluster = Cluster::planned(terrane, SIZE, &[])?;
    let quorum = cluster.serve_hbase()?;
    cluster.start_all()?;
    let outcome = play(root, &mut cluster, jars, &quorum, rounds);
    if outcome.is_err() {
        cluster.kill_all();
        cluster.data.disable_cleanup(true);
        eprintln!("kept in {}: the logs and data of every process", cluster.data.path().display());
    }
    outcome
}

fn play(root: &Path, cluster: &mut Cluster, jars: &Path, quorum: &str, rounds: u32) -> anyhow::Result<()> {
    let mut client = Client::start(root, jars, quorum, &cluster.data.path().join("client.log"))?;
    let_it_run(WARM_UP);
    split(cluster).context("the first split")?;
    let_it_run(FIRST_RETRIES);
    cluster.wait_until_well()?;
    merge(cluster).context("the first merge")?;
    cluster.wait_until_well()?;
    let mut broken = Vec::new();
    println!(
        "{:<10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "phase", "p50 ms", "max ms", "bound", "calls", "scans", "unknown"
    );
    for _ in 0..rounds {
        for phase in PHASES {
            client.say("phase")?;
            (phase.happens)(cluster).with_context(|| phase.name)?;
            let_it_run(AFTERWARDS);
            client.say("report")?;
            let report = client.report()?;
            broken.extend(judge(phase, &report)?);
            cluster.wait_until_well()?;
        }
    }
    client.say("end")?;
    let last = client.report()?;
    broken.extend(problems(&last)?.into_iter().map(|problem| format!("at the end: {problem}")));
    ensure!(client.child.wait().context("waiting for the client")?.success(), "the client fails at its end");
    if !broken.is_empty() {
        bail!("HBase's client over failures: {}", broken.join("\n  "));
    }
    Ok(())
}

/// Prints a report; returns what is wrong with it.
fn judge(phase: &Phase, report: &Value) -> anyhow::Result<Vec<String>> {
    let mut gaps: Vec<u64> =
        report["gaps_ms"].as_array().context("gaps_ms")?.iter().filter_map(Value::as_u64).collect();
    gaps.sort_unstable();
    let count = |name: &str| report[name].as_u64().with_context(|| format!("{name} in {report}"));
    let (middle, longest) = (gaps[gaps.len() / 2], *gaps.last().context("no gap was measured")?);
    let bound = phase.gap_max_ms;
    let [calls, scans, unknown, failed] = ["calls", "scans", "unknown", "failed"].map(count);
    let (calls, scans, unknown) = (calls?, scans?, unknown?);
    println!("{:<10} {middle:>8} {longest:>8} {bound:>8} {calls:>8} {scans:>8} {unknown:>8}", phase.name);
    let mut broken: Vec<String> =
        problems(report)?.into_iter().map(|problem| format!("{}: {problem}", phase.name)).collect();
    if longest > bound {
        broken.push(format!("{}: a region is not answered for {longest} ms, more than {bound}", phase.name));
    }
    if failed? > 0 && broken.is_empty() {
        broken.push(format!("{}: calls fail", phase.name));
    }
    if calls == 0 || scans == 0 {
        broken.push(format!("{}: {calls} calls and {scans} scans are answered", phase.name));
    }
    Ok(broken)
}

fn problems(report: &Value) -> anyhow::Result<Vec<String>> {
    let problems = report["problems"].as_array().with_context(|| format!("problems in {report}"))?;
    Ok(problems.iter().filter_map(|problem| problem.as_str().map(str::to_owned)).collect())
}

/// The regions of the table, the largest numbers last.
fn regions(cluster: &Cluster) -> anyhow::Result<Vec<Value>> {
    cluster.json_lines(&["admin", "regions", "failover"])
}

fn split(cluster: &mut Cluster) -> anyhow::Result<()> {
    let mut done = 0;
    for region in regions(cluster)? {
        let (start, end) = (region["start"].as_str().unwrap_or_default(), region["end"].as_str().unwrap_or_default());
        // Each round splits what the last one merged.
        let name = if start.is_empty() { "000" } else { start };
        let at = format!("{name}{SPLIT_AT}");
        if done < CHANGED && name.len() == 3 && (end.is_empty() || end > at.as_str()) {
            cluster.succeed(&["admin", "split", &region["region"].to_string(), "--at", &at])?;
            done += 1;
        }
    }
    ensure!(done > 0, "no region can be split");
    Ok(())
}

/// Merges what was split.
fn merge(cluster: &mut Cluster) -> anyhow::Result<()> {
    let regions = regions(cluster)?;
    for pair in regions.windows(2) {
        if pair[1]["start"].as_str().is_some_and(|start| start.ends_with(SPLIT_AT)) {
            let [left, right] = [0, 1].map(|at: usize| pair[at]["region"].to_string());
            cluster.succeed(&["admin", "merge", &left, &right])?;
        }
    }
    Ok(())
}

/// Moves some regions, each to the server after its present one.
fn move_regions(cluster: &mut Cluster) -> anyhow::Result<()> {
    for region in regions(cluster)?.into_iter().take(CHANGED) {
        let leader = region["leader"].as_str().context("a region has a leader")?;
        let at = cluster.addresses.iter().position(|address| address == leader).context("the leader is a server")?;
        let to = cluster.addresses[(at + 1) % cluster.addresses.len()].clone();
        cluster.succeed(&["admin", "move", &region["region"].to_string(), "--to", &to])?;
    }
    Ok(())
}

/// A server hands its leaderships over, ends, and starts again.
fn transfer(cluster: &mut Cluster) -> anyhow::Result<()> {
    let victim = cluster.busiest_server()?;
    let server = &mut cluster.servers[victim];
    server.stop()?;
    server.start()?;
    cluster.wait_until_well()
}

fn kill(cluster: &mut Cluster) -> anyhow::Result<()> {
    let victim = cluster.busiest_server()?;
    cluster.servers[victim].kill();
    let_it_run(AFTERWARDS);
    cluster.servers[victim].start()?;
    cluster.wait_until_well()
}

fn kill_master(cluster: &mut Cluster) -> anyhow::Result<()> {
    let victim = cluster.leading_master()?;
    cluster.masters[victim].kill();
    let_it_run(AFTERWARDS);
    cluster.masters[victim].start()?;
    cluster.wait_until_well()
}

/// The running Java program; dropping it kills it.
struct Client {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
}

impl Client {
    fn start(root: &Path, jars: &Path, quorum: &str, log: &Path) -> anyhow::Result<Self> {
        let log = std::fs::File::create(log).context("creating the client's log")?;
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-cp"]).arg(format!("{}/*", jars.display()));
        java.arg(root.join(SOURCES).join("Failover.java")).args([quorum, &REGIONS.to_string()]);
        java.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = java.spawn().context("starting java")?;
        let commands = child.stdin.take().context("its standard input is a pipe")?;
        let stdout = child.stdout.take().context("its standard output is a pipe")?;
        let client = Self { child, commands, lines: lines(stdout) };
        let line = client.lines.recv_timeout(READY_MAX).context("the client does not begin")?;
        ensure!(line == "ready\n", "the client says {line}");
        Ok(client)
    }

    fn say(&mut self, command: &str) -> anyhow::Result<()> {
        writeln!(self.commands, "{command}").context("the client has ended")
    }

    fn report(&self) -> anyhow::Result<Value> {
        let line = self.lines.recv_timeout(REPORT_MAX).context("the client does not report")?;
        serde_json::from_str(&line).with_context(|| format!("{line:?} is not JSON"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
