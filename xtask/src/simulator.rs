//! Building and running the simulator.
//!
//! It swaps every door of `terrane-env` for its simulated side and needs a compiler flag of tokio's, so it is built with
//! features, flags, profile and a target directory of its own: an ordinary build never sees a switched door, and neither
//! build throws the other's work away. What a build says goes to standard error; standard output belongs to the run.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use crate::processes;

/// tokio's seeded scheduler, and turmoil's way of ending a run at the first panic, need this.
const SIMULATOR_RUSTFLAGS: &str = "--cfg tokio_unstable";
/// The profile in the workspace's manifest: optimised a little, with every assertion on.
const PROFILE: &str = "sim";

/// Whether the arguments are `--seed N` and perhaps more, for the simulator itself to judge.
pub fn names_a_seed(arguments: &[String]) -> bool {
    match arguments {
        [flag, seed, ..] => flag == "--seed" && seed.parse::<u64>().is_ok(),
        _ => false,
    }
}

/// The seeds of `--seeds A..B`, B not among them, and the rest, for the simulator itself to judge.
pub fn names_seeds(arguments: &[String]) -> Option<(Range<u64>, &[String])> {
    let [flag, seeds, rest @ ..] = arguments else { return None };
    let (first, end) = seeds.split_once("..").filter(|_| flag == "--seeds")?;
    Some((first.parse().ok()?..end.parse().ok()?, rest)).filter(|(seeds, _)| !seeds.is_empty())
}

/// Builds the simulator; where it is.
fn build(root: &Path) -> Option<PathBuf> {
    let mut build = simulator_cargo(root, "build");
    build.args(["--quiet", "--package", "terrane-tests", "--bin", "sim"]).stdout(std::io::stderr());
    if processes::succeeds(&mut build) {
        return Some(target_directory(root).join(PROFILE).join("sim"));
    }
    eprintln!("the simulator does not build");
    None
}

/// Builds the simulator and runs many seeds, as many at a time as there are processors. The verdict of each is a line, in
/// the order in which they end.
pub fn run_many(root: &Path, seeds: Range<u64>, arguments: &[String]) -> ExitCode {
    let Some(program) = build(root) else { return ExitCode::FAILURE };
    let (count, todo, failed) = (seeds.end - seeds.start, Mutex::new(seeds), Mutex::new(Vec::new()));
    let next = || todo.lock().expect("nobody panics with it").next();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(seed) = next() {
                    let (verdict, well) = verdict(&program, seed, arguments);
                    println!("{verdict}");
                    if !well {
                        failed.lock().expect("nobody panics with it").push(seed);
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

/// Runs one seed: its last line, and whether it went well.
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

/// Builds the simulator and runs it; its standard output and exit status become ours.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let Some(program) = build(root) else { return ExitCode::FAILURE };
    match Command::new(&program).args(arguments).current_dir(root).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        // A run that was ended by a signal has no code; it is a failed one all the same.
        Ok(status) => status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("cannot run {}: {error}", program.display());
            ExitCode::FAILURE
        }
    }
}

/// The tests of the doors' simulated side, which an ordinary test run cannot build.
pub fn doors_test(root: &Path) -> Command {
    let mut test = simulator_cargo(root, "test");
    // No examples in documents: rustdoc would need the flags once more.
    test.args(["--quiet", "--package", "terrane-env", "--tests"]);
    test
}

fn simulator_cargo(root: &Path, what: &str) -> Command {
    let mut command = processes::cargo(root);
    command
        .args([what, "--features", "sim", "--profile", PROFILE, "--target-dir"])
        .arg(target_directory(root))
        .env("RUSTFLAGS", SIMULATOR_RUSTFLAGS)
        // It would win over the variable above.
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

fn target_directory(root: &Path) -> PathBuf {
    root.join("target").join("sim")
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

    #[test]
    fn builds_are_kept_apart_from_ordinary_ones() {
        let command = doors_test(Path::new("/checkout"));
        let arguments: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(arguments.join(" ").contains("--features sim --profile sim --target-dir /checkout/target/sim"));
        let flags = command.get_envs().find(|(name, _)| *name == "RUSTFLAGS").and_then(|(_, value)| value);
        assert_eq!(flags, Some("--cfg tokio_unstable".as_ref()));
    }
}
