//! The Python example: generates stubs from the `.proto` files, runs against `terrane dev` and compares the output.
//!
//! It shows that the protocol does not require the Rust client, so it uses what any user would: a virtual environment with
//! the packages pinned in the example's `requirements.txt`. Stubs are generated each time. If something is missing that the
//! environment needs, the step fails in CI and when requested by name; in a local `check` it is skipped with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use terrane_lab::{DevCluster, builds};

use crate::virtual_environment::{self, Missing};

const FOLDER: &str = "examples/python";
const PINS: &str = "examples/python/requirements.txt";
const PROTOS: &str = "proto/proto";
/// Time limit for the example.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// As part of `check`: a missing prerequisite is a failure only in CI.
pub fn check_succeeds(root: &Path) -> bool {
    succeeds(root, std::env::var_os("CI").is_some())
}

/// On request: a missing prerequisite is a failure.
pub fn succeed(root: &Path) -> bool {
    succeeds(root, true)
}

fn succeeds(root: &Path, must_run: bool) -> bool {
    let outcome = match virtual_environment::programs(root, "python", PINS) {
        Ok(Ok(programs)) => run(root, &programs.join("python")),
        Ok(Err(Missing(what))) => {
            let verdict = if must_run { "cannot be run" } else { "skipped" };
            eprintln!("the Python example: {verdict}: {what}");
            return !must_run;
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => true,
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn run(root: &Path, python: &Path) -> anyhow::Result<()> {
    let stubs = stubs(root, python)?;
    let folder = root.join(FOLDER);
    let expected = fs::read_to_string(folder.join("expected.txt")).context("reading the expected output")?;
    let programs = builds::debug(root, &["--bin", "terrane"])?;
    let cluster = DevCluster::start(&programs.join("terrane"), &[])?;
    let mut example = Command::new(python);
    example.arg(folder.join("terrane_example.py")).arg(&cluster.master).env("PYTHONPATH", &stubs);
    let output = cluster.run(&mut example, EXAMPLE_MAX)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the Python example ended with {}\n{said}{errors}", output.status);
    if let Some(difference) = first_difference(&said, &expected) {
        anyhow::bail!("the output of the Python example differs from {FOLDER}/expected.txt: {difference}\n{said}");
    }
    cluster.stop().map(drop)
}

/// Generates the stubs and returns the directory to import them from.
fn stubs(root: &Path, python: &Path) -> anyhow::Result<PathBuf> {
    let stubs = root.join("target/python/stubs");
    if stubs.exists() {
        fs::remove_dir_all(&stubs).context("removing the old stubs")?;
    }
    fs::create_dir_all(&stubs).context("creating a directory for the stubs")?;
    let mut protos = Vec::new();
    for entry in fs::read_dir(root.join(PROTOS).join("terrane/v1")).context("listing the .proto files")? {
        protos.push(entry.context("listing the .proto files")?.path());
    }
    protos.sort();
    let mut generate = Command::new(python);
    generate.args(["-m", "grpc_tools.protoc", "--proto_path"]).arg(root.join(PROTOS));
    for flag in ["--python_out", "--grpc_python_out"] {
        generate.arg(flag).arg(&stubs);
    }
    ensure!(builds::succeeds(generate.args(&protos)), "the stubs cannot be generated");
    Ok(stubs)
}

/// The first difference between two texts, as a sentence; `None` if they are equal.
fn first_difference(said: &str, expected: &str) -> Option<String> {
    let (mut said, mut expected) = (said.lines(), expected.lines());
    for line in 1.. {
        match (said.next(), expected.next()) {
            (None, None) => return None,
            (said, expected) if said == expected => {}
            (said, expected) => {
                let shown = |line: Option<&str>| line.map_or_else(|| "nothing".to_owned(), |line| format!("`{line}`"));
                return Some(format!("line {line} is {} instead of {}", shown(said), shown(expected)));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_named() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nc\n", "a\nb\n").unwrap(), "line 2 is `c` instead of `b`");
        assert_eq!(first_difference("a\n", "a\nb\n").unwrap(), "line 2 is nothing instead of `b`");
        assert_eq!(first_difference("a\nb\n", "a\n").unwrap(), "line 2 is `b` instead of nothing");
    }
}
