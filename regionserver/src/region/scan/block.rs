//! What a scan asks for, and the blocks it returns.

use bytes::Bytes;
use terrane_engine::Snapshot;
use terrane_types::{KeyRange, RegionDescriptor};

use crate::region::aggregate::{Aggregate, Totals};
use crate::region::filter::Lookup;
use crate::region::latest::{Latest, PrefixProgress};
use crate::region::resume_token::{Position, ResumeToken};

/// A scan of one region.
pub struct ScanRequest {
    pub range: KeyRange,
    pub reverse: bool,
    pub lookup: Lookup,
    pub block_bytes: usize,
    pub count_only: bool,
    /// Rows are counted and aggregated instead of being sent.
    pub aggregate: Option<Aggregate>,
    /// Only the first rows of each prefix.
    pub latest: Option<Latest>,
    /// Whether blocks read from disk stay in the block cache.
    pub fills_cache: bool,
    /// All blocks are read at one sequence number.
    pub snapshot: bool,
}

/// The progress of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub limit_left: Option<u64>,
    pub offset_left: u64,
    pub position: Position,
    /// Present if and only if the latest rows of each prefix are requested.
    pub group: Option<PrefixProgress>,
    /// Present if and only if an aggregate is requested.
    pub totals: Option<Totals>,
    /// For a snapshot scan, once it has begun or if the request named it: the sequence number it reads at.
    pub sequence: Option<u64>,
}

impl Cursor {
    /// The beginning of a plain scan: rows as they are, neither grouped nor added up.
    pub const fn start(limit: Option<u64>) -> Self {
        Self { limit_left: limit, offset_left: 0, position: Position::Start, group: None, totals: None, sequence: None }
    }

    /// The row that was looked at last or is next; none at the beginning.
    pub const fn row(&self) -> Option<&Bytes> {
        match &self.position {
            Position::Start => None,
            Position::At(row) | Position::After(row) | Position::Within { row, .. } => Some(row),
        }
    }
}

/// A part of the answer.
pub struct Block {
    pub rows: Vec<u8>,
    pub row_count: u64,
    /// Rows that were read for the filter and did not pass.
    pub rows_filtered: u64,
    pub cursor: Cursor,
    pub done: bool,
    pub row_continues: bool,
    pub row_restarted: bool,
    /// The filter ended the scan: other regions are not queried.
    pub ended: bool,
    pub cells_skipped: u64,
    pub region: RegionDescriptor,
    /// For a snapshot scan: while it is held, the next block finds everything.
    pub snapshot: Option<Snapshot>,
}

impl Block {
    /// The token that continues after this block.
    pub fn token(&self, reverse: bool) -> ResumeToken {
        ResumeToken {
            reverse,
            region: self.region.range.clone(),
            limit_left: self.cursor.limit_left,
            offset_left: self.cursor.offset_left,
            group: self.cursor.group.clone(),
            totals: self.cursor.totals,
            position: self.cursor.position.clone(),
            sequence: self.cursor.sequence,
        }
    }
}
