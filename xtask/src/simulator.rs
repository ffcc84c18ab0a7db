//! Builds and runs the simulator.
//!
//! The simulator replaces the functions of `terrane-env` by simulated ones. It is built with an extra feature but
//! with the profile and target directory of every other build, so that external crates are compiled once; cargo keeps
//! both variants of our crates. Build output goes to standard error; standard output belongs to the run.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use crate::processes;

/// Whether the arguments start with `--seed N`. The simulator itself checks the rest.
pub fn names_a_seed(arguments: &[String]) -> bool {
    match arguments {
        [flag, seed, ..] => flag == "--seed" && seed.parse::<u64>().is_ok(),
        _ => false,
    }
}

/// The seeds of `--seeds A..B`, excluding B, and the remaining arguments, which the simulator itself checks.
pub fn names_seeds(arguments: &[String]) -> Option<(Range<u64>, &[String])> {
    let [flag, seeds, rest @ ..] = arguments else { return None };
    let (first, end) = seeds.split_once("..").filter(|_| flag == "--seeds")?;
    Some((first.parse().ok()?..end.parse().ok()?, rest)).filter(|(seeds, _)| !seeds.is_empty())
}

/// Builds the simulator and returns its path.
fn build(root: &Path) -> Option<PathBuf> {
    let mut build = processes::cargo(root);
    build
        .args(["build", "--quiet", "--locked", "--package", "terrane-tests", "--bin", "sim", "--features", "sim"])
        .stdout(std::io::stderr());
    if processes::succeeds(&mut build) {
        return Some(processes::target_directory(root).join("debug").join("sim"));
    }
    eprintln!("the simulator does not build");
    None
}

/// Builds the simulator and runs many seeds, one per processor at a time. Prints the result of each run as it ends.
pub fn run_many(root: &Path, seeds: Range<u64>, arguments: &[String]) -> ExitCode {
    let Some(program) = build(root) else { return ExitCode::FAILURE };
    let (count, todo, failed) = (seeds.end - seeds.start, Mutex::new(seeds), Mutex::new(Vec::new()));
    let next = || todo.lock().expect("no thread panics while it holds the lock").next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let (verdict, well) = verdict(&program, seed, arguments);
                    println!("{verdict}");
                    if !well {
                        failed.lock().expect("no thread panics while it holds the lock").push(seed);
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().expect("all threads ended");
    failed.sort_unstable();
    println!("{count} seeds, {} failed: {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs one seed and returns its last line and whether it succeeded.
fn verdict(program: &Path, seed: u64, arguments: &[String]) -> (String, bool) {
    match Command::new(program).args(["--seed", &seed.to_string()]).args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let last =
                said.lines().last().map_or_else(|| format!("seed {seed} ended: {}", output.status), str::to_owned);
            (last, output.status.success())
        }
        Err(error) => (format!("seed {seed}: cannot run {}: {error}", program.display()), false),
    }
}

/// Builds and runs the simulator; passes on its standard output and exit status.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let Some(program) = build(root) else { return ExitCode::FAILURE };
    match Command::new(&program).args(arguments).current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        // A run ended by a signal has no code and counts as failed.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cannot run {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

/// The tests of the simulated side of `terrane-env`, which an ordinary test run cannot build. The second package adds the
/// features of the other builds, so that external crates are not compiled again.
pub fn env_test(root: &Path) -> Command {
    let mut test = processes::cargo(root);
    test.args(["test", "--quiet", "--locked", "--package", "terrane-env", "--package", "terrane-shared-features"]);
    test.args(["--features", "terrane-env/sim", "--tests"]);
    test
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(arguments: &[&str]) -> bool {
        names_a_seed(&arguments.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_run_needs_a_seed() {
        assert!(accepts(&["--seed", "7"]));
        assert!(accepts(&["--seed", "7", "--verbose"]));
        for wrong in [&[] as &[&str], &["--seed"], &["--seed", "seven"], &["7"], &["--seed", "-1"]] {
            assert!(!accepts(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn many_runs_need_a_range_of_seeds() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let given = words("--seeds 3..7 --workload counters");
        assert_eq!(names_seeds(&given), Some((3..7, &given[2..])));
        for wrong in ["--seeds", "--seeds 3", "--seeds 3..3", "--seeds a..b", "--seed 3..7"] {
            assert_eq!(names_seeds(&words(wrong)), None, "{wrong}");
        }
    }
}
