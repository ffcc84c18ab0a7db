//! The example in Python: stubs generated from the `.proto` files, run against `terrane dev`, its output compared.
//!
//! It shows that nothing in the protocol needs our Rust client, so it uses what a stranger would: a virtual environment
//! with the packages that the example's `requirements.txt` pins. That is made once under `target/python` and again when the
//! file changes; stubs are generated each time. Making it needs python3, its venv and a package index. Where those are
//! missing the step fails in CI and when it was asked for by name; as a part of `check` at somebody's desk it is skipped,
//! and says so.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::dev_cluster::{self, DevCluster};

const FOLDER: &str = "examples/python";
const PROTOS: &str = "proto/proto";
/// How long the example may take, and each step of making its environment: the packages are some 20 MB.
const EXAMPLE_MAX: Duration = Duration::from_secs(120);

/// Why the example cannot be run here at all; a sentence that says what to install.
struct Missing(String);

/// As a part of `check`: what is missing on this machine counts only in CI.
pub fn check_succeeds(root: &Path) -> bool {
    succeeds(root, std::env::var_os("CI").is_some())
}

/// As asked for: what is missing is a failure.
pub fn succeed(root: &Path) -> bool {
    succeeds(root, true)
}

fn succeeds(root: &Path, must_run: bool) -> bool {
    let outcome = match environment(root) {
        Ok(Ok(python)) => run(root, &python),
        Ok(Err(Missing(what))) => {
            let verdict = if must_run { "cannot be run" } else { "skipped" };
            eprintln!("the example in Python: {verdict}: {what}");
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
    let expected = fs::read_to_string(folder.join("expected.txt")).context("reading what the example should print")?;
    let cluster = DevCluster::start(&dev_cluster::build(root)?)?;
    let mut example = Command::new(python);
    example.arg(folder.join("terrane_example.py")).arg(&cluster.master).env("PYTHONPATH", &stubs);
    let output = cluster.run(&mut example, EXAMPLE_MAX)?;
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the example in Python ended with {}\n{said}{errors}", output.status);
    if let Some(difference) = first_difference(&said, &expected) {
        anyhow::bail!("the example in Python does not print what {FOLDER}/expected.txt has: {difference}\n{said}");
    }
    cluster.stop()
}

/// The interpreter of an environment that has the pinned packages; made anew unless the one that is there was made from
/// the same pins.
fn environment(root: &Path) -> anyhow::Result<Result<PathBuf, Missing>> {
    let wanted = root.join(FOLDER).join("requirements.txt");
    let pins = fs::read_to_string(&wanted).context("reading the pinned packages")?;
    let directory = root.join("target/python/venv");
    // Written last, so an environment that was only begun is not taken for a whole one.
    let made_from = directory.join("requirements.txt");
    let python = directory.join("bin/python");
    let works = || quietly(Command::new(&python).arg("--version"));
    if fs::read_to_string(&made_from).is_ok_and(|made_from| made_from == pins) && works() {
        return Ok(Ok(python));
    }
    if !quietly(Command::new("python3").arg("--version")) {
        return Ok(Err(Missing("there is no python3; install it".to_owned())));
    }
    if !quietly(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(Err(Missing("python3 has no venv; install it (Debian: python3-venv)".to_owned())));
    }
    println!("python: installing {FOLDER}/requirements.txt");
    if directory.exists() {
        fs::remove_dir_all(&directory).context("removing the old environment")?;
    }
    let made = crate::processes::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&directory));
    ensure!(made, "python3 cannot make an environment in {}", directory.display());
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&wanted);
    if !crate::processes::succeeds(&mut install) {
        let what = format!("pip cannot install {FOLDER}/requirements.txt; is a package index within reach?");
        return Ok(Err(Missing(what)));
    }
    fs::write(&made_from, pins).context("marking the environment as whole")?;
    Ok(Ok(python))
}

/// Generates the stubs and answers the directory to import them from.
fn stubs(root: &Path, python: &Path) -> anyhow::Result<PathBuf> {
    let stubs = root.join("target/python/stubs");
    if stubs.exists() {
        fs::remove_dir_all(&stubs).context("removing the old stubs")?;
    }
    fs::create_dir_all(&stubs).context("making a directory for the stubs")?;
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
    ensure!(crate::processes::succeeds(generate.args(&protos)), "the stubs cannot be generated");
    Ok(stubs)
}

/// Whether a command can be started and succeeds; what it prints does not matter.
fn quietly(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Where two texts part, as a sentence; `None` when they are the same.
fn first_difference(said: &str, expected: &str) -> Option<String> {
    let (mut said, mut expected) = (said.lines(), expected.lines());
    for line in 1.. {
        match (said.next(), expected.next()) {
            (None, None) => return None,
            (said, expected) if said == expected => {}
            (said, expected) => {
                let shown = |line: Option<&str>| line.map_or_else(|| "nothing".to_owned(), |line| format!("`{line}`"));
                return Some(format!("line {line} is {}, not {}", shown(said), shown(expected)));
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
        assert_eq!(first_difference("a\nc\n", "a\nb\n").unwrap(), "line 2 is `c`, not `b`");
        assert_eq!(first_difference("a\n", "a\nb\n").unwrap(), "line 2 is nothing, not `b`");
        assert_eq!(first_difference("a\nb\n", "a\n").unwrap(), "line 2 is `b`, not nothing");
    }
}
