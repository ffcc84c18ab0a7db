//! The inside of a normal entry: a header and the operations packed into it.
//!
//! ```text
//! format u8 = 1 | term u64 | ordinal u64 | stamp u64 | released u64 | (length u32 | operation)*
//! format u8 = 2 | term u64 | ordinal u64 | stamp u64 | released u64 | time u64 | (length u32 | operation)*
//! ```
//!
//! The stamp never goes back along the log, so it runs ahead of the time while a leader's clock is behind an earlier leader's
//! stamp. Format 2 also carries that time; format 1 means that the stamp was at most [`AHEAD_MAX_MS`] ahead of it.
//!
//! Term and ordinal say when the operations were prepared: the term, and the entry's ordinal within the term. An entry takes
//! effect only if its term is that of its log id and its ordinal follows that of the last entry that took effect in that
//! term ([`Sequence::accept`]), because it was prepared on the assumption that exactly those before it are applied. The
//! rule depends on the log alone, so all replicas agree on which entries are skipped.

use bytes::Bytes;
use terrane_types::versions::FormatVersions;

use crate::codec::{Malformed, Reader, malformed, put_length, put_u64};

/// Bytes of an entry's header without a time, and of a time.
const HEADER_BYTES: usize = 1 + 4 * 8;
const TIME_BYTES: usize = 8;

/// The layouts above.
const FORMAT: u8 = 1;
const FORMAT_WITH_TIME: u8 = 2;
/// Their versions.
pub(crate) const VERSIONS: FormatVersions =
    FormatVersions { name: "log entry", oldest: FORMAT as u32, newest: FORMAT_WITH_TIME as u32 };

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
    pub(crate) fn new(header: Header, capacity: usize) -> Packer {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + TIME_BYTES + capacity);
        let ahead = header.stamp.saturating_sub(header.time) > AHEAD_MAX_MS;
        bytes.push(if ahead { FORMAT_WITH_TIME } else { FORMAT });
        put_u64(&mut bytes, header.term);
        put_u64(&mut bytes, header.ordinal);
        put_u64(&mut bytes, header.stamp);
        put_u64(&mut bytes, header.released);
        if ahead {
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

    pub(crate) fn finish(self) -> Bytes {
        self.bytes.into()
    }
}

/// Whether an entry has no operations.
pub(crate) fn carries_nothing(entry: &[u8]) -> bool {
    let time = if entry.first() == Some(&FORMAT_WITH_TIME) { TIME_BYTES } else { 0 };
    entry.len() <= HEADER_BYTES + time
}

fn read_header(reader: &mut Reader) -> Result<Header, Malformed> {
    let format = reader.u8()?;
    if format != FORMAT && format != FORMAT_WITH_TIME {
        return Err(malformed("an entry of an unknown format"));
    }
    let (term, ordinal, stamp, released) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
    let time = if format == FORMAT { stamp.saturating_sub(AHEAD_MAX_MS) } else { reader.u64()? };
    Ok(Header { term, ordinal, stamp, time, released })
}

/// Reads an entry; the operations share its memory.
pub(crate) fn unpack(entry: &Bytes) -> Result<(Header, Vec<Bytes>), Malformed> {
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
        fn operations_round_trip(time in 0u64..2_000, operations in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let header = Header { term: 3, ordinal: 9, stamp: 1_077, time, released: 6 };
            let mut packer = Packer::new(header, 0);
            for operation in &operations {
                push(&mut packer, operation);
            }
            let (read, back) = unpack(&packer.finish()).unwrap();
            // Only a time that the stamp does not tell is logged; else less is assumed.
            prop_assert!(read.time <= time && (read.time == time || time >= 577));
            prop_assert_eq!(Header { time, ..read }, header);
            prop_assert_eq!(back, operations.into_iter().map(Bytes::from).collect::<Vec<_>>());
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            unpack(&bytes.into()).ok();
        }
    }

    #[test]
    fn an_operation_that_is_not_kept_leaves_no_trace() {
        let mut packer = Packer::new(header_of(1, 1), 0);
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
        check("entry", start);
    }
}
