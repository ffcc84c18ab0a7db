//! The header of a batch: everything that the writer wrote and synced together.
//!
//! ```text
//! magic 8 bytes | log u64 | segment u64 | batch u64 | synced segment u64 | synced offset u64
//! | crc of the previous header u32 | length of the records u32 | how many u32 | crc u32 (CRC32C of all before it)
//! ```
//!
//! Headers start at multiples of [`ALIGNMENT`] and form a chain: each has its place, its predecessor's number + 1 and its
//! predecessor's checksum. A header also says up to where the log was *known* to be synced when it was written. This
//! distinguishes a torn tail, which recovery cuts, from damage to acknowledged entries, which it must not cut.

use bytes::Bytes;
use terrane_types::ByteWriter as _;
use terrane_types::versions::FormatVersions;

use crate::codec::Reader;

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 64;

/// Batches start at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

/// First bytes of every header; the last one is the layout's version.
const MAGIC: [u8; 8] = *b"TRNLOG\0\x01";
/// The versions of log segments.
pub(crate) const VERSIONS: FormatVersions = FormatVersions { name: "log segment", oldest: 1, newest: MAGIC[7] as u32 };

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
}

/// The header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    /// Chosen at random when the log's directory was created: bytes of another log are never mistaken for this one's.
    pub(crate) log: u64,
    pub(crate) segment: u64,
    /// Counts the batches of the log from 1.
    pub(crate) batch: u64,
    /// Everything before this place is synced.
    pub(crate) synced: Position,
    /// Checksum of the header before this one.
    pub(crate) previous: u32,
    /// Bytes of the records that follow.
    pub(crate) length: u32,
    /// Their number.
    pub(crate) records: u32,
}

/// What is at the place of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderProbe {
    /// A header and its checksum.
    Header(BatchHeader, u32),
    /// A header of a layout that this build does not know.
    OtherVersion(u8),
    /// No header.
    Nothing,
}

impl BatchHeader {
    /// Writes the header over the first bytes of `out` and returns its checksum.
    pub(crate) fn write(&self, out: &mut [u8]) -> u32 {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC);
        for value in [self.log, self.segment, self.batch, self.synced.segment, self.synced.offset] {
            bytes.u64(value);
        }
        for value in [self.previous, self.length, self.records] {
            bytes.u32(value);
        }
        let crc = crc32c::crc32c(&bytes);
        bytes.u32(crc);
        out[..HEADER_BYTES].copy_from_slice(&bytes);
        crc
    }

    /// Looks for a header at `offset` of `bytes`.
    pub(crate) fn find(bytes: &Bytes, offset: usize) -> HeaderProbe {
        let Some(end) = offset.checked_add(HEADER_BYTES).filter(|end| *end <= bytes.len()) else {
            return HeaderProbe::Nothing;
        };
        let header = &bytes[offset..end];
        if header[..7] != MAGIC[..7] {
            return HeaderProbe::Nothing;
        }
        let crc = u32::from_le_bytes(header[HEADER_BYTES - 4..].try_into().expect("four bytes"));
        if crc32c::crc32c(&header[..HEADER_BYTES - 4]) != crc {
            return HeaderProbe::Nothing;
        }
        if header[7] != MAGIC[7] {
            return HeaderProbe::OtherVersion(header[7]);
        }
        HeaderProbe::Header(Self::read(bytes.slice(offset + MAGIC.len()..end)), crc)
    }

    fn read(bytes: Bytes) -> BatchHeader {
        let mut reader = Reader::new(bytes);
        let mut u64 = || reader.u64().expect("the caller passes a whole header");
        let (log, segment, batch) = (u64(), u64(), u64());
        let synced = Position { segment: u64(), offset: u64() };
        let mut u32 = || reader.u32().expect("the caller passes a whole header");
        BatchHeader { log, segment, batch, synced, previous: u32(), length: u32(), records: u32() }
    }
}

/// `length` rounded up to where the next batch may start.
pub(crate) const fn aligned(length: usize) -> usize {
    length.next_multiple_of(ALIGNMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: BatchHeader = BatchHeader {
        log: 1,
        segment: 2,
        batch: 3,
        synced: Position { segment: 1, offset: 99 },
        previous: 5,
        length: 6,
        records: 7,
    };

    fn written() -> Vec<u8> {
        let mut bytes = vec![0; HEADER_BYTES];
        HEADER.write(&mut bytes);
        bytes
    }

    #[test]
    fn headers_round_trip() {
        let mut bytes = vec![0; 8];
        bytes.extend(written());
        assert!(matches!(BatchHeader::find(&bytes.into(), 8), HeaderProbe::Header(HEADER, _)));
    }

    #[test]
    fn any_flipped_bit_and_any_cut_is_detected() {
        for at in 0..HEADER_BYTES {
            for bit in 0..8 {
                let mut bytes = written();
                bytes[at] ^= 1 << bit;
                assert_eq!(BatchHeader::find(&bytes.into(), 0), HeaderProbe::Nothing);
            }
            assert_eq!(BatchHeader::find(&written()[..at].to_vec().into(), 0), HeaderProbe::Nothing);
        }
    }

    #[test]
    fn a_later_layout_is_recognized() {
        let mut bytes = written();
        bytes[7] = 9;
        let crc = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(BatchHeader::find(&bytes.into(), 0), HeaderProbe::OtherVersion(9));
    }
}
