//! Compression of cell blocks, as Hadoop's codecs do it.
//!
//! A connection's header names a Java class of a codec. Cell blocks then travel compressed in both directions, and the length
//! in a header is that of the compressed block. Hadoop has two layouts. Gzip, zlib and Zstandard are plain streams. The
//! codecs that compress chunks, among them all of HBase's own, cut the bytes into blocks:
//!
//! ```text
//! uncompressed length u32 | one or more of: compressed length u32, chunk | the next block ...
//! ```
//!
//! Lengths are big-endian, a chunk is decompressed on its own, and a block of no bytes ends the stream.
//!
//! Invariants:
//! - Memory grows with what has been decompressed, never with a length that the client sent, and each step of it is asked
//!   for first. A chunk is decompressed into at most as many bytes as its own length can stand for.
//! - Chunks that are written fit the smallest buffer of a client (256 KiB unless configured), compressed and not.

use std::io::{Read, Write as _};

use flate2::{Decompress, FlushDecompress, Status};
use lz4_flex::block as lz4;

use crate::exception::{Exception, REQUEST_TOO_BIG};

/// Bytes that are decompressed before they are counted, and for which room is asked at a time.
pub const STEP_BYTES: usize = 64 << 10;

/// Uncompressed bytes of a chunk that is written.
const CHUNK_BYTES: usize = 64 << 10;

/// Largest power of two of a Zstandard window, which the decoder allocates. Levels up to 19 need no more.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Level of answers: the fastest of Zstandard, because an answer is compressed for one journey.
const ZSTD_LEVEL: i32 = 1;

/// Most bytes that one byte of a chunk stands for: a copy of 64 bytes takes 3 in Snappy, and a length byte of LZ4 adds 255.
const SNAPPY_RATIO_MAX: usize = 22;
const LZ4_RATIO_MAX: usize = 255;

/// How the cell blocks of a connection are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// A stream of gzip.
    Gzip,
    /// A stream of zlib.
    Zlib,
    /// A stream of Zstandard.
    Zstd,
    /// Blocks of chunks.
    Blocks(Chunk),
}

/// How a chunk is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Snappy without frames.
    Snappy,
    /// A block of LZ4 without its length.
    Lz4,
    /// A frame of Zstandard.
    Zstd,
}

impl Compression {
    /// The compression of the codec with this Java class, one of Hadoop's or HBase's.
    #[must_use]
    pub fn of_class(class: &str) -> Option<Self> {
        if let Some(name) = class.strip_prefix("org.apache.hadoop.io.compress.") {
            return match name {
                "GzipCodec" => Some(Self::Gzip),
                "DefaultCodec" | "DeflateCodec" => Some(Self::Zlib),
                "ZStandardCodec" => Some(Self::Zstd),
                "SnappyCodec" => Some(Self::Blocks(Chunk::Snappy)),
                "Lz4Codec" => Some(Self::Blocks(Chunk::Lz4)),
                _ => None,
            };
        }
        match class.strip_prefix("org.apache.hadoop.hbase.io.compress.")? {
            "ReusableStreamGzipCodec" => Some(Self::Gzip),
            "xerial.SnappyCodec" | "aircompressor.SnappyCodec" => Some(Self::Blocks(Chunk::Snappy)),
            "lz4.Lz4Codec" | "aircompressor.Lz4Codec" => Some(Self::Blocks(Chunk::Lz4)),
            "zstd.ZstdCodec" | "aircompressor.ZstdCodec" => Some(Self::Blocks(Chunk::Zstd)),
            _ => None,
        }
    }

    /// A compressed cell block.
    #[must_use]
    pub fn compress(self, block: &[u8]) -> Vec<u8> {
        const INTO_MEMORY: &str = "writing into memory does not fail";
        match self {
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(block).expect(INTO_MEMORY);
                encoder.finish().expect(INTO_MEMORY)
            }
            Self::Zlib => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(block).expect(INTO_MEMORY);
                encoder.finish().expect(INTO_MEMORY)
            }
            Self::Zstd => zstd_frame(block),
            Self::Blocks(kind) => {
                let mut out = Vec::with_capacity(block.len() / 2);
                for chunk in block.chunks(CHUNK_BYTES) {
                    let compressed = kind.compress(chunk);
                    for length in [chunk.len(), compressed.len()] {
                        out.extend_from_slice(&u32::try_from(length).expect("a chunk is small").to_be_bytes());
                    }
                    out.extend_from_slice(&compressed);
                }
                out
            }
        }
    }

    /// A decompressed cell block of at most so many bytes. `room` is asked before memory is taken for so many more.
    ///
    /// # Errors
    /// The exception that refuses the call: the block is malformed or too large, or there was no room for it.
    pub fn decompress(
        self,
        block: &[u8],
        bytes_max: usize,
        room: impl FnMut(usize) -> Result<(), Exception>,
    ) -> Result<Vec<u8>, Exception> {
        let mut output = Output { bytes: Vec::new(), bytes_max, room };
        match self {
            Self::Gzip => output.read_all(flate2::bufread::MultiGzDecoder::new(block))?,
            Self::Zlib => output.inflate(block)?,
            Self::Zstd => output.read_zstd(block)?,
            Self::Blocks(kind) => output.read_blocks(kind, block)?,
        }
        Ok(output.bytes)
    }
}

impl Chunk {
    fn compress(self, chunk: &[u8]) -> Vec<u8> {
        match self {
            Self::Snappy => snap::raw::Encoder::new().compress_vec(chunk).expect("a chunk is far below 4 GiB"),
            Self::Lz4 => lz4::compress(chunk),
            Self::Zstd => zstd_frame(chunk),
        }
    }
}

fn zstd_frame(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, ZSTD_LEVEL).expect("the output has the bound of the input")
}

/// What has been decompressed.
struct Output<R> {
    bytes: Vec<u8>,
    bytes_max: usize,
    room: R,
}

impl<R: FnMut(usize) -> Result<(), Exception>> Output<R> {
    /// Asks for memory for more bytes.
    fn grow(&mut self, more: usize) -> Result<(), Exception> {
        if more > self.bytes_max - self.bytes.len() {
            let text =
                format!("the cell block has more than {} bytes without compression; send fewer rows", self.bytes_max);
            return Err(Exception::new(REQUEST_TOO_BIG, text));
        }
        (self.room)(more)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), Exception> {
        self.grow(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn read_all(&mut self, mut stream: impl Read) -> Result<(), Exception> {
        let mut step = vec![0; STEP_BYTES];
        loop {
            match stream.read(&mut step) {
                Ok(0) => return Ok(()),
                Ok(read) => self.append(&step[..read])?,
                Err(error) => return Err(malformed(&error.to_string())),
            }
        }
    }

    fn read_zstd(&mut self, frames: &[u8]) -> Result<(), Exception> {
        let mut decoder =
            zstd::stream::read::Decoder::with_buffer(frames).map_err(|error| malformed(&error.to_string()))?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(|error| malformed(&error.to_string()))?;
        self.read_all(decoder)
    }

    /// A stream of zlib. The reader of `flate2` takes one that is cut off for one that has ended.
    fn inflate(&mut self, mut stream: &[u8]) -> Result<(), Exception> {
        let mut inflater = Decompress::new(true);
        let mut step = vec![0; STEP_BYTES];
        loop {
            let (read, written) = (inflater.total_in(), inflater.total_out());
            let status = inflater
                .decompress(stream, &mut step, FlushDecompress::None)
                .map_err(|error| malformed(&error.to_string()))?;
            let progress = |from: u64, to: u64| usize::try_from(to - from).expect("it is within a slice");
            let (read, written) = (progress(read, inflater.total_in()), progress(written, inflater.total_out()));
            stream = &stream[read..];
            self.append(&step[..written])?;
            match status {
                Status::StreamEnd if stream.is_empty() => return Ok(()),
                Status::StreamEnd => return Err(malformed(&format!("{} bytes follow its end", stream.len()))),
                _ if read == 0 && written == 0 => return Err(malformed("it is cut off")),
                _ => {}
            }
        }
    }

    fn read_blocks(&mut self, kind: Chunk, mut stream: &[u8]) -> Result<(), Exception> {
        while !stream.is_empty() {
            let (length, rest) = length(stream)?;
            stream = rest;
            if length == 0 {
                if stream.is_empty() {
                    break;
                }
                return Err(malformed(&format!("{} bytes follow its end", stream.len())));
            }
            let mut left = length;
            while left > 0 {
                let (compressed, rest) = self::length(stream)?;
                let chunk = rest.split_at_checked(compressed);
                let (chunk, rest) = chunk.ok_or_else(|| malformed("a chunk is longer than the rest"))?;
                stream = rest;
                let written = self.read_chunk(kind, chunk, left)?;
                if written == 0 && chunk.is_empty() {
                    return Err(malformed("a chunk is empty"));
                }
                left = left.checked_sub(written).ok_or_else(|| malformed("a chunk is longer than its block"))?;
            }
        }
        Ok(())
    }

    /// Decompresses a chunk of a block that has so many bytes left; how many it has.
    fn read_chunk(&mut self, kind: Chunk, chunk: &[u8], left: usize) -> Result<usize, Exception> {
        let start = self.bytes.len();
        match kind {
            Chunk::Snappy => {
                let length = snap::raw::decompress_len(chunk).map_err(|error| malformed(&error.to_string()))?;
                if length > left || length / SNAPPY_RATIO_MAX > chunk.len() {
                    return Err(malformed(&format!("a chunk of {} bytes announces {length}", chunk.len())));
                }
                self.grow(length)?;
                self.bytes.resize(start + length, 0);
                let written = snap::raw::Decoder::new().decompress(chunk, &mut self.bytes[start..]);
                written.map_err(|error| malformed(&error.to_string()))
            }
            Chunk::Lz4 => {
                let most = left.min(chunk.len().saturating_mul(LZ4_RATIO_MAX));
                self.grow(most)?;
                self.bytes.resize(start + most, 0);
                let written = lz4::decompress_into(chunk, &mut self.bytes[start..]);
                let written = written.map_err(|error| malformed(&error.to_string()))?;
                self.bytes.truncate(start + written);
                Ok(written)
            }
            Chunk::Zstd => {
                self.read_zstd(chunk)?;
                Ok(self.bytes.len() - start)
            }
        }
    }
}

fn length(stream: &[u8]) -> Result<(usize, &[u8]), Exception> {
    let (length, rest) = stream.split_first_chunk::<4>().ok_or_else(|| malformed("it ends inside a length"))?;
    let length = i32::from_be_bytes(*length);
    Ok((usize::try_from(length).map_err(|_| malformed("a length is negative"))?, rest))
}

fn malformed(what: &str) -> Exception {
    Exception::bad_request(&format!("the cell block cannot be decompressed: {what}"))
}

#[cfg(test)]
mod tests;
