//! Cargo, and the programs that it builds.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The checkout: the parent of this package, whatever the working directory.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package is inside the checkout").to_owned()
}

/// The cargo that runs this program, with the checkout as working directory.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Runs a command with its output shown; prints why if it cannot start.
pub fn succeeds(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("cannot run {:?}: {error}", command.get_program());
            false
        }
    }
}

/// Cargo's target directory.
pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The binary to run: the one that was asked for, or the release build, as the README makes it.
pub fn release_unless(asked: Option<&Path>, root: &Path) -> anyhow::Result<PathBuf> {
    if let Some(binary) = asked {
        return std::fs::canonicalize(binary).with_context(|| format!("finding {}", binary.display()));
    }
    let built = succeeds(cargo(root).args(["build", "--release", "--package", "terrane"]));
    ensure!(built, "the release build failed");
    Ok(target_directory(root).join("release").join("terrane"))
}

/// Builds programs with the same features as the tests, so that nothing is compiled again after them; `what` selects them.
/// Returns their directory.
pub fn debug(root: &Path, what: &[&str]) -> anyhow::Result<PathBuf> {
    // The whole workspace, because the features of tests apply to it.
    let built = succeeds(cargo(root).args(["build", "--workspace", "--quiet"]).args(what));
    ensure!(built, "{} does not build", what.join(" "));
    Ok(target_directory(root).join("debug"))
}
