//! Backends: where flushed cells go. Everything else (memtables, manifest, points, reads, splits) is shared.

pub(crate) mod lsm;
pub(crate) mod memory;
#[cfg(feature = "sled")]
pub(crate) mod sled;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_types::schema::FamilyStorage;
use terrane_types::{FamilyName, GroupId, TableId};

use crate::Error;
use crate::cells::Cell;
use crate::file_directory::{Claim, Protected};
use crate::levels::{FileRef, FileSource, Levels, RegionFiles};
use crate::manifest::{Contents, FileRecord};
use crate::options::{BackendKind, Options};
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;

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

    /// The files of every region that the manifest names, in the order of its regions.
    pub(crate) async fn load(&self, contents: &Contents) -> Result<Vec<RegionFiles>, Error> {
        let mut loaded = Vec::with_capacity(contents.regions.len());
        // A file that several regions have a part of is loaded once.
        let mut sources = std::collections::BTreeMap::new();
        for region in contents.regions.values() {
            let mut files = RegionFiles::new();
            for (family, records) in &region.files {
                let mut of_family = Vec::with_capacity(records.len());
                for record in records {
                    let source = match self {
                        // A tree is the same file for all regions of the table.
                        #[cfg(feature = "sled")]
                        Self::Sled(sled) => sled.source(region.point.group, region.table, family)?,
                        Self::Lsm(_) | Self::Memory(_) => match sources.get(&record.id) {
                            Some(source) => Arc::clone(source),
                            None => {
                                let source = self.load_file(record, region.table, family).await?;
                                sources.insert(record.id, Arc::clone(&source));
                                source
                            }
                        },
                    };
                    of_family.push(FileRef { record: Arc::new(record.clone()), source });
                }
                files.insert(family.clone(), Levels::new(of_family));
            }
            loaded.push(files);
        }
        Ok(loaded)
    }

    async fn load_file(
        &self,
        record: &FileRecord,
        table: TableId,
        family: &FamilyName,
    ) -> Result<Arc<dyn FileSource>, Error> {
        match self {
            Self::Lsm(lsm) => Ok(lsm.load(record, table, family).await?),
            Self::Memory(memory) => memory.load(record).await,
            #[cfg(feature = "sled")]
            Self::Sled(_) => unreachable!("sled has no files of its own"),
        }
    }

    /// Takes in a file that another server's engine wrote: linked into the directory under a number of its own and verified in
    /// full. It is protected until it is released.
    pub(crate) async fn adopt(
        &self,
        from: &Path,
        record: &FileRecord,
        table: TableId,
        family: &FamilyName,
    ) -> Result<(u64, Arc<dyn FileSource>), Error> {
        let files = self.files().expect("a group is copied only between engines whose cells are in files");
        let id = files.allocate();
        let adopted = self.adopt_as(id, from, record, table, family).await;
        if adopted.is_err() {
            files.release(id);
        }
        Ok((id, adopted?))
    }

    async fn adopt_as(
        &self,
        id: u64,
        from: &Path,
        record: &FileRecord,
        table: TableId,
        family: &FamilyName,
    ) -> Result<Arc<dyn FileSource>, Error> {
        let files = self.files().expect("the number was allocated there");
        let to = files.path_of(id);
        files.link(from, id).await?;
        let here = FileRecord { id, ..record.clone() };
        let (found, source): (_, Arc<dyn FileSource>) = match self {
            Self::Lsm(lsm) => {
                let source = lsm.load(&here, table, family).await?;
                (lsm.verify(&source).await?, source)
            }
            Self::Memory(memory) => {
                let source = memory.load(&here).await?;
                (memory.verify(&here).await?, source)
            }
            #[cfg(feature = "sled")]
            Self::Sled(_) => unreachable!("sled has no files of its own"),
        };
        match record.difference(&found) {
            Some(what) => Err(Error::damage(to, 0, format!("what was said of it differs in {what}"))),
            None => Ok(source),
        }
    }

    /// Whether cells are in files that can be copied one by one.
    pub(crate) fn has_files(&self) -> bool {
        self.files().is_some()
    }

    /// Keeps a file as long as the result lives.
    pub(crate) fn claim(&self, id: u64) -> Option<Arc<Claim>> {
        self.files().map(|files| files.claim(id))
    }

    /// Whether a flush that would leave a family with this many files rewrites them all as one.
    pub(crate) fn rewrites(&self, files: usize) -> bool {
        matches!(self, Self::Memory(_)) && files >= memory::FILES_MAX
    }

    /// A writer for the cells of one family of a region. Files are cut, between rows, at about `file_bytes`.
    pub(crate) fn writer(&self, target: WriterTarget<'_>) -> Result<FamilyWriter, Error> {
        match self {
            Self::Lsm(lsm) => Ok(FamilyWriter::Lsm(Box::new(lsm.writer(target)))),
            Self::Memory(memory) => Ok(FamilyWriter::Memory(memory.writer(target.family))),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => Ok(FamilyWriter::Sled(sled.writer(target.group, target.table, target.family)?)),
        }
    }

    /// Makes durable what is not yet: names of new files, and sled's trees.
    pub(crate) async fn sync(&self, any: bool) -> Result<(), Error> {
        if !any {
            return Ok(());
        }
        match self {
            Self::Lsm(lsm) => sync_names(&lsm.files).await,
            Self::Memory(memory) => sync_names(&memory.files).await,
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.sync().await,
        }
    }

    /// A family's files after a flush.
    pub(crate) fn with_files(&self, mut before: Levels, made: Vec<FileRef>, bounds: &RowRange) -> Levels {
        match self {
            Self::Lsm(_) | Self::Memory(_) => {
                before.level0.extend(made);
                before
            }
            #[cfg(feature = "sled")]
            Self::Sled(_) => sled::one_file(before, made, bounds),
        }
    }

    /// The same part of a file under an id of its own; `None` if it has no cells.
    pub(crate) async fn linked(
        &self,
        file: &FileRef,
        table: TableId,
        family: &FamilyName,
    ) -> Result<Option<FileRef>, Error> {
        match self {
            Self::Lsm(lsm) => lsm.linked(file, table, family).await.map(Some),
            Self::Memory(memory) => memory.copied(file, family).await,
            #[cfg(feature = "sled")]
            // Trees hold the cells of all regions, and no part of a file is there twice.
            Self::Sled(_) => Ok(Some(file.clone())),
        }
    }

    fn files(&self) -> Option<&Arc<crate::file_directory::FileDirectory>> {
        match self {
            Self::Lsm(lsm) => Some(&lsm.files),
            Self::Memory(memory) => Some(&memory.files),
            #[cfg(feature = "sled")]
            Self::Sled(_) => None,
        }
    }

    /// The path of a file; `None` where cells have no files of their own.
    pub(crate) fn path_of(&self, id: u64) -> Option<std::path::PathBuf> {
        self.files().map(|files| files.path_of(id))
    }

    /// The manifest names the file now, or never will: from here on it goes once nothing names it.
    pub(crate) fn release(&self, id: u64) {
        if let Some(files) = self.files() {
            files.release(id);
        }
    }

    /// The record that was to name these files failed, and may be on disk all the same: they stay until that is known.
    pub(crate) fn in_doubt(&self, made: &[FileRef]) {
        self.in_doubt_ids(made.iter().map(|file| file.record.id));
    }

    /// The same, by number.
    pub(crate) fn in_doubt_ids(&self, made: impl Iterator<Item = u64>) {
        if let Some(files) = self.files() {
            files.in_doubt(made);
        }
    }

    /// None of the records that failed until now is on disk.
    pub(crate) fn resolve_doubt(&self) {
        if let Some(files) = self.files() {
            files.resolve_doubt();
        }
    }

    /// The files that stay although the manifest may not name them yet. Query this before the manifest: a file is
    /// protected until it is named, so the two queries together miss none.
    pub(crate) fn protected(&self) -> Protected {
        self.files().map(|files| files.protected()).unwrap_or_default()
    }

    /// The files that [`Backend::retain`] would remove, with their lengths.
    pub(crate) async fn unnamed(
        &self,
        named: BTreeSet<u64>,
        protected: Protected,
    ) -> Result<Vec<(PathBuf, u64)>, Error> {
        match self.files() {
            Some(files) => files.unnamed(&named, &protected).await,
            None => Ok(Vec::new()),
        }
    }

    /// Removes files that are not named, not protected, and not being read.
    pub(crate) async fn retain(&self, named: BTreeSet<u64>, protected: Protected) -> Result<(), Error> {
        match self.files() {
            Some(files) => files.retain(&named, &protected).await,
            None => Ok(()),
        }
    }

    /// Removes a region's cells above a sequence number, which a flush that was never recorded may have left.
    pub(crate) async fn remove_above(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: RowRange,
        sequence: u64,
    ) -> Result<(), Error> {
        match self {
            // Their unrecorded files were removed at the start.
            Self::Lsm(_) | Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, Some(sequence)).await,
        }
    }

    /// Removes the cells of a dropped region, where they have no files of their own.
    pub(crate) async fn drop_range(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: RowRange,
    ) -> Result<(), Error> {
        match self {
            Self::Lsm(_) | Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, None).await,
        }
    }
}

async fn sync_names(files: &Arc<crate::file_directory::FileDirectory>) -> Result<(), Error> {
    let files = Arc::clone(files);
    terrane_env::task::run_io(async move { files.sync().await }).await
}

/// Whose cells are written, and how.
pub(crate) struct WriterTarget<'a> {
    pub(crate) group: GroupId,
    pub(crate) table: TableId,
    pub(crate) family: &'a FamilyName,
    pub(crate) storage: FamilyStorage,
    pub(crate) prefix: Option<RowPrefix>,
    pub(crate) level: u8,
    /// Files are cut, between rows, at about this many bytes.
    pub(crate) file_bytes: u64,
    /// See [`crate::manifest::FileRecord::collected`].
    pub(crate) collected: (u64, i64),
}

/// Takes the cells of one family, in store order. Nothing is durable before the backend was synced.
pub(crate) enum FamilyWriter {
    Lsm(Box<lsm::LsmWriter>),
    Memory(memory::MemoryWriter),
    #[cfg(feature = "sled")]
    Sled(sled::SledWriter),
}

impl FamilyWriter {
    /// Whether [`FamilyWriter::work`] must be called before more cells are added. `within_row`: they belong to the row
    /// of the last cell, and no file may end there.
    pub(crate) fn has_work(&self, within_row: bool) -> bool {
        match self {
            Self::Lsm(lsm) => lsm.has_work(within_row),
            Self::Memory(_) => false,
            #[cfg(feature = "sled")]
            Self::Sled(_) => false,
        }
    }

    /// Creates files and writes what has gathered.
    pub(crate) async fn work(&mut self, within_row: bool) -> Result<(), Error> {
        match self {
            Self::Lsm(lsm) => lsm.work(within_row).await,
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(_) => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, cell: Cell<'_>) {
        match self {
            Self::Lsm(lsm) => lsm.add(cell),
            Self::Memory(memory) => memory.add(cell),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.add(cell),
        }
    }

    /// Discards what was written so far.
    pub(crate) async fn abandon(self) {
        if let Self::Lsm(lsm) = self {
            lsm.abandon().await;
        }
    }

    /// Writes the rest; returns the files, none when there was no cell. They are protected until they are released.
    pub(crate) async fn finish(self, bounds: &RowRange) -> Result<Vec<FileRef>, Error> {
        match self {
            Self::Lsm(lsm) => lsm.finish(bounds).await,
            Self::Memory(memory) => Ok(memory.finish(bounds).await?.into_iter().collect()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => Ok(sled.finish(bounds)?.into_iter().collect()),
        }
    }
}
