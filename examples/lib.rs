//! The cluster that an example runs against; each example is a file of its own.
//!
//! Pass the address of a master as the first argument or in `TERRANE_MASTERS`. Otherwise the example starts `terrane dev` in a
//! temporary directory and stops it at its end, so `cargo build` and `cargo run -p terrane-examples --example feed` are enough
//! to try one.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

/// The first port to try: below the ports that the system assigns to outgoing connections.
const PORT_FIRST: u32 = 10_000;
const PORTS: u32 = 20_000;
/// The span of a cluster's ports.
const PORTS_SPAN: u32 = 131;
/// How often other ports are tried when one is in use.
const START_ATTEMPTS: u32 = 5;

/// A cluster to run against.
#[derive(Debug)]
pub struct Cluster {
    /// The argument for [`Client::connect`](terrane_client::Client::connect).
    pub masters: String,
    /// Stopped, and its directory removed, when the example ends.
    _own: Option<Own>,
}

/// The cluster that the user named, or a new one.
///
/// # Errors
/// When none was named and none can be started; the message says what to do.
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
    bail!("terrane dev did not start; start it yourself and pass the example its master's address")
}

/// The `terrane` that cargo built: one folder above the examples.
fn program() -> anyhow::Result<PathBuf> {
    let this = std::env::current_exe().context("finding this program")?;
    let built = this.ancestors().nth(2).context("an example is in a folder of the build")?.join("terrane");
    if Command::new(&built).arg("--version").stdout(Stdio::null()).status().is_err() {
        bail!(
            "{} does not exist, so no cluster can be started: run `cargo build` first, or pass the address of a \
             cluster's master, such as 127.0.0.1:7600",
            built.display()
        );
    }
    Ok(built)
}

/// A `terrane dev` process and its temporary directory.
#[derive(Debug)]
struct Own {
    process: Child,
    directory: tempfile::TempDir,
}

impl Drop for Own {
    fn drop(&mut self) {
        // A process that cannot be killed has ended; the directory is removed either way.
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("the cluster in {} did not stop: {error}", self.directory.path().display());
        }
    }
}

/// Starts a cluster and waits until it serves. `None`: it ended before that, as it does when a port is in use.
fn start(program: &PathBuf, attempt: u32) -> anyhow::Result<Option<Cluster>> {
    let directory = tempfile::Builder::new().prefix("terrane-example-").tempdir().context("making a directory")?;
    // Concurrent examples start at ports far apart.
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
