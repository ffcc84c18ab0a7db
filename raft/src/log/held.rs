//! Held files: entries that one group still needs, copied out of segments that the other groups no longer need.
//!
//! An absent member holds back the log of its groups. Their entries lie among those of all groups, so no segment could be
//! removed. Before that affects other groups, the entries are copied to separate files (`spill.rs`), one group per file, and
//! are read from there.
//!
//! ```text
//! magic 8 bytes | log u64 | group u64 | number u64 | replica u64 | crc u32 (CRC32C of all before it) | zeros 4 bytes
//! | entry record *
//! ```
//!
//! A held file is complete and synced, name included, before anything relies on it. It is never appended to. It is cut when
//! the entries at its end are truncated, and removed when all its entries are purged.
//!
//! A segment always overrides a held file: a segment that holds an entry also holds everything written after it. So a held
//! file that a crash left behind, or left too long, does no harm if these rules hold:
//! - the copied entries stay in their segments until the held file is synced;
//! - a truncation is carried out on held files before the segment with its record can be removed;
//! - held files are removed from the oldest on, each removal synced, and before the segments after them.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use terrane_types::versions::FormatVersions;
use terrane_types::{ByteWriter as _, GroupId, ReplicaId};

use super::files::Files;
use super::held_list::HeldFile;
use super::index::{Index, Moved};
use super::names;
use super::place::{BadBytes, HELD, Place};
use super::record::{self, Record};
use crate::GroupSpec;
use crate::codec::Reader;
use crate::types::{log_id, term_of};

/// First bytes of a held file; the last one is the layout's version.
const MAGIC: [u8; 8] = *b"TRNHELD\x01";
/// The versions of held files.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "held log file", oldest: 1, newest: MAGIC[7] as u32 };
const HEADER_BYTES: usize = 48;

/// Bytes read or written at a time.
const STEP_BYTES: usize = 1 << 20;

/// What a held file holds.
pub(super) struct Loaded {
    pub(super) number: u64,
    pub(super) log: u64,
    pub(super) group: GroupId,
    /// The local replica.
    replica: ReplicaId,
    pub(super) index: Index,
    pub(super) bytes: u64,
}

impl Loaded {
    /// Whether the entries are this replica's, and not those of one that was removed.
    pub(super) fn is_of(&self, spec: &GroupSpec) -> bool {
        self.group == spec.group && self.replica == spec.replica
    }
}

/// Reads and verifies a whole held file.
pub(super) fn read(number: u64, bytes: &Bytes) -> Result<Loaded, BadBytes> {
    let bad = |offset: usize, what| BadBytes { offset: offset as u64, what };
    let header = bytes.get(..HEADER_BYTES).ok_or(bad(0, "a held file without a whole header"))?;
    let (fields, check) = header.split_at(HEADER_BYTES - 8);
    let crc = u32::from_le_bytes(check[..4].try_into().expect("four bytes"));
    if !fields.starts_with(&MAGIC) || crc32c::crc32c(fields) != crc || check[4..] != [0; 4] {
        return Err(bad(0, "no header of a held file that this build knows"));
    }
    let mut reader = Reader::new(bytes.slice(MAGIC.len()..HEADER_BYTES));
    let mut u64 = || reader.u64().expect("the header is whole");
    let (log, group, named, replica) = (u64(), GroupId(u64()), u64(), ReplicaId(u64()));
    if named | HELD != number {
        return Err(bad(0, "a held file with another file's number"));
    }
    let mut index = Index::default();
    let mut at = HEADER_BYTES;
    while at < bytes.len() {
        let (of, record, length) = record::read(&bytes.slice(at..)).map_err(|error| bad(at, error.what))?;
        let Record::Entry(entry) = record else { return Err(bad(at, "a record in a held file that is not an entry")) };
        if index.is_empty() {
            index.reset(entry.log_id.index);
        }
        if of != group || entry.log_id.index != index.end() {
            return Err(bad(at, "a held entry does not follow its predecessor"));
        }
        let length = u32::try_from(length).map_err(|_| bad(at, "an entry of more than four gigabytes"))?;
        index.push(term_of(&entry.log_id), Place { segment: number, offset: at as u64, length });
        at += length as usize;
    }
    Ok(Loaded { number, log, group, replica, index, bytes: bytes.len() as u64 })
}

/// Copies consecutive entries of a group to a new held file and makes it durable. Nothing refers to the file yet, but it is
/// listed: truncations from now on apply to it.
pub(super) async fn copy(
    files: &Arc<Files>,
    spec: &GroupSpec,
    entries: &[(u64, u64, Place)],
) -> io::Result<(HeldFile, Vec<Moved>)> {
    let group = spec.group;
    let contiguous = entries.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
    assert!(
        contiguous,
        "the entries to hold of group {group} are not contiguous: the held file could not be read back"
    );
    let (number, log) = {
        let mut held = files.held.lock();
        (held.take_number(), held.log)
    };
    let unfinished = files.directory().join(names::unfinished(number));
    let copied = write(files, &unfinished, header(log, group, number, spec.replica), group, number, entries).await;
    let (bytes, moved) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            // If this fails, the next start removes the file.
            files.disk().remove_file(&unfinished).await.ok();
            return Err(error);
        }
    };
    let (Some((first, ..)), Some((last, ..))) = (entries.first(), entries.last()) else {
        return Err(io::Error::other("no entries to hold"));
    };
    let file = HeldFile { number, first: *first, last: *last, bytes };
    files.held.lock().add(group, file);
    files.disk().rename(&unfinished, &files.path(number)).await?;
    files.disk().sync_dir(files.directory()).await?;
    Ok((file, moved))
}

async fn write(
    files: &Arc<Files>,
    path: &std::path::Path,
    header: Vec<u8>,
    group: GroupId,
    number: u64,
    entries: &[(u64, u64, Place)],
) -> io::Result<(u64, Vec<Moved>)> {
    let file = files.disk().create_new(path).await?;
    let mut buffer = header;
    let mut written = 0;
    let mut moved = Vec::with_capacity(entries.len());
    for span in spans(entries) {
        let (start, length) = (span[0].2.offset, span_bytes(span));
        let bytes = files.read_span(span[0].2.segment, start, length).await?;
        for &(index, term, from) in span {
            let at = usize::try_from(from.offset - start).expect("within the span");
            let record = bytes.slice(at..at + from.length as usize);
            match record::read(&record) {
                Ok((of, Record::Entry(entry), _)) if of == group && entry.log_id == log_id(term, index) => {}
                Ok(_) => return Err(files.damaged(from, "another record is where an entry was written")),
                Err(error) => return Err(files.damaged(from, error.what)),
            }
            let to = Place { segment: number, offset: written + buffer.len() as u64, length: from.length };
            moved.push(Moved { index, term, from, to });
            buffer.extend_from_slice(&record);
        }
        if buffer.len() >= STEP_BYTES {
            file.write_all_at(&buffer, written).await?;
            written += buffer.len() as u64;
            buffer.clear();
        }
    }
    file.write_all_at(&buffer, written).await?;
    written += buffer.len() as u64;
    if !terrane_env::planted!("a held file is not synced") {
        file.sync_all().await?;
    }
    Ok((written, moved))
}

pub(super) fn header(log: u64, group: GroupId, number: u64, replica: ReplicaId) -> Vec<u8> {
    let mut header = MAGIC.to_vec();
    [log, group.0, number & !HELD, replica.0].into_iter().for_each(|value| header.u64(value));
    let crc = crc32c::crc32c(&header);
    header.u32(crc);
    header.u32(0);
    header
}

/// Groups of `entries` that are read at once: in one file, in order, and close together.
fn spans(entries: &[(u64, u64, Place)]) -> impl Iterator<Item = &[(u64, u64, Place)]> {
    let mut rest = entries;
    std::iter::from_fn(move || {
        let (_, _, first) = rest.first()?;
        let mut before = first.offset;
        let mut fits = |place: &Place| {
            let ahead = place.segment == first.segment && place.offset >= before;
            before = place.offset;
            ahead && place.offset + u64::from(place.length) - first.offset <= STEP_BYTES as u64
        };
        let count = 1 + rest[1..].iter().take_while(|(_, _, place)| fits(place)).count();
        let (span, behind) = rest.split_at(count);
        rest = behind;
        Some(span)
    })
}

fn span_bytes(span: &[(u64, u64, Place)]) -> usize {
    let (first, last) = (span[0].2, span[span.len() - 1].2);
    usize::try_from(last.offset - first.offset).expect("a span is short") + last.length as usize
}

/// Removes a held file that nothing refers to.
pub(super) async fn remove(files: &Files, group: GroupId, number: u64) -> io::Result<()> {
    files.held.lock().remove(group, number);
    match files.disk().remove_file(&files.path(number)).await {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    files.disk().sync_dir(files.directory()).await?;
    files.forget(number);
    Ok(())
}

/// Entries up to `index` were purged, durably: removes the files that hold nothing else, from the oldest on.
pub(super) async fn purged(files: &Files, group: GroupId, index: u64) -> io::Result<()> {
    loop {
        let oldest = files.held.lock().oldest(group);
        match oldest {
            Some(file) if file.last <= index => remove(files, group, file.number).await?,
            _ => return Ok(()),
        }
    }
}

/// Entries after `last` were truncated, durably: no held file may contain them once the record of the truncation is removed.
pub(super) async fn truncated(files: &Files, group: GroupId, last: Option<u64>) -> io::Result<()> {
    loop {
        let newest = files.held.lock().newest(group);
        match (newest, last) {
            (Some(file), Some(last)) if file.last <= last => return Ok(()),
            (Some(file), Some(last)) if file.first <= last => return trim(files, group, file.number, last).await,
            (Some(file), _) => remove(files, group, file.number).await?,
            (None, _) => return Ok(()),
        }
    }
}

/// Cuts a held file after its entry `last`.
pub(super) async fn trim(files: &Files, group: GroupId, number: u64, last: u64) -> io::Result<()> {
    let path = files.path(number);
    let bytes = match files.disk().read(&path).await {
        Ok(bytes) => bytes,
        // It has no name yet. Memory was truncated first, so the copying task notices and removes the file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let loaded = read(number, &bytes.into());
    let loaded = loaded.map_err(|bad| {
        let place = Place { segment: number, offset: bad.offset, length: 0 };
        files.damaged(place, bad.what)
    })?;
    let end = loaded.index.get(last).map_or(HEADER_BYTES as u64, |(_, place)| place.offset + u64::from(place.length));
    let file = files.disk().open_rw(&path).await?;
    file.set_len(end).await?;
    file.sync_all().await?;
    files.held.lock().trim(group, number, last, end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(places: &[(u64, u64)]) -> Vec<(u64, u64, Place)> {
        let place = |(segment, offset)| Place { segment, offset, length: 100 };
        (0..).zip(places).map(|(index, at)| (index, 1, place(*at))).collect()
    }

    #[test]
    fn entries_close_together_are_read_at_once() {
        let far = STEP_BYTES as u64;
        let entries = entries(&[(1, 0), (1, 100), (1, far - 100), (1, far), (2, far + 100), (2, 50), (2, 150)]);
        let counts: Vec<_> = spans(&entries).map(<[_]>::len).collect();
        assert_eq!(counts, [3, 1, 1, 2]);
    }
}
