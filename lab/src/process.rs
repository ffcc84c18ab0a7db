//! One process: it is started, says that it serves, gets signals, and ends.
//!
//! A process serves once it prints a line that begins with `ready `. What it prints on standard error goes to a file: nothing
//! reads it while the process runs, and a full pipe would block it.

use std::fmt;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

/// Time limit for the `ready` line; a debug build on a busy machine takes a few seconds.
pub const READY_MAX: Duration = Duration::from_secs(120);
/// Time limit for the end after SIGTERM: a process hands over what it leads, and flushes.
const STOP_MAX: Duration = Duration::from_secs(120);
/// The unit of processor times in /proc, which is the same on all Linux systems of today.
const MS_PER_TICK: u64 = 10;

/// A running process; dropping it kills it.
pub struct Process {
    child: Child,
    log: File,
    /// What it prints, line by line; ends when the process does.
    stdout: Receiver<String>,
    /// The first line of standard output; empty before it.
    pub ready: String,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Whether it could not listen, because another process does: it can be started on other ports.
    pub fn is_port_taken(&self) -> bool {
        self.stderr.contains("in use")
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process ended with {}: {}", self.status, self.stderr.trim_end())
    }
}

impl std::error::Error for Ended {}

impl Process {
    /// Starts it and waits until it serves; the error is an [`Ended`] if it ends instead.
    pub fn start(command: &mut Command, log: File) -> anyhow::Result<Self> {
        let mut process = Self::spawn(command, log)?;
        if process.await_ready() { Ok(process) } else { Err(process.ended(READY_MAX)?.into()) }
    }

    /// Starts it.
    pub fn spawn(command: &mut Command, log: File) -> anyhow::Result<Self> {
        let errors = log.try_clone().context("a second handle of the log")?;
        command.env_remove("TERRANE_MASTERS").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        let mut child = command.spawn().with_context(|| format!("starting {:?}", command.get_program()))?;
        let stdout = child.stdout.take().context("its standard output is a pipe")?;
        Ok(Self { child, log, stdout: lines(stdout), ready: String::new() })
    }

    /// Waits until it serves. False if it ends instead; it is killed if it does neither in time.
    pub fn await_ready(&mut self) -> bool {
        match self.stdout.recv_timeout(READY_MAX) {
            Ok(line) => self.ready = line,
            Err(RecvTimeoutError::Disconnected) => {}
            // It fails if the process has just ended.
            Err(RecvTimeoutError::Timeout) => _ = self.child.kill(),
        }
        self.ready.starts_with("ready ")
    }

    /// Whether it serves, without waiting; `None` if that is open.
    pub fn serves(&mut self) -> Option<bool> {
        if self.ready.is_empty() {
            match self.stdout.try_recv() {
                Ok(line) => self.ready = line,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => {}
            }
        }
        Some(self.ready.starts_with("ready "))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by name.
    pub fn signal(&self, name: &str) -> anyhow::Result<()> {
        signal(self.pid(), name)
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(self) {
        drop(self);
    }

    /// Whether it has ended on its own.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        self.child.wait().map(drop).context("waiting for a process")
    }

    /// Stops it like a supervisor, with SIGTERM; an error if it does not end with success.
    pub fn stop(self) -> anyhow::Result<Ended> {
        self.signal("TERM")?;
        let ended = self.ended(STOP_MAX)?;
        ensure!(ended.status.success(), "{ended}");
        Ok(ended)
    }

    /// Waits until it ends. It is killed if that takes longer.
    pub fn ended(mut self, limit: Duration) -> anyhow::Result<Ended> {
        let deadline = Instant::now() + limit;
        let mut stdout = std::mem::take(&mut self.ready);
        loop {
            match self.stdout.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => stdout.push_str(&line),
                // It closes its output when it ends.
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.child.kill().context("killing a process that does not end")?;
                    break;
                }
            }
        }
        let status = self.child.wait().context("waiting for a process")?;
        Ok(Ended { status, stdout, stderr: self.messages() })
    }

    /// What it has printed on standard error so far.
    pub fn messages(&self) -> String {
        let length = self.log.metadata().map_or(0, |log| log.len());
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        // By offset, since the process writes at the position that both handles share.
        let read = self.log.read_at(&mut text, 0).unwrap_or(0);
        String::from_utf8_lossy(&text[..read]).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL also ends a stopped process. Both calls fail if the process has already ended.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The lines of a pipe, each with its end, read by a thread so that the pipe never fills up.
pub fn lines(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (said, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // A broken pipe ends like an ended process. The receiver may be gone; the pipe is read nevertheless.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
            said.send(String::from_utf8_lossy(&line).into_owned()).ok();
            line.clear();
        }
    });
    lines
}

/// Whether a command starts and succeeds; its output is discarded.
pub fn quietly(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Sends a signal, by name.
pub fn signal(pid: u32, name: &str) -> anyhow::Result<()> {
    signal_all(&[pid], name)
}

/// Sends a signal to processes at once.
pub fn signal_all(pids: &[u32], name: &str) -> anyhow::Result<()> {
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}")).args(pids.iter().map(u32::to_string)).stderr(Stdio::null());
    ensure!(kill.status().context("running kill")?.success(), "kill -{name} {pids:?} failed");
    Ok(())
}

/// Memory of a process in bytes: current, and the peak since [`reset_peak`].
pub fn memory(pid: u32) -> anyhow::Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("reading /proc")?;
    let field = |name: &str| -> anyhow::Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line in /proc")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").trim().parse().context("a number in /proc")?;
        Ok(kib << 10)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

pub fn reset_peak(pid: u32) -> anyhow::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("resetting the peak in /proc")
}

/// Processor time of a process so far.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("reading /proc")?;
    // The second field may contain blanks; it ends with the last parenthesis. Fields 14 and 15 are the times.
    let (_, fields) = stat.rsplit_once(')').context("a name in parentheses")?;
    let times: Vec<u64> = fields.split_whitespace().skip(11).take(2).filter_map(|of| of.parse().ok()).collect();
    ensure!(times.len() == 2, "no times in {stat}");
    Ok(Duration::from_millis(times.iter().sum::<u64>() * MS_PER_TICK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> anyhow::Result<Process> {
        Process::start(Command::new("sh").args(["-c", script]), tempfile::tempfile().unwrap())
    }

    #[test]
    fn a_process_that_is_ready_runs_until_it_is_stopped() {
        let mut process = shell("echo ready at=1; echo warning >&2; echo more; exec sleep 600").unwrap();
        assert_eq!(process.ready, "ready at=1\n");
        assert_eq!((process.serves(), process.has_ended()), (Some(true), false));
        process.signal("TERM").unwrap();
        let ended = process.ended(Duration::from_secs(60)).unwrap();
        assert!(!ended.status.success());
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("ready at=1\nmore\n", "warning\n"));
    }

    #[test]
    fn a_process_that_ends_instead_says_why() {
        let error = shell("echo address in use >&2; exit 3").err().unwrap();
        let ended = error.downcast::<Ended>().unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert!(ended.is_port_taken());
    }

    #[test]
    fn a_process_that_does_not_end_is_killed() {
        let process = shell("echo ready now; exec sleep 600").unwrap();
        assert!(!process.ended(Duration::from_millis(20)).unwrap().status.success());
    }
}
