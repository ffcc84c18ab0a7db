//! Files made elsewhere: writing one, and taking it in.
//!
//! [`TableBuilder`] writes a store file outside of any engine. [`Engine::ingest`] takes such files into a region: each is
//! verified whole, linked into the engine's directory, and named by one manifest record. Their cells count as written by
//! one mutation, with the sequence number that the region gives them; what is in memory is flushed before, so that in
//! level 0 they come after everything that was written before them.
//!
//! Like every change, an ingest is an entry of the region's log. Whoever applies it calls this between two writes, on every
//! replica, and keeps the files until it is recorded: after a crash before that, the entry comes again.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_env::fs::Disk;
use terrane_env::task;
use terrane_types::schema::FamilyStorage;
use terrane_types::{CellRef, FamilyName};

use crate::Error;
use crate::backend::Backend;
use crate::backend::tables::{TableFile, TablesBackend};
use crate::cells::{Cell, Cells, weight_of};
use crate::engine::Engine;
use crate::file::FileRef;
use crate::flush::region_record;
use crate::manifest::{FileRecord, Record};
use crate::point::DurablePoint;
use crate::reading::{Cursor, Reading, RowKey, Source};
use crate::region::Region;
use crate::source::Bounds;
use crate::table::{TableOptions, TableWriter, id_of};

/// Bytes that gather before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Writes a store file of one family, to be taken in by [`Engine::ingest`].
pub struct TableBuilder {
    writer: TableWriter,
}

impl TableBuilder {
    /// Makes the file `<number, 16 digits>.tbl` in `dir`, which must have none of that number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn create(disk: &Disk, dir: &Path, number: u64, storage: FamilyStorage) -> Result<Self, Error> {
        let options = TableOptions { storage, prefix: None };
        let writer = TableWriter::create(disk, dir, number, options).await?;
        Ok(Self { writer })
    }

    /// Adds a cell: rows and qualifiers ascending, timestamps of one column descending, no two cells at one place.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// In builds with assertions, when the order is broken. [`Engine::ingest`] refuses such a file.
    pub async fn add(&mut self, row: &[u8], cell: CellRef<'_>) -> Result<(), Error> {
        self.writer.add(Cell::of_mutation(row, cell, 0, 0));
        if self.writer.pending_bytes() >= WRITE_BYTES { self.writer.write_pending().await } else { Ok(()) }
    }

    /// Writes the rest and syncs the file; answers its path. The name is durable once its directory is synced.
    ///
    /// # Errors
    /// [`Error::Io`], also for a file without cells.
    pub async fn finish(self) -> Result<PathBuf, Error> {
        let path = self.writer.path().to_owned();
        self.writer.finish().await?;
        Ok(path)
    }
}

/// A file to be taken in.
#[derive(Clone, Debug)]
pub struct IngestFile {
    /// The family whose cells it holds.
    pub family: FamilyName,
    /// Where it is: on the engine's own file system, under the name that [`TableBuilder`] gave it.
    pub path: PathBuf,
}

impl Engine {
    /// Takes files into a region, as of `point`: its sequence number, one above the region's last, becomes that of all their
    /// cells. Called between two writes by whoever applies the log, with everything before frozen under a point of its own.
    ///
    /// # Errors
    /// [`Error::NotIngested`] for a file that cannot be taken in, [`Error::Corruption`] for one that is damaged,
    /// [`Error::Io`], [`Error::Retired`]. Nothing was taken in, and trying again is safe.
    pub async fn ingest(&self, region: &Arc<Region>, files: Vec<IngestFile>, point: DurablePoint) -> Result<(), Error> {
        let Backend::Lsm(tables) = &*self.backend else {
            return Err(Error::NotIngested { file: PathBuf::new(), why: "this engine has no store files".to_owned() });
        };
        // What was written before goes below. Not under `point`: after a crash that comes before the files are recorded, the
        // region would say that it has them, and the log would not bring them again.
        self.flush(region).await?;
        if region.unflushed_from().is_some() {
            let why = "what was written before is not frozen".to_owned();
            return Err(Error::NotIngested { file: PathBuf::new(), why });
        }
        let mut made = Vec::with_capacity(files.len());
        let linked = async {
            for file in &files {
                made.push((file.family.clone(), take_in(tables, region, file, point.sequence).await?));
            }
            self.backend.sync(true).await
        };
        if let Err(error) = linked.await {
            made.iter().for_each(|(_, file)| self.backend.settled(file.record.id));
            return Err(error);
        }
        let recording = region.recording.lock().await;
        let (record, all) = {
            let state = region.state.read();
            if state.retired {
                made.iter().for_each(|(_, file)| self.backend.settled(file.record.id));
                return Err(Error::Retired { region: region.id() });
            }
            let mut all = state.files();
            for (family, file) in &made {
                all.entry(family.clone()).or_default().level0.push(file.clone());
            }
            (region_record(region, point.clone(), state.families(), &all), all)
        };
        if let Err(error) = self.append(Record::Region(record)).await {
            let made: Vec<_> = made.into_iter().map(|(_, file)| file).collect();
            self.backend.in_doubt(&made);
            return Err(error);
        }
        made.iter().for_each(|(_, file)| self.backend.settled(file.record.id));
        let mut state = region.state.write();
        state.set_files(all);
        state.recorded = state.families();
        state.refresh();
        let sequence = point.sequence;
        state.point = point;
        drop(state);
        region.snapshots.publish(sequence, false);
        drop(recording);
        Ok(())
    }
}

/// Verifies a file and gives it a second name in the engine's directory.
async fn take_in(tables: &TablesBackend, region: &Region, file: &IngestFile, sequence: u64) -> Result<FileRef, Error> {
    let refused = |why: &str| Error::NotIngested { file: file.path.clone(), why: why.to_owned() };
    let origin = file.path.file_name().and_then(|name| id_of(name.to_str()?));
    let Some(origin) = origin else { return Err(refused("its name is not that of a store file")) };
    if !region.families().contains(&file.family) {
        return Err(refused("the region has no such family"));
    }
    let disk = tables.shared.disk.clone();
    let id = tables.files.begin();
    let (from, to) = (file.path.clone(), tables.files.path_of(id));
    let linked = task::run_io(async move {
        disk.hard_link(&from, &to).await.map_err(Error::io(format!("link {}", from.display())))?;
        disk.file_len(&to).await.map_err(Error::io(format!("look at {}", to.display())))
    });
    let taken = async {
        let size = linked.await?;
        let source = tables.file(id, origin, size, i64::MAX, region.table(), &file.family);
        let checked = Arc::clone(&source);
        // Reads all of it, so not on a thread of the runtime.
        let properties = task::run_blocking(move || {
            let table = checked.table(true)?;
            table.check(None)?;
            Ok::<_, Error>(table.properties().clone())
        })
        .await?;
        if properties.sequences != (0, 0) {
            return Err(refused("its cells have sequence numbers of their own"));
        }
        if !region.bounds().hold(&properties.first_row, &properties.last_row) {
            return Err(refused("it holds rows outside of the region"));
        }
        let record = FileRecord {
            id,
            level: 0,
            size,
            bytes: weight_of(properties.cells, properties.data_bytes),
            bounds: region.bounds().clone(),
            first_row: Bytes::copy_from_slice(&properties.first_row),
            last_row: Bytes::copy_from_slice(&properties.last_row),
            timestamps: properties.timestamps,
            sequences: (sequence, sequence),
            cells: properties.cells,
            deletes: properties.deletes,
            collected: (0, 0),
            origin,
            ingested_at: sequence,
        };
        Ok(FileRef { record: Arc::new(record), source })
    };
    let taken = taken.await;
    if taken.is_err() {
        tables.files.settled(id);
    }
    taken
}

/// A file whose cells all have one sequence number, that of the mutation that brought it.
pub(crate) struct Stamped {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) sequence: u64,
}

impl Source for Stamped {
    fn row(
        &self,
        row: &RowKey<'_>,
        columns: &[Bytes],
        reading: Reading,
        bytes_max: usize,
        out: &mut Cells,
    ) -> Result<bool, Error> {
        let first = out.len();
        let is_all = self.source.row(row, columns, reading, bytes_max, out)?;
        out.set_sequence_from(first, self.sequence);
        Ok(is_all)
    }

    fn cursor(self: Arc<Self>, bounds: &Bounds, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let cursor = Arc::clone(&self.source).cursor(bounds, reverse, reading)?;
        Ok(Box::new(StampedCursor { cursor, sequence: self.sequence }))
    }
}

struct StampedCursor {
    cursor: Box<dyn Cursor>,
    sequence: u64,
}

impl Cursor for StampedCursor {
    fn row(&self) -> Option<&[u8]> {
        self.cursor.row()
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.cursor.skip()
    }

    fn take(&mut self, columns: &[Bytes], bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let first = out.len();
        let is_over = self.cursor.take(columns, bytes_max, out)?;
        out.set_sequence_from(first, self.sequence);
        Ok(is_over)
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        self.cursor.seek_column(qualifier)
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        self.cursor.seek(row)
    }
}

/// A table that is not open yet.
impl TablesBackend {
    pub(crate) fn file(
        &self,
        id: u64,
        origin: u64,
        size: u64,
        timestamp_max: i64,
        table: terrane_types::TableId,
        family: &FamilyName,
    ) -> Arc<TableFile> {
        Arc::new(TableFile {
            shared: Arc::clone(&self.shared),
            reads: self.reads_of(table, family),
            id,
            origin,
            size,
            timestamp_max,
            table: OnceLock::new(),
            opening: Mutex::new(()),
            _claim: self.files.claim(id),
        })
    }
}
