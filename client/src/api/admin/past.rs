//! What the leading master has seen since it began to lead: loads, events and failovers.

use terrane_types::KeyRange;
use terrane_types::admin::past::{ClusterLoad, EventList, FailoverList, LoadMeasure, TableLoad};

use super::Admin;
use crate::error::Error;

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
