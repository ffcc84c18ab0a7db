//! `sim --seed N [--verbose]`: one simulated run of a whole cluster; `cargo xtask sim` builds and starts it.
//!
//! The last line on standard output is `seed N ok trace HASH` (exit status 0), or `seed N FAILED: what` (1); the line before
//! a good end says what happened. `--verbose` prints every traced event to standard error. A wrong command line is 2.

#![allow(
    clippy::disallowed_methods,
    reason = "the harness around the simulation: it ends the process, and seeds what the doors cannot reach"
)]

use mad_turmoil_rand::SeedableRng;
use mad_turmoil_rand::rngs::StdRng;
use terrane_tests::simulation;

const USAGE: &str = "usage: sim --seed N [--verbose]";

fn main() {
    let Some((seed, verbose)) = arguments() else {
        eprintln!("{USAGE}");
        std::process::exit(2);
    };
    // First of all: whatever asks the system for randomness or time from here on gets the seed's.
    mad_turmoil::rand::set_rng(StdRng::seed_from_u64(seed));
    terrane_env::sim::seed(seed);
    let _clocks = mad_turmoil::time::SimClocksGuard::init();
    simulation::trace::begin(verbose);
    std::panic::set_hook(Box::new(move |panic| fail_at_panic(seed, panic)));
    match simulation::run(seed) {
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

fn arguments() -> Option<(u64, bool)> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--seed", seed] => Some((seed.parse().ok()?, false)),
        ["--seed", seed, "--verbose"] => Some((seed.parse().ok()?, true)),
        _ => None,
    }
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
