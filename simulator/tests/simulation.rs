//! One simulated run, as `cargo xtask sim --seed N` does it; CI and `cargo xtask sim` run many more.
//!
//! The simulator replaces the implementation of `terrane-env`, which must never happen in an ordinary build. It is therefore
//! a separate program, which xtask builds.

use std::path::Path;
use std::process::{Command, Output};

fn xtask(words: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies inside the checkout");
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let mut command = Command::new(cargo);
    command.args(["run", "--quiet", "--locked", "--package", "xtask", "--", "sim"]).args(words).current_dir(root);
    command.output().expect("cargo can be started")
}

#[test]
fn a_seed_ends_with_its_verdict_and_the_hash_of_its_trace() {
    let output = xtask(&["--seed", "7"]);
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    let last = said.lines().last().unwrap_or_default();
    let hash = last.strip_prefix("seed 7 ok trace ").unwrap_or_else(|| panic!("{last:?} is no verdict"));
    assert!(u64::from_str_radix(hash, 16).is_ok(), "{hash:?} is no hash");
}

/// The simulator must find deliberate bugs; otherwise its successes mean nothing.
#[test]
fn a_planted_bug_is_found_and_repeated() {
    let words = ["--planted", "--plant", "acknowledge before the sync", "--seeds", "1..21"];
    let output = xtask(&words);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 planted bugs: 1 found"), "{said}");
}

#[test]
fn an_invalid_command_line_differs_from_a_failed_run() {
    let output = xtask(&["--seed", "seven"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--seed N"));
}
