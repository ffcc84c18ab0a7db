//! Verifying the directory of an engine that no process uses, without changing anything.
//!
//! The manifest says which files count. Each of those is read completely and compared with what the manifest says of
//! it. Files that it does not name are listed and not read, as the next start removes them. Where the manifest itself
//! is damaged, it is unknown what it named, so all files are verified.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::fs::Disk;
use terrane_env::task;
use terrane_types::inspection::Severity;
use terrane_types::{GroupId, Inspection, RegionId};

use crate::Error;
use crate::backend::{lsm, memory};
use crate::engine::{group_copy, ingest, region_copy};
use crate::manifest::{self, Contents, FileRecord, RegionRecord};
use crate::store_file::{self, FamilyReads, StoreFile, StoreFileShared};

/// A check reads each block once: the cache is for the index of the current file.
const CACHE_BYTES: u64 = 1 << 20;
const OPEN_FILES: usize = 4;

/// What a manifest says is durable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// The engine that created the directory.
    pub engine: String,
    /// The regions by group, and the index of its log up to which the region's cells are in files.
    pub regions: BTreeMap<(GroupId, RegionId), u64>,
    /// The index up to which the state of each group is recorded.
    pub groups: BTreeMap<GroupId, u64>,
}

/// Verifies every byte of the engine's directory. Returns what is recorded, unless the manifest is damaged or absent.
pub async fn check(dir: &Path, inspection: &mut Inspection) -> Option<Recorded> {
    let disk = Disk::os();
    let names = match disk.list(dir).await {
        Ok(names) => names,
        Err(error) => {
            inspection.damage(dir, 0, format!("the engine's directory cannot be read: {error}"));
            return None;
        }
    };
    let path = dir.join(manifest::FILE_NAME);
    if names.is_empty() {
        inspection.warning(dir, 0, "the engine was never opened");
        return Some(Recorded::default());
    }
    let bytes = match disk.read(&path).await {
        Ok(bytes) => bytes,
        Err(error) => {
            inspection.damage(&path, 0, format!("the manifest cannot be read: {error}"));
            Vec::new()
        }
    };
    let mut contents = Contents::default();
    let mut is_whole = false;
    if !bytes.is_empty() {
        inspection.looks_at("manifest", &path, bytes.len() as u64);
        let examined = manifest::examine(&bytes);
        is_whole = examined.is_whole();
        for (severity, offset, what) in &examined.findings {
            match severity {
                Severity::Damage => inspection.damage(&path, *offset, *what),
                Severity::Warning => inspection.warning(&path, *offset, *what),
            }
        }
        contents = examined.contents;
    }
    let mut check = EngineCheck { disk, dir: dir.to_owned(), named: named(&contents), is_whole, inspection };
    for name in names {
        match name.as_str() {
            manifest::FILE_NAME => {}
            lsm::DIRECTORY => check.files(Kind::StoreFile).await,
            memory::DIRECTORY => check.files(Kind::Cells).await,
            "sled" => check.sled().await,
            // Copies that are arriving count for nothing yet, and neither do files that wait to be ingested.
            group_copy::INCOMING | region_copy::ARRIVING | ingest::LOADING => {}
            _ => check.inspection.warning(&dir.join(name), 0, "a file that does not belong to the engine"),
        }
    }
    check.missing(&contents.engine);
    if is_whole {
        contents.regions.values().for_each(|region| check.levels(&path, region));
    }
    is_whole.then(|| recorded(contents))
}

/// The records of every file that a region names.
fn named(contents: &Contents) -> BTreeMap<u64, Vec<FileRecord>> {
    let mut named = BTreeMap::<u64, Vec<FileRecord>>::new();
    for file in contents.regions.values().flat_map(|region| region.files.values().flatten()) {
        named.entry(file.id).or_default().push(file.clone());
    }
    named
}

fn recorded(contents: Contents) -> Recorded {
    Recorded {
        engine: contents.engine,
        regions: contents.regions.into_iter().map(|(key, region)| (key, region.point.index)).collect(),
        groups: contents.groups.into_iter().map(|(group, point)| (group, point.index)).collect(),
    }
}

/// The files whose layout is known.
#[derive(Clone, Copy)]
enum Kind {
    StoreFile,
    Cells,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::StoreFile => "store file",
            Self::Cells => "file of cells",
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Self::StoreFile => lsm::DIRECTORY,
            Self::Cells => memory::DIRECTORY,
        }
    }

    fn id_of(self, name: &str) -> Option<u64> {
        match self {
            Self::StoreFile => store_file::id_of(name),
            Self::Cells => memory::id_of(name),
        }
    }
}

struct EngineCheck<'a> {
    disk: Disk,
    dir: PathBuf,
    /// Files that the manifest names; those that were found are removed.
    named: BTreeMap<u64, Vec<FileRecord>>,
    /// Whether the manifest is.
    is_whole: bool,
    inspection: &'a mut Inspection,
}

impl EngineCheck<'_> {
    async fn files(&mut self, kind: Kind) {
        let dir = self.dir.join(kind.directory());
        let names = match self.disk.list(&dir).await {
            Ok(names) => names,
            Err(error) => return self.inspection.damage(&dir, 0, format!("the directory cannot be read: {error}")),
        };
        for name in names {
            let path = dir.join(&name);
            let records = kind.id_of(&name).map(|id| (id, self.named.remove(&id)));
            match records {
                Some((id, Some(records))) => self.file(kind, &path, id, &records).await,
                Some((id, None)) if !self.is_whole => self.file(kind, &path, id, &[]).await,
                _ => self.inspection.warning(
                    &path,
                    0,
                    "a file that the manifest does not name; the next start removes it",
                ),
            }
        }
    }

    async fn file(&mut self, kind: Kind, path: &Path, id: u64, records: &[FileRecord]) {
        let bytes = match self.disk.file_len(path).await {
            Ok(bytes) => bytes,
            Err(error) => return self.inspection.damage(path, 0, format!("the file cannot be read: {error}")),
        };
        self.inspection.looks_at(kind.name(), path, bytes);
        if let Some(record) = records.iter().find(|record| record.size != bytes) {
            let what = format!("it has {bytes} bytes; the manifest says {}", record.size);
            self.inspection.damage(path, bytes.min(record.size), what);
        }
        let origin = records.first().map_or(id, |record| record.origin);
        let checked = match kind {
            Kind::StoreFile => self.store_file(id, origin, bytes).await,
            Kind::Cells => memory::check_file(&self.disk, path, origin).await,
        };
        match checked {
            // Compares what the manifest says with what is present.
            Ok(found) => {
                if let Some(what) = records.iter().find_map(|record| record.difference(&found)) {
                    self.inspection.damage(path, 0, format!("the manifest differs in {what}"));
                }
            }
            Err(Error::Corruption { file, offset, what }) => self.inspection.damage(&file, offset, what),
            Err(error) => self.inspection.damage(path, 0, error.to_string()),
        }
    }

    async fn store_file(&self, id: u64, origin: u64, bytes: u64) -> Result<FileRecord, Error> {
        let dir = self.dir.join(lsm::DIRECTORY);
        let shared = Arc::new(StoreFileShared::new(self.disk.clone(), dir, CACHE_BYTES, OPEN_FILES));
        task::run_blocking(move || {
            let file = StoreFile::open(&shared, id, Some(origin), bytes, &Arc::new(FamilyReads::default()), None)?;
            file.check(None)?;
            Ok(lsm::record_of(file.properties()))
        })
        .await
    }

    /// sled's own checksums cover pages in a log that it rewrites when it opens: looking would change it.
    async fn sled(&mut self) {
        let dir = self.dir.join("sled");
        let what = "sled's files cannot be verified byte by byte; sled itself verifies what it reads";
        self.inspection.warning(&dir, 0, what);
    }

    /// Reports what is named and was not found.
    fn missing(&mut self, engine: &str) {
        // With sled a record represents a part of its trees.
        if engine == "sled" {
            return;
        }
        let (dir, ending) = match engine {
            "memory" => (memory::DIRECTORY, memory::SUFFIX),
            _ => (lsm::DIRECTORY, store_file::EXTENSION_WITH_DOT),
        };
        for id in std::mem::take(&mut self.named).into_keys() {
            let path = self.dir.join(dir).join(format!("{id:016}{ending}"));
            self.inspection.damage(&path, 0, "the manifest names the file, but it is missing");
        }
    }

    /// No row is in two files of one level below 0.
    fn levels(&mut self, manifest: &Path, region: &RegionRecord) {
        for (family, files) in &region.files {
            let mut sorted: Vec<&FileRecord> = files.iter().filter(|file| file.level > 0).collect();
            sorted.sort_by_key(|file| (file.level, file.first_inside()));
            for pair in sorted.windows(2) {
                if pair[0].level == pair[1].level && !pair[0].ends_before(pair[1].first_inside()) {
                    let (a, b) = (pair[0].id, pair[1].id);
                    let what = format!(
                        "files {a} and {b} of region {}, family {family}, share rows in level {}",
                        region.region, pair[0].level
                    );
                    self.inspection.damage(manifest, 0, what);
                }
            }
        }
    }
}
