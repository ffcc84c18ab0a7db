//! Runs the tests of interleavings (docs/testing.md).
//!
//! They are built with a feature that replaces locks and atomics, so they need a build of their own, in the profile and
//! target directory of every other build. Further arguments of `cargo xtask interleavings` go to the test binaries.

use std::path::Path;
use std::process::{Command, ExitCode};

use terrane_lab::builds;

/// The command that builds and runs them. The last package adds the features of the other builds, so that external crates are
/// not compiled again.
pub fn test(root: &Path) -> Command {
    let mut test = builds::cargo(root);
    test.args(["test", "--quiet", "--locked", "--test", "interleavings"]);
    for package in ["terrane-env", "terrane-engine", "terrane-raft", "terrane-shared-features"] {
        test.args(["--package", package]);
    }
    test.args(["--features", "terrane-env/interleave,terrane-engine/interleave,terrane-raft/interleave"]);
    // Optimising it takes longer than its tests.
    test.args(["--config", "profile.dev.package.terrane-raft.opt-level=0"]);
    test
}

/// Runs those that the arguments select, as `cargo test` does.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let mut test = test(root);
    test.arg("--").args(arguments);
    if builds::succeeds(&mut test) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
