//! The `terrane` command: a development cluster, the server roles, administration, data in and out, load.
//!
//! It wires, calls and prints. `args` is the grammar, `commands` does what it says, `failure` is how a command ends
//! badly; `formats`, `weather`, `bench` and `input` are plain code without a cluster; `node` and `cluster` run servers in
//! this process. Nothing depends on this crate.
//!
//! Standard output carries results only, and under `--json` nothing but JSON; everything else goes to standard error.
//! Exit status: 0 done, 1 the operation failed, 2 the command line is wrong, 3 nothing there.

mod args;
mod cluster;
mod commands;
mod config;
mod failure;
mod formats;
mod input;
mod node;
mod output;
mod progress;
mod random;
mod weather;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use failure::{Exit, Failure};

/// A tenth to a fifth less CPU per put than the allocator of glibc, in paired runs of `bench put`: many small cells are made
/// on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What is logged, in the syntax of `tracing_subscriber::EnvFilter`.
const LOG_VARIABLE: &str = "TERRANE_LOG";
/// What our own rooms have to warn of. openraft tells of every heartbeat that a busy or stopping peer did not answer; what
/// matters of it (a lost leader, a failed disk) the rooms say themselves.
const LOG_DEFAULT: &str = "warn,openraft=off";

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output with status 0, mistakes to standard error with status 2. Nothing is
            // left to do when even that cannot be written.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(Exit::Usage as u8));
        }
    };
    log_to_standard_error();
    match run(cli) {
        Ok(()) => ExitCode::from(Exit::Done as u8),
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit as u8)
        }
    }
}

fn run(cli: args::Cli) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    let done = runtime.block_on(commands::run(cli));
    // A read of standard input may still be waiting for a person; it must not keep the process.
    runtime.shutdown_background();
    done
}

fn log_to_standard_error() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
