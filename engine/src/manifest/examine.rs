//! Examining a manifest offline, where a bad last record need not be excused.
//!
//! A start must take a bad last record for a torn append. Here it counts as torn only if an append can have left it,
//! and otherwise as damage. A torn append leaves sectors of [`SECTOR_BYTES`] that each have their content or none, or a
//! file that ends early. So a record with all its bytes present, and with no sector of zeros, was written completely
//! and changed afterwards.

use terrane_types::inspection::Severity;

use super::{Contents, is_record};
use crate::codec::{FRAME_HEADER_BYTES, unframe};
use crate::manifest::Record;

/// The least that disks write either completely or not at all.
const SECTOR_BYTES: usize = 512;

/// What a manifest holds, and what is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct Examination {
    pub(crate) contents: Contents,
    /// With the offset of the record concerned.
    pub(crate) findings: Vec<(Severity, u64, &'static str)>,
}

impl Examination {
    /// Whether the contents are all that was recorded.
    pub(crate) fn is_whole(&self) -> bool {
        self.findings.iter().all(|(severity, ..)| *severity < Severity::Damage)
    }

    fn damage(&mut self, at: usize, what: &'static str) {
        self.findings.push((Severity::Damage, at as u64, what));
    }
}

/// Reads all whole records, including those after damage.
pub(crate) fn examine(bytes: &[u8]) -> Examination {
    let mut found = Examination::default();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(payload) = unframe(&bytes[at..]) {
            match Record::decode(payload) {
                Some(record) => found.contents.take(record),
                None => found.damage(at, "a whole record that this build cannot read"),
            }
            at += FRAME_HEADER_BYTES + payload.len();
        } else if let Some(next) = (at + 1..bytes.len()).find(|&later| is_record(&bytes[later..])) {
            found.damage(at, "a record fails its checksum");
            at = next;
        } else {
            if is_tear(&bytes[at..], at) {
                found.findings.push((Severity::Warning, at as u64, "a torn last record, which nothing relies on"));
            } else {
                found.damage(at, "the last record fails its checksum, although all of it was written");
            }
            break;
        }
    }
    if found.contents.engine.is_empty() {
        found.damage(0, "the first record, which names the engine, is missing");
    }
    found
}

/// Whether an append that was cut off can have left `rest`, which begins at `offset` of the file.
fn is_tear(rest: &[u8], offset: usize) -> bool {
    let Some(header) = rest.first_chunk::<FRAME_HEADER_BYTES>() else {
        return true;
    };
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let checksum = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let payload = &rest[FRAME_HEADER_BYTES..];
    let no_sector_is_empty = || sectors(rest, offset).all(|part| part.iter().any(|&byte| byte != 0));
    if length > payload.len() {
        // The file ends early, unless only the length is wrong.
        return crc32c::crc32c(payload) != checksum && Record::decode(payload).is_none();
    }
    if length < payload.len() {
        // Nothing is ever written after the last record, so its length is not what was written: it is in a sector that
        // was never written, or it is damaged.
        let mut head = sectors(&rest[..FRAME_HEADER_BYTES], offset);
        return head.any(|part| part.iter().all(|&byte| byte == 0)) && Record::decode(payload).is_none();
    }
    !no_sector_is_empty()
}

/// `bytes`, which begin at `offset` of a file, split by sector.
fn sectors(bytes: &[u8], offset: usize) -> impl Iterator<Item = &[u8]> {
    let first = (SECTOR_BYTES - offset % SECTOR_BYTES).min(bytes.len());
    let (head, rest) = bytes.split_at(first);
    std::iter::once(head).chain(rest.chunks(SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::super::tests::encoded;
    use super::*;

    fn severities(bytes: &[u8]) -> Vec<Severity> {
        examine(bytes).findings.iter().map(|(severity, ..)| *severity).collect()
    }

    #[test]
    fn every_flipped_bit_is_damage_the_last_record_included() {
        let (bytes, _) = encoded();
        assert!(examine(&bytes).findings.is_empty());
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let found = severities(&flipped);
                assert!(found.contains(&Severity::Damage), "byte {at}, bit {bit}: {found:?}");
            }
        }
    }

    #[test]
    fn a_manifest_cut_anywhere_in_its_last_record_is_torn_and_no_more() {
        let (bytes, ends) = encoded();
        let last = ends[ends.len() - 2];
        for length in last + 1..bytes.len() {
            assert_eq!(severities(&bytes[..length]), [Severity::Warning], "cut at {length}");
        }
        assert!(severities(&bytes[..last]).is_empty());
    }

    #[test]
    fn sectors_that_did_not_reach_the_disk_are_a_tear() {
        let (mut bytes, ends) = encoded();
        let last = ends[ends.len() - 2];
        let first_sector = last.next_multiple_of(SECTOR_BYTES).min(bytes.len());
        let whole = bytes.clone();
        bytes[last..first_sector].fill(0);
        assert_eq!(severities(&bytes), [Severity::Warning]);
        if first_sector < whole.len() {
            bytes = whole;
            bytes[first_sector..].fill(0);
            assert_eq!(severities(&bytes), [Severity::Warning]);
        }
    }

    #[test]
    fn records_after_damage_count() {
        let (mut bytes, ends) = encoded();
        bytes[ends[0] + FRAME_HEADER_BYTES + 3] ^= 1;
        let found = examine(&bytes);
        assert_eq!(found.findings.len(), 1);
        assert_eq!(found.findings[0].1, ends[0] as u64);
        assert!(!found.is_whole() && !found.contents.groups.is_empty());
    }
}
