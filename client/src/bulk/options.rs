//! The bounds of a bulk load, and what it has loaded.

use std::time::Duration;

/// Bounds of a [`BulkLoader`](crate::BulkLoader).
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkOptions {
    /// Rows of one region are sent as a run when they have this many bytes. 64 MiB by default. The rows of a run are loaded
    /// all or none.
    pub run_bytes: usize,
    /// Bytes of rows in memory, buffered or on their way. 256 MiB by default. When there are more, the largest buffer is
    /// sent as a run, and callers wait.
    pub memory_bytes: usize,
    /// Runs that are on their way at once. 4 by default.
    pub runs_in_flight: usize,
    /// The timestamp of cells without one, in milliseconds since 1970; `None`: the time at which the first server receives
    /// rows. A load that is repeated with the timestamp of the first attempt writes the same cells again.
    pub timestamp_ms: Option<u64>,
    /// Rows come in ascending order: the rows of a region are sent as soon as a row of a later region comes, so that sending
    /// and reading the next ones overlap. A row that comes late is loaded all the same, in a run of its own. Off by default.
    pub ascending: bool,
    /// How long one run may take, retries included. 10 minutes by default.
    pub timeout: Duration,
}

impl Default for BulkOptions {
    fn default() -> Self {
        Self {
            run_bytes: 64 << 20,
            memory_bytes: 256 << 20,
            runs_in_flight: 4,
            timestamp_ms: None,
            ascending: false,
            timeout: Duration::from_secs(600),
        }
    }
}

impl BulkOptions {
    /// The same bounds with another number of bytes in a run.
    #[must_use]
    pub const fn run_bytes(mut self, run_bytes: usize) -> Self {
        self.run_bytes = run_bytes;
        self
    }

    /// The same bounds with another number of bytes in memory.
    #[must_use]
    pub const fn memory_bytes(mut self, memory_bytes: usize) -> Self {
        self.memory_bytes = memory_bytes;
        self
    }

    /// The same bounds with another number of runs on their way at once.
    #[must_use]
    pub const fn runs_in_flight(mut self, runs_in_flight: usize) -> Self {
        self.runs_in_flight = runs_in_flight;
        self
    }

    /// The same bounds, and this timestamp for cells without one.
    #[must_use]
    pub const fn timestamp_ms(mut self, timestamp_ms: u64) -> Self {
        self.timestamp_ms = Some(timestamp_ms);
        self
    }

    /// The same bounds for rows that come in ascending order.
    #[must_use]
    pub const fn ascending(mut self, ascending: bool) -> Self {
        self.ascending = ascending;
        self
    }

    /// The same bounds with another time for each run.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
}

/// What a bulk load has loaded.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BulkSummary {
    /// Different rows of each run.
    pub rows: u64,
    /// Cells given to the loader.
    pub cells: u64,
    /// Bytes of rows and cells.
    pub bytes: u64,
    /// Runs that were taken into regions.
    pub runs: u64,
    /// Regions that took in at least one of them.
    pub regions: u64,
    /// The timestamp of cells without one; 0: no server has named it.
    pub timestamp_ms: u64,
}
