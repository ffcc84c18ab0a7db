//! Backends: where flushed cells go. Everything else (memtables, manifest, points, reads, splits) is shared.
//!
//! Every backend is a [`CellStore`]. Those that keep cells in files of their own, one family's part of a region each, are
//! [`CellFiles`], too: only their groups can be copied to another server.

pub(crate) mod lsm;
pub(crate) mod memory;
#[cfg(feature = "sled")]
pub(crate) mod sled;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_types::schema::FamilyStorage;
use terrane_types::{FamilyName, GroupId, TableId};

use crate::Error;
use crate::boxed::BoxFuture;
use crate::cells::Cell;
use crate::file_directory::{Claim, FileDirectory, Protected};
use crate::levels::{FileRef, FileSource, Levels, RegionFiles};
use crate::manifest::{Contents, FileRecord};
use crate::options::{BackendKind, Options};
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;

/// A family of a table, as one group has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FamilyKey<'a> {
    pub(crate) group: GroupId,
    pub(crate) table: TableId,
    pub(crate) family: &'a FamilyName,
}

/// Stores flushed cells.
pub(crate) trait CellStore: Send + Sync {
    /// The cells of a file that the manifest names.
    fn load<'a>(
        &'a self,
        record: &'a FileRecord,
        key: FamilyKey<'a>,
    ) -> BoxFuture<'a, Result<Arc<dyn FileSource>, Error>>;

    /// A writer for the cells of one family of a region. Files are cut, between rows, at about `file_bytes`.
    fn writer(&self, target: WriterTarget<'_>) -> Result<Box<dyn FamilyWriter>, Error>;

    /// Makes durable what was written.
    fn sync(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// The same part of a file under an id of its own; `None` if it has no cells.
    fn linked<'a>(&'a self, file: &'a FileRef, key: FamilyKey<'a>) -> BoxFuture<'a, Result<Option<FileRef>, Error>>;

    /// Whether a flush that would leave a family with this many files rewrites them all as one.
    fn rewrites(&self, _files: usize) -> bool {
        false
    }

    /// A family's files after a flush.
    fn with_files(&self, mut before: Levels, made: Vec<FileRef>, _bounds: &RowRange) -> Levels {
        before.level0.extend(made);
        before
    }

    /// Removes a region's cells: those above a sequence number, which a flush that was never recorded may have left, or all.
    /// Where they are in files of their own, these go when the manifest does not name them.
    fn remove(
        &self,
        _group: GroupId,
        _table: TableId,
        _families: Vec<FamilyName>,
        _bounds: RowRange,
        _above: Option<u64>,
    ) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

/// What the manifest should say of a file, and its cells.
pub(crate) type VerifiedFile = (FileRecord, Arc<dyn FileSource>);

/// Stores flushed cells in files that can be copied one by one.
pub(crate) trait CellFiles: CellStore {
    fn directory(&self) -> &Arc<FileDirectory>;

    /// Loads a file and verifies it as a whole; returns what the manifest should say of it, too.
    fn verified<'a>(&'a self, record: &'a FileRecord, key: FamilyKey<'a>)
    -> BoxFuture<'a, Result<VerifiedFile, Error>>;
}

impl dyn CellFiles + '_ {
    /// Takes in a file that another server's engine wrote: linked into the directory under a number of its own and verified in
    /// full. It is protected until it is released.
    pub(crate) async fn adopt(
        &self,
        from: &Path,
        record: &FileRecord,
        key: FamilyKey<'_>,
    ) -> Result<(u64, Arc<dyn FileSource>), Error> {
        let id = self.directory().allocate();
        let adopted = self.adopt_as(id, from, record, key).await;
        if adopted.is_err() {
            self.directory().release(id);
        }
        Ok((id, adopted?))
    }

    async fn adopt_as(
        &self,
        id: u64,
        from: &Path,
        record: &FileRecord,
        key: FamilyKey<'_>,
    ) -> Result<Arc<dyn FileSource>, Error> {
        self.directory().link(from, id).await?;
        let here = FileRecord { id, ..record.clone() };
        let (found, source) = self.verified(&here, key).await?;
        match record.difference(&found) {
            Some(what) => {
                let what = format!("what was said of it differs in {what}");
                Err(Error::damage(self.directory().path_of(id), 0, what))
            }
            None => Ok(source),
        }
    }
}

/// The backend of one engine.
pub(crate) enum Backend {
    Lsm(lsm::LsmBackend),
    Memory(memory::MemoryBackend),
    #[cfg(feature = "sled")]
    Sled(sled::SledBackend),
}

impl Backend {
    pub(crate) async fn open(options: &Options, contents: &Contents) -> Result<Self, Error> {
        let named = contents.files();
        match options.backend {
            BackendKind::Lsm => Ok(Self::Lsm(lsm::LsmBackend::open(options, &named).await?)),
            // Memory holds all cells anyway: there is nothing to cache.
            BackendKind::Memory => {
                Ok(Self::Memory(memory::MemoryBackend::open(&options.disk, &options.dir, &named).await?))
            }
            #[cfg(feature = "sled")]
            BackendKind::Sled => {
                Ok(Self::Sled(sled::SledBackend::open(&options.dir, options.cache_bytes, contents).await?))
            }
        }
    }

    pub(crate) fn store(&self) -> &dyn CellStore {
        match self {
            Self::Lsm(lsm) => lsm,
            Self::Memory(memory) => memory,
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled,
        }
    }

    /// The backend, if its cells are in files of their own.
    pub(crate) fn files(&self) -> Option<&dyn CellFiles> {
        match self {
            Self::Lsm(lsm) => Some(lsm),
            Self::Memory(memory) => Some(memory),
            #[cfg(feature = "sled")]
            Self::Sled(_) => None,
        }
    }

    /// The backend, if it has store files in levels.
    pub(crate) fn lsm(&self) -> Option<&lsm::LsmBackend> {
        match self {
            Self::Lsm(lsm) => Some(lsm),
            _ => None,
        }
    }

    fn directory(&self) -> Option<&Arc<FileDirectory>> {
        self.files().map(CellFiles::directory)
    }

    /// The files of every region that the manifest names, in the order of its regions.
    pub(crate) async fn load(&self, contents: &Contents) -> Result<Vec<RegionFiles>, Error> {
        let mut loaded = Vec::with_capacity(contents.regions.len());
        // A file that several regions have a part of is loaded once.
        let mut sources = BTreeMap::new();
        for region in contents.regions.values() {
            let mut files = RegionFiles::new();
            for (family, records) in &region.files {
                let key = FamilyKey { group: region.point.group, table: region.table, family };
                let mut of_family = Vec::with_capacity(records.len());
                for record in records {
                    let source = match sources.get(&(key, record.id)) {
                        Some(source) => Arc::clone(source),
                        None => {
                            let source = self.store().load(record, key).await?;
                            sources.insert((key, record.id), Arc::clone(&source));
                            source
                        }
                    };
                    of_family.push(FileRef { record: Arc::new(record.clone()), source });
                }
                files.insert(family.clone(), Levels::new(of_family));
            }
            loaded.push(files);
        }
        Ok(loaded)
    }

    /// Keeps a file as long as the result lives.
    pub(crate) fn claim(&self, id: u64) -> Option<Arc<Claim>> {
        self.directory().map(|files| files.claim(id))
    }

    /// Makes durable what is not yet, if there is any: names of new files, and sled's trees.
    pub(crate) async fn sync(&self, any: bool) -> Result<(), Error> {
        if any { self.store().sync().await } else { Ok(()) }
    }

    /// The path of a file; `None` where cells have no files of their own.
    pub(crate) fn path_of(&self, id: u64) -> Option<PathBuf> {
        self.directory().map(|files| files.path_of(id))
    }

    /// The manifest names the file now, or never will: from here on it goes once nothing names it.
    pub(crate) fn release(&self, id: u64) {
        if let Some(files) = self.directory() {
            files.release(id);
        }
    }

    /// The record that was to name these files failed, and may be on disk all the same: they stay until that is known.
    pub(crate) fn in_doubt(&self, made: &[FileRef]) {
        self.in_doubt_ids(made.iter().map(|file| file.record.id));
    }

    /// The same, by number.
    pub(crate) fn in_doubt_ids(&self, made: impl Iterator<Item = u64>) {
        if let Some(files) = self.directory() {
            files.in_doubt(made);
        }
    }

    /// None of the records that failed until now is on disk.
    pub(crate) fn resolve_doubt(&self) {
        if let Some(files) = self.directory() {
            files.resolve_doubt();
        }
    }

    /// The files that stay although the manifest may not name them yet. Query this before the manifest: a file is
    /// protected until it is named, so the two queries together miss none.
    pub(crate) fn protected(&self) -> Protected {
        self.directory().map(|files| files.protected()).unwrap_or_default()
    }

    /// The files that [`Backend::retain`] would remove, with their lengths.
    pub(crate) async fn unnamed(
        &self,
        named: BTreeSet<u64>,
        protected: Protected,
    ) -> Result<Vec<(PathBuf, u64)>, Error> {
        match self.directory() {
            Some(files) => files.unnamed(&named, &protected).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes files that are not named, not protected, and not being read.
    pub(crate) async fn retain(&self, named: BTreeSet<u64>, protected: Protected) -> Result<(), Error> {
        match self.directory() {
            Some(files) => files.retain(&named, &protected).await,
            None => Ok(()),
        }
    }
}

fn sync_names(files: &Arc<FileDirectory>) -> BoxFuture<'static, Result<(), Error>> {
    let files = Arc::clone(files);
    Box::pin(terrane_env::task::run_io(async move { files.sync().await }))
}

/// Whose cells are written, and how.
pub(crate) struct WriterTarget<'a> {
    pub(crate) key: FamilyKey<'a>,
    pub(crate) storage: FamilyStorage,
    pub(crate) prefix: Option<RowPrefix>,
    pub(crate) level: u8,
    /// Files are cut, between rows, at about this many bytes.
    pub(crate) file_bytes: u64,
    /// See [`crate::manifest::FileRecord::collected`].
    pub(crate) collected: (u64, i64),
}

/// Takes the cells of one family, in store order. Nothing is durable before the backend was synced.
pub(crate) trait FamilyWriter: Send {
    /// Whether [`FamilyWriter::work`] must be called before more cells are added. `within_row`: they belong to the row
    /// of the last cell, and no file may end there.
    fn has_work(&self, _within_row: bool) -> bool {
        false
    }

    /// Creates files and writes what has gathered.
    fn work(&mut self, _within_row: bool) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }

    fn add(&mut self, cell: Cell<'_>);

    /// Discards what was written so far.
    fn abandon(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }

    /// Writes the rest; returns the files, none when there was no cell. They are protected until they are released.
    fn finish(self: Box<Self>, bounds: &RowRange) -> BoxFuture<'_, Result<Vec<FileRef>, Error>>;
}
