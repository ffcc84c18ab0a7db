//! Running other programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

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

/// Builds the release binary as the README says.
pub fn release_binary(root: &Path) -> Option<PathBuf> {
    let built = succeeds(cargo(root).args(["build", "--release", "--package", "terrane"]));
    built.then(|| target_directory(root).join("release").join("terrane"))
}
