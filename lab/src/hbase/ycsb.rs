//! `hbase ycsb`: YCSB's core workloads over HBase's Java client, with a binding of our own, every value that is read verified;
//! alone, or first on another cluster that speaks HBase's protocol.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::{DevCluster, builds};

use super::SOURCES;
use super::bench::Beside;

/// Time limit of one workload.
const WORKLOAD_MAX: Duration = Duration::from_secs(300);
const BINDING: &str = "YcsbClient";
const THREADS: u32 = 32;
/// Kinds of calls whose outcomes are counted.
const KINDS: [&str; 6] = ["INSERT", "READ", "UPDATE", "SCAN", "READ-MODIFY-WRITE", "VERIFY"];

/// A workload: its name in YCSB, and its shares.
struct Workload {
    name: &'static str,
    shares: &'static [(&'static str, &'static str)],
}

/// Those of YCSB's files of the same names. E, which inserts, is last.
const WORKLOADS: [Workload; 5] = [
    Workload { name: "A", shares: &[("readproportion", "0.5"), ("updateproportion", "0.5")] },
    Workload { name: "B", shares: &[("readproportion", "0.95"), ("updateproportion", "0.05")] },
    Workload { name: "C", shares: &[("readproportion", "1"), ("updateproportion", "0")] },
    Workload {
        name: "F",
        shares: &[("readproportion", "0.5"), ("updateproportion", "0"), ("readmodifywriteproportion", "0.5")],
    },
    Workload {
        name: "E",
        shares: &[
            ("readproportion", "0"),
            ("updateproportion", "0"),
            ("scanproportion", "0.95"),
            ("insertproportion", "0.05"),
        ],
    },
];

/// How much is done.
#[derive(Clone, Copy)]
pub struct Amount {
    pub rows: u64,
    /// Of each workload.
    pub calls: u64,
}

/// Runs a program within a time, and returns what it said.
type Runner<'a> = &'a dyn Fn(&mut Command, Duration) -> anyhow::Result<Output>;

/// Loads rows, and plays each workload.
pub fn run(root: &Path, binary: &Path, jars: &Path, amount: Amount, beside: Option<&Beside>) -> anyhow::Result<()> {
    let classes = tempfile::tempdir().context("creating a directory for the binding")?;
    let mut javac = Command::new("javac");
    javac.args(["-nowarn", "-cp"]).arg(format!("{}/*", jars.display())).arg("-d").arg(classes.path());
    javac.arg(root.join(SOURCES).join("ycsb").join(format!("{BINDING}.java"))).stderr(Stdio::null());
    ensure!(builds::succeeds(&mut javac), "YCSB's binding does not compile");
    let path = format!("{}:{}/*", classes.path().display(), jars.display());
    let play_theirs = |site: &str| play_all(&terrane_lab::run, &format!("{site}{path}"), amount);
    let theirs = beside.map(|beside| beside.measure(play_theirs)).transpose()?;
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    let ours = play_all(&|java, within| cluster.run(java, within), &path, amount)?;
    cluster.stop()?;
    if let Some(theirs) = theirs {
        println!("\n| workload | beside /s | ours /s | ratio |\n|---|---|---|---|");
        for ((name, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            println!("| {name} | {theirs:.0} | {ours:.0} | {:.2} |", ours / theirs);
        }
    }
    Ok(())
}

/// The names of the workloads with their calls each second.
fn play_all(run: Runner<'_>, path: &str, amount: Amount) -> anyhow::Result<Vec<(&'static str, f64)>> {
    println!("{:<9} {:>10}   outcomes", "workload", "calls/s");
    let load = Workload { name: "load", shares: &[] };
    let each = |workload: &Workload| Ok((workload.name, play(run, path, workload, amount)?));
    std::iter::once(&load).chain(&WORKLOADS).map(each).collect()
}

/// Calls each second.
fn play(run: Runner<'_>, path: &str, workload: &Workload, amount: Amount) -> anyhow::Result<f64> {
    let Workload { name, shares } = workload;
    let mut java = Command::new("java");
    java.args(["-Xmx1g", "-cp", path, "site.ycsb.Client", if *name == "load" { "-load" } else { "-t" }]);
    java.args(["-db", BINDING, "-threads", &THREADS.to_string()]);
    let (rows, calls) = (amount.rows.to_string(), amount.calls.to_string());
    let always = [
        ("workload", "site.ycsb.workloads.CoreWorkload"),
        ("recordcount", &rows),
        ("operationcount", &calls),
        ("requestdistribution", "zipfian"),
        ("dataintegrity", "true"),
        ("fieldlengthdistribution", "constant"),
        ("maxscanlength", "100"),
    ];
    for (property, value) in always.iter().chain(*shares) {
        java.args(["-p", &format!("{property}={value}")]);
    }
    let output = run(&mut java, WORKLOAD_MAX)?;
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let failures = || errors.lines().filter(|line| line.contains("xception")).take(3).collect::<Vec<_>>().join(" | ");
    ensure!(output.status.success(), "YCSB's workload {name} ended with {}: {}", output.status, failures());
    let (found, rate) = (outcomes(&said), rate(&said).unwrap_or(0.0));
    println!("{name:<9} {rate:>10.0}   {}", found.join(", "));
    let is_well = !found.is_empty() && found.iter().all(|outcome| outcome.contains(" OK "));
    ensure!(is_well, "YCSB's workload {name}: {} {}", found.join(", "), failures());
    Ok(rate)
}

/// The lines `[READ], Return=OK, 2104`, as `READ OK 2104`.
fn outcomes(said: &str) -> Vec<String> {
    let outcome = |line: &str| {
        let (kind, rest) = line.strip_prefix('[')?.split_once("], Return=")?;
        let (status, count) = rest.split_once(", ")?;
        // Those of failed calls have names such as `READ-FAILED`.
        KINDS.iter().any(|known| kind.starts_with(known)).then(|| format!("{kind} {status} {count}"))
    };
    said.lines().filter_map(outcome).collect()
}

/// Calls each second.
fn rate(said: &str) -> Option<f64> {
    let line = said.lines().find_map(|line| line.strip_prefix("[OVERALL], Throughput(ops/sec), "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_that_are_not_ok_are_seen() {
        let said = "[OVERALL], Throughput(ops/sec), 239.65\n[READ], Operations, 3\n[READ], Return=OK, 2\n\
                    [READ], Return=ERROR, 1\n[VERIFY], Return=UNEXPECTED_STATE, 1\n[CLEANUP], Operations, 1\n";
        assert_eq!(outcomes(said), ["READ OK 2", "READ ERROR 1", "VERIFY UNEXPECTED_STATE 1"]);
        assert_eq!(rate(said), Some(239.65));
        assert_eq!(rate(""), None);
    }
}
