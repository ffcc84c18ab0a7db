//! The laboratory: clusters of real processes under faults and load, and clients that know what they may see.
//!
//! `cargo xtask NAME` builds and runs this program; it is one of its own, so that xtask stays small. The library beside it
//! launches the processes, and nothing else in the repository does.
//!
//! - `faults`, `failover`, `chaos`, `scale`, `containers` and `hbase` are the drivers: each starts clusters, causes something, and
//!   judges.
//! - `history` and the clients of `chaos` load a cluster and record what they see; `terrane_oracle` says what they may see.
//! - `dice` draws their numbers.
//!
//! Exit status: 0 success, 1 a check failed, 2 wrong command line, 130 interrupted.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test program that never runs in a node or in the simulation"
)]

mod chaos;
mod containers;
mod dice;
mod failover;
mod faults;
mod hbase;
mod history;
mod scale;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use terrane_lab::builds::root;

/// Clusters of real processes under faults and load.
#[derive(Parser)]
#[command(name = "terrane-lab")]
enum Experiment {
    Faults(faults::Asked),
    Failover(failover::Asked),
    Chaos(chaos::Asked),
    Scale(scale::Asked),
    Containers(containers::Asked),
    Hbase(hbase::Asked),
    History(history::Flags),
    /// Check a history of the chaos test once more.
    Check {
        history: PathBuf,
    },
}

fn main() -> ExitCode {
    let outcome = match Experiment::parse() {
        Experiment::Faults(asked) => faults::run(&root(), &asked),
        Experiment::Failover(asked) => failover::run(&root(), &asked),
        Experiment::Chaos(asked) => chaos::run(&root(), &asked),
        Experiment::Containers(asked) => containers::run(&root(), &asked),
        Experiment::Scale(asked) => scale::run(&root(), &asked),
        Experiment::Hbase(asked) => hbase::run(&root(), &asked),
        Experiment::Check { history } => chaos::check(&history),
        Experiment::History(flags) => return history::run(&flags).unwrap_or_else(failed),
    };
    outcome.map_or_else(failed, |()| ExitCode::SUCCESS)
}

fn failed(error: anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    ExitCode::FAILURE
}
