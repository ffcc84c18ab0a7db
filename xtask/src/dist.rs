//! `dist`: builds the binary that ships, in `target/dist`.
//!
//! A stripped release build without the features that other builds share with the tests. Its debug information goes to
//! `terrane.debug`; in the same directory as the binary, it gives backtraces their function names and lines.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use terrane_lab::builds;

/// Largest binary that ships, in bytes.
const BYTES_MAX: u64 = 25_000_000;

/// Builds, strips and measures.
pub fn run(root: &Path) -> ExitCode {
    match build(root) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("dist: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn build(root: &Path) -> anyhow::Result<()> {
    let arguments = ["build", "--release", "--locked", "--package", "terrane", "--no-default-features"];
    ensure!(builds::succeeds(builds::cargo(root).args(arguments)), "the release build failed");
    let target = builds::target_directory(root);
    let (whole, folder) = (target.join("release/terrane"), target.join("dist"));
    let (stripped, debug) = (folder.join("terrane"), folder.join("terrane.debug"));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    objcopy(&folder, &["--only-keep-debug"], &whole, &debug)?;
    // objcopy reads the linked file, whose name has no directory, so it runs there.
    objcopy(&folder, &["--strip-all", "--add-gnu-debuglink=terrane.debug"], &whole, &stripped)?;
    let bytes = fs::metadata(&stripped).context("measuring the binary")?.len();
    println!("{}: {:.1} MB", stripped.display(), bytes as f64 / 1e6);
    println!("{}: {:.1} MB", debug.display(), fs::metadata(&debug).context("measuring the file")?.len() as f64 / 1e6);
    ensure!(bytes <= BYTES_MAX, "the binary is larger than {} MB: find what grew", BYTES_MAX / 1_000_000);
    Ok(())
}

fn objcopy(folder: &Path, arguments: &[&str], from: &Path, to: &Path) -> anyhow::Result<()> {
    let mut command = Command::new("objcopy");
    command.current_dir(folder).args(arguments).arg(from).arg(to);
    ensure!(builds::succeeds(&mut command), "objcopy failed; it comes with binutils, like the linker");
    Ok(())
}
