//! Where an example finds its cluster; everything else about it is in its own file.
//!
//! The address of a master may be given as the first argument or in `TERRANE_MASTERS`. Without one, `terrane dev` is started
//! in a temporary directory and goes with the value that stands for it, so that `cargo build` and
//! `cargo run -p terrane-examples --example feed` are all that trying takes.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// Ports are looked for from here on, below those that the system gives to outgoing connections.
const PORT_FIRST: u32 = 10_000;
const PORTS: u32 = 20_000;
/// A cluster's ports lie within so many of the first.
const PORTS_SPAN: u32 = 131;
/// How often other ports are tried when somebody has one of those chosen.
const START_ATTEMPTS: u32 = 5;

/// A cluster to run against.
#[derive(Debug)]
pub struct Cluster {
    /// What [`Client::connect`](terrane_client::Client::connect) takes.
    pub masters: String,
    /// Stopped, and its directory removed, when the example ends.
    _own: Option<Own>,
}

/// The cluster that was named, or one of our own.
///
/// # Errors
/// When none was named and none can be started, with what to do.
pub fn cluster() -> anyhow::Result<Cluster> {
    let named = std::env::args().nth(1).or_else(|| std::env::var("TERRANE_MASTERS").ok());
    if let Some(masters) = named {
        return Ok(Cluster { masters, _own: None });
    }
    let program = program()?;
    for attempt in 0..START_ATTEMPTS {
        if let Some(cluster) = start(&program, attempt)? {
            return Ok(cluster);
        }
    }
    bail!("terrane dev did not start; start it by hand and give the example its master's address")
}

/// `terrane` as cargo builds it: one folder above the examples.
fn program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let built = this.ancestors().nth(2).context("an example lies in a folder of the build")?.join("terrane");
    if Command::new(&built).arg("--version").stdout(Stdio::null()).status().is_err() {
        bail!(
            "{} is not there to start a cluster with: run `cargo build` first, or give the example the address of a \
             cluster's master, as 127.0.0.1:7600",
            built.display()
        );
    }
    Ok(built)
}

/// `terrane dev` in a directory that goes with it.
#[derive(Debug)]
struct Own {
    process: Child,
    directory: tempfile::TempDir,
}

impl Drop for Own {
    fn drop(&mut self) {
        // What cannot be killed has ended; its directory is removed either way.
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the cluster in {} did not stop: {error}", self.directory.path().display());
        }
    }
}

/// Waits until it serves. `None`: it ended before, as it does when a port is taken.
fn start(program: &PathBuf, attempt: u32) -> anyhow::Result<Option<Cluster>> {
    let directory = tempfile::Builder::new().prefix("terrane-example-").tempdir().context("making a directory")?;
    // Examples that run at once begin far from each other.
    let slot = std::process::id().wrapping_mul(2_003).wrapping_add(attempt * 7) % (PORTS / PORTS_SPAN);
    let base = PORT_FIRST + slot * PORTS_SPAN;
    let process = Command::new(program)
        .args(["dev", "--listen-base", &base.to_string(), "--data"])
        .arg(directory.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting terrane dev")?;
    let mut own = Own { process, directory };
    let stdout = own.process.stdout.take().context("its standard output is a pipe")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("reading what terrane dev prints")?;
    let ready = line.strip_prefix("ready ").and_then(|words| words.split_whitespace().find_map(master_of));
    Ok(ready.map(|masters| Cluster { masters, _own: Some(own) }))
}

fn master_of(word: &str) -> Option<String> {
    word.strip_prefix("master=").map(str::to_owned)
}
