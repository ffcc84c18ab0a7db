//! `sim --seed N [--workload rows|counters] [--verbose] [--plant BUG]`: one simulated run of a whole cluster; `cargo xtask sim` builds and starts it.
//!
//! The last line on standard output is `seed N ok trace HASH` (exit status 0), or `seed N FAILED: what` (1); the lines before
//! a good end say what happened. `--verbose` prints every traced event to standard error. `--plant` has a mistake made on
//! purpose (see `terrane_env::planted!`), which shows whether the run would notice. A wrong command line is 2.

#![allow(
    clippy::disallowed_methods,
    reason = "the harness around the simulation: it ends the process, and seeds what the doors cannot reach"
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
    // First of all: whatever asks the system for randomness or time from here on gets the seed's.
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

/// Any panic, in any task of any node, is a finding. Unwinding it would tear the simulation apart before it could be told.
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
