//! The Python example: generates stubs from the `.proto` files, runs against `terrane dev` and compares the output.
//!
//! It shows that the protocol does not require the Rust client, so it uses what any user would: a virtual environment with
//! the packages pinned in the example's `requirements.txt`. The environment is created once under `target/python`, and
//! again when that file changes; stubs are generated each time. It needs python3, its venv module and a package index. If
//! one is missing, the step fails in CI and when requested by name; in a local `check` it is skipped with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};

use terrane_lab::process::quietly;
use terrane_lab::{DevCluster, builds};

const FOLDER: &str = "examples/python";
const PROTOS: &str = "proto/proto";
/// Time limit for the example.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// Why the example cannot run on this machine, and what to install.
struct Missing(String);

/// As part of `check`: a missing prerequisite is a failure only in CI.
pub fn check_succeeds(root: &Path) -> bool {
    succeeds(root, std::env::var_os("CI").is_some())
}

/// On request: a missing prerequisite is a failure.
pub fn succeed(root: &Path) -> bool {
    succeeds(root, true)
}

fn succeeds(root: &Path, must_run: bool) -> bool {
    let outcome = match environment(root) {
        Ok(Ok(python)) => run(root, &python),
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

/// The interpreter of an environment with the pinned packages. Creates the environment unless it exists with the same
/// pins.
fn environment(root: &Path) -> anyhow::Result<Result<PathBuf, Missing>> {
    let wanted = root.join(FOLDER).join("requirements.txt");
    let pins = fs::read_to_string(&wanted).context("reading the pinned packages")?;
    let directory = root.join("target/python/venv");
    // Written last, so that a partial environment is never used.
    let made_from = directory.join("requirements.txt");
    let python = directory.join("bin/python");
    let works = || quietly(Command::new(&python).arg("--version"));
    if fs::read_to_string(&made_from).is_ok_and(|made_from| made_from == pins) && works() {
        return Ok(Ok(python));
    }
    if !quietly(Command::new("python3").arg("--version")) {
        return Ok(Err(Missing("python3 is missing; install it".to_owned())));
    }
    if !quietly(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(Err(Missing("python3 has no venv; install it (Debian: python3-venv)".to_owned())));
    }
    println!("python: installing {FOLDER}/requirements.txt");
    if directory.exists() {
        fs::remove_dir_all(&directory).context("removing the old environment")?;
    }
    let made = builds::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&directory));
    ensure!(made, "python3 cannot create an environment in {}", directory.display());
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&wanted);
    if !builds::succeeds(&mut install) {
        let what = format!("pip cannot install {FOLDER}/requirements.txt; is a package index reachable?");
        return Ok(Err(Missing(what)));
    }
    fs::write(&made_from, pins).context("marking the environment as complete")?;
    Ok(Ok(python))
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
