//! `terrane dev`: a whole cluster in one process, on free loopback ports.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::ports;
use crate::process::{Ended, Process};
use crate::running::run;

/// Attempts to start when another process has taken a port.
pub const START_ATTEMPTS: usize = 10;

/// A running cluster. Dropping it kills the process, and removes its directory if it is a temporary one.
pub struct DevCluster {
    pub process: Process,
    /// The master's address for clients.
    pub master: String,
    _directory: Option<tempfile::TempDir>,
}

impl DevCluster {
    /// Starts it in a temporary directory, and waits until it serves.
    pub fn start(binary: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("terrane-dev-").tempdir();
        let directory = directory.context("creating a directory for the cluster")?;
        let cluster = Self::start_in(binary, &directory.path().join("data"), flags)?;
        Ok(Self { _directory: Some(directory), ..cluster })
    }

    /// Starts it with this data directory, and waits until it serves.
    pub fn start_in(binary: &Path, data: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        for _ in 0..START_ATTEMPTS {
            let first = ports::free_for_dev()?;
            let mut command = Command::new(binary);
            command.args(["dev", "--listen-base", &first.to_string(), "--data"]).arg(data).args(flags);
            match Process::start(&mut command, log()?) {
                Ok(process) => return Ok(Self { process, master: ports::local(first), _directory: None }),
                Err(error) if error.downcast_ref::<Ended>().is_some_and(Ended::is_port_taken) => {}
                Err(error) => return Err(error.context("starting terrane dev")),
            }
        }
        bail!("no free ports for a cluster")
    }

    /// Runs a program against the cluster, for at most `limit`.
    pub fn run(&self, command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
        run(command.env("TERRANE_MASTERS", &self.master), limit)
    }

    /// Stops the cluster with SIGTERM; an error if it does not exit with success.
    pub fn stop(self) -> anyhow::Result<Ended> {
        self.process.stop()
    }
}

/// A file for the messages of a process, removed with it.
pub fn log() -> anyhow::Result<File> {
    tempfile::tempfile().context("creating a file for a process's messages")
}
