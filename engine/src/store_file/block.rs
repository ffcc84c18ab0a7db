//! Blocks as they lie in a file: payload, compression, checksum.
//!
//! In addition to the bytes, the checksum covers the file's id and the block's offset. A block that a disk or a bug put
//! in another place, or in another file, fails like one with a flipped bit. A block does not hold its length: that
//! comes from the reference to it, which is itself under a checksum.
//!
//! Invariant: nothing is decompressed, and no memory is allocated for it, before its checksum is verified and its
//! length is within the limit.

use std::cell::RefCell;

use terrane_types::limits::{BLOCK_SIZE_MAX, QUALIFIER_BYTES_MAX, ROW_BYTES_MAX, TAGS_BYTES_MAX, VALUE_BYTES_MAX};
use terrane_types::schema::Compression;

use super::varint;

/// The most bytes that one cell takes in a block, generously.
const CELL_BYTES_MAX: usize = ROW_BYTES_MAX + QUALIFIER_BYTES_MAX + TAGS_BYTES_MAX + VALUE_BYTES_MAX + 1024;

/// The most bytes of payload in a compressed block: a data block ends at twice the block size at the latest, after the
/// cell that took it there, and needs less space for everything else than it saves.
pub(super) const PAYLOAD_BYTES_MAX: usize = 4 * BLOCK_SIZE_MAX as usize + CELL_BYTES_MAX;

/// Zeros after the payload in memory, so that numbers of fixed width can be read as eight bytes.
pub(super) const PADDING_BYTES: usize = 8;

/// Zstandard's level: about three times slower than LZ4 to write, hardly slower to read than at level 1.
const ZSTD_LEVEL: i32 = 3;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockAt {
    pub(crate) offset: u64,
    /// With the trailer.
    pub(crate) len: u32,
}

/// Compresses blocks; reuses its buffers from one to the next.
pub(super) struct Sealer {
    zstd: Option<zstd::bulk::Compressor<'static>>,
    scratch: Vec<u8>,
}

impl Sealer {
    pub(super) fn new(compression: Compression) -> Self {
        let zstd = match compression {
            Compression::Zstd => zstd::bulk::Compressor::new(ZSTD_LEVEL).ok(),
            Compression::None | Compression::Lz4 => None,
        };
        Self { zstd, scratch: Vec::new() }
    }

    /// Appends `payload` as the block of file `file` at `offset`. It stays uncompressed where compression saves less
    /// than an eighth: it is cheaper to read then.
    pub(super) fn seal(
        &mut self,
        payload: &[u8],
        compression: Compression,
        file: u64,
        offset: u64,
        out: &mut Vec<u8>,
    ) -> BlockAt {
        let from = out.len();
        let used = self.compress(payload, compression, out).unwrap_or(Compression::None);
        let gained = out.len() - from + payload.len() / 8 <= payload.len();
        let used = if used == Compression::None || !gained {
            out.truncate(from);
            out.extend_from_slice(payload);
            Compression::None
        } else {
            used
        };
        out.push(used as u8);
        let checksum = checksum(&out[from..], file, offset);
        out.extend_from_slice(&checksum.to_le_bytes());
        let len = u32::try_from(out.len() - from).expect("a block or a filter is far below 4 GiB");
        BlockAt { offset, len }
    }

    /// The buffer never shrinks: growing it means filling it with zeros.
    fn grow_buffer(&mut self, len: usize) {
        if self.scratch.len() < len {
            self.scratch.resize(len, 0);
        }
    }

    /// Appends the compressed payload, preceded by its length; `None` when it cannot be compressed, and what was
    /// appended is of no use.
    fn compress(&mut self, payload: &[u8], compression: Compression, out: &mut Vec<u8>) -> Option<Compression> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return None;
        }
        match compression {
            Compression::None => return None,
            Compression::Lz4 => {
                self.grow_buffer(lz4_flex::block::get_maximum_output_size(payload.len()));
                let len = lz4_flex::block::compress_into(payload, &mut self.scratch).ok()?;
                varint::put(out, payload.len() as u64);
                out.extend_from_slice(&self.scratch[..len]);
            }
            Compression::Zstd => {
                self.grow_buffer(zstd::zstd_safe::compress_bound(payload.len()));
                let len = self.zstd.as_mut()?.compress_to_buffer(payload, self.scratch.as_mut_slice()).ok()?;
                varint::put(out, payload.len() as u64);
                out.extend_from_slice(&self.scratch[..len]);
            }
        }
        Some(compression)
    }
}

/// Verifies the bytes of a block and returns its payload, followed by [`PADDING_BYTES`] zeros; the error says what is
/// wrong.
pub(super) fn unseal(sealed: &[u8], file: u64, offset: u64) -> Result<Vec<u8>, &'static str> {
    let (payload, compression) = verify(sealed, file, offset)?;
    if compression == Compression::None {
        let mut out = Vec::with_capacity(payload.len() + PADDING_BYTES);
        out.extend_from_slice(payload);
        out.extend_from_slice(&[0; PADDING_BYTES]);
        return Ok(out);
    }
    let mut at = 0;
    let len = varint::get(payload, &mut at).and_then(|len| usize::try_from(len).ok());
    let len = len.filter(|len| *len <= PAYLOAD_BYTES_MAX).ok_or("a block states a length that no block can have")?;
    let mut out = vec![0; len + PADDING_BYTES];
    let written = match compression {
        Compression::Lz4 => lz4_flex::block::decompress_into(&payload[at..], &mut out[..len]).ok(),
        Compression::Zstd => unzstd(&payload[at..], &mut out[..len]),
        Compression::None => None,
    };
    if written != Some(len) {
        return Err("a block does not decompress to its stated length");
    }
    Ok(out)
}

/// Verifies the bytes of a block and returns its payload as it lies there.
pub(super) fn verify(sealed: &[u8], file: u64, offset: u64) -> Result<(&[u8], Compression), &'static str> {
    let split = sealed.len().checked_sub(4).ok_or("a block is shorter than its trailer")?;
    let (covered, expected) = sealed.split_at(split);
    let is_sound = checksum(covered, file, offset).to_le_bytes() == expected;
    if !is_sound && !terrane_env::planted!("a damaged block is served") {
        return Err("a block fails its checksum");
    }
    let (compression, payload) = covered.split_last().ok_or("a block is shorter than its trailer")?;
    let compression = Compression::from_u8(*compression).ok_or("a block has an unknown compression")?;
    Ok((payload, compression))
}

fn checksum(bytes: &[u8], file: u64, offset: u64) -> u32 {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&file.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(bytes), &place)
}

fn unzstd(compressed: &[u8], out: &mut [u8]) -> Option<usize> {
    thread_local! {
        /// Creating one costs more than decompressing a block.
        static DECOMPRESSOR: RefCell<Option<zstd::bulk::Decompressor<'static>>> = const { RefCell::new(None) };
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        if kept.is_none() {
            *kept = zstd::bulk::Decompressor::new().ok();
        }
        kept.as_mut()?.decompress_to_buffer(compressed, out).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_round_trip_with_each_compression() {
        let runs: Vec<u8> = (0..5000u32).map(|at| (at / 100) as u8).collect();
        for payload in [&b""[..], b"x", &runs] {
            for compression in Compression::ALL {
                let mut out = b"before".to_vec();
                let at = Sealer::new(compression).seal(payload, compression, 7, 6, &mut out);
                let back = unseal(&out[6..], 7, 6).unwrap();
                assert_eq!(&back[..back.len() - PADDING_BYTES], payload);
                assert_eq!(at, BlockAt { offset: 6, len: (out.len() - 6) as u32 });
                assert!(payload.len() < 100 || compression == Compression::None || out.len() < 1000);
            }
        }
    }

    #[test]
    fn a_block_in_another_place_or_file_or_with_a_flipped_bit_is_refused() {
        let mut sealed = Vec::new();
        Sealer::new(Compression::Lz4).seal(&[1; 40], Compression::Lz4, 7, 100, &mut sealed);
        assert!(unseal(&sealed, 7, 100).is_ok());
        assert!(unseal(&sealed, 8, 100).is_err());
        assert!(unseal(&sealed, 7, 101).is_err());
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(unseal(&flipped, 7, 100).is_err(), "bit {bit}");
        }
        for len in 0..sealed.len() {
            assert!(unseal(&sealed[..len], 7, 100).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_memory_is_allocated() {
        let mut block = Vec::new();
        varint::put(&mut block, u64::MAX);
        block.push(Compression::Lz4 as u8);
        let sum = checksum(&block, 1, 0);
        block.extend_from_slice(&sum.to_le_bytes());
        assert!(unseal(&block, 1, 0).is_err());
    }
}
