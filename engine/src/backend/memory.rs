//! The memory backend: flushed cells stay in memory as sorted runs, and lie in one file per flush for the next start.
//!
//! The file makes durable points, manifest and purge real: tests and the simulator crash it like any other engine, and
//! `--engine memory` shows what the paths cost without a store below. `docs/formats/cells.md` has its bytes: a header
//! frame, then frames of cells, each with a checksum, and a closing frame that says how many there were.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use terrane_env::{fs, task};
use terrane_types::{CellKind, CellRef, FamilyName};

use super::FlushCells;
use crate::Error;
use crate::cell::StoredCell;
use crate::codec::{FRAME_HEADER_BYTES, Reader, Writer, frame, unframe};
use crate::file::StoreFile;
use crate::manifest::RegionRecord;
use crate::run::Run;
use crate::source::{Bounds, Source};

const FORMAT: u8 = 1;
const HEADER: u8 = 1;
const CELLS: u8 = 2;
const END: u8 = 3;
/// About how many bytes of cells share a checksum.
const FRAME_BYTES: usize = 256 << 10;
const SUFFIX: &str = ".cells";

type Runs = BTreeMap<FamilyName, Arc<Run>>;

struct Loaded {
    runs: Runs,
    families: Arc<BTreeMap<FamilyName, Arc<dyn Source>>>,
}

impl Loaded {
    fn new(runs: Runs) -> Self {
        let families = runs.iter().map(|(family, run)| (family.clone(), Arc::clone(run) as Arc<dyn Source>)).collect();
        Self { runs, families: Arc::new(families) }
    }
}

/// Files that must not be removed for not being named: those that no record names yet, and all that are made later.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spared {
    unrecorded: BTreeSet<u64>,
    from: u64,
}

impl Spared {
    fn contains(&self, id: u64) -> bool {
        id >= self.from || self.unrecorded.contains(&id)
    }
}

/// All files of one server, loaded.
pub(crate) struct MemoryBackend {
    dir: PathBuf,
    next: AtomicU64,
    files: Mutex<BTreeMap<u64, Loaded>>,
    /// Files that no manifest record names yet, and may name soon.
    unrecorded: Mutex<BTreeSet<u64>>,
}

impl MemoryBackend {
    /// Loads the files that the manifest names and removes the others: they are of flushes that were never recorded.
    pub(crate) async fn open(dir: &Path, named: &BTreeSet<u64>) -> Result<Self, Error> {
        let (parent, dir) = (dir, dir.join("cells"));
        fs::create_dir_all(&dir).await.map_err(Error::io("make the directory of cell files"))?;
        // Its name too has to survive a power cut, or the files in it do not.
        fs::sync_dir(parent).await.map_err(Error::io("sync the engine's directory"))?;
        let mut files = BTreeMap::new();
        for id in named {
            let path = path_of(&dir, *id);
            let bytes = fs::read(&path).await.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    Error::damage(&path, 0, "the manifest names the file and it is missing")
                }
                _ => Error::io(format!("read {}", path.display()))(error),
            })?;
            files.insert(*id, Loaded::new(decode(&path, *id, &bytes)?));
        }
        let next = named.iter().next_back().map_or(1, |last| last + 1);
        let backend = Self { dir, next: AtomicU64::new(next), files: Mutex::new(files), unrecorded: Mutex::default() };
        // Nobody works yet, so nothing is spared, whatever its number.
        backend.retain(named, &Spared { unrecorded: BTreeSet::new(), from: u64::MAX }).await?;
        // Their numbers are given out again: a name must not be removed and made anew in one go.
        fs::sync_dir(&backend.dir).await.map_err(Error::io("sync the directory of cell files"))?;
        Ok(backend)
    }

    pub(crate) async fn write(&self, cells: FlushCells) -> Result<StoreFile, Error> {
        let id = {
            // Under the lock, so that `spared` sees every file either as unrecorded or as one to come.
            let mut unrecorded = self.unrecorded.lock();
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            unrecorded.insert(id);
            id
        };
        let written = self.write_file(id, cells).await;
        if written.is_err() {
            // Nobody will record it.
            self.settled(id);
        }
        written
    }

    async fn write_file(&self, id: u64, cells: FlushCells) -> Result<StoreFile, Error> {
        let path = path_of(&self.dir, id);
        let dir = self.dir.clone();
        let runs = task::run_io(async move {
            let runs: Runs =
                cells.families.into_iter().map(|(family, cells)| (family, Arc::new(Run::new(cells)))).collect();
            let bytes = encode(id, &runs);
            let file = fs::File::create_new(&path).await.map_err(Error::io(format!("make {}", path.display())))?;
            file.write_all_at(&bytes, 0).await.map_err(Error::io(format!("write {}", path.display())))?;
            file.sync_all().await.map_err(Error::io(format!("sync {}", path.display())))?;
            fs::sync_dir(&dir).await.map_err(Error::io("sync the directory of cell files"))?;
            Ok::<_, Error>(runs)
        })
        .await?;
        let bytes = runs.values().flat_map(|run| run.cells()).map(StoredCell::memory_bytes).sum();
        let loaded = Loaded::new(runs);
        let families = Arc::clone(&loaded.families);
        self.files.lock().insert(id, loaded);
        Ok(StoreFile { id, bytes, families })
    }

    pub(crate) fn files_of(&self, region: &RegionRecord) -> Result<Vec<StoreFile>, Error> {
        let files = self.files.lock();
        let load = |file: &crate::manifest::FileRecord| {
            let loaded = files.get(&file.id).ok_or_else(|| {
                Error::damage(path_of(&self.dir, file.id).display().to_string(), 0, "the file is missing")
            })?;
            Ok(StoreFile { id: file.id, bytes: file.bytes, families: Arc::clone(&loaded.families) })
        };
        region.files.iter().map(load).collect()
    }

    /// The file is named by the manifest now, or never will be.
    pub(crate) fn settled(&self, id: u64) {
        self.unrecorded.lock().remove(&id);
    }

    /// The files that stay although the manifest may not name them yet, as of now.
    pub(crate) fn spared(&self) -> Spared {
        let unrecorded = self.unrecorded.lock();
        Spared { unrecorded: unrecorded.clone(), from: self.next.load(Ordering::Relaxed) }
    }

    /// Removes the files that are neither named nor spared.
    pub(crate) async fn retain(&self, named: &BTreeSet<u64>, spared: &Spared) -> Result<(), Error> {
        let stays = |id: u64| named.contains(&id) || spared.contains(id);
        self.files.lock().retain(|id, _| stays(*id));
        let names = fs::list(&self.dir).await.map_err(Error::io("list the cell files"))?;
        for name in names {
            let id = name.strip_suffix(SUFFIX).and_then(|id| id.parse::<u64>().ok());
            if !id.is_some_and(stays) {
                match fs::remove_file(&self.dir.join(&name)).await {
                    // Another flush that cleans up was faster.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    removed => removed.map_err(Error::io(format!("remove {name}")))?,
                }
            }
        }
        Ok(())
    }

    /// Whether a file is there, recorded or not.
    #[cfg(test)]
    pub(crate) fn has_loaded(&self, id: u64) -> bool {
        self.files.lock().contains_key(&id)
    }

    /// The part of a file's bytes that lies inside of `bounds`, by its count of cells there.
    pub(crate) fn bytes_within(&self, id: u64, bounds: &Bounds) -> u64 {
        let files = self.files.lock();
        let Some(loaded) = files.get(&id) else { return 0 };
        loaded
            .runs
            .values()
            .map(|run| {
                let within = run.within(bounds);
                // Cells of one table are much alike: a sample says what they weigh.
                let sample = within.len().div_ceil(64).max(1);
                let sampled: Vec<u64> = within.iter().step_by(sample).map(StoredCell::memory_bytes).collect();
                if sampled.is_empty() {
                    0
                } else {
                    sampled.iter().sum::<u64>() * within.len() as u64 / sampled.len() as u64
                }
            })
            .sum()
    }
}

fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016}{SUFFIX}"))
}

fn encode(id: u64, runs: &Runs) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = Writer::default();
    header.u8(HEADER);
    header.u8(FORMAT);
    header.u64(id);
    frame(&mut out, &header.0);
    let mut total = 0u64;
    for (family, run) in runs {
        let mut cells = begin(family);
        for cell in run.cells() {
            write_cell(&mut cells, cell);
            total += 1;
            if cells.0.len() >= FRAME_BYTES {
                frame(&mut out, &cells.0);
                cells = begin(family);
            }
        }
        frame(&mut out, &cells.0);
    }
    let mut end = Writer::default();
    end.u8(END);
    end.u64(total);
    frame(&mut out, &end.0);
    out
}

fn begin(family: &FamilyName) -> Writer {
    let mut cells = Writer::default();
    cells.u8(CELLS);
    cells.bytes(family.as_bytes());
    cells
}

fn write_cell(out: &mut Writer, cell: &StoredCell) {
    out.bytes(cell.row());
    out.bytes(cell.qualifier());
    out.i64(cell.timestamp());
    out.u64(cell.sequence());
    out.u32(cell.position());
    out.u8(cell.kind() as u8);
    out.bytes(cell.tags());
    out.bytes(cell.value());
}

fn decode(path: &Path, id: u64, bytes: &[u8]) -> Result<Runs, Error> {
    let damage = |at: usize, what: &str| Error::damage(path.display().to_string(), at as u64, what);
    let mut families: BTreeMap<FamilyName, Vec<StoredCell>> = BTreeMap::new();
    let (mut at, mut total) = (0, 0u64);
    loop {
        let payload = unframe(&bytes[at..]).ok_or_else(|| damage(at, "a frame's checksum does not hold"))?;
        let mut input = Reader(payload);
        let kind = input.u8();
        match kind {
            Some(HEADER) if at == 0 && input.u8() == Some(FORMAT) => {
                if input.u64() != Some(id) {
                    return Err(damage(at, "the file holds the cells of another"));
                }
            }
            Some(CELLS) if at > 0 => {
                total +=
                    read_cells(&mut input, &mut families).ok_or_else(|| damage(at, "a frame of cells is malformed"))?;
            }
            Some(END) if at > 0 => {
                let whole = at + FRAME_HEADER_BYTES + payload.len() == bytes.len();
                if input.u64() != Some(total) || !whole {
                    return Err(damage(at, "the file does not end where, or with as many cells as, it says"));
                }
                break;
            }
            _ => return Err(damage(at, "a frame of a kind or format that this build cannot read")),
        }
        at += FRAME_HEADER_BYTES + payload.len();
    }
    Ok(families.into_iter().map(|(family, cells)| (family, Arc::new(Run::new(cells)))).collect())
}

fn read_cells(input: &mut Reader<'_>, families: &mut BTreeMap<FamilyName, Vec<StoredCell>>) -> Option<u64> {
    let family = FamilyName::new(std::str::from_utf8(input.bytes()?).ok()?).ok()?;
    let cells = families.entry(family).or_default();
    let mut count = 0;
    while !input.is_empty() {
        let (row, qualifier) = (input.bytes()?, input.bytes()?);
        let (timestamp, sequence, position) = (input.i64()?, input.u64()?, input.u32()?);
        let kind = CellKind::from_u8(input.u8()?)?;
        let (tags, value) = (input.bytes()?, input.bytes()?);
        let cell = CellRef { family: &[], qualifier, timestamp, kind, tags, value };
        cells.push(StoredCell::new(row, cell, sequence, position));
        count += 1;
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_cell() -> FlushCells {
        let cell = CellRef { family: b"f", qualifier: b"q", timestamp: 1, kind: CellKind::Put, tags: &[], value: b"v" };
        let family = FamilyName::new("f").unwrap();
        let families = BTreeMap::from([(family, vec![StoredCell::new(b"r", cell, 1, 0)])]);
        FlushCells { group: terrane_types::GroupId(1), table: terrane_types::TableId(1), families }
    }

    /// Another region's flush looked at the manifest before this file was recorded, and removes files only now.
    #[tokio::test]
    async fn a_file_recorded_between_look_and_removal_stays() {
        let directory = tempfile::tempdir().unwrap();
        let backend = MemoryBackend::open(directory.path(), &BTreeSet::new()).await.unwrap();
        let begun = backend.write(one_cell()).await.unwrap();
        let spared = backend.spared();
        let named_then = BTreeSet::new();
        let later = backend.write(one_cell()).await.unwrap();
        backend.settled(begun.id);
        backend.settled(later.id);
        backend.retain(&named_then, &spared).await.unwrap();
        let named = BTreeSet::from([begun.id, later.id]);
        drop(backend);
        let reopened = MemoryBackend::open(directory.path(), &named).await.unwrap();
        assert_eq!(reopened.files.lock().len(), 2);
        reopened.retain(&BTreeSet::from([later.id]), &reopened.spared()).await.unwrap();
        assert_eq!(reopened.files.lock().keys().copied().collect::<Vec<_>>(), [later.id]);
    }

    /// A crash came between a flush's file and its record: the next flush takes the same number.
    #[tokio::test]
    async fn files_that_were_never_recorded_are_gone_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let backend = MemoryBackend::open(directory.path(), &BTreeSet::new()).await.unwrap();
        let (recorded, lost) = (backend.write(one_cell()).await.unwrap(), backend.write(one_cell()).await.unwrap());
        drop(backend);
        let reopened = MemoryBackend::open(directory.path(), &BTreeSet::from([recorded.id])).await.unwrap();
        assert_eq!(reopened.write(one_cell()).await.unwrap().id, lost.id);
    }
}
