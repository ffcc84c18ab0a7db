//! What the leading master has seen since it began to lead: loads, events and failovers.

use bytes::Bytes;
use terrane_types::admin::{EventInfo, Failover, LoadMinute};
use terrane_types::{KeyRange, RegionId};

use super::Admin;
use crate::error::Error;

/// What a load history counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadMeasure {
    /// Rows read.
    Reads,
    /// Rows written.
    #[default]
    Writes,
    /// Bytes of the rows read and written.
    Bytes,
}

/// Which part of a table's load to show. Times are in milliseconds since 1970.
#[derive(Clone, Debug)]
pub struct LoadQuery {
    /// What to count.
    pub measure: LoadMeasure,
    /// The first time.
    pub from_ms: u64,
    /// The time behind the last; 0: now.
    pub to_ms: u64,
    /// The keys.
    pub range: KeyRange,
    /// The most columns; 0: one per minute.
    pub columns_max: u32,
    /// The most rows; 0: 1,000.
    pub rows_max: u32,
}

impl Default for LoadQuery {
    /// The rows written in the last 24 hours, per minute, in all keys.
    fn default() -> Self {
        let measure = LoadMeasure::default();
        Self { measure, from_ms: 0, to_ms: 0, range: KeyRange::all(), columns_max: 0, rows_max: 0 }
    }
}

/// The load of a table by time and key. A range that was split or merged keeps its history: halves of it, or the sum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TableLoad {
    /// Since when the master has watched; `None`: it has no history of the table yet.
    pub known_from_ms: Option<u64>,
    /// The start of the first column.
    pub from_ms: u64,
    /// The duration of a column.
    pub step_ms: u64,
    /// The columns of each row.
    pub columns: u32,
    /// The master's time. The last column may reach beyond it: its last minute is not over.
    pub now_ms: u64,
    /// Key ranges in order.
    pub rows: Vec<LoadRow>,
}

/// The load of a key range: of one region, or of several neighbours.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoadRow {
    /// The first key.
    pub start: Bytes,
    /// The key behind the last; empty: the end of the table.
    pub end: Bytes,
    /// The region that has the first key now.
    pub region: Option<RegionId>,
    /// The count of each column, for all of its time.
    pub counts: Vec<u64>,
}

/// The load of the whole cluster per minute.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClusterLoad {
    /// Since when the master has watched; `None`: it has not begun.
    pub known_from_ms: Option<u64>,
    /// The finished minutes of the last 24 hours that the master has watched, oldest first.
    pub minutes: Vec<LoadMinute>,
}

/// The latest events.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EventList {
    /// Since when the master has watched.
    pub known_from_ms: Option<u64>,
    /// Newest first.
    pub events: Vec<EventInfo>,
}

/// The latest failovers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FailoverList {
    /// Since when the master has watched.
    pub known_from_ms: Option<u64>,
    /// Those that last, then the newest first.
    pub failovers: Vec<Failover>,
}

impl Admin {
    /// The load of a table by time and key, of the last 24 hours at most. The leading master keeps it in memory: a new leader
    /// begins without a history.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table.
    pub async fn table_load(&self, table: &str, query: LoadQuery) -> Result<TableLoad, Error> {
        self.masters().table_load(table.to_owned(), query, self.timeout).await
    }

    /// The load of the whole cluster per minute, of the last 24 hours at most.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster_load(&self) -> Result<ClusterLoad, Error> {
        self.masters().cluster_load(self.timeout).await
    }

    /// At most `limit` events (0: 1,000) before the one of the number `before` (0: all), newest first. The leading master keeps
    /// the latest 2,000 since it began to lead.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn events(&self, before: u64, limit: u32) -> Result<EventList, Error> {
        self.masters().events(before, limit, self.timeout).await
    }

    /// The latest failovers: how long groups were without a leader because a server died.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn failovers(&self) -> Result<FailoverList, Error> {
        self.masters().failovers(self.timeout).await
    }
}
