//! Builds and runs the fuzz driver.
//!
//! It is built with the profile of every other build; the second package adds the features of the other builds, so that
//! external crates are not compiled again.

use std::path::Path;
use std::process::{Command, ExitCode};

use terrane_lab::builds;

/// Builds the driver and passes the arguments on, which it checks itself.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut build = builds::cargo(root);
    build.args(["build", "--quiet", "--locked", "--package", "terrane-fuzz", "--package", "terrane-shared-features"]);
    if !builds::succeeds(&mut build) {
        eprintln!("the fuzz driver does not build");
        return ExitCode::FAILURE;
    }
    let program = builds::target_directory(root).join("debug").join("terrane-fuzz");
    match Command::new(&program).args(arguments).current_dir(root).status() {
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cannot run {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}
