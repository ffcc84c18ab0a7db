//! What the edge proposes to a group, and the group's handles with these types.
//!
//! Proposals stay values, with rows that are slices of the buffer they were received in, until the leader packs them into
//! an entry: that writes their bytes once ([`crate::operation`]). A row has one form per stage of its way:
//!
//! | stage                            | form                                                            |
//! |----------------------------------|-----------------------------------------------------------------|
//! | on the wire                      | `v1::RowMutation` (protobuf)                                    |
//! | received, not checked            | [`ReceivedRow`](crate::region::write::ReceivedRow)              |
//! | checked at the edge and proposed | [`CheckedRow`]                                                  |
//! | in the log                       | [`LoggedRow`](crate::operation::LoggedRow): final cells, result |

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use terrane_types::mutation::checks::MutationParts;
use terrane_types::{ColumnTest, Condition, FamilyName, Invalid, PackedCells, Projection, ReadModifyWrite, Returns};

use crate::group::reply::Reply;
use crate::operation::{
    Adopt, ChangeTables, Compare, Depart, Freeze, Load, Merge, ROW_HEADER_BYTES, Refuse, Settle, Split, Unfreeze,
    WriteHeader,
};

/// A group's handle: takes a [`Proposal`], answers a [`Reply`].
pub type Group = terrane_raft::Group<Proposal, Reply>;

/// The server's replicas.
pub type GroupHost = terrane_raft::GroupHost<Proposal, Reply>;

/// What is proposed to a group.
pub enum Proposal {
    Write(Write),
    ChangeTables(Box<ChangeTables>),
    Split(Split),
    Merge(Merge),
    Settle(Settle),
    Freeze(Freeze),
    Unfreeze(Unfreeze),
    Depart(Depart),
    /// Waits until the entry's stamp is at least that of the region's last write: stamps never go back.
    Adopt {
        adopt: Adopt,
        least_stamp: u64,
    },
    Refuse(Refuse),
    /// Waits until the entry's stamp is at least the time of its cells: a delete that follows hides them.
    Load {
        load: Load,
        least_stamp: u64,
    },
    /// Pins a snapshot of a region on every replica.
    Compare(Compare),
    /// Changes nothing but the log time.
    Tick,
}

impl terrane_raft::Proposal for Proposal {
    fn bytes(&self) -> usize {
        match self {
            Self::Write(write) => write.bytes,
            Self::ChangeTables(change) => {
                // Rare, and nothing counts on a cheap answer.
                let mut encoded = Vec::new();
                change.encode(&mut encoded);
                encoded.len()
            }
            Self::Split(split) => 64 + split.at.len(),
            Self::Merge(_) => Merge::BYTES,
            Self::Settle(settle) => settle.encoded_len(),
            Self::Freeze(freeze) => 64 + 8 * freeze.to.servers.len(),
            Self::Unfreeze(_) | Self::Refuse(_) => 64,
            Self::Depart(depart) => 128 + depart.adopted.range.start.len() + depart.adopted.range.end.len(),
            Self::Adopt { adopt, .. } => 64 + adopt.contents.len(),
            Self::Load { load, .. } => load.encoded_len(),
            Self::Compare(_) => Compare::BYTES,
            Self::Tick => 2,
        }
    }
}

/// Mutations of rows of one region that the edge has checked.
pub struct Write {
    pub header: WriteHeader,
    rows: Vec<CheckedRow>,
    bytes: usize,
    evaluation: Option<EvaluationId>,
}

/// Distinguishes a write that is to be evaluated from all others in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluationId(u64);

impl EvaluationId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// One row's mutation, checked: its key and cells are within their limits, in the region's range, and name families that
/// the table had under the header's schema version.
#[derive(Clone, Debug)]
pub struct CheckedRow {
    /// The client's number for it; 0: it has none.
    pub operation: u64,
    /// When the client first tried it.
    pub first_try_ms: u64,
    pub row: Bytes,
    pub cells: PackedCells,
    /// What the leader evaluates; `None` for a plain row.
    pub request: Option<Box<RowRequest>>,
}

/// What is requested of a row in addition to its cells. Condition, increments and appends have been checked one by one
/// ([`Condition::check`], [`ReadModifyWrite::check`]) where they were read.
#[derive(Clone, Debug, Default)]
pub struct RowRequest {
    /// Nothing of the row is applied unless it holds.
    pub condition: Option<Condition>,
    pub read_modify_writes: Vec<ReadModifyWrite>,
    pub returns: Returns,
    /// If the condition does not hold: return the columns it names.
    pub return_found: bool,
    /// The time to live of what increments and appends write; absent: that of the cell they found, if it has one.
    pub ttl_ms: Option<u64>,
    /// What only another protocol asks.
    pub extras: Extras,
}

/// What only another protocol than ours asks of a row.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Nothing of the row is applied unless it holds, too.
    pub condition: Option<Arc<dyn RowCondition>>,
    /// Puts without a timestamp get none below that of the first cell that the conditions saw. Deletes keep to the stamp.
    pub follows_condition: bool,
    /// Increments and appends see the newest version from the first of these times on and below the second one.
    pub merge_times: Option<(i64, i64)>,
    /// How many newer versions of its column a delete of the newest version leaves to others, by its place; none: 0. So deletes
    /// that name a column more than once delete its newest versions in turn.
    pub turns: Vec<u32>,
    /// Timestamps of what increments and appends write to columns that have no version, by their place; [`LATEST`] or none: the
    /// stamp.
    ///
    /// [`LATEST`]: terrane_types::cell::LATEST
    pub first_times: Vec<i64>,
    /// Where among the bytes of the row's cells the results of increments, appends and deletes of newest versions go, each
    /// by itself and ascending; at the end without. With it a column may be named more than once: each of them sees the row
    /// as it was before, and of several changes to a column the last one counts.
    pub places: Option<Vec<usize>>,
    /// What is returned is what increments and appends made, and nothing else: each of them by itself.
    pub returns_merged: bool,
    /// What increments and appends write is newer than the version that they saw, so that no version takes the place of
    /// another within a millisecond.
    pub makes_versions: bool,
    /// Families in which a put that has a timestamp is left out where a tombstone that is stored covers it, whatever was written
    /// first. In order, and each once.
    pub by_timestamp: Vec<FamilyName>,
}

/// A condition that another protocol brings along.
pub trait RowCondition: fmt::Debug + Send + Sync {
    /// The cells of the row that it judges.
    fn reads(&self) -> &Projection;

    /// Whether it judges the first cell of the row, too, whatever column that is of.
    fn reads_first(&self) -> bool {
        false
    }

    /// Judges the packed cells that were read of a row. If it holds: the timestamp of the first cell that it saw, or
    /// `i64::MIN` if it saw none.
    ///
    /// # Errors
    /// [`Invalid`] if these cells cannot be judged.
    fn judge(&self, row: &[u8], cells: &[u8]) -> Result<Option<i64>, Invalid>;
}

impl Extras {
    /// How many newer versions the read-modify-write at this place leaves to others.
    #[must_use]
    pub fn turn(&self, place: usize) -> usize {
        self.turns.get(place).map_or(0, |turn| usize::try_from(*turn).unwrap_or(usize::MAX))
    }

    /// Whether any delete leaves newer versions to others: then newest versions are not enough.
    #[must_use]
    pub fn takes_turns(&self) -> bool {
        self.turns.iter().any(|turn| *turn > 0)
    }
}

impl Write {
    #[must_use]
    pub fn new(header: WriteHeader, rows: Vec<CheckedRow>) -> Self {
        let bytes = header.encoded_len() + rows.iter().map(CheckedRow::bytes).sum::<usize>();
        let evaluates = rows.iter().any(|row| row.request.is_some());
        Self { header, rows, bytes, evaluation: evaluates.then(EvaluationId::next) }
    }

    #[must_use]
    pub fn rows(&self) -> &[CheckedRow] {
        &self.rows
    }

    /// About what it takes in memory and in the log.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its identity, if any of its rows is to be evaluated.
    #[must_use]
    pub fn evaluation(&self) -> Option<EvaluationId> {
        self.evaluation
    }
}

impl CheckedRow {
    fn bytes(&self) -> usize {
        let request = self.request.as_ref().map_or(0, |request| request.bytes());
        ROW_HEADER_BYTES + self.row.len() + self.cells.as_bytes().len() + request
    }
}

impl RowRequest {
    /// The request as rows carry it: `None` if there is nothing to evaluate.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        let evaluates = self.condition.is_some()
            || self.extras.condition.is_some()
            || !self.extras.by_timestamp.is_empty()
            || !self.read_modify_writes.is_empty()
            || self.returns != Returns::Nothing;
        evaluates.then(|| Box::new(self))
    }

    /// About what it takes in memory.
    fn bytes(&self) -> usize {
        let read_modify_writes = &self.read_modify_writes;
        let parts = MutationParts { row: &[], delete_row: false, cells: &[], condition: None, read_modify_writes };
        let mut bytes = parts.value_bytes();
        if let Some(condition) = &self.condition {
            let mut add = |test: &ColumnTest| {
                let values: usize = test.test.values().iter().map(Bytes::len).sum();
                bytes += test.family.as_bytes().len() + test.qualifier.len() + values;
                Ok::<(), std::convert::Infallible>(())
            };
            condition.each_test(&mut add).unwrap_or_else(|never| match never {});
        }
        bytes
    }
}
