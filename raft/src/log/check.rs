//! Verifies the log of a stopped process, without changing anything.
//!
//! Recovery stops at the first bad place; this check continues after it, so that it reports all damage. Recovery must also
//! treat everything not known to be synced as a torn tail; this check looks closer, because a flipped bit in the last batch
//! looks the same. The difference is how writes tear: in sectors of [`SECTOR_BYTES`], each of which has either its old
//! content, which is zeros, or its new content.
//!
//! - Nothing is ever written after the seal of a clean stop: any byte there is damage.
//! - A batch with a bad header is torn if part of the header is in an all-zero sector. Otherwise all its sectors were
//!   written, and it is damaged.
//! - A batch with a good header and bad records is torn if one of its sectors is all zeros. Otherwise it is damaged.
//!   (A batch with a sector of zeros inside a value may thus count as torn; it is reported in either case.)

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use terrane_env::fs;
use terrane_types::{GroupId, Inspection};

use super::batch::{ALIGNMENT, BatchHeader, HEADER_BYTES, HeaderProbe, Position, aligned};
use super::files::Files;
use super::held;
use super::memory::GroupLog;
use super::names::{self, SPARE};
use super::place::BadBytes;
use super::recover::{self, Recovery};
use crate::OpenError;

/// The smallest unit that disks write atomically.
const SECTOR_BYTES: usize = 512;

/// The kinds of its files in the totals.
const KIND: &str = "log segment";
const HELD_KIND: &str = "held file";

/// The content of a group's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedGroup {
    /// Entries up to this index were purged.
    pub purged: Option<u64>,
    /// The last entry, purged ones included.
    pub last: Option<u64>,
}

/// Checks that the segment allocated ahead is all zeros: nothing has been written to it yet.
async fn check_spare(path: &Path, inspection: &mut Inspection) {
    const ZEROS: [u8; 4096] = [0; 4096];
    match fs::read(path).await {
        Ok(bytes) => {
            inspection.looks_at("spare log segment", path, bytes.len() as u64);
            let written = bytes.chunks(ZEROS.len()).position(|chunk| chunk != &ZEROS[..chunk.len()]);
            if let Some(at) = written {
                inspection.damage(path, (at * ZEROS.len()) as u64, "bytes in a segment that was never written");
            }
        }
        Err(error) => inspection.damage(path, 0, format!("cannot read it: {error}")),
    }
}

/// Verifies every byte of the log in `directory`. Returns the content of its groups, unless something is damaged.
pub async fn check_log(directory: &Path, inspection: &mut Inspection) -> Option<BTreeMap<GroupId, LoggedGroup>> {
    let names = match fs::list(directory).await {
        Ok(names) => names,
        Err(error) => {
            inspection.damage(directory, 0, format!("cannot read the log: {error}"));
            return None;
        }
    };
    let (mut numbers, mut held) = (Vec::new(), Vec::new());
    for name in &names {
        match (names::segment_number(name), names::held_number(name)) {
            (Some(number), _) => numbers.push(number),
            (None, Some(number)) => held.push(number),
            (None, None) if names::is_unfinished(name) => {
                inspection.warning(&directory.join(name), 0, "an unfinished held file, which the next start removes");
            }
            (None, None) if name == SPARE => check_spare(&directory.join(name), inspection).await,
            (None, None) => inspection.warning(&directory.join(name), 0, "a file that does not belong to the log"),
        }
    }
    numbers.sort_unstable();
    let files = Arc::new(Files::new(fs::Disk::os(), directory.to_owned()));
    let mut check = LogCheck {
        files: files.clone(),
        recovery: Recovery::new(files.clone(), 0),
        chain: None,
        end: None,
        sealed: false,
        is_whole: true,
        inspection,
    };
    if numbers.is_empty() {
        check.damage(directory, 0, "there is no log");
    }
    for number in held {
        let path = files.path(number);
        match fs::read(&path).await {
            Ok(bytes) => check.held(number, &path, &bytes.into()),
            Err(error) => check.unreadable(&path, &error),
        }
    }
    let mut before = None;
    for &segment in &numbers {
        if before.is_some_and(|before| before + 1 != segment) {
            check.damage(&files.path(segment - 1), 0, "the segment is missing");
            (check.chain, check.end) = (None, None);
        }
        before = Some(segment);
        let path = files.path(segment);
        match fs::read(&path).await {
            Ok(bytes) => check.segment(segment, &bytes.into(), Some(&segment) == numbers.last()),
            Err(error) => check.unreadable(&path, &error),
        }
    }
    check.finish(numbers.first().copied())
}

/// Identifies the batch before the current one.
#[derive(Clone, Copy)]
struct PreviousBatch {
    log: u64,
    batch: u64,
    crc: u32,
}

struct LogCheck<'a> {
    files: Arc<Files>,
    /// Rebuilds the groups while nothing is damaged; after damage, inconsistencies between records mean nothing new.
    recovery: Recovery,
    /// `None` if the batch before is not known: at the beginning and after damage.
    chain: Option<PreviousBatch>,
    /// Where the segment before ends, if that is known.
    end: Option<Position>,
    /// The last batch was written by a clean stop.
    sealed: bool,
    is_whole: bool,
    inspection: &'a mut Inspection,
}

impl LogCheck<'_> {
    fn damage(&mut self, path: &Path, offset: u64, what: &str) {
        self.is_whole = false;
        self.inspection.damage(path, offset, what);
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        self.damage(path, 0, &format!("cannot read the segment: {error}"));
        (self.chain, self.end) = (None, None);
    }

    fn held(&mut self, number: u64, path: &Path, bytes: &Bytes) {
        self.inspection.looks_at(HELD_KIND, path, bytes.len() as u64);
        match held::read(number, bytes) {
            Ok(loaded) => self.recovery.add_held(loaded),
            Err(bad) => self.damage(path, bad.offset, bad.what),
        }
    }

    fn segment(&mut self, segment: u64, bytes: &Bytes, is_last: bool) {
        let path = self.files.path(segment);
        self.inspection.looks_at(KIND, &path, bytes.len() as u64);
        self.sealed = false;
        self.check_end(segment, bytes);
        let mut offset = 0;
        while !is_zero(&bytes[offset..]) {
            let header = match BatchHeader::find(bytes, offset) {
                HeaderProbe::Header(header, crc) => Some((header, crc)),
                HeaderProbe::OtherVersion(version) => {
                    let what = format!("a batch of layout {version}, which this build does not know");
                    self.damage(&path, offset as u64, &what);
                    return;
                }
                HeaderProbe::Nothing => None,
            };
            match self.batch(segment, bytes, offset, header) {
                Ok(()) => {}
                Err(bad) if is_last && !self.sealed && self.is_tear(segment, bytes, offset, header) => {
                    let what = format!("a torn tail, which was never acknowledged: {}", bad.what);
                    self.inspection.warning(&path, offset as u64, what);
                    return;
                }
                Err(bad) => self.damage(&path, bad.offset, bad.what),
            }
            offset = match header {
                Some((header, crc)) => {
                    // At the head of a segment a batch may be empty because there are no groups yet.
                    self.sealed = header.records == 0 && offset > 0;
                    self.chain = Some(PreviousBatch { log: header.log, batch: header.batch, crc });
                    (offset + aligned(HEADER_BYTES + header.length as usize)).min(bytes.len())
                }
                None => match self.next_header(bytes, offset) {
                    Some(next) => {
                        self.chain = None;
                        next
                    }
                    None => return,
                },
            };
        }
        self.end = Some(Position { segment, offset: offset as u64 });
    }

    /// Compares where the segment before ends with what the headers of this one say was synced.
    fn check_end(&mut self, segment: u64, bytes: &Bytes) {
        let log = self.chain.map(|before| before.log);
        if let Some(end) = self.end.take()
            && recover::ends_early(segment, recover::synced_marks(bytes, 0, log), end)
        {
            self.damage(&self.files.path(end.segment), end.offset, recover::ENDS_EARLY);
            self.chain = None;
        }
    }

    /// Verifies the batch at `offset` and applies its records.
    fn batch(
        &mut self,
        segment: u64,
        bytes: &Bytes,
        offset: usize,
        header: Option<(BatchHeader, u32)>,
    ) -> Result<(), BadBytes> {
        let bad = |what| BadBytes { offset: offset as u64, what };
        if self.sealed {
            return Err(bad("bytes after the end of a log that was closed"));
        }
        let (header, _) = header.ok_or(bad("no batch header, and bytes that are not zero"))?;
        if header.segment != segment {
            return Err(bad("a batch of another segment"));
        }
        if let Some(before) = self.chain {
            if header.log != before.log {
                return Err(bad("a batch of another log"));
            }
            if header.batch != before.batch + 1 || header.previous != before.crc {
                return Err(bad("a batch that does not follow the one before it"));
            }
        }
        let records = recover::read_records(segment, bytes, offset, &header)?;
        for (group, record, place) in records {
            if self.is_whole
                && let Err(error) = self.recovery.replay(group, record, place)
            {
                let what = damage_text(&error);
                self.damage(&self.files.path(segment), place.offset, &what);
            }
        }
        Ok(())
    }

    /// Whether the bad batch at `offset` can be the result of an interrupted write.
    fn is_tear(&self, segment: u64, bytes: &Bytes, offset: usize, header: Option<(BatchHeader, u32)>) -> bool {
        let at = Position { segment, offset: offset as u64 };
        let log = self.chain.map(|before| before.log);
        if recover::synced_marks(bytes, at.offset, log).any(|synced| synced > at) {
            return false;
        }
        let length = header.map_or(HEADER_BYTES, |(header, _)| HEADER_BYTES + header.length as usize);
        let end = offset.saturating_add(length);
        // A file that ends inside the batch was not allocated ahead: it grew as far as the write got.
        end > bytes.len() || sectors(bytes, offset, end).any(is_zero)
    }

    /// The first header of this log after `offset`.
    fn next_header(&self, bytes: &Bytes, offset: usize) -> Option<usize> {
        (offset + ALIGNMENT..bytes.len()).step_by(ALIGNMENT).find(|&at| match BatchHeader::find(bytes, at) {
            HeaderProbe::Header(header, _) => self.chain.is_none_or(|before| before.log == header.log),
            HeaderProbe::OtherVersion(_) | HeaderProbe::Nothing => false,
        })
    }

    fn finish(mut self, first: Option<u64>) -> Option<BTreeMap<GroupId, LoggedGroup>> {
        let groups = self.recovery.found.groups.clone();
        if self.is_whole {
            for log in groups.values() {
                if let Err(what) = log.replayed() {
                    let path = self.files.path(first.unwrap_or(0));
                    self.damage(&path, 0, &format!("group {}: {what}", log.group()));
                }
            }
        }
        let logged = |log: &GroupLog| {
            let (purged, last) = log.ends();
            LoggedGroup { purged: purged.map(|id| id.index), last: last.map(|id| id.index) }
        };
        self.is_whole.then(|| groups.iter().map(|(group, log)| (*group, logged(log))).collect())
    }
}

fn damage_text(error: &OpenError) -> String {
    match error {
        OpenError::Damage { what, .. } => what.clone(),
        other => other.to_string(),
    }
}

/// The parts of `bytes[from..to]` that lie in one sector each.
fn sectors(bytes: &[u8], from: usize, to: usize) -> impl Iterator<Item = &[u8]> {
    let first = from / SECTOR_BYTES * SECTOR_BYTES;
    (first..to).step_by(SECTOR_BYTES).map(move |at| &bytes[at.max(from)..(at + SECTOR_BYTES).min(to)])
}

/// Whether all bytes are zero; the unused rest of a segment has megabytes of zeros.
fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 4096] = [0; 4096];
    bytes.chunks(ZEROS.len()).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests damage the directory from outside")]
mod tests;
