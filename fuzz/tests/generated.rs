//! A bounded number of executions of every target. `cargo xtask fuzz` runs more.
//!
//! A process of its own, because allocations are counted for the whole process.

use std::time::Duration;

use terrane_fuzz::driver::{self, Amount};
use terrane_fuzz::{corpus, formats};

/// Executions of each target, and of those that write whole files.
const EXECUTIONS: u64 = 2_000;
const EXECUTIONS_OF_FILES: u64 = 300;

#[test]
fn generated_and_changed_encodings_are_read_or_refused() {
    const SEED: u64 = 1;
    println!("seed {SEED}");
    for format in formats::all() {
        let writes_files = format.name.starts_with("store-file");
        let executions = if writes_files { EXECUTIONS_OF_FILES } else { EXECUTIONS };
        let amount = Amount { executions, time: Duration::MAX };
        let outcome = driver::run(format, SEED, amount, &corpus::load(format.name).unwrap());
        if let Some(failure) = outcome.failure {
            panic!("{}", failure.report(format.name));
        }
    }
}
