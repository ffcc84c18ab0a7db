//! A `terrane dev` cluster for the steps that run examples, on free loopback ports and in a temporary directory.
//!
//! Dropping the value kills the process, and every wait has a limit after which the process is killed, so a step always
//! ends. A port may be taken between the check and the start; then the next ports are tried.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::processes;

/// Limits for the `ready` line and for stopping; a debug build on a busy machine takes a few seconds.
const READY_MAX: Duration = Duration::from_secs(120);
const STOP_MAX: Duration = Duration::from_secs(60);

/// Below the range from which the system assigns ports to outgoing connections.
const PORT_FIRST: u16 = 10_000;
const PORTS: u16 = 20_000;
/// A cluster's ports span at most this many.
const PORTS_SPAN: u16 = 131;
/// Attempts to start when another process has taken a port.
const START_ATTEMPTS: u16 = 10;

/// A running cluster.
pub struct DevCluster {
    child: Child,
    /// The master's address for clients.
    pub master: String,
    directory: tempfile::TempDir,
}

/// Builds the binary and all examples with the same features as the tests, so that nothing is compiled again after them.
/// Returns their directory, which is also this program's.
pub fn build(root: &Path) -> anyhow::Result<PathBuf> {
    // The whole workspace, because the features of tests apply to examples too.
    let arguments = ["build", "--workspace", "--quiet", "--examples", "--bin", "terrane"];
    ensure!(processes::succeeds(processes::cargo(root).args(arguments)), "terrane and the examples do not build");
    let this = std::env::current_exe().context("finding this program")?;
    let programs = this.parent().context("a program is in a directory")?;
    ensure!(programs.join("terrane").is_file(), "terrane was not built into {}", programs.display());
    Ok(programs.to_owned())
}

impl DevCluster {
    /// Starts the binary in the directory `programs` and waits until it serves.
    pub fn start(programs: &Path) -> anyhow::Result<Self> {
        Self::start_with(&programs.join("terrane"), &[])
    }

    /// Starts a binary that also serves HBase's clients, on the ports that they expect.
    pub fn start_for_hbase(binary: &Path) -> anyhow::Result<Self> {
        Self::start_with(binary, &["--hbase"])
    }

    /// The id of its process.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    fn start_with(binary: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        for attempt in 0..START_ATTEMPTS {
            let directory = tempfile::tempdir().context("creating a directory for the cluster")?;
            match start_at(binary, flags, directory, free_base(attempt)?)? {
                Started::Serves(cluster) => return Ok(cluster),
                Started::PortTaken => {}
            }
        }
        bail!("no free ports for a cluster")
    }

    /// Runs a program against the cluster, for at most `limit`.
    pub fn run(&self, command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
        run(command.env("TERRANE_MASTERS", &self.master), limit)
    }

    /// Stops the cluster with SIGTERM; an error if it does not exit with success.
    pub fn stop(mut self) -> anyhow::Result<()> {
        signal(self.child.id(), "TERM");
        let _watchdog = Watchdog::over(self.child.id(), STOP_MAX);
        let status = self.child.wait().context("waiting for the cluster")?;
        ensure!(status.success(), "the cluster ended with {status}: {}", errors_in(self.directory.path()));
        Ok(())
    }
}

/// Runs a program for at most `limit`.
pub fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().with_context(|| format!("starting {name}"))?;
    let watchdog = Watchdog::over(child.id(), limit);
    let output = child.wait_with_output().with_context(|| format!("waiting for {name}"))?;
    ensure!(!watchdog.has_bitten(), "{name} did not end within {} s", limit.as_secs());
    Ok(output)
}

impl Drop for DevCluster {
    fn drop(&mut self) {
        // Both fail if the process has already ended, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

enum Started {
    Serves(DevCluster),
    PortTaken,
}

fn start_at(binary: &Path, flags: &[&str], directory: tempfile::TempDir, base: u16) -> anyhow::Result<Started> {
    // A file: a pipe that is not read while the process runs would fill up and block it.
    let errors = File::create(errors_file(directory.path())).context("creating a file for the cluster's messages")?;
    let mut child = Command::new(binary)
        .args(["dev", "--listen-base", &base.to_string(), "--data"])
        .arg(directory.path().join("data"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .context("starting terrane dev")?;
    let stdout = child.stdout.take().context("its standard output is a pipe")?;
    let _watchdog = Watchdog::over(child.id(), READY_MAX);
    let mut cluster = DevCluster { child, master: String::new(), directory };
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).context("reading what the cluster prints")?;
    if let Some(master) = master_of(&line) {
        cluster.master = master.to_owned();
        return Ok(Started::Serves(cluster));
    }
    cluster.child.wait().context("waiting for the cluster")?;
    let said = errors_in(cluster.directory.path());
    ensure!(said.contains("in use"), "the cluster did not start: {said}");
    Ok(Started::PortTaken)
}

/// The master's address in the `ready` line.
fn master_of(line: &str) -> Option<&str> {
    let words = line.strip_prefix("ready ")?;
    words.split_whitespace().find_map(|word| word.strip_prefix("master="))
}

/// The first of a range of free ports. Two instances of this program start their search far apart.
fn free_base(attempt: u16) -> anyhow::Result<u16> {
    let begin = u16::try_from(std::process::id().wrapping_mul(2_003) % u32::from(PORTS)).context("below 20,000")?;
    let bases = (0..PORTS / PORTS_SPAN).map(|step| PORT_FIRST + (begin + (step + attempt * 7) * PORTS_SPAN) % PORTS);
    let free = bases.into_iter().find(|&base| TcpListener::bind(("127.0.0.1", base)).is_ok());
    free.context("no port is free on this machine")
}

fn errors_file(directory: &Path) -> PathBuf {
    directory.join("errors.txt")
}

fn errors_in(directory: &Path) -> String {
    fs::read_to_string(errors_file(directory)).unwrap_or_else(|error| format!("(cannot read its messages: {error})"))
}

/// Sends a signal, by name, to a process that may have ended.
fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    if let Err(error) = sent {
        eprintln!("cannot run kill: {error}");
    }
}

/// Kills a process unless dropped in time.
struct Watchdog {
    _awake: mpsc::Sender<()>,
    bitten: mpsc::Receiver<()>,
}

impl Watchdog {
    fn over(pid: u32, limit: Duration) -> Self {
        let (awake, gone) = mpsc::channel::<()>();
        let (bite, bitten) = mpsc::channel();
        std::thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                // Record it before the kill: the waiting thread checks right after the process ended.
                bite.send(()).ok();
                signal(pid, "KILL");
            }
        });
        Self { _awake: awake, bitten }
    }

    fn has_bitten(&self) -> bool {
        self.bitten.try_recv().is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_names_the_master() {
        assert_eq!(master_of("ready master=127.0.0.1:7600 servers=a,b console=http://c\n"), Some("127.0.0.1:7600"));
        assert_eq!(master_of("master=127.0.0.1:7600\n"), None);
        assert_eq!(master_of(""), None);
    }

    #[test]
    fn a_cluster_fits_above_its_first_port() {
        for attempt in 0..START_ATTEMPTS {
            let base = free_base(attempt).unwrap();
            assert!((PORT_FIRST..PORT_FIRST + PORTS).contains(&base), "{base}");
        }
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let watchdog = Watchdog::over(child.id(), Duration::from_millis(20));
        assert!(!child.wait().unwrap().success());
        assert!(watchdog.has_bitten());
    }
}
