//! Collects the rows of a bulk load by region, and sends the rows of a region as sorted runs.
//!
//! Which region a row belongs to is looked up once, when the load begins: a run whose region was split or moved since is cut
//! and redirected when it is sent, so an outdated map costs time and nothing else.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use terrane_env::task::run_blocking;
use terrane_types::RegionId;
use terrane_types::cell::Cells;
use tokio::task::JoinSet;

use crate::api::table::Table;
use crate::bulk::options::{BulkOptions, BulkSummary};
use crate::bulk::run::{self, LoadTime};
use crate::error::Error;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::wire::bulk::LoadRow;
use crate::write::operations::Put;
use crate::write::row_mutation::RowMutation;

/// The memory of a row in addition to its own bytes.
const ROW_OVERHEAD_BYTES: usize = 128;

/// Loads many rows of one table as store files. Created by [`Table::bulk_load`].
///
/// Rows are collected by region. The rows of a region go as a sorted **run** to the server that leads it, which builds store
/// files of them; every replica of the region then takes these files in at one moment. This costs a fraction of what puts
/// cost, because rows pass neither the log nor the memtables.
///
/// **All or none**: readers see all rows of a run or none. The rows of a region are one run while they fit
/// [`BulkOptions::run_bytes`] and all rows fit [`BulkOptions::memory_bytes`]; otherwise several, one after another.
///
/// **Durability**: when [`BulkLoader::finish`] returns `Ok`, a quorum of servers has every row on disk.
///
/// **Retry safety**: a run is loaded once, whatever leaders change, regions split or answers are lost meanwhile. After an
/// error, each run is loaded or not; a load that is repeated with the same [`BulkOptions::timestamp_ms`] writes the same cells.
///
/// **Order**: of two cells at one place (row, column and timestamp) the one given later counts. Cells of a load count as
/// written when its run is taken in.
///
/// A loader that is dropped before [`BulkLoader::finish`] gives up what was not sent.
///
/// ```no_run
/// # async fn run(table: terrane_client::Table) -> Result<(), terrane_client::Error> {
/// use terrane_client::{BulkOptions, Put};
///
/// let mut loader = table.bulk_load(BulkOptions::default());
/// for user in 0..1_000_000 {
///     loader.put(Put::new(format!("user-{user:08}")).set("info", "visits", "0")).await?;
/// }
/// let summary = loader.finish().await?;
/// println!("{} rows in {} regions", summary.rows, summary.regions);
/// # Ok(()) }
/// ```
pub struct BulkLoader {
    table: Table,
    options: BulkOptions,
    time: Arc<LoadTime>,
    /// The rows of each region, by where it starts.
    buffers: Vec<Buffer>,
    /// The buffer of the last row.
    at: usize,
    /// Bytes in all buffers, and of runs on their way.
    buffered: usize,
    sent: usize,
    runs: JoinSet<Result<Run, Error>>,
    summary: BulkSummary,
    regions: BTreeSet<RegionId>,
    failed: Option<Error>,
}

#[derive(Default)]
struct Buffer {
    start: Bytes,
    rows: Vec<LoadRow>,
    bytes: usize,
}

/// A run that was loaded.
struct Run {
    regions: BTreeSet<RegionId>,
    rows: u64,
    bytes: usize,
}

impl std::fmt::Debug for BulkLoader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BulkLoader")
            .field("table", &self.table.name().to_string())
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Loads many rows as store files, at a fraction of the cost of puts. Must be called within a runtime.
    #[must_use]
    pub fn bulk_load(&self, options: BulkOptions) -> BulkLoader {
        BulkLoader {
            table: self.clone(),
            options,
            time: Arc::new(LoadTime::new(options.timestamp_ms)),
            buffers: Vec::new(),
            at: 0,
            buffered: 0,
            sent: 0,
            runs: JoinSet::new(),
            summary: BulkSummary::default(),
            regions: BTreeSet::new(),
            failed: None,
        }
    }
}

impl BulkLoader {
    /// Adds cells of one row. Waits while too many bytes are in memory.
    ///
    /// # Errors
    /// [`Error::Invalid`] for rows, families and values outside the limits: the row was not added, and the load goes on. Any
    /// other error is that of a run, and ends the load.
    pub async fn put(&mut self, put: Put) -> Result<(), Error> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let mutation = self.table.prepare(RowMutation::from(put)).await?;
        let row = LoadRow { row: mutation.row, cells: mutation.cells };
        if self.buffers.is_empty() {
            self.locate().await?;
        }
        let bytes = row.row.len() + row.cells.len() + ROW_OVERHEAD_BYTES;
        self.summary.cells += Cells::new(&row.cells).count() as u64;
        self.summary.bytes += (row.row.len() + row.cells.len()) as u64;
        let after = self.buffers.partition_point(|buffer| buffer.start <= row.row);
        let at = after.saturating_sub(1);
        let buffer = &mut self.buffers[at];
        buffer.rows.push(row);
        buffer.bytes += bytes;
        let is_full = buffer.bytes >= self.options.run_bytes;
        self.buffered += bytes;
        if is_full {
            self.send(at).await?;
        }
        if self.options.ascending && at != self.at {
            let before = std::mem::replace(&mut self.at, at);
            self.send(before).await?;
        }
        while self.buffered + self.sent >= self.options.memory_bytes {
            // What is on its way frees memory without cutting a region's rows in two.
            match self.runs.is_empty() || self.buffered > self.options.memory_bytes / 2 {
                true => self.send_largest().await?,
                false => self.join().await?,
            }
        }
        Ok(())
    }

    /// Sends everything, and waits until all of it is loaded.
    ///
    /// # Errors
    /// The first error of a run. Runs that ended before it, or were on their way, may be loaded.
    pub async fn finish(mut self) -> Result<BulkSummary, Error> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        for at in 0..self.buffers.len() {
            self.send(at).await?;
        }
        while !self.runs.is_empty() {
            self.join().await?;
        }
        let (regions, timestamp_ms) = (self.regions.len() as u64, self.time.get());
        Ok(BulkSummary { regions, timestamp_ms, ..self.summary })
    }

    /// What was given to the loader, and loaded, so far.
    #[must_use]
    pub fn summary(&self) -> BulkSummary {
        BulkSummary { regions: self.regions.len() as u64, timestamp_ms: self.time.get(), ..self.summary }
    }

    /// A buffer for each region of the table.
    async fn locate(&mut self) -> Result<(), Error> {
        let (everything, progress) = (Bytes::new(), Progress::new(Risk::READ, self.table.timeout));
        let router = &self.table.core.router;
        let regions = router.regions_of(&self.table.target, &everything, &everything, progress).await?;
        let buffer = |(start, _)| Buffer { start, ..Buffer::default() };
        self.buffers = regions.into_iter().map(buffer).collect();
        Ok(())
    }

    async fn send_largest(&mut self) -> Result<(), Error> {
        let largest = (0..self.buffers.len()).max_by_key(|at| self.buffers[*at].bytes);
        match largest.filter(|at| self.buffers[*at].bytes > 0) {
            Some(at) => self.send(at).await,
            None => self.join().await,
        }
    }

    /// Sends what is in a buffer as a run, once no more runs than allowed are on their way.
    async fn send(&mut self, at: usize) -> Result<(), Error> {
        if self.buffers[at].rows.is_empty() {
            return Ok(());
        }
        while self.runs.len() >= self.options.runs_in_flight.max(1) {
            self.join().await?;
        }
        let buffer = &mut self.buffers[at];
        let (rows, bytes) = (std::mem::take(&mut buffer.rows), std::mem::take(&mut buffer.bytes));
        self.buffered -= bytes;
        self.sent += bytes;
        let (table, time, timeout) = (self.table.clone(), Arc::clone(&self.time), self.options.timeout);
        self.runs.spawn(async move {
            let rows = run_blocking(move || sorted(rows)).await;
            let regions = run::load(&table.core.router, &table.target, &rows, &time, timeout).await?;
            Ok(Run { regions, rows: rows.len() as u64, bytes })
        });
        Ok(())
    }

    /// Waits for the end of a run.
    async fn join(&mut self) -> Result<(), Error> {
        let Some(ended) = self.runs.join_next().await else { return Ok(()) };
        let ended = ended.unwrap_or_else(|gone| Err(Error::internal(format!("a run of a bulk load ended: {gone}"))));
        match ended {
            Ok(run) => {
                self.sent -= run.bytes;
                self.summary.rows += run.rows;
                self.summary.runs += run.regions.len() as u64;
                self.regions.extend(run.regions);
                Ok(())
            }
            Err(error) => {
                self.failed = Some(error.clone());
                Err(error)
            }
        }
    }
}

/// Sorts rows; cells of one row are joined in the order in which they were given.
fn sorted(mut rows: Vec<LoadRow>) -> Vec<LoadRow> {
    rows.sort_by(|one, other| one.row.cmp(&other.row));
    if rows.windows(2).all(|two| two[0].row != two[1].row) {
        return rows;
    }
    let mut joined: Vec<LoadRow> = Vec::with_capacity(rows.len());
    for same in rows.chunk_by(|one, other| one.row == other.row) {
        let cells = match same {
            [one] => one.cells.clone(),
            several => {
                let mut cells = BytesMut::with_capacity(several.iter().map(|row| row.cells.len()).sum());
                several.iter().for_each(|row| cells.extend_from_slice(&row.cells));
                cells.freeze()
            }
        };
        joined.push(LoadRow { row: same[0].row.clone(), cells });
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_sorted_and_cells_of_one_row_in_the_order_given() {
        let row = |row: &'static str, cells: &'static str| LoadRow { row: row.into(), cells: cells.into() };
        let rows = sorted(vec![row("b", "1"), row("a", "2"), row("b", "3"), row("c", "4")]);
        let shown: Vec<_> = rows.iter().map(|row| (&row.row[..], &row.cells[..])).collect();
        assert_eq!(shown, [(&b"a"[..], &b"2"[..]), (b"b", b"13"), (b"c", b"4")]);
    }
}
