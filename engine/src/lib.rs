//! The engine: the cells of one server's regions, in memory and on disk.
//!
//! There is no log in here: the shared Raft log is the write-ahead log. A write goes to a memtable; a flush moves frozen
//! memtables to a backend, syncs, and appends one record to the manifest, which says up to which log index a region is
//! durable. After a crash the engine comes back at those points and the log is applied again from there.
//!
//! Memtables, manifest, snapshots, merging reads and splits are common; a [`BackendKind`] only keeps flushed cells. What
//! a reader sees is decided by `terrane_types::visibility` alone.
//!
//! # Invariants
//! - Nothing is recorded before it is synced, and nothing leaves memory before it is recorded.
//! - One writer per region, in log order; readers never wait for a flush.
//! - A snapshot sees what it saw when it was taken, whatever is flushed, collected or split meanwhile.
//!
//! Left out: placement, consensus, anything about requests. Tests: `tests/` here, against a plain model.

#![cfg_attr(
    not(feature = "sled"),
    allow(dead_code, unused_variables, reason = "the memory backend alone needs less of what both are handed")
)]

mod backend;
mod block_cache;
mod cells;
mod check;
mod checkpoint;
mod codec;
mod collecting;
mod compaction;
mod descriptors;
mod dump;
mod engine;
mod error;
mod file;
mod files;
mod flush;
mod history;
mod ingest;
mod large;
mod manifest;
mod memtable;
mod merge;
mod point;
mod prefix;
mod read;
mod reading;
mod region;
mod run;
mod scan;
mod snapshot;
mod source;
mod split_point;
mod table;
mod unite;
mod window;

pub use backend::BackendKind;
pub use block_cache::FamilyReadCounts;
pub use check::{Recorded, check};
pub use checkpoint::{Checkpoint, CheckpointFile};
pub use compaction::{Compaction, CompactionProgress, CompactionTotals, Verdict, verdict};
pub use dump::{DumpedBlock, DumpedCell, FileDump, FileProperties, dump_file};
pub use engine::{Engine, Options, SplitDaughter};
pub use error::{Error, SnapshotTooOld};
pub use ingest::{IngestFile, TableBuilder};
pub use point::{DurablePoint, GroupPoint};
pub use read::{Patience, ReadStats, RowRead};
pub use region::{Region, RegionSpec, RowPrefix, RowPrefixLength};
pub use scan::{CellPosition, RowScanner, ScanSpec, Step};
pub use snapshot::Snapshot;
