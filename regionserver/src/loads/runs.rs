//! Runs: the leader builds store files of the sorted rows that clients send for one region.
//!
//! A run comes in parts that follow one another; a part that came before is answered like a new one, so the client may
//! repeat any. A part is checked as a whole before any of it is written. Whatever is wrong with a run, or if it is given
//! up, its files go, and the client sends another one.
//!
//! What a run may take is bounded: the rows of all runs by a pace and a budget of bytes on disk, each part by the admission
//! that writes have, which also knows how far compaction lags behind and whether the disk is full.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_engine::StoreFileBuilder;
use terrane_env::budget::{Budget, Share, Unit};
use terrane_env::fs::Disk;
use terrane_env::pace::Pace;
use terrane_types::cell::{CellRef, LATEST};
use terrane_types::escape::escape;
use terrane_types::{Error, FamilyName, Invalid, PackedCells, RegionEpoch, RegionId};
use tokio::time::Instant;

use crate::edge::admission::Admission;
use crate::edge::error_mapping::engine_error;
use crate::group::region_state::RegionState;
use crate::metrics::Metrics;
use crate::operation::{LoadedFile, StagingId};
use crate::region::write::{ReceivedRow, check_loaded, refusal};
use crate::staging::Staging;
use crate::staging::transfer::checksum;
use crate::window::ClientId;

/// Runs that are open at once: each has a file open per family.
const RUNS_MAX: usize = 256;
/// Bytes of rows in all open runs.
const OPEN_BYTES_MAX: u64 = 8 << 30;
/// Bytes of rows in one run.
const RUN_BYTES_MAX: u64 = 1 << 30;
/// A run of which nothing is heard for so long is given up.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How long a client waits when too much is open.
const FULL_RETRY: Duration = Duration::from_millis(250);

/// The client's id of a run.
pub type RunId = [u8; 16];

/// A part of a run as it was received.
pub struct Part {
    pub run: RunId,
    /// Its place in the run, from 0.
    pub part: u32,
    pub rows: Vec<ReceivedRow>,
    /// The time of cells without one, if an earlier answer named it; otherwise 0.
    pub timestamp_ms: u64,
}

/// What the leader has of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartsHere {
    pub parts: u32,
    /// The time of cells without one.
    pub timestamp_ms: u64,
}

/// The files of a run that is complete and synced.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub staging: StagingId,
    /// The version under which the rows were checked.
    pub schema_version: u64,
    /// The time of cells without one.
    pub timestamp_ms: u64,
    pub files: Vec<LoadedFile>,
}

/// The open runs of this server.
pub struct Runs {
    staging: Arc<Staging>,
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    pace: Pace,
    bytes: Arc<Budget>,
    open: Mutex<BTreeMap<(ClientId, RunId), Arc<Run>>>,
}

/// One run.
pub struct Run {
    at: (RegionId, RegionEpoch),
    staging: StagingId,
    touched: Mutex<Instant>,
    building: tokio::sync::Mutex<Building>,
}

struct Building {
    dir: PathBuf,
    here: PartsHere,
    schema_version: u64,
    last_row: Bytes,
    bytes: u64,
    /// The next file's number.
    next: u64,
    families: BTreeMap<FamilyName, (u64, StoreFileBuilder)>,
    sealed: Option<Sealed>,
    /// Something could not be written: the files are of no use.
    is_broken: bool,
    _shares: Vec<Share>,
}

impl Runs {
    pub fn new(staging: Arc<Staging>, admission: Arc<Admission>, metrics: Arc<Metrics>, bytes_per_second: u64) -> Self {
        let pace = Pace::new(bytes_per_second);
        let bytes = Budget::new("bulk_runs", Unit::Bytes, OPEN_BYTES_MAX);
        Self { staging, admission, metrics, pace, bytes, open: Mutex::default() }
    }

    /// The budget of bytes of open runs.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.bytes
    }

    /// Takes a part into its run; returns what is here then. `now_ms` becomes the time of a load that has none yet.
    pub async fn add(
        &self,
        client: ClientId,
        part: Part,
        region: &RegionState,
        now_ms: u64,
    ) -> Result<PartsHere, Error> {
        region.check_write(region.descriptor.epoch).map_err(refusal)?;
        let bytes: usize = part.rows.iter().map(ReceivedRow::memory_bytes).sum();
        let _admitted = self.admission.admit(bytes)?;
        if let Some(delay) = self.admission.delay() {
            tokio::time::sleep(delay).await;
        }
        self.pace.wait(bytes as u64).await;
        let timestamp_ms = if part.timestamp_ms == 0 { now_ms } else { part.timestamp_ms };
        let Some(run) = self.open(client, &part, region, timestamp_ms).await? else { return Ok(PartsHere::default()) };
        let mut building = run.building.lock().await;
        if building.is_broken {
            drop(building);
            // The client is to begin again.
            self.end(client, part.run, false).await;
            return Ok(PartsHere::default());
        }
        if part.part != building.here.parts || building.sealed.is_some() {
            return Ok(building.here);
        }
        let share = self.bytes.try_take(bytes as u64).ok_or(Error::Busy { retry_after: FULL_RETRY })?;
        let rows = building.check(part.rows, region)?;
        if building.bytes + bytes as u64 > RUN_BYTES_MAX {
            let what = format!("the run has more than {RUN_BYTES_MAX} bytes; commit it and begin another one");
            return Err(Error::Invalid(Invalid { what }));
        }
        // Until all of it is written.
        building.is_broken = true;
        for (row, cells) in &rows {
            building.write(row, cells, region).await?;
        }
        building.is_broken = false;
        building.bytes += bytes as u64;
        building.here.parts += 1;
        building._shares.push(share);
        self.metrics.load_rows.inc_by(rows.len() as u64);
        Ok(building.here)
    }

    /// The run that a part belongs to; `None` if it is not here and this is not its first part.
    async fn open(
        &self,
        client: ClientId,
        part: &Part,
        region: &RegionState,
        timestamp_ms: u64,
    ) -> Result<Option<Arc<Run>>, Error> {
        let at = (region.descriptor.region, region.descriptor.epoch);
        if let Some(run) = self.get(client, part.run).filter(|run| run.at == at) {
            return Ok(Some(run));
        }
        if part.part != 0 {
            return Ok(None);
        }
        if self.open.lock().len() >= terrane_env::limit!("open runs of bulk loads", RUNS_MAX, 6..=12) {
            return Err(Error::Busy { retry_after: FULL_RETRY });
        }
        let staging = StagingId(terrane_env::rand::bytes::<16>());
        let building = Building {
            dir: self.staging.create(staging).await?,
            here: PartsHere { parts: 0, timestamp_ms },
            schema_version: region.schema.version,
            last_row: Bytes::new(),
            bytes: 0,
            next: 1,
            families: BTreeMap::new(),
            sealed: None,
            is_broken: false,
            _shares: Vec::new(),
        };
        let touched = Mutex::new(Instant::now());
        let run = Arc::new(Run { at, staging, touched, building: tokio::sync::Mutex::new(building) });
        let former = self.open.lock().insert((client, part.run), run.clone());
        if let Some(former) = former {
            self.staging.discard(former.staging).await;
        }
        Ok(Some(run))
    }

    /// An open run.
    pub fn get(&self, client: ClientId, run: RunId) -> Option<Arc<Run>> {
        let run = self.open.lock().get(&(client, run)).cloned()?;
        *run.touched.lock() = Instant::now();
        self.staging.touch(run.staging);
        Some(run)
    }

    /// Completes and syncs the files of a run that has so many parts; otherwise says how many are here.
    pub async fn seal(&self, run: &Run, parts: u32) -> Result<Result<Sealed, u32>, Error> {
        let mut building = run.building.lock().await;
        if building.is_broken || building.here.parts != parts {
            return Ok(Err(if building.is_broken { 0 } else { building.here.parts }));
        }
        if let Some(sealed) = &building.sealed {
            return Ok(Ok(sealed.clone()));
        }
        building.is_broken = true;
        let mut files = Vec::with_capacity(building.families.len());
        for (family, (number, builder)) in std::mem::take(&mut building.families) {
            builder.finish().await.map_err(engine_error)?;
            let (bytes, crc) = checksum(building.dir.join(StoreFileBuilder::file_name(number))).await?;
            files.push(LoadedFile { family, number, bytes, crc });
        }
        self.staging.sync(run.staging).await?;
        building.is_broken = false;
        let (schema_version, timestamp_ms) = (building.schema_version, building.here.timestamp_ms);
        let sealed = Sealed { staging: run.staging, schema_version, timestamp_ms, files };
        building.sealed = Some(sealed.clone());
        Ok(Ok(sealed))
    }

    /// Ends a run. Its files go unless a load took them in.
    pub async fn end(&self, client: ClientId, run: RunId, is_loaded: bool) {
        let ended = self.open.lock().remove(&(client, run));
        if let Some(ended) = ended.filter(|_| !is_loaded) {
            self.staging.abandon(ended.staging).await;
        }
    }

    /// Gives up the runs of which nothing was heard for a while.
    pub async fn sweep(&self) {
        let idle: Vec<Arc<Run>> = {
            let mut open = self.open.lock();
            let is_idle = |run: &Arc<Run>| run.touched.lock().elapsed() >= IDLE_MAX;
            let idle = open.iter().filter(|(_, run)| is_idle(run)).map(|(id, run)| (*id, run.clone()));
            let idle: Vec<_> = idle.collect();
            idle.into_iter().map(|(id, run)| (open.remove(&id), run).1).collect()
        };
        for run in idle {
            // A commit that is under way has the files, and the sweep of files takes them later.
            if let Ok(building) = run.building.try_lock()
                && building.sealed.is_none()
            {
                drop(building);
                self.staging.discard(run.staging).await;
            }
        }
    }
}

impl Building {
    /// Checks all rows of a part. They are above those before.
    fn check(&self, rows: Vec<ReceivedRow>, region: &RegionState) -> Result<Vec<(Bytes, PackedCells)>, Error> {
        let mut checked: Vec<(Bytes, PackedCells)> = Vec::with_capacity(rows.len());
        for received in rows {
            let row = received.row;
            let last = checked.last().map_or(&self.last_row, |(row, _)| row);
            if row <= *last {
                let what = format!("row {} of a bulk load comes after row {}", escape(&row), escape(last));
                return Err(Error::Invalid(Invalid { what }));
            }
            let cells = check_loaded(&row, received.cells?, region)?;
            checked.push((row, cells));
        }
        Ok(checked)
    }

    /// Adds the cells of a row to the files of their families. Of two cells at one place the later one counts.
    async fn write(&mut self, row: &Bytes, cells: &PackedCells, region: &RegionState) -> Result<(), Error> {
        let stamp = i64::try_from(self.here.timestamp_ms).unwrap_or(LATEST - 1).min(LATEST - 1);
        let stamped = |cell: CellRef<'_>| if cell.timestamp == LATEST { stamp } else { cell.timestamp };
        let mut sorted: Vec<CellRef<'_>> =
            cells.iter().map(|cell| CellRef { timestamp: stamped(cell), ..cell }).collect();
        sorted.reverse();
        fn place<'a>(cell: &CellRef<'a>) -> (&'a [u8], &'a [u8], std::cmp::Reverse<i64>) {
            (cell.family, cell.qualifier, std::cmp::Reverse(cell.timestamp))
        }
        sorted.sort_by_key(place);
        sorted.dedup_by_key(|cell| place(cell));
        for cell in sorted {
            self.file(cell.family, region).await?.add(row, cell).await.map_err(engine_error)?;
        }
        self.last_row = row.clone();
        Ok(())
    }

    /// The file of a family.
    async fn file(&mut self, family: &[u8], region: &RegionState) -> Result<&mut StoreFileBuilder, Error> {
        let schema = region.schema.known_family(family)?;
        if !self.families.contains_key(&schema.name) {
            let number = self.next;
            self.next += 1;
            let created = StoreFileBuilder::create(&Disk::os(), &self.dir, number, schema.storage).await;
            self.families.insert(schema.name.clone(), (number, created.map_err(engine_error)?));
        }
        let file = self.families.get_mut(&schema.name).map(|(_, builder)| builder);
        file.ok_or_else(|| Error::Internal { message: "a file of a load that was not created".to_owned() })
    }
}
