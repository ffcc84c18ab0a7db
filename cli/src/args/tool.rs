//! The arguments of the offline tools.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use terrane_types::TableName;

use super::values::{Addresses, addresses};

#[derive(Debug, Subcommand)]
pub enum Tool {
    /// Verify every file of a stopped process; exit with status 1 if anything is damaged.
    Check(Check),
    /// Rebuild the catalog of a cluster that lost all its masters, from its running region servers.
    RebuildCatalog(RebuildCatalog),
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
pub struct RebuildCatalog {
    /// Addresses of all region servers of the cluster.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub servers: Addresses,
    /// Addresses of the new masters: 1, 3 or 5.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub peers: Addresses,
    /// Where to make the masters' data directories.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Drop this table, because regions of it are lost; can be repeated.
    #[arg(long, value_name = "TABLE")]
    pub drop_table: Vec<TableName>,
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
