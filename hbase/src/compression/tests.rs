//! Blocks of Hadoop's codecs, damaged ones, and the memory that they take.

use proptest::prelude::*;

use super::*;
use crate::limits::BLOCK_BYTES_MAX;

const ALL: [Compression; 6] = [
    Compression::Gzip,
    Compression::Zlib,
    Compression::Zstd,
    Compression::Blocks(Chunk::Snappy),
    Compression::Blocks(Chunk::Lz4),
    Compression::Blocks(Chunk::Zstd),
];

fn decompress(compression: Compression, block: &[u8]) -> Result<Vec<u8>, Exception> {
    compression.decompress(block, 1 << 20, |_| Ok(()))
}

fn why(compression: Compression, block: &[u8]) -> String {
    decompress(compression, block).unwrap_err().text
}

/// Row `r1`, column `cf:a`, time 1, value `v`.
const CELL: &[u8] = b"\0\0\0\x1a\0\0\0\x11\0\0\0\x01\0\x02r1\x02cfa\0\0\0\0\0\0\0\x01\x04v";

#[test]
fn blocks_hold_an_uncompressed_length_and_chunks() {
    // Snappy: the length 30 as a varint, then one literal of 30 bytes.
    let snappy = [&[0, 0, 0, 30, 0, 0, 0, 32, 30, 29 << 2][..], CELL].concat();
    assert_eq!(decompress(Compression::Blocks(Chunk::Snappy), &snappy).unwrap(), CELL);
    // LZ4: a token for 15 + 15 literals.
    let lz4 = [&[0, 0, 0, 30, 0, 0, 0, 32, 0xf0, 15][..], CELL].concat();
    assert_eq!(decompress(Compression::Blocks(Chunk::Lz4), &lz4).unwrap(), CELL);
    // Two chunks of one block, a second block, and the empty block with which Hadoop may end.
    let parts = [&[0, 0, 0, 3, 0, 0, 0, 3, 1, 0, b'a', 0, 0, 0, 4, 2, 4, b'b', b'c'][..]];
    let more = [&parts.concat()[..], &[0, 0, 0, 1, 0, 0, 0, 3, 1, 0, b'd', 0, 0, 0, 0]].concat();
    assert_eq!(decompress(Compression::Blocks(Chunk::Snappy), &more).unwrap(), b"abcd");
}

#[test]
fn what_hadoop_compresses_is_read() {
    // Written by the codecs of Hadoop 3.4.2.
    for (class, hex) in [
        ("SnappyCodec", "0000001e000000201e740000001a0000001100000001000272310263666100000000000000010476"),
        ("Lz4Codec", "0000001e00000020f00f0000001a0000001100000001000272310263666100000000000000010476"),
        ("DefaultCodec", "789c636060906260601004624606a62243a6e4b444060860642903001d2e0279"),
        ("GzipCodec", "1f8b0800000000000000636060906260601004624606a62243a6e4b44406086064290300bb6c052d1e000000"),
    ] {
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        let block: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let compression = Compression::of_class(&format!("org.apache.hadoop.io.compress.{class}")).unwrap();
        assert_eq!(decompress(compression, &block).unwrap(), CELL, "{class}");
        if let Compression::Blocks(_) = compression {
            assert_eq!(compression.compress(CELL), block, "{class}");
        }
    }
}

#[test]
fn streams_have_the_headers_of_their_formats() {
    assert_eq!(Compression::Gzip.compress(CELL)[..3], [0x1f, 0x8b, 8]);
    assert_eq!(Compression::Zlib.compress(CELL)[0], 0x78);
    assert_eq!(Compression::Zstd.compress(CELL)[..4], [0x28, 0xb5, 0x2f, 0xfd]);
    let stored = [&[0x78, 0x01, 1, 30, 0, 225, 255][..], CELL, &adler32(CELL).to_be_bytes()].concat();
    assert_eq!(decompress(Compression::Zlib, &stored).unwrap(), CELL);
}

fn adler32(bytes: &[u8]) -> u32 {
    let (a, b) = bytes.iter().fold((1u32, 0u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    b << 16 | a
}

#[test]
fn the_codecs_of_hadoop_and_of_hbase_are_known_and_others_are_not() {
    let of = |name: &str| Compression::of_class(&format!("org.apache.hadoop.{name}"));
    assert_eq!(of("io.compress.GzipCodec"), Some(Compression::Gzip));
    assert_eq!(of("io.compress.DefaultCodec"), Some(Compression::Zlib));
    assert_eq!(of("io.compress.ZStandardCodec"), Some(Compression::Zstd));
    assert_eq!(of("io.compress.SnappyCodec"), Some(Compression::Blocks(Chunk::Snappy)));
    assert_eq!(of("hbase.io.compress.lz4.Lz4Codec"), Some(Compression::Blocks(Chunk::Lz4)));
    assert_eq!(of("hbase.io.compress.zstd.ZstdCodec"), Some(Compression::Blocks(Chunk::Zstd)));
    for unknown in ["io.compress.BZip2Codec", "hbase.io.compress.GzipCodec", "GzipCodec"] {
        assert_eq!(of(unknown), None);
    }
    assert_eq!(Compression::of_class("GzipCodec"), None);
}

#[test]
fn a_block_that_is_cut_off_or_followed_by_bytes_is_refused() {
    for compression in ALL {
        let whole = compression.compress(CELL);
        for end in 1..whole.len() {
            assert!(why(compression, &whole[..end]).contains("cannot be decompressed"), "{compression:?} {end}");
        }
        assert!(decompress(compression, &[&whole[..], b"x"].concat()).is_err(), "{compression:?}");
    }
    let ended = [&[0, 0, 0, 0][..], b"x"].concat();
    assert!(why(Compression::Blocks(Chunk::Lz4), &ended).contains("1 bytes follow its end"));
}

#[test]
fn a_length_from_outside_sets_no_allocation() {
    let huge = i32::MAX.to_be_bytes();
    for kind in [Chunk::Snappy, Chunk::Lz4, Chunk::Zstd] {
        let mut asked = 0;
        let mut refused = |block: &[u8]| {
            let refused = Compression::Blocks(kind).decompress(block, BLOCK_BYTES_MAX, |more| {
                asked += more;
                Ok(())
            });
            refused.unwrap_err()
        };
        refused(&huge);
        refused(&[&huge[..], &huge].concat());
        // A chunk of five bytes that announces 2 GiB, and one that is no chunk.
        refused(&[&huge[..], &[0, 0, 0, 5, 0xff, 0xff, 0xff, 0xff, 0x07]].concat());
        refused(&[&huge[..], &[0, 0, 0, 4], b"\xff\xff\xff\xff"].concat());
        assert!(asked < 4 << 10, "{kind:?} asked for {asked} bytes");
    }
    // A window of 2 GiB for a frame of one byte.
    assert!(why(Compression::Zstd, b"\x28\xb5\x2f\xfd\x00\xa8\x09\x00\x00x").contains("cannot be decompressed"));
}

#[test]
fn a_block_over_its_limit_is_refused_before_it_takes_the_memory() {
    for compression in ALL {
        let block = compression.compress(&vec![7; 1 << 20]);
        assert_eq!(compression.decompress(&block, 1 << 20, |_| Ok(())).unwrap().len(), 1 << 20);
        let mut asked = 0;
        let refused = compression.decompress(&block, (1 << 20) - 1, |more| {
            asked += more;
            Ok(())
        });
        assert!(refused.unwrap_err().class.ends_with("RequestTooBigException"), "{compression:?}");
        assert!(asked < 1 << 20, "{compression:?}");
    }
}

#[test]
fn no_room_refuses_the_call() {
    for compression in ALL {
        let block = compression.compress(&vec![7; 1 << 20]);
        let mut left = 3 * STEP_BYTES;
        let refused = compression.decompress(&block, 1 << 20, |more| {
            left = left.checked_sub(more).ok_or_else(|| Exception::bad_request("no room"))?;
            Ok(())
        });
        assert_eq!(refused.unwrap_err().text, "no room", "{compression:?}");
    }
}

fn compressions() -> impl Strategy<Value = Compression> {
    prop::sample::select(&ALL[..])
}

/// Bytes that compress well, and bytes that do not.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let repeated = (prop::collection::vec(any::<u8>(), 1..40), 1usize..6_000).prop_map(|(part, n)| part.repeat(n));
    prop_oneof![repeated, prop::collection::vec(any::<u8>(), 1..300), (1usize..300_000, any::<u64>()).prop_map(noise)]
}

fn noise((length, seed): (usize, u64)) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_compressed_is_decompressed_to_itself(compression in compressions(), block in blocks()) {
        prop_assert_eq!(decompress(compression, &compression.compress(&block)).unwrap(), block);
    }

    #[test]
    fn damaged_blocks_are_read_or_refused(
        compression in compressions(), block in blocks(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut compressed = compression.compress(&block);
        for (at, byte) in damage {
            let at = at.index(compressed.len());
            compressed[at] = byte;
        }
        let _ = decompress(compression, &compressed);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(
        compression in compressions(), bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let _ = decompress(compression, &bytes);
    }
}
