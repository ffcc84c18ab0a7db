//! `cargo xtask sim`: builds the simulator and runs one seed, many seeds, or the planted bugs.
//!
//! The simulator replaces the functions of `terrane-env` by simulated ones, so it is a separate build (feature `sim`), with
//! an optimised profile of its own: most of its time is spent simulating. Build output goes to standard error; standard
//! output belongs to the runs.

mod arguments;
mod many;
mod planted;
mod program;
mod totals;

use std::path::Path;
use std::process::{Command, ExitCode};

use arguments::{Mode, Request};
use program::Program;

use crate::changes::Recent;
use terrane_lab::builds;

/// What `cargo xtask sim` accepts.
pub const USAGE: &str = "\
  sim --seed N     one simulated run of a whole cluster; its last line is `seed N ok trace HASH` or says what broke
                   (--scenario NAME, --trace FILE, --wire, --until SECONDS, --plant NAME go to the run;
                   --scenario list names the scenarios)
  sim --seeds A..B the runs from A up to but excluding B, and what they had in total; further arguments go to each run
                   (--jobs N: at a time, default one per processor; --minutes M: start none after that;
                   --twice: each seed twice with its whole trace, and the first difference)
  sim --minutes M  runs from seed 1 on, or from --from N, for M minutes
  sim --planted    each planted bug with seeds from 1 on until one finds it (--plant NAME: only this one;
                   --seeds A..B: these seeds, default 1..501)
  sim --ci         what `check --all` runs: seeds of all scenarios, some of them twice, and the planted bugs that few seeds find";

/// Runs `cargo xtask sim`; `None` if the command line is wrong.
pub fn run(root: &Path, words: &[String]) -> Option<ExitCode> {
    let request = Request::parsed(words)?;
    let Some(program) = Program::built(root) else { return Some(ExitCode::FAILURE) };
    let well = match &request.mode {
        Mode::One => return Some(program.pass_through(&request.passed)),
        Mode::Many { seeds } => many::run(&program, seeds.clone(), &request).well(),
        Mode::Twice { seeds } => many::twice(&program, seeds.clone(), &request),
        Mode::Planted { seeds, name } => planted::run(&program, seeds, name.as_deref(), &request),
        Mode::Ci => ci(&program, &request, root, None),
    };
    Some(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Seeds that CI runs, those of them that it runs twice, and the seeds that it tries for each planted bug.
const CI_SEEDS: std::ops::Range<u64> = 1..151;
const CI_TWICE: std::ops::Range<u64> = 1..5;
const CI_PLANTED_SEEDS: std::ops::Range<u64> = 1..21;

/// `recent`: of the planted bugs only those that are due.
fn ci(program: &Program, request: &Request, root: &Path, recent: Option<&Recent>) -> bool {
    let held = many::run(program, CI_SEEDS, request).well();
    let same = many::twice(program, CI_TWICE, request);
    let found = planted::run_quick(program, &CI_PLANTED_SEEDS, request, recent, root);
    held && same && found
}

/// Whether the simulator's own tests and CI's runs succeed. `recent`: of the planted bugs only those that are due.
pub fn ci_succeeds(root: &Path, recent: Option<&Recent>) -> bool {
    let Some(request) = Request::parsed(&["--ci".to_owned()]) else { return false };
    let succeed = |program: Program| ci(&program, &request, root, recent);
    builds::succeeds(&mut own_test(root)) && Program::built(root).is_some_and(succeed)
}

/// The simulator's own tests, with those of the modules that an ordinary test run does not build.
fn own_test(root: &Path) -> Command {
    let mut test = builds::cargo(root);
    test.args(["test", "--quiet", "--locked", "--profile", "sim", "--package", "terrane-simulator"]);
    test.args(["--features", "sim", "--lib"]);
    test
}

/// The tests of the simulated side of `terrane-env`, which an ordinary test run cannot build. The second package adds the
/// features of the other builds, so that external crates are not compiled again.
pub fn env_test(root: &Path) -> Command {
    let mut test = builds::cargo(root);
    test.args(["test", "--quiet", "--locked", "--package", "terrane-env", "--package", "terrane-shared-features"]);
    test.args(["--features", "terrane-env/sim", "--tests"]);
    test
}
