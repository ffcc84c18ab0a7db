//! The command line of `terrane`, exactly as `docs/command.md` documents it.
//!
//! Scripts rely on this grammar, so commands, flags and their meanings may be added but never change. Values are parsed
//! into types that cannot be invalid (escaped keys, table names, columns, sizes, durations) while the command line is
//! read, so a malformed one exits with status 2 before anything is done. What only a cluster can judge (unknown
//! families, limits of a table) is left to it and exits with status 1.
//!
//! The doc comments here are the text of `--help`: users read them.

pub mod bench;
pub mod client;
pub mod condition;
pub mod config;
mod list_flags;
mod mistake;
pub mod roles;
pub mod rows;
pub mod shell;
pub mod tool;
pub mod transfer;
pub mod values;

use clap::{Args, Parser, Subcommand};

use bench::Bench;
use client::{Admin, NamespaceCommand, Status, TableCommand};
use config::Config;
use roles::{Demo, Dev, Master, Server};
use rows::{Aggregate, Append, Count, Delete, FirstOrLast, Get, Increment, Latest, Put, Scan};
use shell::Shell;
use tool::Tool;
use transfer::{Export, Import};

pub use list_flags::parse;
pub use mistake::mistake;

/// A distributed, region-sharded, sorted wide-column store.
#[derive(Debug, Parser)]
#[command(name = "terrane", version, propagate_version = true, after_help = TIMES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const TIMES: &str = "Times: 2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00+01:00, milliseconds since 1970, or relative to now, as -1h. \
                     Dates are in UTC unless they have an offset, and are shown in UTC.";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a short demo: a cluster in a temporary directory, weather data and paging.
    Demo(Demo),
    /// Run a whole cluster in this process, with its data in one directory; stop it with Ctrl-C.
    Dev(Dev),
    /// Run a master.
    Master(Master),
    /// Run a region server.
    Server(Server),
    /// Check configuration files.
    #[command(subcommand)]
    Config(Config),
    /// Read commands from a terminal, with editing, completion and history; HBase shell lines are understood, too.
    Shell(Shell),
    /// Show servers, regions, leaders and health issues.
    Status(Status),
    /// Inspect and maintain servers, regions and log groups.
    #[command(subcommand)]
    Admin(Admin),
    /// Create, list, describe, alter, disable, truncate and drop tables.
    #[command(subcommand)]
    Table(TableCommand),
    /// Create, list and drop namespaces of tables.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Write one cell; with --if, exit with status 4 if the condition does not hold.
    Put(Put),
    /// Read one row; exit with status 3 if it does not exist.
    Get(Get),
    /// Delete all versions of a column, or a whole row; with --if, exit with status 4 if the condition does not hold.
    Delete(Delete),
    /// Add to a counter and print its new value.
    Incr(Increment),
    /// Append to the value of a column and print its new value.
    Append(Append),
    /// Read the rows of a range.
    Scan(Scan),
    /// Count the rows of a range.
    Count(Count),
    /// Read the first row of a range; exit with status 3 if there is none.
    First(FirstOrLast),
    /// Read the last row of a range; exit with status 3 if there is none.
    Last(FirstOrLast),
    /// Compute the sum, minimum, maximum, average or count of a column's values.
    Aggregate(Aggregate),
    /// Read the first row, or the first few rows, of every distinct key prefix.
    Latest(Latest),
    /// Import files, plain or gzipped, into a table.
    Import(Import),
    /// Export the rows of a table to standard output, in a format that `import` reads.
    Export(Export),
    /// Generate load and measure it; prints a line per second and a summary.
    #[command(subcommand)]
    Bench(Bench),
    /// Show this build's version, feature level, protocol and format versions.
    Version(Version),
    /// Print the completions of a shell: `source <(terrane completions bash)`.
    Completions(Completions),
    /// Write the man pages of all commands into a directory.
    Man(Man),
    /// Inspect the files of a stopped process.
    #[command(subcommand)]
    Tool(Tool),
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell that reads them.
    pub shell: CompletionShell,
}

/// A shell with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub struct Man {
    /// The directory, such as /usr/local/share/man/man1; it is created if it is missing.
    #[arg(value_name = "DIR")]
    pub directory: std::path::PathBuf,
}

#[derive(Debug, Args)]
pub struct Version {
    /// Print one JSON object on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
