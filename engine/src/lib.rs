//! The engine: the cells of one server's regions, in memory and on disk.
//!
//! The engine has no log: the shared Raft log is the write-ahead log. A write goes to a memtable. A flush moves frozen
//! memtables to a backend, syncs, and appends one record to the manifest, which says up to which log index a region is
//! durable. After a crash the engine restores those points, and the log is applied again from there.
//!
//! Memtables, manifest, snapshots, merging reads and splits are shared by all backends; a [`BackendKind`] only stores
//! flushed cells. `terrane_types::visibility` alone decides what a reader sees.
//!
//! # Invariants
//! - Nothing is recorded before it is synced, and nothing leaves memory before it is recorded.
//! - One writer per region, in log order; readers never wait for a flush.
//! - A snapshot always sees what it saw when it was taken, whatever is flushed, collected or split meanwhile.
//!
//! Not here: placement, consensus, requests. Tests: `tests/` in this crate, against a plain model.

mod backend;
mod boxed;
mod cell_window;
mod cells;
mod check;
mod codec;
mod collecting;
mod column_selection;
mod compaction;
mod descriptors;
mod dump;
mod engine;
mod error;
mod family_reader;
mod file_directory;
mod file_dump;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod get;
mod history;
mod levels;
mod manifest;
mod memtable;
mod merging_cursor;
mod options;
mod point;
mod region;
mod row_heads;
mod row_prefix;
mod row_range;
mod scan;
mod snapshot;
mod sorted_cells;
mod source;
mod split_point;
mod store_file;

/// The durable formats of an engine.
pub const FORMATS: &[terrane_types::versions::FormatVersions] = &[store_file::VERSIONS, manifest::VERSIONS];

pub use boxed::BoxFuture;
pub use check::{Recorded, check};
pub use compaction::{CompactionProgress, CompactionTotals, Verdict, verdict};
pub use dump::dump_file;
pub use engine::{
    Checkpoint, CheckpointFile, Compaction, CopiedFile, Engine, GroupContents, GroupCopy, IngestFile, RegionContents,
    RegionCopy, StagedGroup, StagedRegion,
};
pub use error::{Error, SnapshotTooOld};
pub use family_reader::{Patience, ReadStats, RowRead};
pub use file_dump::{DumpedBlock, DumpedCell, FileDump, FileProperties};
pub use options::{BackendKind, Options};
pub use point::{DurablePoint, GroupPoint};
pub use region::{CompactionHold, Region, RegionSpec, SplitDaughter};
pub use row_prefix::{RowPrefix, RowPrefixLength};
pub use scan::{CellPosition, RowScanner, ScanSpec, Step};
pub use snapshot::Snapshot;
pub use store_file::{FamilyReadCounts, StoreFileBuilder};
