//! `hbase clients`: other clients that speak HBase's protocol, unchanged, each with a program that checks what it reads. One
//! that cannot be fetched here is skipped with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use terrane_lab::process::quietly;
use terrane_lab::{DevCluster, builds};

use super::SOURCES;
use super::jars::jars;

/// Time limit of one program.
const PROGRAM_MAX: Duration = Duration::from_secs(180);
/// Time limit for fetching packages, in seconds.
const FETCH_SECONDS_MAX: &str = "300";
const QUORUM: &str = "127.0.0.1";
/// Java programs: the list of jars, the program, and what its client is.
const JAVA: [(&str, &str, &str); 3] = [
    ("client-2.2", "First.java", "HBase's Java client 2.2"),
    ("client", "First.java", "HBase's Java client"),
    ("asynchbase", "Asynchbase.java", "asynchbase"),
];
const PYTHON_PACKAGE: &str = "hbase-driver==1.1.1";

/// Runs each program on one cluster.
pub fn run(root: &Path, binary: &Path) -> anyhow::Result<()> {
    let cluster = DevCluster::start(binary, &["--hbase"])?;
    // asynchbase creates no tables.
    let mut create = Command::new(binary);
    create.args(["table", "create", "asynchbase", "--family", "f", "--split-at", "row-0200"]);
    let created = cluster.run(&mut create, PROGRAM_MAX)?;
    ensure!(created.status.success(), "the table is not created: {}", String::from_utf8_lossy(&created.stderr));
    let mut failed = Vec::new();
    for (list, program, name) in JAVA {
        let Some(jars) = fetched(name, jars(root, list)) else { continue };
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-cp"]).arg(format!("{}/*", jars.display()));
        java.arg(root.join(SOURCES).join(program)).arg(QUORUM);
        failed.extend(play(&cluster, name, &mut java)?);
    }
    let name = "hbase-driver";
    if let Some(python) = fetched(name, python(root)) {
        let mut program = Command::new(python);
        program.arg(root.join("hbase/python/first.py")).arg(format!("{QUORUM}:2181"));
        failed.extend(play(&cluster, name, &mut program)?);
    }
    cluster.stop()?;
    ensure!(failed.is_empty(), "clients do not find what they expect: {}", failed.join(", "));
    Ok(())
}

fn fetched(name: &str, found: anyhow::Result<PathBuf>) -> Option<PathBuf> {
    found.inspect_err(|missing| println!("{name}: skipped: {missing:#}")).ok()
}

/// Runs a program; its client's name if it fails.
fn play(cluster: &DevCluster, name: &'static str, program: &mut Command) -> anyhow::Result<Option<&'static str>> {
    let output = cluster.run(program, PROGRAM_MAX)?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && said.lines().any(|line| line.starts_with("ok ")) {
        println!("{name}: ok");
        return Ok(None);
    }
    println!("{name}: FAILED");
    let errors = String::from_utf8_lossy(&output.stderr);
    let about = errors.lines().filter(|line| line.contains("Error") || line.contains("xception"));
    about.take(5).for_each(|line| println!("  {line}"));
    Ok(Some(name))
}

/// The interpreter of a virtual environment with the Python client, made once.
fn python(root: &Path) -> anyhow::Result<PathBuf> {
    let directory = builds::target_directory(root).join("hbase").join("python");
    let (interpreter, complete) = (directory.join("bin/python"), directory.join("complete.txt"));
    if fs::read_to_string(&complete).is_ok_and(|fetched| fetched == PYTHON_PACKAGE) {
        return Ok(interpreter);
    }
    ensure!(
        quietly(Command::new("python3").args(["-m", "venv"]).arg(&directory)),
        "python3 with venv is not installed"
    );
    let mut fetch = Command::new("timeout");
    fetch.arg(FETCH_SECONDS_MAX).arg(&interpreter).args(["-m", "pip", "install", "--quiet", PYTHON_PACKAGE]);
    ensure!(quietly(&mut fetch), "pip cannot fetch {PYTHON_PACKAGE}; is a package index reachable?");
    fs::write(&complete, PYTHON_PACKAGE).context("marking the environment as complete")?;
    Ok(interpreter)
}
