//! The `terrane` command: a development cluster, the server roles, administration, import and export, load generation.
//!
//! This crate wires components, calls them and prints. `args` is the grammar, `commands` carries the commands out, and
//! `failure` turns errors into messages and exit statuses; `formats`, `weather` and `input` are plain code without a
//! cluster; `node` and `cluster` run servers in this process. No other crate depends on this one.
//!
//! Standard output carries results only, under `--json` nothing but JSON; everything else goes to standard error.
//! Exit status: 0 success, 1 the operation failed, 2 the command line is invalid, 3 not found.

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

/// Takes 10 to 20 % less CPU per put than glibc's allocator in paired runs of `bench put`: many small cells are
/// allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The environment variable that selects what is logged, in the syntax of `tracing_subscriber::EnvFilter`.
const LOG_VARIABLE: &str = "TERRANE_LOG";
/// Warnings of our own crates. openraft logs every heartbeat that a busy or stopping peer did not answer; what matters
/// of that (a lost leader, a failed disk) our crates log themselves.
const LOG_DEFAULT: &str = "warn,openraft=off";

fn main() -> ExitCode {
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version go to standard output with status 0, errors to standard error with status 2. If even
            // that cannot be written, there is nothing left to do.
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
    // A read of standard input may still be waiting for the user; it must not keep the process alive.
    runtime.shutdown_background();
    done
}

fn log_to_standard_error() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
