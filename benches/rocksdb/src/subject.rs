//! RocksDB with the settings usual for such rows.
//!
//! - Four write buffers of 64 MiB, two background jobs, levelled compaction with dynamic level sizes.
//! - LZ4 at every level, blocks of 4 KiB (its default), full bloom filters of 10 bits a key.
//! - Index and filter blocks outside the block cache, always in memory; an LRU block cache as large as the others get.
//! - No write-ahead log: ours is not part of the engine, so neither store pays for one here.
//!
//! Gets are pinned and scans use the raw iterator, so that no row costs an allocation on the Rust side.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rocksdb::{
    BlockBasedOptions, BottommostLevelCompaction, Cache, CompactOptions, DB, DBCompressionType, Options,
    WaitForCompactOptions, WriteBatch, WriteOptions, properties,
};
use terrane_bench_engine::{Contender, Settings, Subject, SubjectError};

pub const CONTENDER: Contender = Contender {
    name: "rocksdb",
    about: "11.8: 4 write buffers, LZ4, 4 KiB blocks, bloom 10 bits, LRU block cache, levelled with dynamic sizes, 2 \
            background jobs, no WAL",
    open: |dir, settings| Ok(Box::new(RocksDb::open(dir, settings)?)),
};

const WRITE_BUFFERS: i32 = 4;
const BACKGROUND_JOBS: i32 = 2;
const BLOOM_BITS: f64 = 10.0;
const BLOCK_BYTES: usize = 4 << 10;

struct RocksDb {
    db: Arc<DB>,
    write: WriteOptions,
    /// A manual compaction of everything. RocksDB's own count of running compactions omits the pauses in it.
    manual: Option<Manual>,
}

struct Manual {
    running: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl RocksDb {
    fn open(dir: &Path, settings: &Settings) -> Result<Self, SubjectError> {
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(SubjectError::new);
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(bytes(settings.cache_bytes)?));
        blocks.set_block_size(BLOCK_BYTES);
        blocks.set_bloom_filter(BLOOM_BITS, false);
        blocks.set_cache_index_and_filter_blocks(false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(bytes(settings.write_buffer_bytes)?);
        options.set_max_write_buffer_number(WRITE_BUFFERS);
        options.set_max_background_jobs(BACKGROUND_JOBS);
        options.set_level_compaction_dynamic_level_bytes(true);
        let db = DB::open(&options, dir.join("rocksdb")).map_err(SubjectError::new)?;
        let mut write = WriteOptions::default();
        write.disable_wal(true);
        Ok(Self { db: Arc::new(db), write, manual: None })
    }

    /// Waits for the manual compaction.
    fn join_manual(&mut self) -> Result<(), SubjectError> {
        let Some(manual) = self.manual.take() else { return Ok(()) };
        manual.thread.join().map_err(|_| SubjectError::new("the thread of a compaction panicked"))
    }
}

/// Compacts all keys; `bottommost` controls the last level, which may be compacted already.
fn compact_all(db: &DB, bottommost: BottommostLevelCompaction) {
    let mut options = CompactOptions::default();
    options.set_bottommost_level_compaction(bottommost);
    // Not exclusive: flushes and other compactions continue, so that puts do not wait for this one.
    options.set_exclusive_manual_compaction(false);
    db.compact_range_opt(None::<&[u8]>, None::<&[u8]>, &options);
}

impl Subject for RocksDb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError> {
        self.db.put_opt(key, value, &self.write).map_err(SubjectError::new)
    }

    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError> {
        let mut batch = WriteBatch::default();
        for (key, value) in rows {
            batch.put(key, value);
        }
        self.db.write_opt(batch, &self.write).map_err(SubjectError::new)
    }

    fn get(&self, key: &[u8]) -> Result<bool, SubjectError> {
        let value = self.db.get_pinned(key).map_err(SubjectError::new)?;
        Ok(value.is_some_and(|value| !std::hint::black_box(&value).is_empty()))
    }

    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError> {
        let mut rows = self.db.raw_iterator();
        if reverse {
            rows.seek_for_prev(start)
        } else {
            rows.seek(start)
        }
        let mut seen = 0;
        while seen < limit {
            let Some(row) = rows.item() else { break };
            std::hint::black_box(row);
            seen += 1;
            // Do not advance past the last requested row: reading it would be wasted.
            if seen < limit {
                if reverse { rows.prev() } else { rows.next() }
            }
        }
        rows.status().map_err(SubjectError::new)?;
        Ok(seen)
    }

    fn drain(&mut self) -> Result<(), SubjectError> {
        self.join_manual()?;
        let mut options = WaitForCompactOptions::default();
        options.set_flush(true);
        self.db.wait_for_compact(&options).map_err(SubjectError::new)
    }

    fn compact(&mut self) -> Result<(), SubjectError> {
        self.drain()?;
        compact_all(&self.db, BottommostLevelCompaction::IfHaveCompactionFilter);
        self.drain()
    }

    #[allow(clippy::disallowed_methods, reason = "RocksDB has threads of its own anyway, and is never simulated")]
    fn start_compaction(&mut self) -> Result<bool, SubjectError> {
        self.join_manual()?;
        let running = Arc::new(AtomicBool::new(true));
        let (db, done) = (Arc::clone(&self.db), Arc::clone(&running));
        let thread = std::thread::Builder::new().name("compaction".to_owned()).spawn(move || {
            compact_all(&db, BottommostLevelCompaction::Force);
            done.store(false, Ordering::Release);
        });
        self.manual = Some(Manual { running, thread: thread.map_err(SubjectError::new)? });
        Ok(true)
    }

    fn compacting(&self) -> bool {
        if self.manual.as_ref().is_some_and(|manual| manual.running.load(Ordering::Acquire)) {
            return true;
        }
        // Used for a figure only: without an answer from RocksDB, assume no compaction.
        self.db
            .property_int_value(properties::NUM_RUNNING_COMPACTIONS)
            .ok()
            .flatten()
            .is_some_and(|running| running > 0)
    }

    fn close(mut self: Box<Self>) -> Result<(), SubjectError> {
        self.join_manual()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_back_what_was_put_before_and_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings { cache_bytes: 8 << 20, write_buffer_bytes: 1 << 20 };
        let key = |number: u32| format!("row{number:05}").into_bytes();
        let mut store = (CONTENDER.open)(dir.path(), &settings).unwrap();
        for number in (0..2_000).step_by(2) {
            store.put(&key(number), b"a value").unwrap();
        }
        let batch: Vec<_> = (4_000..5_000).map(|number| (key(number), b"another".to_vec())).collect();
        store.put_batch(&batch).unwrap();
        store.drain().unwrap();
        store.compact().unwrap();
        store.close().unwrap();
        let mut store = (CONTENDER.open)(dir.path(), &settings).unwrap();
        assert!(store.get(&key(1_998)).unwrap() && store.get(&key(4_999)).unwrap() && !store.get(&key(1)).unwrap());
        assert_eq!(store.scan(&key(0), 100, false).unwrap(), 100);
        assert_eq!(store.scan(&key(4_990), 100, false).unwrap(), 10);
        assert_eq!(store.scan(&key(18), 100, true).unwrap(), 10);
        assert_eq!(store.scan(&key(0), usize::MAX, false).unwrap(), 2_000);
        assert!(store.start_compaction().unwrap());
        store.drain().unwrap();
        assert!(!store.compacting());
        store.close().unwrap();
    }
}
