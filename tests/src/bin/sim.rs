//! `sim --seed N [--workload rows|counters] [--verbose] [--plant BUG]`: one simulated run of a whole cluster. `cargo
//! xtask sim` builds and starts it.
//!
//! The last line on standard output is `seed N ok trace HASH` (exit status 0) or `seed N FAILED: what` (status 1);
//! after a success, the lines before it summarise the run. `--verbose` prints every traced event to standard error.
//! `--plant` activates a deliberate bug (see `terrane_env::planted!`), which the run should find. An invalid command
//! line exits with status 2.

#![allow(
    clippy::disallowed_methods,
    reason = "the harness around the simulation exits the process and seeds what `env` cannot reach"
)]

use mad_turmoil_rand::SeedableRng;
use mad_turmoil_rand::rngs::StdRng;
use terrane_tests::plan::Workload;
use terrane_tests::simulation;

const USAGE: &str = "usage: sim --seed N [--workload rows|counters] [--verbose] [--plant BUG]";

struct Arguments {
    seed: u64,
    workload: Workload,
    verbose: bool,
    plant: Option<String>,
}

fn main() {
    let Some(Arguments { seed, workload, verbose, plant }) = arguments(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    // Before anything else, so that all randomness and time of the process come from the seed.
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    terrane_env::sim::seed(seed);
    if let Some(bug) = plant {
        terrane_env::sim::plant(&bug);
    }
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    simulation::trace::begin(verbose);
    std::panic::set_hook(Box::new(move |panic| fail_at_panic(seed, panic)));
    match simulation::run(seed, workload) {
        Ok(summary) => {
            println!("{summary}");
            let (hash, events) = simulation::trace::digest();
            println!("{events} events");
            println!("seed {seed} ok trace {hash:016x}");
            std::process::exit(0);
        }
        Err(failure) => fail(seed, &failure),
    }
}

fn arguments(mut given: impl Iterator<Item = String>) -> Option<Arguments> {
    let (mut seed, mut workload, mut verbose, mut plant) = (None, Workload::default(), false, None);
    while let Some(word) = given.next() {
        match word.as_str() {
            "--seed" => seed = Some(given.next()?.parse().ok()?),
            "--workload" | "--course" => workload = given.next()?.parse().ok()?,
            "--verbose" => verbose = true,
            "--plant" => plant = Some(given.next()?),
            _ => return None,
        }
    }
    Some(Arguments { seed: seed?, workload, verbose, plant })
}

/// A panic in any task of any node fails the run. Report it here: unwinding would destroy the simulation first.
fn fail_at_panic(seed: u64, panic: &std::panic::PanicHookInfo<'_>) {
    let payload = panic.payload();
    let said = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref().copied());
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    if std::env::var_os("RUST_BACKTRACE").is_some() {
        eprintln!("{}", std::backtrace::Backtrace::force_capture());
    }
    fail(seed, &format!("panic at {place}: {}", said.unwrap_or("no message")));
}

fn fail(seed: u64, what: &str) -> ! {
    println!("seed {seed} FAILED: {}", what.replace('\n', " "));
    std::process::exit(1);
}
