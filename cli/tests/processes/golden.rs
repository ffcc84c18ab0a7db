//! Command lines and what they print, as scripts: `tests/golden/*.txt`, each on a cluster of its own.
//!
//! A line is run by `sh`, with `terrane` in its path. A line `> ...` is a line of `terrane shell`. Printed are standard output,
//! then standard error, then the exit status unless it is 0; timestamps are shown as TIME. Blank lines are left out.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::harness::{BINARY, Dev, bounded};

#[test]
fn command_lines_print_what_is_recorded() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden"), || {
        let dev = Dev::start("lsm");
        move |line: &str, out: &mut String| {
            // Captured whole: a capture of a field alone would leave the cluster to end here.
            let dev = &dev;
            let mut command = match line.strip_prefix("> ") {
                Some(line) => {
                    let mut shell = Command::new(BINARY);
                    shell.args(["shell", "--execute", line]);
                    shell
                }
                None => {
                    let mut sh = Command::new("sh");
                    sh.args(["-c", line]);
                    sh
                }
            };
            let binaries = Path::new(BINARY).parent().expect("it is in a directory");
            let path = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{path}", binaries.display()));
            command.env("TERRANE_MASTERS", &dev.client.masters).current_dir(dev.directory.path());
            let output = bounded(&mut command);
            for text in [&output.stdout, &output.stderr] {
                let text = String::from_utf8(text.clone()).expect("UTF-8");
                for line in text.lines().filter(|line| !line.trim().is_empty()) {
                    writeln!(out, "{}", without_times(line)).expect("a string takes any text");
                }
            }
            match output.status.code() {
                Some(0) => {}
                Some(status) => writeln!(out, "exit status {status}").expect("a string takes any text"),
                None => panic!("{line}: ended by a signal"),
            }
        }
    });
}

/// The line with TIME for each timestamp of 13 digits.
fn without_times(line: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for c in line.chars().chain([' ']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        text += if digits.len() == 13 { "TIME" } else { &digits };
        digits.clear();
        text.push(c);
    }
    text.trim_end().to_owned()
}
