//! The manifest: the one file per server that says which files and points count.
//!
//! A log of framed, checksummed records; each is synced before what it says may be relied on. A record is whole or it
//! never was: at start the file is read up to the last whole record and cut there. When it has grown to several times
//! what it says, it is written anew beside itself and renamed into place. `docs/formats/manifest.md` has the bytes.

mod examine;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use terrane_env::fs::{Disk, File};
use terrane_types::{GroupId, RegionId};

pub(crate) use examine::examine;
pub(crate) use record::{FamilyRecord, FileRecord, Record, RegionRecord};

use crate::Error;
use crate::codec::{FRAME_HEADER_BYTES, frame, unframe};
use crate::point::GroupPoint;

/// The manifest's name in the engine's directory.
pub(crate) const FILE_NAME: &str = "MANIFEST";
/// Below this it is never worth writing anew.
const REWRITE_BYTES_MIN: u64 = 1 << 20;
/// It is written anew when it is this many times as large as after the last time.
const REWRITE_FACTOR: u64 = 4;

/// What the records say when all are taken together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) engine: String,
    pub(crate) regions: BTreeMap<RegionId, RegionRecord>,
    pub(crate) groups: BTreeMap<GroupId, GroupPoint>,
}

impl Contents {
    fn take(&mut self, record: Record) {
        match record {
            Record::Engine { name } => self.engine = name,
            Record::Region(region) => {
                self.regions.insert(region.region, region);
            }
            Record::Split { parent, daughters } => {
                self.regions.remove(&parent);
                for daughter in *daughters {
                    self.regions.insert(daughter.region, daughter);
                }
            }
            Record::Merge { parents, region } => {
                for parent in parents {
                    self.regions.remove(&parent);
                }
                self.regions.insert(region.region, *region);
            }
            Record::Drop { regions, group, point } => {
                for region in regions {
                    self.regions.remove(&region);
                }
                self.groups.insert(group, point);
            }
            Record::Group { group, point } => {
                self.groups.insert(group, point);
            }
        }
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        let engine = Record::Engine { name: self.engine.clone() };
        let regions = self.regions.values().cloned().map(Record::Region);
        let groups = self.groups.iter().map(|(group, point)| Record::Group { group: *group, point: point.clone() });
        std::iter::once(engine).chain(regions).chain(groups)
    }

    /// Files that some region names.
    pub(crate) fn files(&self) -> BTreeSet<u64> {
        self.regions.values().flat_map(|region| region.files.values().flatten()).map(|file| file.id).collect()
    }
}

/// The open manifest.
pub(crate) struct Manifest {
    path: PathBuf,
    disk: Disk,
    file: File,
    /// Where the next record goes: everything before is whole and synced.
    end: u64,
    /// The file's size when it was last written anew.
    compact_bytes: u64,
    contents: Contents,
}

impl Manifest {
    /// Opens the manifest of `dir`, or makes it for `engine`.
    pub(crate) async fn open(disk: &Disk, dir: &Path, engine: &str) -> Result<Self, Error> {
        let path = dir.join(FILE_NAME);
        let exists = disk.exists(&path).await.map_err(Error::io("look for the manifest"))?;
        if !exists {
            let contents = Contents { engine: engine.to_owned(), ..Contents::default() };
            return Self::write_anew(disk.clone(), path, contents).await;
        }
        let bytes = disk.read(&path).await.map_err(Error::io("read the manifest"))?;
        let (contents, end) = read_records(&path, &bytes)?;
        if contents.engine != engine {
            return Err(Error::WrongEngine {
                dir: dir.to_owned(),
                made_with: contents.engine,
                asked: engine.to_owned(),
            });
        }
        let file = disk.open_rw(&path).await.map_err(Error::io("open the manifest"))?;
        if end < bytes.len() as u64 {
            file.set_len(end).await.map_err(Error::io("cut the manifest's torn tail"))?;
            file.sync_all().await.map_err(Error::io("sync the manifest"))?;
        }
        Ok(Self { path, disk: disk.clone(), file, end, compact_bytes: end.min(REWRITE_BYTES_MIN), contents })
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Whether a record failed that may be on disk all the same, until the next append writes the manifest anew.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.end == u64::MAX
    }

    /// Appends a record and syncs it. After an error the file's end is not known to be whole, so the next append writes the
    /// manifest anew, without the record that failed: until then a restart may find it or not.
    pub(crate) async fn append(&mut self, record: Record) -> Result<(), Error> {
        let mut bytes = Vec::new();
        frame(&mut bytes, &record.encode());
        let end = self.end;
        // Until the sync is back the tail is in doubt; `u64::MAX` makes whoever comes next rewrite.
        self.end = u64::MAX;
        if end == u64::MAX || end + bytes.len() as u64 > (self.compact_bytes * REWRITE_FACTOR).max(REWRITE_BYTES_MIN) {
            let mut contents = self.contents.clone();
            contents.take(record);
            *self = Self::write_anew(self.disk.clone(), self.path.clone(), contents).await?;
            return Ok(());
        }
        self.file.write_all_at(&bytes, end).await.map_err(Error::io("write a manifest record"))?;
        self.file.sync_data().await.map_err(Error::io("sync the manifest"))?;
        // Only now: a record that failed must not make files go that the manifest on disk still names.
        self.contents.take(record);
        self.end = end + bytes.len() as u64;
        Ok(())
    }

    async fn write_anew(disk: Disk, path: PathBuf, contents: Contents) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        for record in contents.records() {
            frame(&mut bytes, &record.encode());
        }
        disk.write_durable(&path, &bytes).await.map_err(Error::io("write the manifest anew"))?;
        let file = disk.open_rw(&path).await.map_err(Error::io("open the manifest"))?;
        let end = bytes.len() as u64;
        Ok(Self { path, disk, file, end, compact_bytes: end, contents })
    }
}

/// Reads records up to the last whole one; answers where that ends.
fn read_records(path: &Path, bytes: &[u8]) -> Result<(Contents, u64), Error> {
    let damage = |offset: usize, what: &str| Error::damage(path.display().to_string(), offset as u64, what);
    let mut contents = Contents::default();
    let mut at = 0;
    while let Some(payload) = unframe(&bytes[at..]) {
        let record = Record::decode(payload).ok_or_else(|| damage(at, "a whole record that this build cannot read"))?;
        contents.take(record);
        at += FRAME_HEADER_BYTES + payload.len();
    }
    // Each record is synced before the next is written, so a torn tail is one record and has nothing whole after it. A bad
    // record with a whole one after it was synced once, and is damage: cutting there would forget what later records say.
    if (at + 1..bytes.len()).any(|later| is_record(&bytes[later..])) {
        return Err(damage(at, "a record's checksum does not hold, and whole records follow"));
    }
    if contents.engine.is_empty() {
        return Err(damage(0, "the first record, which names the engine, is missing"));
    }
    Ok((contents, at as u64))
}

/// Whether a whole record begins here. Looked for at every byte: the length of the bad record before it may be what is bad.
fn is_record(bytes: &[u8]) -> bool {
    unframe(bytes).is_some_and(|payload| Record::decode(payload).is_some())
}

#[cfg(test)]
mod tests;
