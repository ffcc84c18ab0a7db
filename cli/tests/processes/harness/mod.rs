//! Real processes for the tests of the binary: starts and kills them and runs commands against them, with timeouts.
//!
//! Every process is owned by a value whose drop kills it, so that a panicking test leaves none behind. Every wait has a
//! timeout: a watchdog kills a process that does not end, and the test fails with its output. Ports are below the range
//! that the system uses for outgoing connections, so that a restarted server finds its port free.
//!
//! Here are processes and the commands that clients run; [`clusters`] makes whole clusters of them.

mod clusters;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

pub use self::clusters::*;

pub const BINARY: &str = env!("CARGO_BIN_EXE_terrane");
/// How long a role may take until its `ready` line; debug builds share two cores with other tests.
pub const READY_MAX: Duration = Duration::from_secs(60);
/// How long any other command may take.
pub const COMMAND_MAX: Duration = Duration::from_secs(90);
/// The timeout of a command that must succeed: shorter than that, so that it can say what it waited for.
const PATIENCE: &str = "80s";
/// The first port,
const PORT_FIRST: u16 = 10_000;
/// the number of ports,
const PORTS: u16 = 20_000;
/// and the distance between the first ports of consecutive processes, more than one test binary uses.
const PORTS_BETWEEN: u32 = 2_003;

/// The next port to try.
static PORT_NEXT: AtomicU16 = AtomicU16::new(0);

/// Free ports that no other test of this process gets.
pub fn free_ports<const N: usize>() -> [u16; N] {
    // Test binaries may run concurrently: each starts at another port, far away for consecutive process ids.
    let begin = std::process::id().wrapping_mul(PORTS_BETWEEN) % u32::from(PORTS);
    let begin = u16::try_from(begin).expect("below the number of ports");
    std::array::from_fn(|_| {
        (0..PORTS)
            .map(|_| PORT_FIRST + (begin + PORT_NEXT.fetch_add(1, Ordering::Relaxed) % PORTS) % PORTS)
            .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
            .expect("a free port")
    })
}

pub fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Sends a signal, by name, to a process that may be gone.
pub fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).stderr(Stdio::null()).status();
    sent.expect("kill runs");
}

/// Kills a process unless it is dropped in time.
pub struct Watchdog {
    _awake: mpsc::Sender<()>,
}

impl Watchdog {
    pub fn over(pid: u32, limit: Duration) -> Watchdog {
        let (awake, gone) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if gone.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
                signal(pid, "KILL");
            }
        });
        Watchdog { _awake: awake }
    }
}

/// Calls until there is a result.
pub fn eventually<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(why) if Instant::now() >= deadline => panic!("not within {limit:?}: {what}: {why}"),
            // Polls, since there is no call that waits.
            Err(_) => std::thread::park_timeout(Duration::from_millis(50)),
        }
    }
}

/// The output of an ended process.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// A running `dev`, `master` or `server`; killed when dropped.
pub struct Process {
    child: Child,
    errors: File,
    /// The first line of standard output.
    pub ready: String,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a role and waits for its first line; `Err` if it ends instead.
    pub fn start(arguments: &[String]) -> Result<Process, Ended> {
        // A file, since nothing reads it while the process runs and a full pipe would block it.
        let errors = tempfile::tempfile().expect("a file");
        let mut child = Command::new(BINARY)
            .args(arguments)
            .env_remove("TERRANE_MASTERS")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors.try_clone().expect("a second handle"))
            .spawn()
            .expect("the binary starts");
        let _watchdog = Watchdog::over(child.id(), READY_MAX);
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut ready = String::new();
        stdout.read_line(&mut ready).expect("text");
        let mut process = Process { child, errors, ready, stdout };
        if process.ready.starts_with("ready ") { Ok(process) } else { Err(process.ended()) }
    }

    /// Starts a role that must start.
    pub fn started(arguments: &[String]) -> Process {
        Process::start(arguments).unwrap_or_else(|ended| panic!("{arguments:?} did not start: {ended:?}"))
    }

    /// Kills it without warning, like a lost machine.
    pub fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    /// Stops it like a supervisor, and waits.
    pub fn stop(mut self) -> Ended {
        signal(self.child.id(), "TERM");
        let _watchdog = Watchdog::over(self.child.id(), COMMAND_MAX);
        let ended = self.ended();
        assert!(ended.status.success(), "{ended:?}");
        ended
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends, without being stopped.
    pub fn ended_by_itself(mut self) -> Ended {
        let _watchdog = Watchdog::over(self.child.id(), COMMAND_MAX);
        let ended = self.ended();
        assert!(ended.status.success(), "{ended:?}");
        ended
    }

    /// Waits until it ends because it cannot go on.
    pub fn aborted(mut self) -> Ended {
        let _watchdog = Watchdog::over(self.child.id(), COMMAND_MAX);
        let ended = self.ended();
        assert!(!ended.status.success(), "{ended:?}");
        ended
    }

    fn ended(&mut self) -> Ended {
        let mut stdout = std::mem::take(&mut self.ready);
        self.stdout.read_to_string(&mut stdout).expect("text");
        let status = self.child.wait().expect("it ends");
        Ended { status, stdout, stderr: self.errors_so_far() }
    }

    pub fn errors_so_far(&mut self) -> String {
        let mut text = Vec::new();
        self.errors.rewind().expect("a file");
        self.errors.read_to_end(&mut text).expect("a file");
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has already ended, which is fine.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A command that runs in the background; killed when dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    _watchdog: Watchdog,
}

impl Running {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its input. Returns false if it no longer reads; its outcome then says why.
    pub fn feed(&mut self, input: &str) -> bool {
        self.stdin.as_mut().expect("still open").write_all(input.as_bytes()).is_ok()
    }

    /// Closes its input and waits until it ends. Its output must fit into a pipe.
    pub fn finish(mut self) -> Output {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        self.child.stdout.take().expect("piped").read_to_end(&mut stdout).expect("read");
        self.child.stderr.take().expect("piped").read_to_end(&mut stderr).expect("read");
        Output { status: self.child.wait().expect("it ends"), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Runs a command to its end, without TERRANE_MASTERS of the environment.
pub fn terrane(arguments: &[&str]) -> Output {
    bounded(Command::new(BINARY).args(arguments).env_remove("TERRANE_MASTERS"))
}

/// Runs a prepared command to its end.
pub fn bounded(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("the binary starts");
    let _watchdog = Watchdog::over(child.id(), COMMAND_MAX);
    child.wait_with_output().expect("it ends")
}

/// The standard output of a command, which must have this status and no trace of a panic.
pub fn text_of(output: &Output, status: i32) -> String {
    let errors = errors_of(output);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    no_trace(&errors);
    String::from_utf8(output.stdout.clone()).expect("output is text")
}

pub fn errors_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Messages must not contain a panic, a backtrace or a source file.
pub fn no_trace(errors: &str) {
    for trace in ["panicked", "stack backtrace", "RUST_BACKTRACE", ".rs:"] {
        assert!(!errors.contains(trace), "{errors}");
    }
}

/// Runs commands against a cluster.
#[derive(Clone)]
pub struct Client {
    pub masters: String,
}

impl Client {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.args(arguments).args(["--masters", &self.masters]);
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        bounded(&mut self.command(arguments))
    }

    /// Starts a command with input from the test.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let watchdog = Watchdog::over(child.id(), COMMAND_MAX);
        Running { stdin: child.stdin.take(), child, _watchdog: watchdog }
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut running = self.start(arguments);
        running.feed(input);
        running.finish()
    }

    /// Runs a command that must succeed; returns its standard output. It has more time than the default: while a machine
    /// writes back what it has just compiled, one sync can take tens of seconds.
    pub fn succeed(&self, arguments: &[&str]) -> String {
        let mut command = self.command(arguments);
        if !arguments.contains(&"--timeout") {
            command.args(["--timeout", PATIENCE]);
        }
        text_of(&bounded(&mut command), 0)
    }

    /// Runs a command that must succeed with one line of JSON.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let text = self.succeed(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error} in {text:?}"))
    }

    /// Runs a command that must succeed with lines of JSON.
    pub fn json_lines(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.succeed(&[arguments, &["--json"]].concat());
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// Runs a command that must fail with this status and without output; returns its standard error.
    pub fn fail(&self, arguments: &[&str], status: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(text_of(&output, status), "", "{arguments:?}");
        errors_of(&output)
    }

    /// The number of regions of a table.
    pub fn regions(&self, table: &str) -> usize {
        self.json_lines(&["admin", "regions", table]).len()
    }

    /// Waits until a table has this many regions.
    pub fn wait_for_regions(&self, table: &str, least: usize) {
        eventually(COMMAND_MAX, "regions", || {
            let regions = self.regions(table);
            if regions >= least { Ok(()) } else { Err(format!("{regions} of {least}")) }
        });
    }

    /// Waits until `status` reports no issues.
    pub fn wait_until_well(&self) {
        eventually(COMMAND_MAX, "status is well", || {
            let output = self.run(&["status", "--json", "--timeout", "2s"]);
            let status: Option<Value> = serde_json::from_slice(&output.stdout).ok();
            match status {
                Some(status) if status["healthy"] == true && status["live"] == status["servers"] => Ok(()),
                _ => Err(String::from_utf8_lossy(&output.stdout).into_owned() + &errors_of(&output)),
            }
        });
    }

    /// All cells of a table as exported by `export --format tsv`.
    pub fn cells(&self, table: &str) -> Cells {
        cells_of_tsv(&self.succeed(&["export", table, "--format", "tsv"]))
    }
}

/// Cells by (row, column), without timestamps, unescaped.
pub type Cells = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

/// Parses lines of tsv, which must be in the order of rows and columns, without duplicates.
pub fn cells_of_tsv(text: &str) -> Cells {
    let mut cells = Cells::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [row, column, timestamp, value] = fields[..] else { panic!("{line:?} has not four fields") };
        timestamp.parse::<i64>().expect("a timestamp");
        let key = (unescaped(row), unescaped(column));
        assert!(cells.last_key_value().is_none_or(|(last, _)| *last < key), "{line:?} is out of order or there twice");
        cells.insert(key, unescaped(value));
    }
    cells
}

/// Fails with the first difference instead of a hundred thousand cells.
pub fn assert_same_cells(found: &Cells, expected: &Cells) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for ((row, column), value) in expected {
        let there = found.get(&(row.clone(), column.clone()));
        assert_eq!(there, Some(value), "row {:?} {:?} column {}", text(row), row, text(column));
    }
    let invented = found.keys().find(|key| !expected.contains_key(*key));
    assert_eq!(invented, None, "a cell that was never written");
}

/// Unescapes `\xHH` and `\\`; implemented here, because shared code would share its bugs with the code under test.
pub fn unescaped(text: &str) -> Vec<u8> {
    assert!(!text.contains(char::is_control), "{text:?} has a character that is not printable");
    let mut bytes = text.bytes();
    let mut read = Vec::new();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            read.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'\\') => read.push(b'\\'),
            Some(b'x') => {
                let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
                let capital = |digit: &u8| digit.is_ascii_digit() || (b'A'..=b'F').contains(digit);
                assert!(digits.iter().all(capital), "{text:?} is not in capital hex");
                read.push(u8::from_str_radix(std::str::from_utf8(&digits).expect("ASCII"), 16).expect("hex"));
            }
            other => panic!("{text:?}: an escape with {other:?}"),
        }
    }
    read
}

/// Writes a file of a test.
pub fn write_file(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
}
