//! Reading the log back when the process starts.
//!
//! Segments are read in order, batch by batch. The first bad batch (by its header, its place in the chain or one of its
//! records) is either a torn tail or damage. The headers after it tell which. If one says that the bad place was already
//! synced, acknowledged entries may be unreadable, and recovery fails with file and offset. Otherwise the batch was never
//! known to be synced, hence never acknowledged: it is cut, durably, so that nothing written later can be mistaken for a
//! continuation of it.
//!
//! Segments before the last one were synced completely before their successor was created, so anything bad in them is damage.
//! Zeros after a batch look like the unused rest of a segment. So a segment has to end where the headers of its successor say
//! that the log was synced: if it ends earlier, its end is lost, and nothing of the successor is cut.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use terrane_types::GroupId;

use super::batch::{ALIGNMENT, BatchHeader, HEADER_BYTES, HeaderProbe, Position, aligned};
use super::cache::Cache;
use super::extents::Extents;
use super::files::Files;
use super::held::{self, Loaded};
use super::held_list::HeldFile;
use super::memory::{GroupLog, payload_bytes};
use super::names;
use super::place::{BadBytes, Place};
use super::record::{self, Record};
use crate::OpenError;
use crate::types::log_id;

/// The log as it was found.
pub(super) struct Recovered {
    pub(super) groups: BTreeMap<GroupId, Arc<GroupLog>>,
    pub(super) extents: Extents,
    pub(super) cache: Cache,
    /// The segments, with the bytes used in each.
    pub(super) segments: BTreeMap<u64, u64>,
    /// The groups whose replica was removed, as far as the records are still there.
    pub(super) removed: BTreeMap<GroupId, Arc<GroupLog>>,
    /// The last batch; `None` for a new log.
    pub(super) chain: Option<Chain>,
}

/// What the next batch has to follow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    pub(super) log: u64,
    pub(super) batch: u64,
    pub(super) crc: u32,
    /// Everything before this is synced once recovery is complete.
    pub(super) end: Position,
}

/// Recovers the log in the directory of `files`.
pub(super) async fn recover(files: &Arc<Files>, cache_bytes: u64) -> Result<Recovered, OpenError> {
    let (disk, directory) = (files.disk(), files.directory().clone());
    let io = |source| io_error(&directory, source);
    disk.create_dir_all(&directory).await.map_err(io)?;
    // Unless its own name is durable, the directory and everything in it could be gone after a power cut.
    if let Some(parent) = directory.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        disk.sync_dir(parent).await.map_err(io)?;
    }
    let names = disk.list(&directory).await.map_err(io)?;
    let numbers = segment_numbers(&directory, &names)?;
    let mut recovery = Recovery::new(files.clone(), cache_bytes);
    for name in &names {
        if let Some(number) = names::held_number(name) {
            let bytes = Bytes::from(disk.read(&files.path(number)).await.map_err(io)?);
            let loaded = held::read(number, &bytes).map_err(|bad| damage(files, number, bad.offset, bad.what))?;
            recovery.add_held(loaded);
        } else if names::is_unfinished(name) {
            disk.remove_file(&directory.join(name)).await.map_err(io)?;
        }
    }
    for (at, segment) in numbers.iter().copied().enumerate() {
        let bytes = Bytes::from(disk.read(&files.path(segment)).await.map_err(io)?);
        let scanned = recovery.scan(segment, &bytes)?;
        let last = at + 1 == numbers.len();
        if let Some(what) = scanned.bad {
            if let Some((at, what)) = recovery.lost(segment, &bytes, scanned.end, what) {
                return Err(damage(files, at.segment, at.offset, what));
            } else if !last {
                return Err(damage(files, segment, scanned.end, what));
            }
            recovery.cut(segment, scanned.end, what).await?;
        }
        recovery.found.segments.insert(segment, scanned.end);
    }
    recovery.finish().await
}

fn segment_numbers(directory: &Path, names: &[String]) -> Result<Vec<u64>, OpenError> {
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| names::segment_number(name)).collect();
    numbers.sort_unstable();
    if let Some(gap) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
        let file = directory.join(names::file_name(gap[0] + 1)).display().to_string();
        return Err(OpenError::Damage { file, offset: 0, what: "the segment is missing".to_owned() });
    }
    Ok(numbers)
}

fn io_error(directory: &Path, source: io::Error) -> OpenError {
    OpenError::Io { dir: directory.display().to_string(), source }
}

fn damage(files: &Files, segment: u64, offset: u64, what: &str) -> OpenError {
    OpenError::Damage { file: files.path(segment).display().to_string(), offset, what: what.to_owned() }
}

/// How far a segment is good.
#[derive(Clone, Copy)]
pub(super) struct SegmentScan {
    /// Where the last good batch ends.
    pub(super) end: u64,
    /// Why what follows is not a batch, unless nothing follows.
    pub(super) bad: Option<&'static str>,
}

pub(super) struct Recovery {
    files: Arc<Files>,
    pub(super) found: Recovered,
    /// The content of held files, by number.
    held: BTreeMap<u64, Loaded>,
    /// What the last batch says was synced before it was written.
    synced: Option<Position>,
}

type ReadRecord = (GroupId, Record, Place);

impl Recovery {
    pub(super) fn new(files: Arc<Files>, cache_bytes: u64) -> Recovery {
        let found = Recovered {
            groups: BTreeMap::new(),
            extents: Extents::default(),
            cache: Cache::new(cache_bytes),
            segments: BTreeMap::new(),
            removed: BTreeMap::new(),
            chain: None,
        };
        Recovery { files, found, held: BTreeMap::new(), synced: None }
    }

    /// Adds a held file; all of them come before the segments.
    pub(super) fn add_held(&mut self, loaded: Loaded) {
        self.held.insert(loaded.number, loaded);
    }

    /// Gives a group the entries of its held files. Segments come later and override them.
    fn replay_held(&self, log: &GroupLog) -> Result<(), OpenError> {
        for loaded in self.held.values().filter(|loaded| loaded.is_of(log.spec())) {
            for index in loaded.index.first()..loaded.index.end() {
                let Some((term, place)) = loaded.index.get(index) else { continue };
                log.replay_held(&log_id(term, index), place)
                    .map_err(|what| damage(&self.files, loaded.number, place.offset, what))?;
            }
        }
        Ok(())
    }

    /// Removes or cuts held files that a crash left behind although they are not needed, and lists the others.
    async fn reconcile_held(&mut self) -> Result<(), OpenError> {
        let log_of_segments = self.found.chain.map(|chain| chain.log);
        for loaded in std::mem::take(&mut self.held).into_values() {
            let Loaded { number, log, group, index, bytes, .. } = loaded;
            if log_of_segments.is_some_and(|of_segments| of_segments != log) {
                return Err(damage(&self.files, number, 0, "a held file of another log"));
            }
            let file = HeldFile { number, first: index.first(), last: index.end().saturating_sub(1), bytes };
            self.files.held.lock().add(group, file);
            let needed = self.found.groups.get(&group).and_then(|log| log.last_in(number));
            let reconciled = match needed {
                None => held::remove(&self.files, group, number).await,
                Some(last) if last < file.last => held::trim(&self.files, group, number, last).await,
                Some(_) => Ok(()),
            };
            reconciled.map_err(|source| io_error(self.files.directory(), source))?;
        }
        Ok(())
    }

    /// Applies all batches of a segment up to the first bad one.
    pub(super) fn scan(&mut self, segment: u64, bytes: &Bytes) -> Result<SegmentScan, OpenError> {
        let mut offset = 0;
        loop {
            let end = offset as u64;
            if bytes[offset..].iter().all(|byte| *byte == 0) {
                return Ok(SegmentScan { end, bad: None });
            }
            let (header, crc) = match BatchHeader::find(bytes, offset) {
                HeaderProbe::Header(header, crc) => (header, crc),
                HeaderProbe::OtherVersion(version) => return Err(self.unsupported(segment, version)),
                HeaderProbe::Nothing => return Ok(SegmentScan { end, bad: Some("no batch header") }),
            };
            if let Some(what) = self.breaks_chain(segment, &header) {
                return Ok(SegmentScan { end, bad: Some(what) });
            }
            let records = match read_records(segment, bytes, offset, &header) {
                Ok(records) => records,
                Err(bad) => return Ok(SegmentScan { end, bad: Some(bad.what) }),
            };
            for (group, record, place) in records {
                self.replay(group, record, place)?;
            }
            offset = (offset + aligned(HEADER_BYTES + header.length as usize)).min(bytes.len());
            let end = Position { segment, offset: offset as u64 };
            self.found.chain = Some(Chain { log: header.log, batch: header.batch, crc, end });
            self.synced = Some(header.synced);
        }
    }

    fn breaks_chain(&self, segment: u64, header: &BatchHeader) -> Option<&'static str> {
        if header.segment != segment {
            return Some("a batch of another segment");
        }
        if self.end_before().is_some_and(|end| ends_early(segment, [header.synced].into_iter(), end)) {
            return Some(ENDS_EARLY);
        }
        // The predecessors of the first remaining segment were removed: there is nothing to compare with.
        let chain = self.found.chain.as_ref()?;
        if header.log != chain.log {
            Some("a batch of another log")
        } else if header.batch != chain.batch + 1 || header.previous != chain.crc {
            Some("a batch that does not follow the one before it")
        } else {
            None
        }
    }

    /// Where the segment before the one that is read ends.
    fn end_before(&self) -> Option<Position> {
        self.found.segments.last_key_value().map(|(&segment, &offset)| Position { segment, offset })
    }

    fn unsupported(&self, segment: u64, version: u8) -> OpenError {
        OpenError::Unsupported {
            file: self.files.path(segment).display().to_string(),
            what: format!("it has layout {version}"),
        }
    }

    pub(super) fn replay(&mut self, group: GroupId, record: Record, place: Place) -> Result<(), OpenError> {
        let log = match (&record, self.found.groups.get(&group)) {
            (_, Some(log)) => log.clone(),
            (Record::Created(spec), None) => {
                let log = Arc::new(GroupLog::new(spec.clone(), self.files.clone()));
                self.found.groups.insert(group, log.clone());
                self.found.removed.remove(&group);
                self.replay_held(&log)?;
                log
            }
            _ => {
                return Err(damage(
                    &self.files,
                    place.segment,
                    place.offset,
                    "a record of a group that was never created",
                ));
            }
        };
        match &record {
            Record::Entry(entry) => self.found.extents.entry(group, place.segment, entry.log_id.index),
            Record::Truncated(last) => self.found.extents.truncated(group, *last),
            Record::Purged(mark) => self.found.extents.purged(group, mark.log_id.index),
            Record::Removed(_) => self.found.extents.truncated(group, None),
            Record::Created(_) | Record::Vote(_) => {}
        }
        let bytes = if let Record::Entry(entry) = &record { payload_bytes(&entry.payload) } else { 0 };
        let removed = matches!(record, Record::Removed(_));
        let slot = log.replay(record, place).map_err(|what| damage(&self.files, place.segment, place.offset, what))?;
        if removed {
            let log = self.found.groups.remove(&group);
            self.found.removed.extend(log.map(|log| (group, log)));
        }
        if let Some((index, serial)) = slot {
            self.found.cache.admit(&log, index, serial, bytes);
        }
        Ok(())
    }

    /// Where synced bytes are lost, if a header from the bad place of a segment on says that they were synced: at that place, or
    /// at the end of the segment before.
    pub(super) fn lost(
        &self,
        segment: u64,
        bytes: &Bytes,
        end: u64,
        what: &'static str,
    ) -> Option<(Position, &'static str)> {
        if terrane_env::planted!("damage to the log passes for a torn tail") {
            return None;
        }
        let bad = Position { segment, offset: end };
        let log = self.found.chain.map(|chain| chain.log);
        let is_early = |before: &Position| ends_early(segment, synced_marks(bytes, end, log), *before);
        if !terrane_env::planted!("a zero tail ends a segment")
            && let Some(before) = self.end_before().filter(is_early)
        {
            return Some((before, ENDS_EARLY));
        }
        synced_marks(bytes, end, log).any(|synced| synced > bad).then_some((bad, what))
    }

    /// Cuts the bad tail of the last segment. Nothing in it was known to be synced.
    async fn cut(&mut self, segment: u64, end: u64, what: &'static str) -> Result<(), OpenError> {
        tracing::info!(segment, offset = end, what, "cutting the torn tail of the log");
        let path = self.files.path(segment);
        self.truncate(&path, end).await.map_err(|source| io_error(&path, source))
    }

    async fn truncate(&self, path: &Path, length: u64) -> io::Result<()> {
        let file = self.files.disk().open_rw(path).await?;
        file.set_len(length).await?;
        file.sync_all().await
    }

    /// Makes everything read durable, because the next batch will say that it is, and removes a last segment without a batch.
    ///
    /// Syncing is not enough. If the last sync of the process before failed, the kernel keeps the bytes, returns them and takes
    /// them for written: the next sync does nothing and succeeds. So what was not known to be synced is written again, and the
    /// file is cut again: a tail that an earlier start has cut, and failed to sync, would be damage once the next segment exists.
    async fn finish(mut self) -> Result<Recovered, OpenError> {
        for log in self.found.groups.values() {
            if let Err(what) = log.replayed() {
                let segment = self.found.segments.keys().next().copied().unwrap_or(0);
                return Err(damage(&self.files, segment, 0, what));
            }
        }
        self.reconcile_held().await?;
        let directory: PathBuf = self.files.directory().clone();
        if let Some((segment, end)) = self.found.segments.pop_last() {
            let path = self.files.path(segment);
            let finished = if end == 0 {
                self.remove(&path).await
            } else {
                self.rewrite(&path, self.synced_in(segment).min(end), end).await
            };
            finished.map_err(|source| io_error(&directory, source))?;
            // A killed process may have created a segment, or renamed one, without syncing its name.
            self.files.disk().sync_dir(&directory).await.map_err(|source| io_error(&directory, source))?;
            if end > 0 {
                self.found.segments.insert(segment, end);
            }
        }
        Ok(self.found)
    }

    /// Where the part of a segment begins that was not known to be synced.
    fn synced_in(&self, segment: u64) -> u64 {
        if terrane_env::planted!("a restart trusts bytes that a failed sync left") {
            return u64::MAX;
        }
        self.synced.filter(|synced| synced.segment == segment).map_or(0, |synced| synced.offset)
    }

    /// Writes the bytes of a range again, cuts the file after it, and syncs it.
    async fn rewrite(&self, path: &Path, start: u64, end: u64) -> io::Result<()> {
        let file = self.files.disk().open_rw(path).await?;
        let length = usize::try_from(end.saturating_sub(start)).expect("a segment was read into memory");
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start).await?;
        file.set_len(end).await?;
        file.write_all_at(&bytes, start).await?;
        file.sync_all().await
    }

    async fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.disk().remove_file(path).await?;
        self.files.disk().sync_dir(self.files.directory()).await
    }
}

/// Reads all records of a batch before any of them is applied.
pub(super) fn read_records(
    segment: u64,
    bytes: &Bytes,
    offset: usize,
    header: &BatchHeader,
) -> Result<Vec<ReadRecord>, BadBytes> {
    let bad = |offset: usize, what| BadBytes { offset: offset as u64, what };
    let start = offset + HEADER_BYTES;
    let end = start.checked_add(header.length as usize).filter(|end| *end <= bytes.len());
    let end = end.ok_or(bad(offset, "a batch ends early"))?;
    let mut records = Vec::new();
    let mut at = start;
    while at < end {
        let (group, record, length) = record::read(&bytes.slice(at..end)).map_err(|error| bad(at, error.what))?;
        let place = Place {
            segment,
            offset: at as u64,
            length: u32::try_from(length).expect("a record is not longer than its batch, whose length has 32 bits"),
        };
        records.push((group, record, place));
        at += length;
    }
    if records.len() != header.records as usize {
        return Err(bad(offset, "the number of records in a batch differs from its header"));
    }
    let padded = (offset + aligned(HEADER_BYTES + header.length as usize)).min(bytes.len());
    if bytes[end..padded].iter().any(|byte| *byte != 0) {
        return Err(bad(end, "bytes between two batches"));
    }
    Ok(records)
}

/// What is wrong with a segment after whose end its successor says more was synced.
pub(super) const ENDS_EARLY: &str = "the segment ends before what the next one says was synced";

/// Whether the headers of a segment say that the log before it was synced beyond what was read of it.
pub(super) fn ends_early(segment: u64, mut marks: impl Iterator<Item = Position>, read: Position) -> bool {
    marks.any(|synced| synced.segment < segment && synced > read)
}

/// What the headers of `log` from `offset` on say was synced before each was written.
pub(super) fn synced_marks(bytes: &Bytes, offset: u64, log: Option<u64>) -> impl Iterator<Item = Position> {
    let first = usize::try_from(offset).unwrap_or(bytes.len());
    (first..bytes.len()).step_by(ALIGNMENT).filter_map(move |offset| match BatchHeader::find(bytes, offset) {
        HeaderProbe::Header(header, _) if log.is_none_or(|log| header.log == log) => Some(header.synced),
        _ => None,
    })
}
