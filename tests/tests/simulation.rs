//! Simulated runs of a whole cluster: a few seeds of the workload `rows`, one of them twice, and a few of `counters`.
//!
//! The simulator replaces the implementation of `terrane-env`, which must never happen in an ordinary build. It is
//! therefore a separate program, built here by a nested cargo with the feature `sim`, like `cargo xtask sim`. Profile and
//! target directory are the same, so only our own crates are compiled a second time. One seed per process; the tests of
//! this file run in parallel. `cargo xtask sim --seeds A..B` runs more seeds.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Seeds of the workload of rows; any will do.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=1;
/// Seeds of the workload of counters, which is shorter.
const COUNTING: std::ops::RangeInclusive<u64> = 1..=2;
/// The seed that is run twice.
const TWICE: u64 = 4;

/// Seeds to find planted bugs, tried until one finds the bug.
const PLANTED: [u64; 3] = [1, 2, 3];

/// Builds the simulator once for all tests in this file.
fn simulator() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies inside the checkout");
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies inside the target directory");
        let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
        let status = Command::new(cargo)
            .args(["build", "--quiet", "--locked", "--package", "terrane-tests", "--bin", "sim", "--features", "sim"])
            .arg("--target-dir")
            .arg(target)
            .current_dir(root)
            .status()
            .expect("cargo can be started");
        assert!(status.success(), "the simulator does not build");
        target.join("debug").join("sim")
    })
}

fn start(seed: u64, workload: &str) -> Child {
    let mut command = Command::new(simulator());
    command.args(["--seed", &seed.to_string(), "--workload", workload]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the simulator was just built")
}

fn end(seed: u64, run: Child) -> String {
    let Output { status, stdout, stderr } = run.wait_with_output().expect("its pipes can be read");
    let (said, complained) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "seed {seed} ended with {status}: {said}\n{complained}");
    let last = said.lines().last().unwrap_or_default();
    let hash = last.strip_prefix(&format!("seed {seed} ok trace ")).unwrap_or_else(|| panic!("{last:?} is no verdict"));
    assert!(u64::from_str_radix(hash, 16).is_ok(), "{hash:?} is no hash");
    said.into_owned()
}

#[test]
fn no_seed_loses_anything() {
    all_go_well(SEEDS, "rows");
}

/// Increments, appends and check-and-mutates count exactly once while replies are lost, regions split and servers lose
/// power.
#[test]
fn every_seed_counts_exactly() {
    all_go_well(COUNTING, "counters");
}

fn all_go_well(seeds: std::ops::RangeInclusive<u64>, workload: &str) {
    for seed in seeds {
        println!("{}", end(seed, start(seed, workload)));
    }
}

#[test]
fn a_seed_gives_the_same_trace_twice() {
    for workload in ["rows", "counters"] {
        let (first, second) = (start(TWICE, workload), start(TWICE, workload));
        assert_eq!(end(TWICE, first), end(TWICE, second), "{workload}");
    }
}

/// The simulator must find deliberate bugs; otherwise its successes mean nothing.
#[test]
fn planted_bugs_are_found() {
    let bugs = [
        ("acknowledge before the sync", "rows"),
        ("a lease never ends", "rows"),
        ("a split forgets the window", "counters"),
    ];
    for (bug, workload) in bugs {
        let found = PLANTED.into_iter().any(|seed| {
            let mut run = Command::new(simulator());
            let output = run.args(["--seed", &seed.to_string(), "--workload", workload, "--plant", bug]).output();
            let output = output.expect("the simulator was just built");
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            println!("{bug}: {said}");
            output.status.code() == Some(1) && said.contains(&format!("seed {seed} FAILED: "))
        });
        assert!(found, "{bug:?} was not found by any of the seeds {PLANTED:?}");
    }
}

#[test]
fn an_invalid_command_line_differs_from_a_failed_run() {
    let output = Command::new(simulator()).args(["--seed", "seven"]).output().expect("the simulator can be started");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--seed N"));
}
