//! `terrane-fuzz`: runs the targets; `cargo xtask fuzz` builds and starts it.
//!
//! Exit status: 0 all executions succeeded, 1 one failed, 2 wrong command line.

#![allow(clippy::disallowed_methods, reason = "a tool for the checkout that never runs in a node or in the simulation")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use terrane_fuzz::driver::{self, Amount};
use terrane_fuzz::{corpus, formats};
use terrane_types::fuzzing::Format;

/// Fuzzes the formats of Terrane.
#[derive(Parser)]
#[command(name = "cargo xtask fuzz")]
struct Arguments {
    /// The target; all of them if not given
    #[arg(long)]
    target: Option<String>,
    /// Executions of each target
    #[arg(long, default_value_t = 20_000)]
    executions: u64,
    /// Time for each target
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// The seed of the first execution; each one has its own
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Read this file instead
    #[arg(long, requires = "target")]
    replay: Option<PathBuf>,
    /// Run only the execution with this seed
    #[arg(long, requires = "target")]
    case: Option<u64>,
    /// Add valid encodings to the corpus
    #[arg(long)]
    write_corpus: bool,
    /// Print the names of the targets
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether no execution failed.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let chosen = chosen(arguments.target.as_deref())?;
    if arguments.list {
        chosen.iter().for_each(|format| println!("{}", format.name));
        return Ok(true);
    }
    if arguments.write_corpus {
        for format in chosen {
            println!("{}: {} files added", format.name, corpus::write(format)?);
        }
        return Ok(true);
    }
    driver::watch();
    let mut well = true;
    for format in chosen {
        well &= match (&arguments.replay, arguments.case) {
            (Some(file), _) => {
                let bytes = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
                succeeded(format, driver::run_bytes(format, &bytes))
            }
            (None, Some(case)) => succeeded(format, driver::run_case(format, case, &corpus::load(format.name)?)),
            (None, None) => repeated(format, arguments)?,
        };
    }
    Ok(well)
}

fn chosen(target: Option<&str>) -> anyhow::Result<Vec<&'static Format>> {
    let all = formats::all();
    let Some(name) = target else { return Ok(all) };
    let found: Vec<_> = all.into_iter().filter(|format| format.name == name).collect();
    anyhow::ensure!(!found.is_empty(), "there is no target {name}; `--list` prints their names");
    Ok(found)
}

fn succeeded(format: &Format, outcome: Result<(), driver::Failure>) -> bool {
    match outcome {
        Ok(()) => println!("{}: ok", format.name),
        Err(failure) => {
            println!("{}", failure.report(format.name));
            return false;
        }
    }
    true
}

fn repeated(format: &'static Format, arguments: &Arguments) -> anyhow::Result<bool> {
    let time = Duration::try_from_secs_f64(arguments.minutes * 60.0).context("--minutes")?;
    let amount = Amount { executions: arguments.executions, time };
    let outcome = driver::run(format, arguments.seed, amount, &corpus::load(format.name)?);
    let seconds = outcome.time.as_secs_f64();
    let rate = outcome.executions as f64 / seconds.max(0.001);
    let (name, seed, executions) = (format.name, arguments.seed, outcome.executions);
    let verdict = if outcome.failure.is_none() { "ok" } else { "FAILED" };
    println!("{name}: {verdict}, {executions} executions from seed {seed} in {seconds:.1} s, {rate:.0}/s");
    if let Some(failure) = &outcome.failure {
        println!("{}", failure.report(name));
    }
    Ok(outcome.failure.is_none())
}
