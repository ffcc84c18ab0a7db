//! Virtual environments of Python with pinned packages, below `target/`.
//!
//! An environment is created once, and again when its pins change. It needs python3, its venv module and a package index; a
//! step whose environment cannot be created says which of them is missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use terrane_lab::builds;
use terrane_lab::process::quietly;

/// Why an environment cannot be created on this machine, and what to install.
pub struct Missing(pub String);

/// The directory with the programs of an environment that has the packages of `pins`, a file of the checkout.
pub fn programs(root: &Path, name: &str, pins: &str) -> anyhow::Result<Result<PathBuf, Missing>> {
    let wanted = root.join(pins);
    let packages = fs::read_to_string(&wanted).context("reading the pinned packages")?;
    let directory = root.join("target").join(name).join("venv");
    // Written last, so that a partial environment is never used.
    let made_from = directory.join("requirements.txt");
    let programs = directory.join("bin");
    let python = programs.join("python");
    let works = || quietly(Command::new(&python).arg("--version"));
    if fs::read_to_string(&made_from).is_ok_and(|made_from| made_from == packages) && works() {
        return Ok(Ok(programs));
    }
    if !quietly(Command::new("python3").arg("--version")) {
        return Ok(Err(Missing("python3 is missing; install it".to_owned())));
    }
    if !quietly(Command::new("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(Err(Missing("python3 has no venv; install it (Debian: python3-venv)".to_owned())));
    }
    println!("{name}: installing {pins}");
    if directory.exists() {
        fs::remove_dir_all(&directory).context("removing the old environment")?;
    }
    let made = builds::succeeds(Command::new("python3").args(["-m", "venv"]).arg(&directory));
    ensure!(made, "python3 cannot create an environment in {}", directory.display());
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]).arg(&wanted);
    if !builds::succeeds(&mut install) {
        return Ok(Err(Missing(format!("pip cannot install {pins}; is a package index reachable?"))));
    }
    fs::write(&made_from, packages).context("marking the environment as complete")?;
    Ok(Ok(programs))
}
