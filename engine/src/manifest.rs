//! The manifest: the one file per server that says which files and points count.
//!
//! A log of framed, checksummed records; each is synced before anything relies on what it says. A record is whole or it does
//! not exist: at start the file is read up to the last whole record and truncated there. When it has grown to several times
//! its contents, it is rewritten beside itself and renamed into place. `docs/formats/manifest.md` has the bytes.

mod examine;
mod family;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use terrane_env::fs::{Disk, File};
use terrane_types::GroupId;

pub(crate) use examine::examine;
pub(crate) use family::FamilyRecord;
pub(crate) use record::{Families, FileRecord, GroupRecord, Record, RegionRecord, VERSIONS};

use crate::Error;
use crate::codec::{FRAME_HEADER_BYTES, frame, unframe};
use crate::point::{GroupPoint, RegionKey};

/// The manifest's name in the engine's directory.
pub(crate) const FILE_NAME: &str = "MANIFEST";
/// Below this size it is never worth rewriting.
const REWRITE_BYTES_MIN: u64 = 1 << 20;
/// It is rewritten when it is this many times as large as after the last rewrite.
const REWRITE_FACTOR: u64 = 4;

/// What all records together say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) engine: String,
    pub(crate) regions: BTreeMap<RegionKey, RegionRecord>,
    pub(crate) groups: BTreeMap<GroupId, GroupPoint>,
}

impl Contents {
    fn take(&mut self, record: Record) {
        match record {
            Record::Engine { name } => self.engine = name,
            Record::Region(region) => {
                self.regions.insert(region.key(), region);
            }
            Record::Split { parent, daughters } => {
                self.regions.remove(&(daughters[0].point.group, parent));
                for daughter in *daughters {
                    self.regions.insert(daughter.key(), daughter);
                }
            }
            Record::Merge { parents, region } => {
                for parent in parents {
                    self.regions.remove(&(region.point.group, parent));
                }
                self.regions.insert(region.key(), *region);
            }
            Record::Drop { regions, group, point } => {
                for region in regions {
                    self.regions.remove(&(group, region));
                }
                self.groups.insert(group, point);
            }
            Record::Group { group, point } => {
                self.groups.insert(group, point);
            }
            Record::Install(copy) => {
                self.regions.retain(|_, region| region.point.group != copy.group);
                self.regions.extend(copy.regions.into_iter().map(|region| (region.key(), region)));
                self.groups.insert(copy.group, copy.point);
            }
            Record::RemoveGroup(group) => {
                self.regions.retain(|_, region| region.point.group != group);
                self.groups.remove(&group);
            }
        }
    }

    /// The recorded point of a region only moves forward.
    fn check_forward(&self, region: &RegionRecord) {
        forward(region, self.regions.get(&region.key()));
    }

    /// The recorded points only move forward.
    fn check_order(&self, record: &Record) {
        match record {
            Record::Region(region) => self.check_forward(region),
            Record::Split { parent, daughters } => {
                daughters
                    .iter()
                    .for_each(|daughter| forward(daughter, self.regions.get(&(daughter.point.group, *parent))));
            }
            Record::Merge { parents, region } => {
                parents.iter().for_each(|parent| forward(region, self.regions.get(&(region.point.group, *parent))));
            }
            Record::Drop { group, point, .. } | Record::Group { group, point } => {
                let before = self.groups.get(group).map_or(0, |before| before.index);
                debug_assert!(point.index >= before, "group {group} went back from index {before} to {}", point.index);
            }
            // After an interrupted installation the next copy may be older, see `check_copy`.
            Record::Install(_) | Record::RemoveGroup(_) | Record::Engine { .. } => {}
        }
    }

    /// Everything recorded of a group. A state that is not recorded yet is empty, as of index 0.
    pub(crate) fn group(&self, group: GroupId) -> GroupRecord {
        let point = self.groups.get(&group).cloned().unwrap_or_default();
        let regions = self.regions.values().filter(|region| region.point.group == group).cloned().collect();
        GroupRecord { group, point, regions }
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

/// Checks that a region's point is not before the one recorded of it or of its parent.
fn forward(region: &RegionRecord, before: Option<&RegionRecord>) {
    let Some(before) = before else { return };
    let (old, new) = (&before.point, &region.point);
    assert!(
        new.index >= old.index && new.sequence >= old.sequence,
        "the durable point of region {} went back, from index {} and sequence {} to index {} and sequence {}",
        region.region,
        old.index,
        old.sequence,
        new.index,
        new.sequence,
    );
}

/// Where the next record goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Here: everything before is whole and synced.
    At(u64),
    /// Nowhere: a record failed that may be on disk all the same, so the manifest is rewritten without it.
    InDoubt,
}

/// The open manifest.
pub(crate) struct Manifest {
    path: PathBuf,
    disk: Disk,
    file: File,
    end: End,
    /// The file's size when it was last rewritten.
    compact_bytes: u64,
    contents: Contents,
}

impl Manifest {
    /// Opens the manifest of `dir`, or creates it for `engine`.
    pub(crate) async fn open(disk: &Disk, dir: &Path, engine: &str) -> Result<Self, Error> {
        let path = dir.join(FILE_NAME);
        let exists = disk.exists(&path).await.map_err(Error::io("look for the manifest"))?;
        if !exists {
            let contents = Contents { engine: engine.to_owned(), ..Contents::default() };
            return Self::rewrite(disk.clone(), path, contents).await;
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
        if !terrane_env::planted!("a restart trusts a manifest that was not synced") {
            Self::make_durable(disk, dir, &file, &bytes[..bytes.len().min(end as usize)]).await?;
        }
        let compact_bytes = end.min(REWRITE_BYTES_MIN);
        Ok(Self { path, disk: disk.clone(), file, end: End::At(end), compact_bytes, contents })
    }

    /// Makes what was read durable before anything relies on it.
    ///
    /// A killed process may have left its last record unsynced and its last rewrite without a durable name. If its last sync
    /// failed, syncing again does nothing, for the kernel takes the lost bytes for written: so they are written again, in place,
    /// which also works on a full disk, and the file is cut again. A manifest is a few megabytes at most.
    async fn make_durable(disk: &Disk, dir: &Path, file: &File, bytes: &[u8]) -> Result<(), Error> {
        file.set_len(bytes.len() as u64).await.map_err(Error::io("truncate the manifest's torn tail"))?;
        file.write_all_at(bytes, 0).await.map_err(Error::io("write the manifest again"))?;
        file.sync_all().await.map_err(Error::io("sync the manifest"))?;
        disk.sync_dir(dir).await.map_err(Error::io("sync the engine's directory"))
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Whether a record failed that may be on disk all the same, until the next append rewrites the manifest.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.end == End::InDoubt
    }

    /// Appends a record and syncs it. After an error the file's end is not known to be whole, so the next append rewrites the
    /// manifest without the record that failed: until then a restart may or may not find it.
    pub(crate) async fn append(&mut self, record: Record) -> Result<(), Error> {
        self.contents.check_order(&record);
        let mut bytes = Vec::new();
        frame(&mut bytes, &record.encode());
        let bytes_max = (self.compact_bytes * REWRITE_FACTOR).max(REWRITE_BYTES_MIN);
        // The end is in doubt until the sync is back, also where this call is cancelled.
        let end = match std::mem::replace(&mut self.end, End::InDoubt) {
            End::At(end)
                if end + bytes.len() as u64 <= bytes_max
                    && !terrane_env::buggify!("the manifest is rewritten early") =>
            {
                end
            }
            End::At(_) | End::InDoubt => {
                let mut contents = self.contents.clone();
                contents.take(record);
                *self = Self::rewrite(self.disk.clone(), self.path.clone(), contents).await?;
                return Ok(());
            }
        };
        self.file.write_all_at(&bytes, end).await.map_err(Error::io("write a manifest record"))?;
        if !terrane_env::planted!("the manifest is not synced") {
            self.file.sync_data().await.map_err(Error::io("sync the manifest"))?;
        }
        // Only now: a record that failed must not cause the removal of files that the manifest on disk still names.
        self.contents.take(record);
        self.end = End::At(end + bytes.len() as u64);
        Ok(())
    }

    /// Appends the records of several regions of one group and syncs them, all or none. They travel in one record with everything
    /// else that is recorded of the group: each record is synced before the next one is written, so one frame is what can be
    /// torn, and two frames of one sync could not be told from damage.
    pub(crate) async fn append_regions(&mut self, group: GroupId, regions: Vec<RegionRecord>) -> Result<(), Error> {
        let mut all = self.contents.group(group);
        let mut changed = BTreeSet::new();
        for region in &regions {
            assert_eq!(region.point.group, group, "region {} is of another group", region.region);
            self.contents.check_forward(region);
            changed.insert(region.region);
        }
        all.regions.retain(|region| !changed.contains(&region.region));
        all.regions.extend(regions);
        self.append(Record::Install(all)).await
    }

    async fn rewrite(disk: Disk, path: PathBuf, contents: Contents) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        for record in contents.records() {
            frame(&mut bytes, &record.encode());
        }
        disk.write_durable(&path, &bytes).await.map_err(Error::io("rewrite the manifest"))?;
        let file = disk.open_rw(&path).await.map_err(Error::io("open the manifest"))?;
        let end = bytes.len() as u64;
        Ok(Self { path, disk, file, end: End::At(end), compact_bytes: end, contents })
    }
}

/// Reads records up to the last whole one; returns where that ends.
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
    // record followed by a whole one was synced once, and is damage: truncating there would lose what later records say.
    if (at + 1..bytes.len()).any(|later| is_record(&bytes[later..])) {
        return Err(damage(at, "a record fails its checksum, and whole records follow"));
    }
    if contents.engine.is_empty() {
        return Err(damage(0, "the first record, which names the engine, is missing"));
    }
    Ok((contents, at as u64))
}

/// Whether a whole record begins here. Tried at every byte, since the length of the bad record before it may be what is bad.
fn is_record(bytes: &[u8]) -> bool {
    unframe(bytes).is_some_and(|payload| Record::decode(payload).is_some())
}

#[cfg(test)]
pub(crate) mod script_tests;
#[cfg(test)]
mod tests;
