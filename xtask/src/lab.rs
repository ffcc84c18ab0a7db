//! The laboratory (`lab/`): drivers that start clusters of real processes. It is a program of its own, so that this one has few
//! dependencies.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::bail;
use terrane_lab::builds::{cargo, debug, succeeds, target_directory};

use crate::manifests;
use crate::virtual_environment::{self, Missing};

/// The drivers, as `cargo xtask NAME`.
pub const NAMES: [&str; 6] = ["faults", "failover", "chaos", "scale", "containers", "hbase"];
/// Those whose own clients must not slow down what they measure.
const MEASURE: [&str; 2] = ["failover", "scale"];
/// The one that needs podman-compose.
const CONTAINERS: &str = "containers";
/// The two minutes of chaos in CI.
const CI_CHAOS: [&str; 5] = ["chaos", "--seed", "14", "--minutes", "2"];

/// Runs a driver; its exit status is passed on.
pub fn run(root: &Path, name: &str, arguments: &[String]) -> ExitCode {
    let Some(mut command) = program(root, MEASURE.contains(&name)) else { return ExitCode::FAILURE };
    if name == CONTAINERS
        && let Err(error) = add_compose(root, &mut command)
    {
        eprintln!("podman-compose: {error:#}");
        return ExitCode::FAILURE;
    }
    match command.arg(name).args(arguments).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cannot run {:?}: {error}", command.get_program());
            ExitCode::FAILURE
        }
    }
}

/// Has the program find the pinned podman-compose.
fn add_compose(root: &Path, command: &mut Command) -> anyhow::Result<()> {
    let programs = match virtual_environment::programs(root, "manifests", manifests::PINS)? {
        Ok(programs) => programs,
        Err(Missing(what)) => bail!(what),
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&path)))?;
    command.env("PATH", path);
    Ok(())
}

/// The chaos of CI.
pub fn chaos_succeeds(root: &Path) -> bool {
    program(root, false).is_some_and(|mut program| succeeds(program.args(CI_CHAOS)))
}

/// HBase's client as part of `check`.
pub fn hbase_succeeds(root: &Path) -> bool {
    program(root, false).is_some_and(|mut program| succeeds(program.args(["hbase", "--check"])))
}

/// Whether a change of this file can change what HBase's clients see: the protocol, and what it stands on in a region server.
pub fn is_about_hbase(file: &str) -> bool {
    file.contains("hbase") || file.starts_with("regionserver/src/edge")
}

/// Builds the program; prints why it cannot be built.
fn program(root: &Path, release: bool) -> Option<Command> {
    let folder = if release {
        let built = succeeds(cargo(root).args(["build", "--release", "--quiet", "--package", "terrane-lab"]));
        built.then(|| target_directory(root).join("release"))
    } else {
        debug(root, &["--bin", "terrane-lab"]).inspect_err(|error| eprintln!("{error:#}")).ok()
    };
    folder.map(|folder| Command::new(folder.join("terrane-lab")))
}
