//! The command line: what `terrane` understands, to the letter of the grammar in its manual.
//!
//! Scripts drive `terrane` by this grammar, so names, flags and their meaning only ever grow. Values are turned into
//! types that cannot be wrong (escaped keys, table names, columns, sizes, durations) while the line is read, so that a
//! bad one is exit status 2 and nothing was done. What only a cluster can judge (unknown families, limits of a table)
//! is left to it and is exit status 1.
//!
//! The text of the help is in these doc comments: it is what users see.

pub mod bench;
pub mod client;
pub mod condition;
pub mod roles;
pub mod rows;
pub mod tool;
pub mod values;

use clap::{Parser, Subcommand};

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
    /// Show it: a cluster in a temporary directory, weather and paging, then it ends.
    Demo(Demo),
    /// Run a whole cluster in this process, with its data under one directory; Ctrl-C stops it cleanly.
    Dev(Dev),
    /// Run a master.
    Master(Master),
    /// Run a region server.
    Server(Server),
    /// Show servers, regions, leaders, and what is wrong.
    Status(Status),
    /// Look at the cluster's parts and change them.
    #[command(subcommand)]
    Admin(Admin),
    /// Create, list, describe, alter and drop tables.
    #[command(subcommand)]
    Table(TableCommand),
    /// Create, list and drop the namespaces that tables are in.
    #[command(subcommand)]
    Namespace(NamespaceCommand),
    /// Write one cell.
    Put(Put),
    /// Read one row; exit status 3 when it is not there.
    Get(Get),
    /// Delete a column of a row with all its versions, or the whole row.
    Delete(Delete),
    /// Add to a counter and show its new value.
    Incr(Increment),
    /// Read the rows of a range.
    Scan(Scan),
    /// Count the rows of a range.
    Count(Count),
    /// Read the first row of a range; exit status 3 when there is none.
    First(FirstOrLast),
    /// Read the last row of a range; exit status 3 when there is none.
    Last(FirstOrLast),
    /// Calculate the sum, least, greatest, mean or number of a column's values.
    Aggregate(Aggregate),
    /// Read the first row, or the first few, of every distinct key prefix.
    Latest(Latest),
    /// Write the records of files, plain or gzipped, into a table.
    Import(Import),
    /// Write the rows of a table to standard output, in a form that `import` reads.
    Export(Export),
    /// Generate load and measure it: a line per second and a summary.
    #[command(subcommand)]
    Bench(Bench),
    /// Look at the files of a stopped process.
    #[command(subcommand)]
    Tool(Tool),
}

#[cfg(test)]
mod tests;
