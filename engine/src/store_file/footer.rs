//! The end of a file, of fixed size: where everything else is, the id it was written under, and its format.

use super::block::BlockAt;
use super::data_block::Malformed;
use crate::codec::{ByteWriter as _, Reader};
use terrane_types::versions::FormatVersions;

/// The format that this build writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;

/// The versions of store files.
pub(crate) const VERSIONS: FormatVersions = FormatVersions { name: "store file", oldest: 1, newest: FORMAT };

/// The last bytes of a store file.
const MAGIC: &[u8; 8] = b"TRNTABLE";

/// Bytes of a footer.
pub(super) const FOOTER_BYTES: usize = 4 * 12 + 8 + 8 + 4 + 4 + 8;

/// No build will count its formats this far.
const FORMATS_MAX: u32 = 255;

/// Why a footer cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BadFooter {
    /// It is not a footer.
    Damaged(Malformed),
    /// The file was written by a newer build.
    Newer(u32),
}

/// Where the parts of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Footer {
    pub(super) top_index: BlockAt,
    pub(super) filter: Option<BlockAt>,
    pub(super) prefix_filter: Option<BlockAt>,
    pub(super) properties: BlockAt,
    /// Where data blocks end.
    pub(super) data_end: u64,
    pub(super) id: u64,
}

impl Footer {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let absent = BlockAt { offset: 0, len: 0 };
        for at in [self.top_index, self.filter.unwrap_or(absent), self.prefix_filter.unwrap_or(absent), self.properties]
        {
            out.u64(at.offset);
            out.u32(at.len);
        }
        out.u64(self.data_end);
        out.u64(self.id);
        // The checksum also covers what follows it.
        let mut covered = crc32c::crc32c(&out);
        covered = crc32c::crc32c_append(covered, &FORMAT.to_le_bytes());
        covered = crc32c::crc32c_append(covered, MAGIC);
        out.u32(covered);
        out.u32(FORMAT);
        out.raw(MAGIC);
        out
    }

    /// Reads the last [`FOOTER_BYTES`] of a file of `size` bytes.
    pub(super) fn decode(bytes: &[u8], size: u64) -> Result<Self, BadFooter> {
        let damaged = BadFooter::Damaged;
        let (rest, magic) =
            bytes.split_last_chunk::<8>().ok_or(damaged("the file is shorter than the footer of a store file"))?;
        if magic != MAGIC {
            return Err(damaged("the file does not end in a footer: it was truncated, or is not a store file"));
        }
        let (rest, format) = rest.split_last_chunk::<4>().ok_or(damaged("the footer is truncated"))?;
        let number = u32::from_le_bytes(*format);
        // Formats are counted one by one: a number that no build will reach is what another write left there.
        if number > FORMATS_MAX {
            return Err(damaged("the footer has a format number that no build writes"));
        }
        if number > FORMAT {
            return Err(BadFooter::Newer(number));
        }
        let (fields, expected) = rest.split_last_chunk::<4>().ok_or(damaged("the footer is truncated"))?;
        let covered = crc32c::crc32c_append(crc32c::crc32c(fields), format);
        if crc32c::crc32c_append(covered, magic).to_le_bytes() != *expected {
            return Err(damaged("the footer fails its checksum"));
        }
        let footer = Self::read(&mut Reader::new(fields)).ok_or(damaged("the footer is truncated"))?;
        let tail = size.saturating_sub(FOOTER_BYTES as u64);
        let blocks = [Some(footer.top_index), footer.filter, footer.prefix_filter, Some(footer.properties)];
        let inside = |at: BlockAt| at.offset.checked_add(u64::from(at.len)).is_some_and(|end| end <= tail);
        if footer.data_end > tail || !blocks.into_iter().flatten().all(inside) {
            return Err(damaged("the footer refers to something beyond the end of the file"));
        }
        Ok(footer)
    }

    fn read(input: &mut Reader<'_>) -> Option<Self> {
        let mut block = || Some(BlockAt { offset: input.u64()?, len: input.u32()? });
        let (top_index, filter, prefix_filter, properties) = (block()?, block()?, block()?, block()?);
        let present = |at: BlockAt| (at.len > 0).then_some(at);
        Some(Self {
            top_index,
            filter: present(filter),
            prefix_filter: present(prefix_filter),
            properties,
            data_end: input.u64()?,
            id: input.u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn footer() -> Footer {
        let at = |offset| BlockAt { offset, len: 10 };
        Footer { top_index: at(50), filter: Some(at(60)), prefix_filter: None, properties: at(80), data_end: 40, id: 9 }
    }

    #[test]
    fn a_footer_round_trips_and_every_flipped_bit_is_detected() {
        let bytes = footer().encode();
        assert_eq!(bytes.len(), FOOTER_BYTES);
        let size = 90 + bytes.len() as u64;
        assert_eq!(Footer::decode(&bytes, size), Ok(footer()));
        assert!(Footer::decode(&bytes, size - 1).is_err());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Footer::decode(&flipped, size).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_distinguished_from_damage() {
        let mut bytes = footer().encode();
        let at = bytes.len() - 12;
        bytes[at..at + 4].copy_from_slice(&(FORMAT + 1).to_le_bytes());
        assert_eq!(Footer::decode(&bytes, 1000), Err(BadFooter::Newer(FORMAT + 1)));
        bytes[at..at + 4].copy_from_slice(b"ABLE");
        assert!(matches!(Footer::decode(&bytes, 1000), Err(BadFooter::Damaged(_))));
    }
}
