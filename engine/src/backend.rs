//! Backends: where flushed cells go. Everything else (memtables, manifest, points, reads, splits) is common.

pub(crate) mod memory;
#[cfg(feature = "sled")]
pub(crate) mod sled;
pub(crate) mod tables;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use terrane_types::schema::FamilyStorage;
use terrane_types::{FamilyName, GroupId, Invalid, TableId};

use crate::Error;
use crate::cells::Cell;
use crate::engine::Options;
use crate::file::{FileRef, FileSource, Levels};
use crate::files::Spared;
use crate::manifest::{Contents, FileRecord};
use crate::region::{Files, RowPrefix};
use crate::source::Bounds;

/// Which engine keeps the cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// Cells go to store files of our own, in levels that are compacted: the default.
    #[default]
    Lsm,
    /// Cells stay in memory; each flush writes one sorted, checksummed file that is read back at start.
    Memory,
    /// Cells go to sled trees.
    #[cfg(feature = "sled")]
    Sled,
}

impl BackendKind {
    /// The names there are, as the command line takes them.
    pub const NAMES: &[&str] = &[
        "lsm",
        "memory",
        #[cfg(feature = "sled")]
        "sled",
    ];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lsm => "lsm",
            Self::Memory => "memory",
            #[cfg(feature = "sled")]
            Self::Sled => "sled",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for BackendKind {
    type Err = Invalid;

    fn from_str(name: &str) -> Result<Self, Invalid> {
        match name {
            "lsm" => Ok(Self::Lsm),
            "memory" => Ok(Self::Memory),
            #[cfg(feature = "sled")]
            "sled" => Ok(Self::Sled),
            _ => Err(Invalid::new(format!("there is no engine {name:?}; there are: {}", Self::NAMES.join(", ")))),
        }
    }
}

/// The backend of one engine.
pub(crate) enum Backend {
    Lsm(tables::TablesBackend),
    Memory(memory::MemoryBackend),
    #[cfg(feature = "sled")]
    Sled(sled::SledBackend),
}

impl Backend {
    pub(crate) async fn open(options: &Options, contents: &Contents) -> Result<Self, Error> {
        let named = contents.files();
        match options.backend {
            BackendKind::Lsm => Ok(Self::Lsm(tables::TablesBackend::open(options, &named).await?)),
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

    /// The files of every region that the manifest names, by region in its order.
    pub(crate) async fn load(&self, contents: &Contents) -> Result<Vec<Files>, Error> {
        let mut loaded = Vec::with_capacity(contents.regions.len());
        // A file that several regions have a part of is loaded once.
        let mut sources = std::collections::BTreeMap::new();
        for region in contents.regions.values() {
            let mut files = Files::new();
            for (family, records) in &region.files {
                let mut of_family = Vec::with_capacity(records.len());
                for record in records {
                    let source = match self {
                        // A tree is the same file to all regions of the table.
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
            Self::Lsm(tables) => Ok(tables.load(record, table, family).await?),
            Self::Memory(memory) => memory.load(record).await,
            #[cfg(feature = "sled")]
            Self::Sled(_) => unreachable!("sled has no files of its own"),
        }
    }

    /// Whether a flush that would leave a family with so many files writes them all anew as one.
    pub(crate) fn rewrites(&self, files: usize) -> bool {
        matches!(self, Self::Memory(_)) && files >= memory::FILES_MAX
    }

    /// Takes the cells of one family of a region. Files are cut, between rows, at about `file_bytes`.
    pub(crate) fn writer(&self, target: WriterTarget<'_>) -> Result<FamilyWriter, Error> {
        match self {
            Self::Lsm(tables) => Ok(FamilyWriter::Tables(Box::new(tables.writer(target)))),
            Self::Memory(memory) => Ok(FamilyWriter::Memory(memory.writer(target.family))),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => Ok(FamilyWriter::Sled(sled.writer(target.group, target.table, target.family)?)),
        }
    }

    /// Makes durable what is not yet by itself: names of new files, and sled's trees.
    pub(crate) async fn sync(&self, any: bool) -> Result<(), Error> {
        if !any {
            return Ok(());
        }
        match self {
            Self::Lsm(tables) => sync_names(&tables.files).await,
            Self::Memory(memory) => sync_names(&memory.files).await,
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.sync().await,
        }
    }

    /// A family's files after a flush.
    pub(crate) fn with_files(&self, mut before: Levels, made: Vec<FileRef>, bounds: &Bounds) -> Levels {
        match self {
            Self::Lsm(_) | Self::Memory(_) => {
                before.level0.extend(made);
                before
            }
            #[cfg(feature = "sled")]
            Self::Sled(_) => sled::one_file(before, made, bounds),
        }
    }

    fn files(&self) -> Option<&Arc<crate::files::Files>> {
        match self {
            Self::Lsm(tables) => Some(&tables.files),
            Self::Memory(memory) => Some(&memory.files),
            #[cfg(feature = "sled")]
            Self::Sled(_) => None,
        }
    }

    /// Where a file is; `None` where cells do not lie in files of their own.
    pub(crate) fn path_of(&self, id: u64) -> Option<std::path::PathBuf> {
        self.files().map(|files| files.path_of(id))
    }

    /// The file is named by the manifest now, or never will be: from here on it goes when nobody names it.
    pub(crate) fn settled(&self, id: u64) {
        if let Some(files) = self.files() {
            files.settled(id);
        }
    }

    /// The record that was to name these files failed, and may be on disk all the same: they stay until that is decided.
    pub(crate) fn in_doubt(&self, made: &[FileRef]) {
        if let Some(files) = self.files() {
            files.in_doubt(made.iter().map(|file| file.record.id));
        }
    }

    /// No record of those that failed until now is on disk.
    pub(crate) fn doubt_is_over(&self) {
        if let Some(files) = self.files() {
            files.doubt_is_over();
        }
    }

    /// The files that stay although the manifest may not name them yet. To be asked before the manifest is: a file is
    /// spared until it is named, so no file is missed by both looks.
    pub(crate) fn spared(&self) -> Spared {
        self.files().map(|files| files.spared()).unwrap_or_default()
    }

    /// Removes files that no region names any more, that are not spared, and that nobody reads.
    pub(crate) async fn retain(&self, named: BTreeSet<u64>, spared: Spared) -> Result<(), Error> {
        match self.files() {
            Some(files) => files.retain(&named, &spared).await,
            None => Ok(()),
        }
    }

    /// Removes a region's cells from above a sequence number, where a flush that was never recorded can have left some.
    pub(crate) async fn remove_above(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: Bounds,
        sequence: u64,
    ) -> Result<(), Error> {
        match self {
            // Their unrecorded files went at the start.
            Self::Lsm(_) | Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, Some(sequence)).await,
        }
    }

    /// Removes the cells of a dropped region, where they do not lie in files of their own.
    pub(crate) async fn drop_range(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: Bounds,
    ) -> Result<(), Error> {
        match self {
            Self::Lsm(_) | Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.remove(group, table, families, bounds, None).await,
        }
    }
}

async fn sync_names(files: &Arc<crate::files::Files>) -> Result<(), Error> {
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
    /// Files are cut, between rows, at about so many bytes.
    pub(crate) file_bytes: u64,
    /// See [`crate::manifest::FileRecord::collected`].
    pub(crate) collected: (u64, i64),
}

/// Takes the cells of one family, in store order. Nothing of it counts before the backend was synced.
pub(crate) enum FamilyWriter {
    Tables(Box<tables::TablesWriter>),
    Memory(memory::MemoryWriter),
    #[cfg(feature = "sled")]
    Sled(sled::SledWriter),
}

impl FamilyWriter {
    /// Whether [`FamilyWriter::work`] is to be called before more cells are added. `within_row`: they are of the row of the
    /// last cell, and no file may end there.
    pub(crate) fn has_work(&self, within_row: bool) -> bool {
        match self {
            Self::Tables(tables) => tables.has_work(within_row),
            Self::Memory(_) => false,
            #[cfg(feature = "sled")]
            Self::Sled(_) => false,
        }
    }

    /// Makes files and writes what has gathered.
    pub(crate) async fn work(&mut self, within_row: bool) -> Result<(), Error> {
        match self {
            Self::Tables(tables) => tables.work(within_row).await,
            Self::Memory(_) => Ok(()),
            #[cfg(feature = "sled")]
            Self::Sled(_) => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, cell: Cell<'_>) {
        match self {
            Self::Tables(tables) => tables.add(cell),
            Self::Memory(memory) => memory.add(cell),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => sled.add(cell),
        }
    }

    /// Gives up what was written so far.
    pub(crate) async fn abandon(self) {
        if let Self::Tables(tables) = self {
            tables.abandon().await;
        }
    }

    /// Writes the rest; answers the files, none when there was no cell. They are spared until they are settled.
    pub(crate) async fn finish(self, bounds: &Bounds) -> Result<Vec<FileRef>, Error> {
        match self {
            Self::Tables(tables) => tables.finish(bounds).await,
            Self::Memory(memory) => Ok(memory.finish(bounds).await?.into_iter().collect()),
            #[cfg(feature = "sled")]
            Self::Sled(sled) => Ok(sled.finish(bounds)?.into_iter().collect()),
        }
    }
}
