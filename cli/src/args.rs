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
pub mod roles;
pub mod rows;
pub mod tool;
pub mod values;

use clap::{Args, Parser, Subcommand};

use bench::Bench;
use client::{Admin, Export, Import, NamespaceCommand, Status, TableCommand};
use roles::{Demo, Dev, Master, Server};
use rows::{Aggregate, Count, Delete, FirstOrLast, Get, Increment, Latest, Put, Scan};
use tool::Tool;

/// A distributed, region-sharded, sorted wide-column store.
#[derive(Debug, Parser)]
#[command(name = "terrane", version, propagate_version = true, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

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
    /// Show servers, regions, leaders and health issues.
    Status(Status),
    /// Inspect and maintain servers, regions and log groups.
    #[command(subcommand)]
    Admin(Admin),
    /// Create, list, describe, alter and drop tables.
    #[command(subcommand)]
    Table(TableCommand),
    /// Create, list and drop namespaces of tables.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Write one cell.
    Put(Put),
    /// Read one row; exit with status 3 if it does not exist.
    Get(Get),
    /// Delete all versions of a column, or a whole row.
    Delete(Delete),
    /// Add to a counter and print its new value.
    Incr(Increment),
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
    /// Inspect the files of a stopped process.
    #[command(subcommand)]
    Tool(Tool),
}

#[derive(Debug, Args)]
pub struct Version {
    /// Print one JSON object on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests;
