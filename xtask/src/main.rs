//! `cargo xtask`: the repository's own checks and tools, in Rust so that they need nothing but the toolchain.
//!
//! - `check` is what CI runs, step by step, and only reads; `fix` changes what can be changed mechanically.
//! - `tidy` holds the rules that no compiler knows (see [`tidy`]).
//! - `examples` and `python` run the examples, in Rust and in Python, against a `terrane dev` of their own.
//! - `faults` breaks clusters of real processes and measures what that costs.
//! - `sim` builds the simulator apart, with its own flags and target directory, and runs one seed, or many.
//!
//! Exit status: 0 done, 1 a step failed, 2 the command line is wrong.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool that works on the checkout; no node ever runs it, so nothing of it is simulated"
)]

mod dev_cluster;
mod examples;
mod faults;
mod processes;
mod python;
mod simulator;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

  check            format, lints, documents, tidy, simulated doors, tests, examples: what CI runs
  fix              format the sources
  tidy             only the repository's own rules; `--arrows CRATE` prints its import cycles in full,
                   `--wording FOLDER` the phrases to avoid in its files
  examples         every example in Rust, run against a cluster
  python           the example in Python, run against a cluster
  faults [NAME ..] real processes under faults: clocks, disks, kills, overload; minutes, on a quiet machine
                   (--runs N: how often the counters are killed, 20 unless given;
                   --binary FILE: judge this build)
  sim --seed N     one simulated run of a whole cluster; prints `seed N ok trace HASH`
  sim --seeds A..B the runs from A up to B, B left out; more arguments go to each run, like `--course counters`
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("", &[] as &[String]),
    };
    if let ("sim", Some((seeds, rest))) = (command, simulator::names_seeds(rest)) {
        return simulator::run_many(&root(), seeds, rest);
    }
    match (command, rest) {
        ("faults", rest) => faults::run(&root(), rest),
        ("check", []) => steps::check(&root()),
        ("fix", []) => steps::fix(&root()),
        ("tidy", [flag, package]) if flag == "--arrows" => steps::arrows(&root(), package),
        ("tidy", [flag, folder]) if flag == "--wording" => steps::wording(&root(), folder),
        ("tidy", []) => steps::tidy_alone(&root()),
        ("examples", []) => steps::examples_alone(&root()),
        ("python", []) => steps::python_alone(&root()),
        ("sim", rest) if simulator::names_a_seed(rest) => simulator::run(&root(), rest),
        ("help" | "--help" | "-h", _) => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The checkout: one above this package, wherever the command was started.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the package lies inside the checkout").to_owned()
}
