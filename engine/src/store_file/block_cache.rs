//! The blocks of store files that are kept in memory: decompressed, verified, shared.
//!
//! Blocks are keyed by file id and offset; file ids are never given out twice, so nothing has to be evicted when a file
//! goes. There are two parts. Blocks of `in_memory` families have their own share, from which no scan over other
//! families can evict them; all others share the rest. Each part is an S3-FIFO cache (`quick_cache`), which a single
//! scan does not sweep: a block must be requested twice to stay.
//!
//! Invariant: the weight of the blocks, including the overhead of keeping them, stays within the capacity.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::data_block::DataBlock;
use super::index::IndexBlock;

/// The overhead of keeping a block: its key and weight in the cache, the queues, the reference counts.
const ENTRY_BYTES: u64 = 128;

/// The usual size of a block, from which the cache's tables are dimensioned.
const BLOCK_BYTES_USUAL: u64 = 16 << 10;

/// The capacity divided by this is reserved for `in_memory` families.
const RESERVED_PART: u64 = 4;

/// The most locks that the blocks of a part are spread over.
const SHARDS_MAX: usize = 16;

/// The least capacity of a shard in bytes: a shard must hold many blocks.
const SHARD_BYTES_MIN: u64 = 4 << 20;

/// What reads of a family met, for metrics. Counters only grow.
#[derive(Debug, Default)]
pub(crate) struct FamilyReads {
    /// Blocks that were in the cache.
    pub(crate) hits: AtomicU64,
    /// Blocks that were read from a file.
    pub(crate) misses: AtomicU64,
    /// Bytes that were read from files.
    pub(crate) read_bytes: AtomicU64,
    /// Files that a bloom filter let a get skip.
    pub(crate) filter_negative: AtomicU64,
    /// Files that a bloom filter did not let a get skip.
    pub(crate) filter_positive: AtomicU64,
    /// How many of these did not hold the row.
    pub(crate) filter_false: AtomicU64,
}

/// What reads of a family met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyReadCounts {
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were read from a file.
    pub misses: u64,
    /// Bytes that were read from files.
    pub read_bytes: u64,
    /// Files that a bloom filter let a get skip.
    pub filtered: u64,
    /// Files that a bloom filter did not let a get skip.
    pub passed: u64,
    /// How many of those did not hold the row.
    pub false_positives: u64,
}

impl FamilyReads {
    /// The counts as they are now.
    pub(crate) fn counts(&self) -> FamilyReadCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FamilyReadCounts {
            hits: count(&self.hits),
            misses: count(&self.misses),
            read_bytes: count(&self.read_bytes),
            filtered: count(&self.filter_negative),
            passed: count(&self.filter_positive),
            false_positives: count(&self.filter_false),
        }
    }

    #[inline]
    pub(crate) fn count(counter: &AtomicU64, by: u64) {
        // Nothing is ordered by these counters.
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

/// A block, and the file and offset it was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// A block in the form that reads use.
#[derive(Clone, Debug)]
pub(crate) enum CachedBlock {
    Data(Arc<DataBlock>),
    Index(Arc<IndexBlock>),
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<BlockKey, CachedBlock> for ByBytes {
    fn weight(&self, _key: &BlockKey, block: &CachedBlock) -> u64 {
        let bytes = match block {
            CachedBlock::Data(block) => block.memory_bytes(),
            CachedBlock::Index(block) => block.memory_bytes(),
        };
        bytes as u64 + ENTRY_BYTES
    }
}

/// A hasher without a random seed: which blocks stay is the same in every run.
#[derive(Clone, Copy, Debug, Default)]
struct Mix(u64);

impl Mix {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
}

impl BuildHasher for Mix {
    type Hasher = Self;

    fn build_hasher(&self) -> Self {
        Self(0)
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        let mixed = (self.0 ^ self.0 >> 32).wrapping_mul(Self::FACTOR);
        mixed ^ mixed >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(23) ^ value).wrapping_mul(Self::FACTOR);
    }
}

type Part = Cache<BlockKey, CachedBlock, ByBytes, Mix>;

/// The cache of one server.
#[derive(Debug)]
pub(crate) struct BlockCache {
    shared: Part,
    reserved: Part,
}

impl BlockCache {
    /// A cache of this many bytes, a quarter of them for `in_memory` families.
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        let reserved = capacity_bytes / RESERVED_PART;
        Self { shared: part_of(capacity_bytes - reserved), reserved: part_of(reserved) }
    }

    fn part(&self, in_memory: bool) -> &Part {
        if in_memory { &self.reserved } else { &self.shared }
    }

    #[inline]
    pub(crate) fn get(&self, key: &BlockKey, in_memory: bool) -> Option<CachedBlock> {
        self.part(in_memory).get(key)
    }

    pub(crate) fn insert(&self, key: BlockKey, block: CachedBlock, in_memory: bool) {
        self.part(in_memory).insert(key, block);
    }

    /// Bytes held now.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.weight() + self.reserved.weight()
    }

    /// Bytes that may be held.
    #[cfg(test)]
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.shared.capacity() + self.reserved.capacity()
    }
}

fn part_of(bytes: u64) -> Part {
    let shards = (bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX as u64) as usize;
    let items = (bytes / BLOCK_BYTES_USUAL).max(16) as usize;
    let mut options = OptionsBuilder::new();
    let options = options.estimated_items_capacity(items).weight_capacity(bytes).shards(shards).build();
    let options = options.expect("capacities and shards are given");
    Cache::with_options(options, ByBytes, Mix::default(), DefaultLifecycle::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: u64) -> BlockKey {
        BlockKey { file: at % 7, offset: at * 16_384 }
    }

    #[test]
    fn blocks_stay_within_the_capacity_and_those_requested_again_stay() {
        let cache = BlockCache::new(4 << 20);
        for at in 0..50 {
            cache.insert(key(at), test_block(16_000), false);
        }
        for _ in 0..3 {
            assert!((0..50).all(|at| cache.get(&key(at), false).is_some()));
        }
        for at in 50..2_000 {
            cache.insert(key(at), test_block(16_000), false);
            assert!(cache.bytes() <= cache.capacity_bytes());
        }
        let kept = (0..50).filter(|at| cache.get(&key(*at), false).is_some()).count();
        assert!(kept >= 45, "a scan swept the cache: {kept} of 50 stayed");
        assert!(cache.bytes() > 2 << 20);
    }

    #[test]
    fn families_in_memory_are_not_pushed_out_by_others() {
        let cache = BlockCache::new(4 << 20);
        for at in 0..40 {
            cache.insert(key(at), test_block(16_000), true);
        }
        for at in 0..2_000 {
            cache.insert(key(at), test_block(16_000), false);
        }
        assert!((0..40).all(|at| cache.get(&key(at), true).is_some()));
    }

    /// A block of about this many bytes.
    fn test_block(bytes: usize) -> CachedBlock {
        let mut cells = crate::cells::Cells::default();
        let value = vec![7; bytes];
        cells.push(crate::cells::Cell::put(b"r", b"q", 1, &value));
        let mut payload = Vec::new();
        super::super::data_block::encode(&cells, &mut payload);
        payload.extend_from_slice(&[0; super::super::block::PADDING_BYTES]);
        CachedBlock::Data(Arc::new(DataBlock::new(payload).expect("it was just encoded")))
    }
}
