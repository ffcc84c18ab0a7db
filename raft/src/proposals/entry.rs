//! The inside of a normal entry: a header and the operations packed into it.
//!
//! ```text
//! format u8 = 1 | term u64 | ordinal u64 | stamp u64 | released u64 | (length u32 | operation)*
//! format u8 = 2 | term u64 | ordinal u64 | stamp u64 | released u64 | time u64 | (length u32 | operation)*
//! format u8 = 12 | crc u32 | term u64 | ordinal u64 | stamp u64 | released u64 | time u64 | (length u32 | operation)*
//! ```
//!
//! Format 12 has a checksum, CRC32C of all its other bytes. The leader computes it once, when it packs the entry; every member
//! verifies it when the entry arrives, before it is logged, and before it is applied. No single flipped bit turns the 12 into a
//! format without a checksum. The others were written before the cluster reached feature level 4.
//!
//! The stamp never goes back along the log, so it runs ahead of the time while a leader's clock is behind an earlier leader's
//! stamp. Formats 2 and 12 also carry that time; format 1 means that the stamp was at most [`AHEAD_MAX_MS`] ahead of it.
//!
//! Term and ordinal say when the operations were prepared: the term, and the entry's ordinal within the term. An entry takes
//! effect only if its term is that of its log id and its ordinal follows that of the last entry that took effect in that
//! term ([`Sequence::accept`]), because it was prepared on the assumption that exactly those before it are applied. The
//! rule depends on the log alone, so all replicas agree on which entries are skipped.

use bytes::Bytes;
use terrane_types::versions::FormatVersions;

use crate::codec::{Malformed, Reader, malformed, put_length, put_u64};

/// Bytes of an entry's header without a time and a checksum, and of these.
const HEADER_BYTES: usize = 1 + 4 * 8;
const TIME_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// The layouts above.
const FORMAT: u8 = 1;
const FORMAT_WITH_TIME: u8 = 2;
pub(crate) const FORMAT_CHECKED: u8 = 12;
/// Their versions.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "log entry", oldest: FORMAT as u32, newest: FORMAT_CHECKED as u32 };

/// A stamp further ahead of the time is logged with the time.
const AHEAD_MAX_MS: u64 = 500;

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
    /// An entry with a checksum, or, if `checked` is false, one that builds before feature level 4 read.
    pub(crate) fn new(header: Header, capacity: usize, checked: bool) -> Packer {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + TIME_BYTES + CRC_BYTES + capacity);
        let ahead = header.stamp.saturating_sub(header.time) > AHEAD_MAX_MS;
        if checked {
            bytes.push(FORMAT_CHECKED);
            bytes.extend_from_slice(&[0; CRC_BYTES]);
        } else {
            bytes.push(if ahead { FORMAT_WITH_TIME } else { FORMAT });
        }
        put_u64(&mut bytes, header.term);
        put_u64(&mut bytes, header.ordinal);
        put_u64(&mut bytes, header.stamp);
        put_u64(&mut bytes, header.released);
        if ahead || checked {
            put_u64(&mut bytes, header.time);
        }
        Packer { bytes, operations: 0 }
    }

    /// Appends the operation that `prepare` writes to the end of its argument. If `prepare` does not say to keep it, the entry
    /// stays as it was.
    pub(crate) fn push<T>(&mut self, prepare: impl FnOnce(&mut Vec<u8>) -> (bool, T)) -> T {
        let start = self.bytes.len();
        put_length(&mut self.bytes, 0);
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
        if self.bytes[0] == FORMAT_CHECKED {
            let crc = checksum(&self.bytes);
            self.bytes[1..=CRC_BYTES].copy_from_slice(&crc.to_le_bytes());
        }
        self.bytes.into()
    }
}

/// The checksum that belongs into an entry of [`FORMAT_CHECKED`].
fn checksum(entry: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&entry[..1]), &entry[1 + CRC_BYTES..])
}

/// Verifies the checksum of an entry that has one.
pub(crate) fn verify(entry: &[u8]) -> Result<(), Malformed> {
    if entry.first() != Some(&FORMAT_CHECKED) {
        return Ok(());
    }
    let stored = entry.get(1..=CRC_BYTES).ok_or(malformed("an entry ends within its checksum"))?;
    if stored != checksum(entry).to_le_bytes() {
        return Err(malformed("the checksum of an entry does not match"));
    }
    Ok(())
}

/// Whether an entry has no operations.
pub(crate) fn carries_nothing(entry: &[u8]) -> bool {
    let more = match entry.first() {
        Some(&FORMAT_WITH_TIME) => TIME_BYTES,
        Some(&FORMAT_CHECKED) => TIME_BYTES + CRC_BYTES,
        _ => 0,
    };
    entry.len() <= HEADER_BYTES + more
}

fn read_header(reader: &mut Reader) -> Result<Header, Malformed> {
    let format = reader.u8()?;
    match format {
        FORMAT | FORMAT_WITH_TIME => {}
        FORMAT_CHECKED => {
            reader.u32()?;
        }
        _ => return Err(malformed("an entry of an unknown format")),
    }
    let (term, ordinal, stamp, released) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let time = if format == FORMAT { stamp.saturating_sub(AHEAD_MAX_MS) } else { reader.u64()? };
    Ok(Header { term, ordinal, stamp, time, released })
}

/// Reads and verifies an entry; the operations share its memory.
pub(crate) fn unpack(entry: &Bytes) -> Result<(Header, Vec<Bytes>), Malformed> {
    verify(entry)?;
    let mut reader = Reader::new(entry.clone());
    let header = read_header(&mut reader)?;
    let mut operations = Vec::new();
    while reader.remaining() > 0 {
        operations.push(reader.bytes()?);
    }
    Ok((header, operations))
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
        fn operations_round_trip(time in 0u64..2_000, checked: bool, operations in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let header = Header { term: 3, ordinal: 9, stamp: 1_077, time, released: 6 };
            let mut packer = Packer::new(header, 0, checked);
            for operation in &operations {
                push(&mut packer, operation);
            }
            let (read, back) = unpack(&packer.finish()).unwrap();
            // Without a checksum, only a time that the stamp does not tell is logged; else less is assumed.
            prop_assert!(read.time <= time && (read.time == time || time >= 577 && !checked));
            prop_assert_eq!(Header { time, ..read }, header);
            prop_assert_eq!(back, operations.into_iter().map(Bytes::from).collect::<Vec<_>>());
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            unpack(&bytes.into()).ok();
        }
    }

    #[test]
    fn any_flipped_bit_of_an_entry_is_detected() {
        let mut packer = Packer::new(header_of(3, 9), 0, true);
        push(&mut packer, b"an operation");
        let bytes = packer.finish();
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unpack(&flipped.into()).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_without_operations_is_known_as_such_in_every_format() {
        for (time, checked) in [(5, false), (0, false), (5, true)] {
            let header = Header { term: 1, ordinal: 1, stamp: 1_000 * (5 - time) + 5, time, released: 0 };
            assert!(carries_nothing(&Packer::new(header, 0, checked).finish()));
            let mut packer = Packer::new(header, 0, checked);
            push(&mut packer, b"");
            assert!(!carries_nothing(&packer.finish()));
        }
    }

    #[test]
    fn an_operation_that_is_not_kept_leaves_no_trace() {
        let mut packer = Packer::new(header_of(1, 1), 0, true);
        push(&mut packer, b"kept");
        let answer = packer.push(|entry| {
            entry.extend_from_slice(b"refused");
            (false, "no")
        });
        assert_eq!((answer, packer.operations()), ("no", 1));
        assert_eq!(unpack(&packer.finish()).unwrap().1, vec![Bytes::from_static(b"kept")]);
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
