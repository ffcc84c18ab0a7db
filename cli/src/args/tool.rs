//! The arguments of the offline tools.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Verify every file of a stopped process; exit with status 1 if anything is damaged.
    Check(Check),
    /// Print a store file: its properties, index and cells.
    Dump(Dump),
}

#[derive(Debug, Args)]
pub struct Check {
    /// The data directory of a master, a region server or `dev`.
    pub directory: PathBuf,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Dump {
    /// The store file.
    pub file: PathBuf,
    /// Number of cells to print.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cells: usize,
    /// Number of index blocks to print.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub blocks: usize,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
}
