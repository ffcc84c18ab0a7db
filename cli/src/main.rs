//! The `terrane` command: a development cluster, the server roles, administration, import and export, load generation.
//!
//! This crate wires components, calls them and prints. `args` is the grammar, `commands` carries the commands out, and
//! `failure` turns errors into messages and exit statuses; `formats`, `weather` and `input` are plain code without a
//! cluster; `node` and `cluster` run servers in this process. No other crate depends on this one.
//!
//! Standard output carries results only, under `--json` nothing but JSON; everything else goes to standard error.
//! Exit status: 0 success, 1 the operation failed, 2 the command line is invalid, 3 the row is not there, 4 a
//! condition did not hold.

mod args;
mod cluster;
mod commands;
mod config;
mod console_source;
mod failure;
mod formats;
mod hbase_ports;
mod hot_keys;
mod input;
mod logging;
mod node;
mod output;
mod progress;
mod question;
mod random;
mod salted;
mod scope;
mod shell;
mod table_text;
mod trace_export;
mod weather;

use std::process::ExitCode;

use failure::{Exit, Failure};

/// Takes 10 to 20 % less CPU per put than glibc's allocator in paired runs of `bench put`: many small cells are
/// allocated on one thread and freed on another.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    logging::set_format(logging::chosen(&words));
    let cli = match args::parse(words.clone()) {
        Ok(cli) => cli,
        Err(error) => {
            if error.use_stderr() {
                let mistake = Failure::usage(args::mistake(&error, false));
                // A command that is unknown here may be one of SQL or of HBase's shell.
                let is_unknown = error.kind() == clap::error::ErrorKind::InvalidSubcommand;
                let words = words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
                let advice = shell::advice(&words.collect::<Vec<_>>()).filter(|_| is_unknown);
                logging::report(&match advice {
                    Some(advice) => mistake.advise(advice),
                    None => mistake,
                });
                return ExitCode::from(Exit::Usage.status());
            }
            // Help and version go to standard output. If even that cannot be written, there is nothing left to do.
            error.print().ok();
            return ExitCode::from(Exit::Done.status());
        }
    };
    logging::begin(matches!(cli.command, args::Command::Master(_) | args::Command::Server(_)));
    match run(cli) {
        Ok(()) => ExitCode::from(Exit::Done.status()),
        Err(failure) => {
            logging::report(&failure);
            ExitCode::from(failure.exit.status())
        }
    }
}

fn run(cli: args::Cli) -> Result<(), Failure> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let args::Command::Bench(bench) = &cli.command
        && let Some(threads) = bench.threads()
    {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    runtime.spawn(logging::report_repeats());
    let done = match cli.command {
        args::Command::Shell(args) => runtime.block_on(shell::run(args)),
        command => runtime.block_on(commands::run(command)),
    };
    trace_export::finish();
    // A read of standard input may still be waiting for the user; it must not keep the process alive.
    runtime.shutdown_background();
    done
}
