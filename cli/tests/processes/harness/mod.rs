//! Real processes for the tests of the binary, as `terrane-lab` launches them, and the commands that clients run. Whatever does not
//! go as it must is a panic with what the process said.

mod clusters;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
pub use terrane_lab::ports::local;
pub use terrane_lab::process::READY_MAX;
pub use terrane_lab::{Ended, Process, Role, Running};

pub use self::clusters::*;

pub const BINARY: &str = env!("CARGO_BIN_EXE_terrane");
/// How long any command may take; debug builds share two cores with other tests.
pub const COMMAND_MAX: Duration = Duration::from_secs(90);
/// The timeout of a command that must succeed: shorter than that, so that it can say what it waited for.
const PATIENCE: &str = "80s";

/// Free ports that no other test of this process gets.
pub fn free_ports<const N: usize>() -> [u16; N] {
    let ports = terrane_lab::ports::free(N).expect("free ports");
    ports.try_into().expect("as many as were asked for")
}

/// Sends a signal, by name, to a process that may be gone.
pub fn signal(pid: u32, name: &str) {
    terrane_lab::process::signal(pid, name).ok();
}

/// Calls until there is a result.
pub fn eventually<T>(limit: Duration, what: &str, mut ask: impl FnMut() -> Result<T, String>) -> T {
    let found = terrane_lab::eventually_within(limit, what, || ask().map_err(anyhow::Error::msg));
    found.unwrap_or_else(|error| panic!("{error:#}"))
}

/// Starts a role and waits until it serves; `Err` if it ends instead.
pub fn start(arguments: &[String]) -> Result<Process, Ended> {
    let log = terrane_lab::log().expect("a file");
    let started = Process::start(Command::new(BINARY).args(arguments), log);
    started.map_err(|error| error.downcast().expect("the binary starts"))
}

/// Starts a role that must start.
pub fn started(arguments: &[String]) -> Process {
    start(arguments).unwrap_or_else(|ended| panic!("{arguments:?} did not start: {ended:?}"))
}

/// Runs a process that must not start; returns its standard error.
pub fn refused(arguments: &[String], status: i32) -> String {
    let ended = match start(arguments) {
        Ok(process) => panic!("{arguments:?} started: {}", process.ready),
        Err(ended) => ended,
    };
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(status), ""), "{ended:?}");
    no_trace(&ended.stderr);
    assert!(ended.stderr.contains("error: "), "{ended:?}");
    ended.stderr
}

/// The arguments of a line.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a command to its end, without TERRANE_MASTERS of the environment.
pub fn terrane(arguments: &[&str]) -> Output {
    bounded(Command::new(BINARY).args(arguments).env_remove("TERRANE_MASTERS"))
}

/// Runs a prepared command to its end.
pub fn bounded(command: &mut Command) -> Output {
    terrane_lab::run(command, COMMAND_MAX).unwrap_or_else(|error| panic!("{error:#}"))
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
        Running::start(&mut self.command(arguments), COMMAND_MAX).expect("the binary starts")
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Output {
        let mut running = self.start(arguments);
        running.feed(input);
        running.finish().expect("it ends")
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

    /// A table of three regions, which do not split, for loads of one of them.
    pub fn create_actions(&self) {
        let key = ["--key", "user:u64, time:desc i64"];
        let regions = ["--set", "split_policy=none", "--split-at", "1000", "--split-at", "2000"];
        self.succeed(&[&["table", "create", "actions", "--family", "d"][..], &key, &regions].concat());
    }

    /// Imports lines of csv into a table.
    pub fn import_csv(&self, table: &str, lines: &str) {
        let written = self.run_with_input(&["import", table, "-", "--format", "csv"], lines);
        assert!(written.status.success(), "{}", errors_of(&written));
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
