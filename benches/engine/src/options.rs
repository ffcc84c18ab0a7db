//! What a run measures: the options of the command line.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// How far to compact a store before measuring reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compaction {
    /// Until the store is idle under its own policy.
    Settled,
    /// Everything to the last level: the best state of each store, whatever its policy.
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

/// What to measure, and for how long at most.
#[derive(Clone, Debug, clap::Args, Serialize)]
pub struct Options {
    /// Rows to insert, of 40 + 100 bytes.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    pub rows: u64,
    /// Rows to write in sorted batches of 1,000, into a separate store; at most --rows.
    #[arg(long, default_value_t = 1_000_000)]
    pub batch_rows: u64,
    /// Point gets of existing rows, and as many of absent rows.
    #[arg(long, default_value_t = 500_000)]
    pub gets: u64,
    /// Scans of 100 rows, and as many in reverse.
    #[arg(long, default_value_t = 30_000)]
    pub scans: u64,
    /// Time limit of a workload in seconds; a full scan and a compaction always finish.
    #[arg(long, default_value_t = 300)]
    pub seconds: u64,
    /// Block cache per store, in MiB.
    #[arg(long, default_value_t = 512)]
    pub cache_mib: u64,
    /// Size of a full memtable, in MiB.
    #[arg(long, default_value_t = 64)]
    pub write_buffer_mib: u64,
    /// How far to compact the store before reads.
    #[arg(long, value_enum, default_value_t = Compaction::Full)]
    pub compaction: Compaction,
    /// Seed of keys, values and choices.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to create the stores' directories (default: the system's temporary directory).
    #[arg(long)]
    pub dir: Option<PathBuf>,
}
