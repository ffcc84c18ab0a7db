//! Bytes that are changed in the log of a server that does not run, as no disk would change them: its checksums fit again.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "files are changed behind a server's back")]

use std::path::Path;

use anyhow::{Context, Result, ensure};

/// First bytes of a batch, and where its header has the length of its records.
const BATCH_MAGIC: &[u8] = b"TRNLOG\0\x01";
const RECORDS_LENGTH_AT: usize = 52;
const BATCH_HEADER_BYTES: usize = 64;
/// Checksum and length of a record.
const RECORD_FRAME_BYTES: usize = 8;
/// Bytes of a record's body before those of a normal entry: kind, group, term, index, payload and length.
const ENTRY_AT: usize = 1 + 8 + 8 + 8 + 1 + 4;
/// The format of entries, which their checksum follows.
const ENTRY_FORMAT: u8 = 1;

/// Whose checksums fit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fits {
    /// The log's: the entry is not what its leader packed.
    Log,
    /// The log's and the entry's: nothing tells that it is another entry.
    Entry,
}

/// Replaces `from` by as many bytes in the entries of a log; returns in how many.
pub fn forge(log: &Path, from: &[u8], to: &[u8], fits: Fits) -> Result<usize> {
    ensure!(from.len() == to.len(), "the text has another length");
    let mut forged = 0;
    for file in std::fs::read_dir(log)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            let mut bytes = std::fs::read(&path)?;
            forged += forge_segment(&mut bytes, from, to, fits)?;
            std::fs::write(&path, bytes)?;
        }
    }
    Ok(forged)
}

fn forge_segment(bytes: &mut [u8], from: &[u8], to: &[u8], fits: Fits) -> Result<usize> {
    let (mut at, mut forged) = (0, 0);
    while bytes[at..].starts_with(BATCH_MAGIC) {
        let end = at + BATCH_HEADER_BYTES + number(bytes, at + RECORDS_LENGTH_AT)?;
        let mut record_at = at + BATCH_HEADER_BYTES;
        while record_at < end {
            let record_end = record_at + RECORD_FRAME_BYTES + number(bytes, record_at + 4)?;
            let record = bytes.get_mut(record_at..record_end).context("a record ends within the segment")?;
            forged += usize::from(forge_record(record, from, to, fits)?);
            record_at = record_end;
        }
        at = end.next_multiple_of(8);
        if at + BATCH_HEADER_BYTES > bytes.len() {
            break;
        }
    }
    Ok(forged)
}

fn forge_record(record: &mut [u8], from: &[u8], to: &[u8], fits: Fits) -> Result<bool> {
    let Some(found) = record.windows(from.len()).position(|window| window == from) else { return Ok(false) };
    record[found..found + to.len()].copy_from_slice(to);
    if fits == Fits::Entry {
        let entry = record.get_mut(RECORD_FRAME_BYTES + ENTRY_AT..).context("the record is a normal entry")?;
        ensure!(entry[0] == ENTRY_FORMAT, "the entry has another format");
        let crc = crc32c::crc32c_append(crc32c::crc32c(&entry[..1]), &entry[5..]);
        entry[1..5].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c::crc32c(&record[4..]);
    record[..4].copy_from_slice(&crc.to_le_bytes());
    Ok(true)
}

fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let number = bytes.get(at..at + 4).context("a length ends within the segment")?;
    Ok(u32::from_le_bytes(number.try_into()?) as usize)
}

/// Copies a directory as it is on disk.
pub fn copy_directory(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
