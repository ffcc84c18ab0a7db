//! The inside of a normal entry: a header and the operations packed into it.
//!
//! ```text
//! format u8 (1) | crc u32 | term u64 | ordinal u64 | stamp u64 | released u64 | time u64 | (length u32 | operation)*
//! ```
//!
//! The checksum is CRC32C of all the other bytes. The leader computes it once, when it packs the entry; every member verifies it
//! when the entry arrives, before it is logged, and before it is applied. In clusters of [`LEVEL_NEXT`] leaders write format 2
//! with the same fields: what keeps builds apart that cannot read each other's entries is tested with it.
//!
//! The stamp never goes back along the log, so it runs ahead of the time while a leader's clock is behind an earlier leader's
//! stamp.
//!
//! Term and ordinal say when the operations were prepared: the term, and the entry's ordinal within the term. An entry takes
//! effect only if its term is that of its log id and its ordinal follows that of the last entry that took effect in that
//! term ([`Sequence::accept`]), because it was prepared on the assumption that exactly those before it are applied. The
//! rule depends on the log alone, so all replicas agree on which entries are skipped.

use bytes::Bytes;
use terrane_types::ByteWriter as _;
use terrane_types::versions::{FormatVersions, LEVEL_NEXT};

use crate::codec::{Malformed, Reader, malformed};

/// Bytes of an entry's header.
const HEADER_BYTES: usize = 1 + CRC_BYTES + 5 * 8;
const CRC_BYTES: usize = 4;

/// The layout above, and what the next build writes.
const FORMAT: u8 = 1;
const FORMAT_NEXT: u8 = 2;
/// The versions of entries.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "log entry", oldest: FORMAT as u32, newest: FORMAT as u32 };

/// The newest format that builds of this feature level read.
pub(crate) const fn format_at(level: u32) -> u8 {
    if level >= LEVEL_NEXT { FORMAT_NEXT } else { FORMAT }
}

/// The header of a normal entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    /// The term the operations were prepared in.
    pub(crate) term: u64,
    /// Counts the entries of a term from 1.
    pub(crate) ordinal: u64,
    /// The leader's milliseconds.
    pub(crate) stamp: u64,
    /// The members' clocks had reached this when it was packed.
    pub(crate) time: u64,
    /// The index up to which the log was not kept for members when this was packed.
    pub(crate) released: u64,
}

/// Writes one entry.
pub(crate) struct Packer {
    bytes: Vec<u8>,
    operations: usize,
}

impl Packer {
    /// An entry of this format ([`format_at`]).
    pub(crate) fn new(header: Header, capacity: usize, format: u8) -> Packer {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + capacity);
        bytes.push(format);
        bytes.extend_from_slice(&[0; CRC_BYTES]);
        for field in [header.term, header.ordinal, header.stamp, header.released, header.time] {
            bytes.u64(field);
        }
        Packer { bytes, operations: 0 }
    }

    /// Appends the operation that `prepare` writes to the end of its argument. If `prepare` does not say to keep it, the entry
    /// stays as it was.
    pub(crate) fn push<T>(&mut self, prepare: impl FnOnce(&mut Vec<u8>) -> (bool, T)) -> T {
        let start = self.bytes.len();
        self.bytes.count(0);
        let body = self.bytes.len();
        let (keep, answer) = prepare(&mut self.bytes);
        match self.bytes.len().checked_sub(body).map(u32::try_from) {
            Some(Ok(length)) if keep => {
                self.bytes[start..body].copy_from_slice(&length.to_le_bytes());
                self.operations += 1;
            }
            _ => self.bytes.truncate(start),
        }
        answer
    }

    pub(crate) fn operations(&self) -> usize {
        self.operations
    }

    /// Size so far.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn finish(mut self) -> Bytes {
        let crc = checksum(&self.bytes);
        self.bytes[1..=CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.bytes.into()
    }
}

/// The checksum that belongs into an entry.
fn checksum(entry: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&entry[..1]), &entry[1 + CRC_BYTES..])
}

/// An entry without its checksum, as the fuzz driver changes it.
#[cfg(feature = "fuzzing")]
pub(crate) fn unsealed(entry: &[u8]) -> Vec<u8> {
    [&entry[..1], &entry[1 + CRC_BYTES..]].concat()
}

/// The entry with the checksum of its bytes.
#[cfg(feature = "fuzzing")]
pub(crate) fn sealed(unsealed: &[u8]) -> Bytes {
    let (format, rest) = unsealed.split_at(unsealed.len().min(1));
    let mut entry = [format, &[0; CRC_BYTES], rest].concat();
    if entry.len() > CRC_BYTES {
        let crc = checksum(&entry);
        entry[1..=CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
    }
    entry.into()
}

/// Verifies the checksum of an entry.
pub(crate) fn verify(entry: &[u8]) -> Result<(), Malformed> {
    let stored = entry.get(1..=CRC_BYTES).ok_or(malformed("an entry ends within its checksum"))?;
    if stored != checksum(entry).to_le_bytes() {
        return Err(malformed("the checksum of an entry does not match"));
    }
    Ok(())
}

/// Whether an entry has no operations.
pub(crate) fn carries_nothing(entry: &[u8]) -> bool {
    entry.len() <= HEADER_BYTES
}

/// Reads and verifies an entry of a format up to `newest`; the operations share its memory.
pub(crate) fn unpack(entry: &Bytes, newest: u8) -> Result<(Header, Vec<Bytes>), Malformed> {
    verify(entry)?;
    let mut reader = Reader::new(entry.clone());
    if !(FORMAT..=newest).contains(&reader.u8()?) {
        return Err(malformed("an entry of a format that this build does not know"));
    }
    reader.u32()?;
    let (term, ordinal, stamp, released, time) =
        (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let mut operations = Vec::new();
    while reader.remaining() > 0 {
        operations.push(reader.bytes()?);
    }
    Ok((Header { term, ordinal, stamp, time, released }, operations))
}

/// The position in a group's entries that decides whether the next one takes effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sequence {
    /// Term of the last entry that took effect.
    pub(crate) term: u64,
    /// Its ordinal.
    pub(crate) ordinal: u64,
    /// Its stamp; never goes back.
    pub(crate) stamp: u64,
    /// The highest `released` seen.
    pub(crate) released: u64,
}

impl Sequence {
    /// Whether an entry with `header`, found under a log id of `term`, takes effect; if so it is counted.
    pub(crate) fn accept(&mut self, term: u64, header: &Header) -> bool {
        if header.term != term || header.ordinal != self.last_ordinal(term) + 1 {
            return false;
        }
        *self = Sequence {
            term,
            ordinal: header.ordinal,
            stamp: self.stamp.max(header.stamp),
            released: self.released.max(header.released),
        };
        true
    }

    /// The ordinal of the last entry of `term` that took effect; 0 if there is none.
    pub(crate) fn last_ordinal(&self, term: u64) -> u64 {
        if self.term == term { self.ordinal } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::script::{Line, check};

    fn header_of(term: u64, ordinal: u64) -> Header {
        Header { term, ordinal, stamp: 5, time: 0, released: 0 }
    }

    fn push(packer: &mut Packer, operation: &[u8]) {
        packer.push(|entry| {
            entry.extend_from_slice(operation);
            (true, ())
        });
    }

    proptest! {
        #[test]
        fn operations_round_trip(time in 0u64..2_000, operations in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let header = Header { term: 3, ordinal: 9, stamp: 1_077, time, released: 6 };
            let mut packer = Packer::new(header, 0, FORMAT);
            for operation in &operations {
                push(&mut packer, operation);
            }
            let (read, back) = unpack(&packer.finish(), FORMAT).unwrap();
            prop_assert_eq!(read, header);
            prop_assert_eq!(back, operations.into_iter().map(Bytes::from).collect::<Vec<_>>());
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            unpack(&bytes.into(), FORMAT).ok();
        }
    }

    #[test]
    fn any_flipped_bit_of_an_entry_is_detected() {
        let mut packer = Packer::new(header_of(3, 9), 0, FORMAT);
        push(&mut packer, b"an operation");
        let bytes = packer.finish();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&flipped.into(), FORMAT).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_without_operations_is_known_as_such() {
        assert!(carries_nothing(&Packer::new(header_of(1, 1), 0, FORMAT).finish()));
        let mut packer = Packer::new(header_of(1, 1), 0, FORMAT);
        push(&mut packer, b"");
        assert!(!carries_nothing(&packer.finish()));
    }

    #[test]
    fn only_the_next_build_reads_its_format() {
        let entry = Packer::new(header_of(1, 1), 0, format_at(LEVEL_NEXT)).finish();
        let refused = unpack(&entry, format_at(LEVEL_NEXT - 1)).unwrap_err();
        assert!(refused.to_string().contains("does not know"), "{refused}");
        assert!(unpack(&entry, format_at(LEVEL_NEXT)).is_ok());
    }

    #[test]
    fn an_operation_that_is_not_kept_leaves_no_trace() {
        let mut packer = Packer::new(header_of(1, 1), 0, FORMAT);
        push(&mut packer, b"kept");
        let answer = packer.push(|entry| {
            entry.extend_from_slice(b"refused");
            (false, "no")
        });
        assert_eq!((answer, packer.operations()), ("no", 1));
        assert_eq!(unpack(&packer.finish(), FORMAT).unwrap().1, vec![Bytes::from_static(b"kept")]);
    }

    /// `entry TERM ORDINAL [under=TERM] [stamp=MS]`: an entry packed as such, found in the log under that term, its own
    /// unless given.
    fn start() -> impl FnMut(&str, &mut String) {
        let mut sequence = Sequence::default();
        move |line, out| {
            let line = Line::new(line);
            assert_eq!(line.command(), "entry", "unknown command");
            let header = Header { stamp: line.get("stamp").unwrap_or(0), ..header_of(line.word(0), line.word(1)) };
            let effect = sequence.accept(line.get("under").unwrap_or(header.term), &header);
            let effect = if effect { "takes effect" } else { "skipped" };
            let Sequence { term, ordinal, stamp, .. } = sequence;
            writeln!(out, "{effect}: applied up to entry {ordinal} of term {term}, stamp {stamp}").unwrap();
        }
    }

    #[test]
    fn scripts() {
        check("proposals/entry", start);
    }
}
