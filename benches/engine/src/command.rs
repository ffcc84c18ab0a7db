//! The command line of the benchmark programs: which stores to measure, and the form of the report.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::{Contender, Options, Progress, run};

/// Measure storage engines with the same workloads.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Command {
    /// What to measure.
    #[command(flatten)]
    pub options: Options,
    /// Stores to measure, separated by commas (default: all built-in stores).
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print JSON lines: one about the run, then one per workload and store.
    #[arg(long)]
    pub json: bool,
}

/// The whole program for these stores.
pub fn main(contenders: Vec<Contender>) -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            // If even this cannot be written, nothing can be done about it.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match measure(&command, contenders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Measures and prints, on the calling thread.
///
/// # Errors
/// Fails if `only` names a store that is not built in, if [`run`] fails, or if standard output cannot be written.
pub fn measure(
    command: &Command,
    mut contenders: Vec<Contender>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for name in &command.only {
        if !contenders.iter().any(|contender| contender.name == name) {
            let built_in: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
            return Err(format!("{name} is not built in; the built-in stores are {}", built_in.join(", ")).into());
        }
    }
    contenders.retain(|contender| command.only.is_empty() || command.only.iter().any(|name| name == contender.name));
    let mut tell = |Progress { subject, workload }: Progress| eprintln!("{subject}: {workload}");
    let report = run(&command.options, &contenders, &mut tell)?;
    let mut out = io::stdout().lock();
    if command.json {
        for line in report.json_lines()? {
            writeln!(out, "{line}")?;
        }
    } else {
        write!(out, "{}", report.text())?;
    }
    Ok(out.flush()?)
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
