//! What a run measures, as the command line says it.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// How far a store is compacted before reads are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Until it has nothing to do of its own accord.
    Settled,
    /// All of it, to the last level: the best state that each store has, whatever its policy.
    Full,
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Settled => "settled",
            Self::Full => "full",
        })
    }
}

/// What is measured, and for how long at most.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Options {
    /// Rows inserted, of 40 + 100 bytes.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub rows: u64,
    /// Rows written in sorted batches of 1,000, into a store of their own; no more than --rows.
    #[arg(long, default_value_t = 1_000_000)]
    pub batch_rows: u64,
    /// Point gets of present rows, and as many of absent rows.
    #[arg(long, default_value_t = 500_000)]
    pub gets: u64,
    /// Scans of 100 rows, and as many in reverse.
    #[arg(long, default_value_t = 30_000)]
    pub scans: u64,
    /// Seconds after which a workload is cut short; a full scan and a compaction are not.
    #[arg(long, default_value_t = 300)]
    pub seconds: u64,
    /// MiB of memory for blocks read from files, per store.
    #[arg(long, default_value_t = 512)]
    pub cache_mib: u64,
    /// MiB of a memtable that is full.
    #[arg(long, default_value_t = 64)]
    pub write_buffer_mib: u64,
    /// How far the store is compacted before reads.
    #[arg(long, value_enum, default_value_t = Compaction::Full)]
    pub compaction: Compaction,
    /// What keys, values and choices are made from.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where the stores' directories are made; the system's directory for temporary files when absent.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}
