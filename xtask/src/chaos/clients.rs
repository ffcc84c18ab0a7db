//! The clients: the program `terrane-chaos` as a child, which is killed with this value.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::arguments::Asked;

/// For the table to exist.
const LOADING_MAX: Duration = Duration::from_secs(120);
/// For reading everything and for the check, on a healthy cluster.
const JUDGE_MAX: Duration = Duration::from_secs(600);

pub struct Clients {
    child: Child,
    /// Ends when the child's standard error does.
    messages: Receiver<String>,
}

impl Clients {
    /// Starts them, and waits until they load the cluster.
    pub fn start(program: &Path, masters: &str, history: &Path, asked: &Asked) -> anyhow::Result<Self> {
        let mut command = Command::new(program);
        command.args(["run", "--masters", masters, "--seed", &asked.seed.to_string(), "--history"]).arg(history);
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = pipes.spawn().context("starting the clients")?;
        let stderr = child.stderr.take().context("its standard error is a pipe")?;
        let (said, messages) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("           clients: {line}");
                // The receiver listens for the first line only.
                said.send(line).ok();
            }
        });
        let clients = Self { child, messages };
        let first = clients.messages.recv_timeout(LOADING_MAX).context("the clients do not begin")?;
        ensure!(first == "loading", "the clients do not begin: {first}");
        Ok(clients)
    }

    /// An error if they have ended.
    pub fn check_running(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().context("looking for the clients")? {
            None => Ok(()),
            Some(status) => bail!("the clients ended early, with {status}"),
        }
    }

    /// Tells them to stop and to check; returns what they say, an error if they found something.
    pub fn judge(&mut self) -> anyhow::Result<String> {
        self.check_running()?;
        let mut stdin = self.child.stdin.take().context("its standard input is a pipe")?;
        stdin.write_all(b"judge\n").context("telling the clients to stop")?;
        let deadline = std::time::Instant::now() + JUDGE_MAX;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => bail!("the clients have not judged within {} s", JUDGE_MAX.as_secs()),
            }
        }
        let mut said = String::new();
        let mut stdout = self.child.stdout.take().context("its standard output is a pipe")?;
        stdout.read_to_string(&mut said).context("reading the verdict")?;
        let status = self.child.wait().context("waiting for the clients")?;
        ensure!(status.success(), "the check of the history fails: {}", said.trim());
        let verdict: Value = serde_json::from_str(said.trim()).context("reading the verdict")?;
        Ok(format!("no violation in {}, {} undecided", verdict["totals"], verdict["undecided"]))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Both calls fail if they have ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
