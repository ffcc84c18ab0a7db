//! The command line of the benchmark's programs: which stores take part, and in which form the report is wanted.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::{Contender, Options, Progress, run};

/// Measures storage engines by the same workloads.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Command {
    /// What is measured.
    #[command(flatten)]
    pub options: Options,
    /// Stores that take part, with commas between; all that are built in when absent.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// JSON lines: one about the run, then one for each workload of each store.
    #[arg(long)]
    pub json: bool,
}

/// The whole program, over these stores.
pub fn main(contenders: Vec<Contender>) -> ExitCode {
    let command = match Command::try_parse() {
        Ok(command) => command,
        Err(error) => {
            // Nothing is left to do when even that cannot be written.
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
/// A name in `only` that is not built in, what [`run`] answers, and a standard output that cannot be written.
pub fn measure(
    command: &Command,
    mut contenders: Vec<Contender>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for name in &command.only {
        if !contenders.iter().any(|contender| contender.name == name) {
            let built_in: Vec<&str> = contenders.iter().map(|contender| contender.name).collect();
            return Err(format!("{name} is not built in; there are {}", built_in.join(", ")).into());
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

/// An error with what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
