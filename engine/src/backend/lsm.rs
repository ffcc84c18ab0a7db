//! The engine's own store files: what flushes and compactions write, and how regions read them.
//!
//! A file is opened when it is first read, so opening an engine only looks at names and lengths, whatever its size. A
//! file that a flush or compaction has just written is opened at once: its filters and indexes are still cached.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use terrane_env::sync::Mutex;
use terrane_env::task;
use terrane_types::schema::FamilyStorage;
use terrane_types::{FamilyName, TableId};

use super::{CellFiles, CellStore, FamilyKey, FamilyWriter, VerifiedFile, WriterTarget, sync_names};
use crate::Error;
use crate::boxed::BoxFuture;
use crate::cells::{Cell, Cells, weight_of};
use crate::column_selection::ColumnSelection;
use crate::file_directory::{Claim, FileDirectory};
use crate::levels::{FileRef, FileSource};
use crate::manifest::FileRecord;
use crate::options::Options;
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};
use crate::store_file::{
    EXTENSION_WITH_DOT, FamilyReads, StoreFile, StoreFileOptions, StoreFileProperties, StoreFileShared, StoreFileWriter,
};

/// The directory of store files.
pub(crate) const DIRECTORY: &str = "tables";

/// Bytes that gather before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Counts of reads by table and family.
type Reads = BTreeMap<(TableId, FamilyName), Arc<FamilyReads>>;

/// The store files of one server.
pub(crate) struct LsmBackend {
    pub(crate) files: Arc<FileDirectory>,
    pub(crate) shared: Arc<StoreFileShared>,
    reads: Mutex<Reads>,
}

impl LsmBackend {
    pub(crate) async fn open(options: &Options, named: &BTreeSet<u64>) -> Result<Self, Error> {
        let files = FileDirectory::open(&options.disk, &options.dir, DIRECTORY, EXTENSION_WITH_DOT, named).await?;
        let (dir, disk) = (files.dir().to_owned(), options.disk.clone());
        let shared = Arc::new(StoreFileShared::new(disk, dir, options.cache_bytes, options.open_files));
        Ok(Self { files: Arc::new(files), shared, reads: Mutex::default() })
    }

    /// Counts of what reads of a family met, since the engine was opened.
    pub(crate) fn reads(&self) -> Reads {
        self.reads.lock().clone()
    }

    pub(crate) fn reads_of(&self, table: TableId, family: &FamilyName) -> Arc<FamilyReads> {
        Arc::clone(self.reads.lock().entry((table, family.clone())).or_default())
    }

    /// A file that the manifest names; its length must be the recorded one.
    async fn recorded(&self, record: &FileRecord, key: FamilyKey<'_>) -> Result<Arc<LazyStoreFile>, Error> {
        let path = self.files.path_of(record.id);
        let size = self.shared.disk.file_len(&path).await.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::damage(&path, 0, "the manifest names the file, but it is missing"),
            _ => Error::io(format!("stat {}", path.display()))(error),
        })?;
        if size != record.size {
            let what = format!("it has {size} bytes; the manifest says {}", record.size);
            return Err(Error::damage(&path, size.min(record.size), what));
        }
        Ok(self.family(key.table, key.family).file(record.id, record.origin, record.size, record.timestamps.1))
    }

    /// The files of a family.
    pub(crate) fn family(&self, table: TableId, family: &FamilyName) -> FamilyFiles {
        let (files, shared) = (Arc::clone(&self.files), Arc::clone(&self.shared));
        FamilyFiles { files, shared, reads: self.reads_of(table, family) }
    }
}

impl CellStore for LsmBackend {
    fn load<'a>(
        &'a self,
        record: &'a FileRecord,
        key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSource>, Error>> {
        Box::pin(async move { Ok(self.recorded(record, key).await? as Arc<dyn FileSource>) })
    }

    fn writer(&self, target: WriterTarget<'_>) -> Result<Box<dyn FamilyWriter>, Error> {
        Ok(Box::new(LsmWriter {
            family: self.family(target.key.table, target.key.family),
            storage: target.storage,
            prefix: target.prefix,
            level: target.level,
            file_bytes: target.file_bytes,
            collected: target.collected,
            current: None,
            begun: Vec::new(),
            made: Vec::new(),
        }))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), Error>> {
        sync_names(&self.files)
    }

    /// A second name for the file.
    fn linked<'a>(&'a self, file: &'a FileRef, key: FamilyKey<'a>) -> BoxFuture<'a, Result<Option<FileRef>, Error>> {
        Box::pin(async move {
            let FileRecord { id: from, origin, size, timestamps, .. } = *file.record;
            let id = self.files.allocate();
            if let Err(error) = self.files.link(&self.files.path_of(from), id).await {
                self.files.release(id);
                return Err(error);
            }
            let source = self.family(key.table, key.family).file(id, origin, size, timestamps.1);
            Ok(Some(FileRef { record: Arc::new(FileRecord { id, ..(*file.record).clone() }), source }))
        })
    }
}

impl CellFiles for LsmBackend {
    fn directory(&self) -> &Arc<FileDirectory> {
        &self.files
    }

    fn verified<'a>(
        &'a self,
        record: &'a FileRecord,
        key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<VerifiedFile, Error>> {
        Box::pin(async move {
            let file = self.recorded(record, key).await?;
            let properties = checked(&file).await?;
            Ok((record_of(&properties), file as Arc<dyn FileSource>))
        })
    }
}

/// Reads and checks a whole file.
pub(crate) async fn checked(file: &Arc<LazyStoreFile>) -> Result<StoreFileProperties, Error> {
    let file = Arc::clone(file);
    // Reads all of it, so not on a runtime thread.
    task::run_blocking(move || {
        let file = file.opened(true)?;
        file.check(None)?;
        Ok(file.properties().clone())
    })
    .await
}

/// Where the files of one family are.
pub(crate) struct FamilyFiles {
    files: Arc<FileDirectory>,
    shared: Arc<StoreFileShared>,
    reads: Arc<FamilyReads>,
}

impl FamilyFiles {
    /// A file that is not open yet.
    pub(crate) fn file(&self, id: u64, origin: u64, size: u64, timestamp_max: i64) -> Arc<LazyStoreFile> {
        Arc::new(LazyStoreFile {
            shared: Arc::clone(&self.shared),
            reads: Arc::clone(&self.reads),
            id,
            origin,
            size,
            timestamp_max,
            open: OnceLock::new(),
            opening: Mutex::new(()),
            claim: self.files.claim(id),
        })
    }
}

/// A store file, opened at its first use.
pub(crate) struct LazyStoreFile {
    shared: Arc<StoreFileShared>,
    reads: Arc<FamilyReads>,
    id: u64,
    origin: u64,
    size: u64,
    timestamp_max: i64,
    open: OnceLock<Arc<StoreFile>>,
    /// Held while the file is opened, so that it is opened once.
    opening: Mutex<()>,
    /// Keeps the file's name while it may be opened; the open file and its cursors have it too.
    claim: Arc<Claim>,
}

impl LazyStoreFile {
    /// The file, opened where it is not yet.
    pub(crate) fn opened(&self, blocking: bool) -> Result<&Arc<StoreFile>, Error> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        if !blocking {
            return Err(Error::NeedsDisk);
        }
        let _opening = self.opening.lock();
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        let opened = StoreFile::open(
            &self.shared,
            self.id,
            Some(self.origin),
            self.size,
            &self.reads,
            Some(Arc::clone(&self.claim)),
        )?;
        Ok(self.open.get_or_init(|| Arc::new(opened)))
    }

    /// Whether a reader of these times may skip the file. Valid for a lowest time only: newer cells hide older ones.
    fn is_too_old(&self, reading: Reading) -> bool {
        self.timestamp_max < reading.time_min
    }
}

impl Source for LazyStoreFile {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        if self.is_too_old(lookup.reading) {
            return Ok(true);
        }
        self.opened(lookup.reading.blocking)?.row(lookup, out)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        if self.is_too_old(reading) {
            return Ok(Box::new(EmptyCursor));
        }
        let file = Arc::clone(self.opened(reading.blocking)?);
        if reading.prefix.is_some_and(|prefix| !file.may_contain_prefix(prefix.id, prefix.hash)) {
            return Ok(Box::new(EmptyCursor));
        }
        file.cursor(bounds, reverse, reading)
    }
}

impl FileSource for LazyStoreFile {
    fn bytes_within(&self, bounds: &RowRange) -> Option<u64> {
        let file = self.open.get()?;
        // The cells of one file are much alike: their weight is spread as their bytes are.
        let (cells, data) = (file.properties().cells, file.properties().data_bytes.max(1));
        let within = u128::from(file.bytes_within(bounds)) * u128::from(weight_of(cells, data)) / u128::from(data);
        u64::try_from(within).ok()
    }

    fn samples(&self, bounds: &RowRange) -> Result<Vec<(Vec<u8>, u64)>, Error> {
        let samples = self.opened(true)?.samples(SAMPLES)?;
        Ok(samples.into_iter().filter(|(row, _)| bounds.contains(row)).collect())
    }
}

/// Rows that a file proposes for the choice of a split point.
const SAMPLES: usize = 256;

/// A cursor over no rows.
struct EmptyCursor;

impl Cursor for EmptyCursor {
    fn row(&self) -> Option<&[u8]> {
        None
    }

    fn take(&mut self, _sought: ColumnSelection<'_>, _bytes_max: usize, _out: &mut Cells) -> Result<bool, Error> {
        Ok(true)
    }

    fn seek_column(&mut self, _qualifier: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn seek(&mut self, _row: &[u8]) -> Result<(), Error> {
        Ok(())
    }
}

/// Writes the cells of one family to one file after another.
struct LsmWriter {
    family: FamilyFiles,
    storage: FamilyStorage,
    prefix: Option<RowPrefix>,
    level: u8,
    file_bytes: u64,
    collected: (u64, i64),
    current: Option<StoreFileWriter>,
    /// The numbers allocated, all of which are released when the writer is dropped before it has finished.
    begun: Vec<u64>,
    made: Vec<StoreFileProperties>,
}

impl FamilyWriter for LsmWriter {
    fn has_work(&self, within_row: bool) -> bool {
        self.current.as_ref().is_none_or(|current| {
            current.pending_bytes() >= WRITE_BYTES || (!within_row && current.size_estimate() >= self.file_bytes)
        })
    }

    fn work(&mut self, within_row: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let is_full = |current: &mut StoreFileWriter| !within_row && current.size_estimate() >= self.file_bytes;
            if let Some(current) = self.current.take_if(is_full) {
                self.made.push(current.finish().await?);
            }
            match &mut self.current {
                Some(current) => current.write_pending().await,
                None => {
                    let id = self.family.files.allocate();
                    self.begun.push(id);
                    let options = StoreFileOptions { storage: self.storage, prefix: self.prefix.clone() };
                    let created =
                        StoreFileWriter::create(&self.family.shared.disk, self.family.files.dir(), id, options);
                    self.current = Some(created.await?);
                    Ok(())
                }
            }
        })
    }

    fn add(&mut self, cell: Cell<'_>) {
        self.current.as_mut().expect("work() is called before the first row, and makes a file").add(cell);
    }

    fn finish(mut self: Box<Self>, bounds: &RowRange) -> BoxFuture<'_, Result<Vec<FileRef>, Error>> {
        Box::pin(async move {
            if let Some(current) = self.current.take() {
                if current.cells() > 0 {
                    self.made.push(current.finish().await?);
                } else {
                    let id = current.id();
                    current.abandon().await?;
                    self.family.files.release(id);
                }
            }
            let made = std::mem::take(&mut self.made);
            let files =
                made.iter().map(|properties| self.file_of(properties, bounds)).collect::<Result<Vec<_>, _>>()?;
            // From here on the caller releases them.
            self.begun.clear();
            Ok(files)
        })
    }

    fn abandon(mut self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if let Some(current) = self.current.take()
                && let Err(error) = current.abandon().await
            {
                // It goes with the next clean-up, at the latest when the engine is opened again.
                tracing::warn!("a discarded file could not be removed: {error}");
            }
        })
    }
}

impl LsmWriter {
    fn file_of(&self, properties: &StoreFileProperties, bounds: &RowRange) -> Result<FileRef, Error> {
        let record = FileRecord {
            level: self.level,
            bounds: bounds.clone(),
            collected: self.collected,
            ..record_of(properties)
        };
        let source = self.family.file(record.id, record.origin, record.size, record.timestamps.1);
        // Flushes and compactions may block, and the bytes were written a moment ago.
        source.opened(true)?;
        Ok(FileRef { record: Arc::new(record), source })
    }
}

impl Drop for LsmWriter {
    fn drop(&mut self) {
        // It was given up, or reading or writing failed: the manifest will never name these files.
        self.begun.drain(..).for_each(|id| self.family.files.release(id));
    }
}

/// What the manifest says of a file, as far as the file itself tells it.
pub(crate) fn record_of(properties: &StoreFileProperties) -> FileRecord {
    FileRecord {
        id: properties.id,
        level: 0,
        size: properties.size,
        bytes: weight_of(properties.cells, properties.data_bytes),
        bounds: RowRange::default(),
        first_row: Bytes::copy_from_slice(&properties.first_row),
        last_row: Bytes::copy_from_slice(&properties.last_row),
        timestamps: properties.timestamps,
        sequences: properties.sequences,
        cells: properties.cells,
        deletes: properties.deletes,
        collected: (0, 0),
        origin: properties.id,
        ingested_at: 0,
    }
}
