//! The clients of the chaos test: they load a cluster whose processes fail, record what they see, and check it.
//!
//! `cargo xtask chaos` starts the cluster and the faults, and this program as the load: a process of its own, so that xtask
//! needs no client, and a client can fail no check by dying with a server.
//!
//! - `run` loads the cluster until a line comes on standard input, then reads everything that was written, and judges the
//!   history; at the end of the input it stops without a verdict. `check` judges a history file once more.
//! - `load` makes the calls, `event` and `history` record them, `check` judges them. The check knows nothing of clusters.
//!
//! Standard output gets one JSON object, the verdict. Exit status: 0 no violation, 1 violations or an error, 2 wrong command
//! line.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test program that never runs in a node or in the simulation"
)]

mod check;
mod event;
mod history;
mod load;
mod value;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use self::check::Verdict;

/// Loads a cluster whose processes fail, and checks what clients see.
#[derive(Debug, Parser)]
enum Command {
    /// Load a cluster until a line comes on standard input; then read everything and check the history.
    Run(load::Flags),
    /// Check a history once more.
    Check { history: PathBuf },
}

fn main() -> ExitCode {
    let judged = match Command::parse() {
        Command::Run(flags) => run(flags),
        Command::Check { history } => history::check_file(&history),
    };
    match judged {
        Ok(verdict) => told(&verdict),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: load::Flags) -> anyhow::Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let judged = runtime.block_on(load::run(flags));
    // A read of standard input cannot be cancelled, and must not delay the end.
    runtime.shutdown_background();
    judged
}

fn told(verdict: &Verdict) -> ExitCode {
    for finding in &verdict.findings {
        eprintln!("VIOLATION: {finding}");
    }
    for register in &verdict.undecided {
        eprintln!("register {register} is too long to be judged");
    }
    println!("{}", serde_json::json!(verdict));
    if verdict.violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
