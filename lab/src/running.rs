//! A command that runs beside the test: it is fed, says how it does on standard error, and ends with a result.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::process::{lines, signal};
use crate::wait::WAIT_MAX;

/// Time limit of a load, which is bounded itself.
const LOAD_MAX: Duration = Duration::from_secs(3_600);

/// A running command; dropping it kills it.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    /// Reads its output, so that the pipe never fills up.
    stdout: Option<JoinHandle<Vec<u8>>>,
    messages: Receiver<String>,
    /// The messages that were received so far.
    read: String,
    _watchdog: Watchdog,
}

impl Running {
    /// Starts it; it is killed after `limit`.
    pub fn start(command: &mut Command, limit: Duration) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
        let _watchdog = Watchdog::over(child.id(), limit);
        let (stdout, stderr) = child.stdout.take().zip(child.stderr.take()).context("its output is two pipes")?;
        let (stdin, stdout) = (child.stdin.take(), Some(thread::spawn(|| everything(stdout))));
        Ok(Self { child, stdin, stdout, messages: lines(stderr), read: String::new(), _watchdog })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Writes to its input. False if it no longer reads; its outcome then says why.
    pub fn feed(&mut self, input: &str) -> bool {
        self.stdin.as_mut().is_some_and(|stdin| stdin.write_all(input.as_bytes()).is_ok())
    }

    /// Waits until it prints this line on standard error.
    pub fn await_message(&mut self, awaited: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.messages.recv_timeout(left);
            let line = line.with_context(|| format!("the command does not say `{awaited}`: {}", self.read))?;
            if line.trim_end() == awaited {
                return Ok(());
            }
            self.read.push_str(&line);
        }
    }

    /// Closes its input and waits until it ends.
    pub fn finish(mut self) -> anyhow::Result<Output> {
        drop(self.stdin.take());
        let status = self.child.wait().context("waiting for a command")?;
        let stdout = self.stdout.take().context("its output is read once")?.join();
        let stderr = std::mem::take(&mut self.read) + &self.messages.iter().collect::<String>();
        Ok(Output { status, stdout: stdout.expect("reading a pipe does not panic"), stderr: stderr.into_bytes() })
    }
}

/// What comes out of a pipe. What could be read counts: a broken pipe ends like an ended program.
fn everything(mut pipe: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).ok();
    bytes
}

/// Runs a program to its end; an error if it has to be killed after `limit`.
pub fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let output = Running::start(command, limit)?.finish()?;
    let is_killed = output.status.signal() == Some(9);
    ensure!(!is_killed, "{:?} did not end within {} s", command.get_program(), limit.as_secs());
    Ok(output)
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail if it has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Kills a process unless dropped in time.
struct Watchdog {
    _awake: mpsc::Sender<()>,
}

impl Watchdog {
    fn over(pid: u32, limit: Duration) -> Self {
        let (awake, gone) = mpsc::channel::<()>();
        thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                // It fails if the process has just ended.
                signal(pid, "KILL").ok();
            }
        });
        Self { _awake: awake }
    }
}

/// A load generator: a command whose last line is a summary, in JSON.
pub struct Load(Running);

impl Load {
    pub fn start(command: &mut Command) -> anyhow::Result<Self> {
        Running::start(command, LOAD_MAX).map(Self)
    }

    pub fn has_ended(&mut self) -> bool {
        self.0.has_ended()
    }

    pub fn await_message(&mut self, awaited: &str) -> anyhow::Result<()> {
        self.0.await_message(awaited)
    }

    /// Waits for the end; returns the summary, whether it succeeded, and its messages.
    pub fn finish(self) -> anyhow::Result<(Value, bool, String)> {
        let output = self.0.finish()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let summary = last_json(&String::from_utf8_lossy(&output.stdout));
        Ok((summary.with_context(|| format!("a load without a summary: {errors}"))?, output.status.success(), errors))
    }

    /// Waits for the end of a load none of whose calls may fail; returns the summary.
    pub fn succeed(self) -> anyhow::Result<Value> {
        let (summary, well, errors) = self.finish()?;
        ensure!(well && summary["errors"] == 0, "calls failed: {summary} {errors}");
        Ok(summary)
    }
}

/// The last line, parsed.
pub fn last_json(text: &str) -> anyhow::Result<Value> {
    let line = text.lines().last().context("no output")?;
    serde_json::from_str(line).with_context(|| format!("{line:?} is not JSON"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_fed_and_gives_back_all_that_it_prints() {
        let long = "long ".repeat(100_000);
        let mut cat = Running::start(&mut Command::new("cat"), Duration::from_secs(60)).unwrap();
        assert!(cat.feed(&long));
        assert_eq!(cat.finish().unwrap().stdout, long.as_bytes());
    }

    #[test]
    fn a_command_that_does_not_end_is_killed() {
        assert!(run(Command::new("sleep").arg("600"), Duration::from_millis(20)).is_err());
    }
}
