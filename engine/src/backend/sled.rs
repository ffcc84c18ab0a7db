//! The sled backend: flushed cells go to one sled tree per (group, table, family).
//!
//! A region is a range of the tree, so a split copies nothing. Keys are the cell's place, bytes compared as stores order
//! cells, with the sequence number in them: a flush that is repeated after a crash writes the same keys again.
//!
//! sled's own `flush` does not reach the disk on every system, so after it **every file of its directory and the directory
//! are synced** before the flush counts. A sled that does not open is damage: nothing of it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use terrane_env::{fs, task};
use terrane_types::{CellKind, CellRef, FamilyName, GroupId, TableId};

use super::FlushCells;
use crate::Error;
use crate::cell::StoredCell;
use crate::codec::{Reader, Writer};
use crate::file::StoreFile;
use crate::manifest::{Contents, RegionRecord};
use crate::source::{Bounds, Source};

/// Cells per sled batch: large enough to spread its cost, small enough to stay far from its limits.
const BATCH_CELLS: usize = 1_024;
/// Keys looked at per step when cells are removed.
const REMOVE_STEP: usize = 4_096;
/// What the names of our trees begin with; sled has one of its own.
const TREE_PREFIX: &str = "g";

/// The open sled of one server.
pub(crate) struct SledBackend {
    dir: PathBuf,
    db: sled::Db,
}

impl SledBackend {
    /// Opens sled and drops the trees that no region in the manifest has: what is in them was dropped, or never recorded.
    pub(crate) async fn open(dir: &Path, cache_bytes: u64, contents: &Contents) -> Result<Self, Error> {
        let dir = dir.join("sled");
        fs::create_dir_all(&dir).await.map_err(Error::io("make sled's directory"))?;
        let path = dir.clone();
        let opened = task::run_blocking(move || {
            // No timer of its own: a flush says when bytes are to reach the disk.
            sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None).open()
        })
        .await;
        let db = opened.map_err(|error| Error::damage(&dir, 0, format!("sled does not open: {error}")))?;
        // sled makes what is missing: an empty one in place of one with cells would read as if nothing had been there.
        if !db.was_recovered() && contents.regions.values().any(|region| !region.files.is_empty()) {
            return Err(Error::damage(&dir, 0, "the manifest names cells and sled's files are missing"));
        }
        let backend = Self { dir, db };
        backend.drop_unnamed_trees(contents).await?;
        Ok(backend)
    }

    async fn drop_unnamed_trees(&self, contents: &Contents) -> Result<(), Error> {
        let mut named = BTreeSet::new();
        for region in contents.regions.values() {
            named.extend(region.families.keys().map(|family| tree_name(region.point.group, region.table, family)));
        }
        for name in self.db.tree_names() {
            let ours = std::str::from_utf8(&name).is_ok_and(|name| name.starts_with(TREE_PREFIX));
            if !ours || std::str::from_utf8(&name).is_ok_and(|name| named.contains(name)) {
                continue;
            }
            let db = self.db.clone();
            let dropped = task::run_blocking(move || db.drop_tree(name)).await;
            dropped.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn tree(&self, group: GroupId, table: TableId, family: &FamilyName) -> Result<sled::Tree, Error> {
        self.db.open_tree(tree_name(group, table, family)).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &sled::Error) -> Error {
        failed(&self.dir, error)
    }

    pub(crate) async fn write(&self, cells: FlushCells) -> Result<StoreFile, Error> {
        let bytes = cells.bytes();
        let mut families: BTreeMap<FamilyName, Arc<dyn Source>> = BTreeMap::new();
        let mut writes = Vec::new();
        for (family, cells_of_family) in cells.families {
            let tree = self.tree(cells.group, cells.table, &family)?;
            families.insert(family, Arc::new(SledSource { dir: self.dir.clone(), tree: tree.clone() }));
            writes.push((tree, cells_of_family));
        }
        let db = self.db.clone();
        let written = task::run_blocking(move || {
            for (tree, cells) in writes {
                for chunk in cells.chunks(BATCH_CELLS) {
                    let mut batch = sled::Batch::default();
                    for cell in chunk {
                        batch.insert(key_of(cell), value_of(cell));
                    }
                    tree.apply_batch(batch)?;
                }
            }
            db.flush().map(drop)
        })
        .await;
        written.map_err(|error| self.failed(&error))?;
        let dir = self.dir.clone();
        task::run_io(async move { sync_all(&dir).await }).await?;
        Ok(StoreFile { id: 0, bytes, families: Arc::new(families) })
    }

    pub(crate) fn files_of(&self, region: &RegionRecord) -> Result<Vec<StoreFile>, Error> {
        let mut families: BTreeMap<FamilyName, Arc<dyn Source>> = BTreeMap::new();
        for family in region.families.keys() {
            let tree = self.tree(region.point.group, region.table, family)?;
            families.insert(family.clone(), Arc::new(SledSource { dir: self.dir.clone(), tree }));
        }
        let families = Arc::new(families);
        Ok(region
            .files
            .iter()
            .map(|file| StoreFile { id: file.id, bytes: file.bytes, families: families.clone() })
            .collect())
    }

    /// Removes the cells inside of `bounds`, those above a sequence number or all.
    pub(crate) async fn remove(
        &self,
        group: GroupId,
        table: TableId,
        families: Vec<FamilyName>,
        bounds: Bounds,
        above: Option<u64>,
    ) -> Result<(), Error> {
        for family in families {
            let tree = self.tree(group, table, &family)?;
            let mut from = Some(row_start(&bounds.start));
            while let Some(start) = from {
                let (tree, stop) = (tree.clone(), bounds.stop.clone());
                let step = task::run_blocking(move || remove_step(&tree, start, &stop, above)).await;
                from = step.map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }
}

/// Removes cells from the next keys on; answers where to go on.
fn remove_step(
    tree: &sled::Tree,
    start: Vec<u8>,
    stop: &[u8],
    above: Option<u64>,
) -> Result<Option<Vec<u8>>, sled::Error> {
    let mut batch = sled::Batch::default();
    let mut last = None;
    let mut count = 0;
    for key in range_from(tree, start, stop).keys().take(REMOVE_STEP) {
        let key = key?;
        if above.is_none_or(|above| sequence_of(&key).is_some_and(|sequence| sequence > above)) {
            batch.remove(&key);
        }
        last = Some(key);
        count += 1;
    }
    tree.apply_batch(batch)?;
    Ok(last.filter(|_| count == REMOVE_STEP).map(|key| [&*key, &[0]].concat()))
}

/// The sequence number in a key.
fn sequence_of(key: &[u8]) -> Option<u64> {
    let (rest, _position) = key.split_last_chunk::<4>()?;
    let (_, sequence) = rest.split_last_chunk::<8>()?;
    Some(!u64::from_be_bytes(*sequence))
}

fn tree_name(group: GroupId, table: TableId, family: &FamilyName) -> String {
    format!("{TREE_PREFIX}{}.t{}.{family}", group.0, table.0)
}

/// Syncs every file below `dir` and the directories themselves.
async fn sync_all(dir: &Path) -> Result<(), Error> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for name in fs::list(&dir).await.map_err(Error::io(format!("list {}", dir.display())))? {
            let path = dir.join(name);
            // sled removes and renames files of its own while it works; what is gone needs no sync.
            match fs::File::open_read(&path).await {
                Ok(file) => match file.sync_all().await {
                    Ok(()) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    Err(error) => return Err(Error::io(format!("sync {}", path.display()))(error)),
                },
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => dirs.push(path),
                Err(error) => return Err(Error::io(format!("open {}", path.display()))(error)),
            }
        }
        fs::sync_dir(&dir).await.map_err(Error::io(format!("sync {}", dir.display())))?;
    }
    Ok(())
}

fn failed(dir: &Path, error: &sled::Error) -> Error {
    Error::damage(dir.display().to_string(), 0, format!("sled answers: {error}"))
}

/// The cells of one tree.
struct SledSource {
    dir: PathBuf,
    tree: sled::Tree,
}

impl SledSource {
    fn read(&self, item: sled::Result<(sled::IVec, sled::IVec)>) -> Result<StoredCell, Error> {
        let (key, value) = item.map_err(|error| failed(&self.dir, &error))?;
        cell_of(&key, &value)
            .ok_or_else(|| Error::damage(self.dir.display().to_string(), 0, "a malformed cell in sled"))
    }
}

impl Source for SledSource {
    fn chunk(&self, bounds: &Bounds, reverse: bool, cells: usize, out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let first = out.len();
        let mut range = range_of(&self.tree, bounds);
        loop {
            let Some(item) = (if reverse { range.next_back() } else { range.next() }) else { break };
            let cell = self.read(item)?;
            if out.len() - first >= cells && out.last().is_some_and(|last| last.row() != cell.row()) {
                break;
            }
            out.push(cell);
        }
        if reverse {
            out[first..].reverse();
        }
        Ok(())
    }

    fn row(&self, row: &[u8], out: &mut Vec<StoredCell>) -> Result<(), Error> {
        let mut prefix = Vec::with_capacity(row.len() + 2);
        escape(&mut prefix, row);
        for item in self.tree.scan_prefix(&prefix) {
            out.push(self.read(item)?);
        }
        Ok(())
    }
}

fn range_of(tree: &sled::Tree, bounds: &Bounds) -> sled::Iter {
    range_from(tree, row_start(&bounds.start), &bounds.stop)
}

fn range_from(tree: &sled::Tree, start: Vec<u8>, stop: &[u8]) -> sled::Iter {
    if stop.is_empty() { tree.range(start..) } else { tree.range(start..row_start(stop)) }
}

/// A place before every cell of `row` and after every cell of lower rows.
fn row_start(row: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(row.len() + 2);
    if !row.is_empty() {
        escape(&mut key, row);
    }
    key
}

/// Row and qualifier end-escaped, so that they sort as they are and neither runs into what follows; then timestamp,
/// sequence and position complemented, so that the newest comes first.
fn key_of(cell: &StoredCell) -> Vec<u8> {
    let mut key = Vec::with_capacity(cell.row().len() + cell.qualifier().len() + 24);
    escape(&mut key, cell.row());
    escape(&mut key, cell.qualifier());
    key.extend_from_slice(&(!cell.timestamp().cast_unsigned()).to_be_bytes());
    key.extend_from_slice(&(!cell.sequence()).to_be_bytes());
    key.extend_from_slice(&(!cell.position()).to_be_bytes());
    key
}

fn value_of(cell: &StoredCell) -> Vec<u8> {
    let mut value = Writer::default();
    value.u8(cell.kind() as u8);
    value.u16(u16::try_from(cell.tags().len()).expect("tag sections are limited to less than 64 KiB at the edge"));
    value.0.extend_from_slice(cell.tags());
    value.0.extend_from_slice(cell.value());
    value.0
}

fn cell_of(key: &[u8], value: &[u8]) -> Option<StoredCell> {
    let (row, rest) = unescape(key)?;
    let (qualifier, rest) = unescape(rest)?;
    let (timestamp, rest) = rest.split_first_chunk::<8>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (position, rest) = rest.split_first_chunk::<4>()?;
    if !rest.is_empty() {
        return None;
    }
    let mut input = Reader(value);
    let kind = CellKind::from_u8(input.u8()?)?;
    let tags_len = usize::from(input.u16()?);
    let (tags, value) = input.0.split_at_checked(tags_len)?;
    let timestamp = (!u64::from_be_bytes(*timestamp)).cast_signed();
    let cell = CellRef { family: &[], qualifier: &qualifier, timestamp, kind, tags, value };
    Some(StoredCell::new(&row, cell, !u64::from_be_bytes(*sequence), !u32::from_be_bytes(*position)))
}

/// 00 becomes 00 FF, and 00 01 ends it.
fn escape(out: &mut Vec<u8>, bytes: &[u8]) {
    for &byte in bytes {
        out.push(byte);
        if byte == 0 {
            out.push(0xFF);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

fn unescape(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        match rest {
            [0, 1, after @ ..] => return Some((out, after)),
            [0, 0xFF, after @ ..] => {
                out.push(0);
                rest = after;
            }
            [0, ..] | [] => return None,
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_cells_do_and_read_back() {
        let cell = |row: &[u8], qualifier: &[u8], timestamp, sequence| {
            let cell = CellRef { family: b"f", qualifier, timestamp, kind: CellKind::Put, tags: b"t", value: b"v" };
            StoredCell::new(row, cell, sequence, 3)
        };
        let mut cells = vec![
            cell(b"a", b"", 5, 1),
            cell(b"a", b"q", 5, 2),
            cell(b"a", b"q", 5, 1),
            cell(b"a", b"q", 4, 9),
            cell(b"a\0", b"q", 4, 9),
            cell(b"a\0\x01", b"q", 4, 9),
            cell(b"ab", b"q\0", 0, 9),
        ];
        cells.sort();
        let keys: Vec<_> = cells.iter().map(key_of).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for cell in &cells {
            let back = cell_of(&key_of(cell), &value_of(cell)).unwrap();
            assert_eq!((&back, back.value(), back.tags()), (cell, cell.value(), cell.tags()));
        }
    }
}
