//! Our engine, driven as a region server drives it: one region over all rows, rows applied in log order, a freeze when the
//! memtable is full, and flushes on a background runtime. A put blocks once [`FLUSHES_WAITING_MAX`] frozen memtables are
//! waiting, which matches RocksDB's four write buffers.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_engine::{BackendKind, DurablePoint, Engine, Options, Patience, Region, RegionSpec, ScanSpec, Step};
use terrane_env::{task, time};
use terrane_types::{
    CellRef, FamilyName, FamilySchema, GroupId, KeyRange, PackedCells, Projection, RegionId, TableId, cell,
};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::{Contender, Settings, Subject, SubjectError};

pub(super) const CONTENDER: Contender = Contender {
    name: "terrane",
    about: "the default engine: one region, one family with one version, WAL is the caller's, 2 runtime threads",
    open: |dir, settings| Ok(Box::new(Terrane::open(dir, settings)?)),
};

const GROUP: GroupId = GroupId(1);
const FAMILY: &str = "f";
const QUALIFIER: &[u8] = b"q";
/// Threads that flush and compact; RocksDB gets as many background jobs.
const THREADS: usize = 2;
/// More than any disk delivers, so that compactions are not throttled.
const COMPACTION_BYTES_PER_SECOND: u64 = 16 << 30;
/// Interval between checks of an awaited compaction.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Rows between checks of the memtable's size: a server checks once per batch of log entries.
const LOOK_EVERY: u64 = 64;
/// Together with the active memtable and the one being flushed: four.
const FLUSHES_WAITING_MAX: usize = 2;
/// Rows after which the timestamp advances by a millisecond, as under load.
const ROWS_PER_STAMP: u64 = 256;
const FIRST_STAMP: u64 = 1_700_000_000_000;
/// Bytes of packed rows per scan block, as in a server.
const BLOCK_BYTES: usize = 256 << 10;

struct Terrane {
    runtime: Runtime,
    engine: Arc<Engine>,
    region: Arc<Region>,
    /// Log entries so far; a put is one, and so is a batch.
    index: u64,
    /// Rows so far.
    sequence: u64,
    write_buffer_bytes: u64,
    /// Bytes of the last packed batch, a good estimate for the next.
    batch_bytes: usize,
    projection: Projection,
    now_ms: i64,
    flushes: mpsc::Sender<()>,
    flusher: JoinHandle<Result<(), terrane_engine::Error>>,
    compactor: JoinHandle<Result<(), terrane_engine::Error>>,
    /// Wakes the compactor, after each flush and for a full compaction.
    wake: Arc<Notify>,
    /// Buffer for reads, reused as in a server.
    out: RefCell<Vec<u8>>,
}

impl Terrane {
    fn open(dir: &Path, settings: &Settings) -> Result<Self, SubjectError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.map_err(SubjectError::new)?;
        let mut options = Options::new(dir.to_owned(), BackendKind::default(), settings.cache_bytes);
        // The other stores compact as fast as they can.
        options.compaction_bytes_per_second = COMPACTION_BYTES_PER_SECOND;
        let engine = runtime.block_on(Engine::open(options)).map_err(SubjectError::new)?;
        let region = match engine.regions().into_iter().next() {
            Some(region) => region,
            None => engine.create(spec()?, 1),
        };
        let index = region.point().index.max(1);
        let sequence = region.sequence();
        let (flushes, waiting) = mpsc::channel(FLUSHES_WAITING_MAX);
        region.set_sizes(u64::MAX, settings.write_buffer_bytes);
        let wake = Arc::new(Notify::new());
        let flusher =
            runtime.spawn(flush_on_demand(Arc::clone(&engine), Arc::clone(&region), Arc::clone(&wake), waiting));
        let compactor = runtime.spawn(compact_on_demand(Arc::clone(&engine), Arc::clone(&wake)));
        Ok(Self {
            runtime,
            engine,
            region,
            index,
            sequence,
            write_buffer_bytes: settings.write_buffer_bytes,
            batch_bytes: 0,
            projection: Projection::all(),
            now_ms: i64::try_from(time::wall_ms()).map_err(SubjectError::new)?,
            flushes,
            flusher,
            compactor,
            wake,
            out: RefCell::default(),
        })
    }

    /// The single cell of the next row.
    fn cell<'a>(&self, value: &'a [u8]) -> Result<CellRef<'a>, SubjectError> {
        let stamp = i64::try_from(self.stamp()).map_err(SubjectError::new)?;
        Ok(CellRef::put(FAMILY.as_bytes(), QUALIFIER, stamp, value))
    }

    fn stamp(&self) -> u64 {
        FIRST_STAMP + self.sequence / ROWS_PER_STAMP
    }

    fn freeze(&self) {
        self.region.freeze(DurablePoint {
            group: GROUP,
            index: self.index,
            sequence: self.sequence,
            stamp: self.stamp(),
            descriptor: Bytes::new(),
            window: Bytes::new(),
        });
    }

    /// Freezes a full memtable and queues its flush; blocks while too many are queued.
    fn flush_when_full(&mut self) -> Result<(), SubjectError> {
        if self.region.active_bytes() < self.write_buffer_bytes {
            return Ok(());
        }
        self.freeze();
        self.flushes.blocking_send(()).or_else(|_| self.flusher_ended())
    }

    /// The compactor ends by itself only with an error.
    fn check_compactor(&mut self) -> Result<(), SubjectError> {
        if !self.compactor.is_finished() {
            return Ok(());
        }
        match self.runtime.block_on(&mut self.compactor) {
            Ok(Ok(())) => Err(SubjectError::new("the compactor ended without a word")),
            Ok(Err(error)) => Err(SubjectError::new(error)),
            Err(error) => Err(SubjectError::new(error)),
        }
    }

    /// The flusher ends by itself only with an error.
    fn flusher_ended(&mut self) -> Result<(), SubjectError> {
        match self.runtime.block_on(&mut self.flusher) {
            Ok(Ok(())) => Err(SubjectError::new("the flusher ended without a word")),
            Ok(Err(error)) => Err(SubjectError::new(error)),
            Err(error) => Err(SubjectError::new(error)),
        }
    }
}

async fn flush_on_demand(
    engine: Arc<Engine>,
    region: Arc<Region>,
    wake: Arc<Notify>,
    mut waiting: mpsc::Receiver<()>,
) -> Result<(), terrane_engine::Error> {
    while waiting.recv().await.is_some() {
        engine.flush(&region).await?;
        wake.notify_one();
    }
    Ok(())
}

/// Runs compactions one after another and waits for more, until it is aborted.
async fn compact_on_demand(engine: Arc<Engine>, wake: Arc<Notify>) -> Result<(), terrane_engine::Error> {
    loop {
        while let Some(compaction) = engine.next_compaction() {
            engine.compact(compaction).await?;
        }
        wake.notified().await;
    }
}

fn spec() -> Result<RegionSpec, SubjectError> {
    let name = FamilyName::new(FAMILY).map_err(SubjectError::new)?;
    Ok(RegionSpec {
        region: RegionId(1),
        table: TableId(1),
        group: GROUP,
        range: KeyRange::all(),
        families: vec![FamilySchema::new(name)],
    })
}

impl Subject for Terrane {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError> {
        let cells = PackedCells::from_cells([self.cell(value)?]).map_err(SubjectError::new)?;
        (self.index, self.sequence) = (self.index + 1, self.sequence + 1);
        self.region.apply(self.index, self.sequence, key, &cells);
        if self.index.is_multiple_of(LOOK_EVERY) { self.flush_when_full() } else { Ok(()) }
    }

    /// One log entry: packed cells in one buffer, validated in place as if they came off the wire.
    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError> {
        let mut buffer = Vec::with_capacity(self.batch_bytes);
        let mut ends = Vec::with_capacity(rows.len());
        for (_, value) in rows {
            cell::pack(&mut buffer, self.cell(value)?);
            ends.push(buffer.len());
        }
        self.batch_bytes = buffer.len();
        let buffer = Bytes::from(buffer);
        let mut start = 0;
        let mut mutations = Vec::with_capacity(rows.len());
        for ((key, _), end) in rows.iter().zip(ends) {
            let cells = PackedCells::validate(buffer.slice(start..end)).map_err(SubjectError::new)?;
            mutations.push((key.as_slice(), cells));
            start = end;
        }
        self.index += 1;
        self.region.apply_all(self.index, self.sequence + 1, mutations.iter().map(|(key, cells)| (*key, cells)));
        self.sequence += rows.len() as u64;
        self.flush_when_full()
    }

    fn get(&self, key: &[u8]) -> Result<bool, SubjectError> {
        let mut out = self.out.borrow_mut();
        out.clear();
        let snapshot = self.region.snapshot();
        let read = self.region.get(&snapshot, key, &self.projection, self.now_ms, Patience::MayBlock, &mut out);
        Ok(read.map_err(SubjectError::new)?.cells_shown > 0)
    }

    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError> {
        let range = if reverse {
            // The start belongs to the range, so the exclusive end is its successor.
            KeyRange::new(Bytes::new(), [start, &[0]].concat())
        } else {
            KeyRange::new(Bytes::copy_from_slice(start), Bytes::new())
        };
        let range = range.map_err(SubjectError::new)?;
        let spec = ScanSpec { reverse, ..ScanSpec::new(range, self.projection.clone(), self.now_ms) };
        let mut out = self.out.borrow_mut();
        out.clear();
        let mut scanner = self.region.scan(self.region.snapshot(), spec);
        let mut rows = 0;
        while rows < limit {
            match scanner.next(&mut out, BLOCK_BYTES, Patience::MayBlock).map_err(SubjectError::new)? {
                Step::Row => rows += 1,
                // The block filled up inside a row, which continues in the next block.
                Step::Part { .. } | Step::Hidden | Step::HiddenPart => {}
                Step::End => break,
            }
            if out.len() >= BLOCK_BYTES {
                std::hint::black_box(&out);
                out.clear();
            }
        }
        std::hint::black_box(&out);
        Ok(rows)
    }

    fn drain(&mut self) -> Result<(), SubjectError> {
        self.freeze();
        self.runtime.block_on(self.engine.flush(&self.region)).map_err(SubjectError::new)
    }

    fn compact(&mut self) -> Result<(), SubjectError> {
        self.drain()?;
        self.start_compaction()?;
        while self.compacting() {
            self.runtime.block_on(tokio::task::yield_now());
            self.check_compactor()?;
            self.runtime.block_on(async { tokio::time::sleep(LOOK_INTERVAL).await });
        }
        Ok(())
    }

    fn start_compaction(&mut self) -> Result<bool, SubjectError> {
        self.engine.request_compaction(&self.region);
        self.wake.notify_one();
        Ok(true)
    }

    fn compacting(&self) -> bool {
        self.region.compaction_progress().wanted
    }

    fn close(self: Box<Self>) -> Result<(), SubjectError> {
        let Self { runtime, engine, region, flushes, flusher, compactor, .. } = *self;
        drop(flushes);
        engine.stop_compactions();
        compactor.abort();
        runtime.block_on(async move {
            flusher.await.map_err(SubjectError::new)?.map_err(SubjectError::new)?;
            // Wait for the aborted tasks before their engine is dropped.
            drop(compactor.await);
            engine.shutdown().await;
            drop(region);
            // Closing the files may block.
            task::run_blocking(move || drop(engine)).await;
            Ok(())
        })
    }
}
