//! The arguments of the offline tools.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Verify every file of a stopped process; exit status 1 when something is damaged.
    Check(Check),
    /// Show a store file: its properties, index and cells.
    Dump(Dump),
}

#[derive(Debug, Args)]
pub struct Check {
    /// The data directory of a master, a region server, or of `dev`.
    pub directory: PathBuf,
    /// Print one JSON object per line on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct Dump {
    /// The store file.
    pub file: PathBuf,
    /// How many cells to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub cells: usize,
    /// How many blocks of the index to show.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub blocks: usize,
    /// Print one JSON object per line on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
}
