//! An open store file: what stays in memory of it, and how its blocks are fetched.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use terrane_types::schema::Bloom;

use super::block::{self, BlockAt};
use super::block_cache::{BlockKey, CachedBlock, FamilyReads};
use super::data_block::{DataBlock, Place};
use super::filter::{Filter, column_hash};
use super::footer::{BadFooter, FOOTER_BYTES, FORMAT, Footer};
use super::index::IndexBlock;
use super::properties::StoreFileProperties;
use super::read_ahead::ReadAhead;
use super::{StoreFileShared, path_of};
use crate::Error;
use crate::file_directory::Claim;
use crate::row_range::RowRange;
use crate::source::{Reading, RowKey};

/// Read from the end of a file when it is opened: footer, properties and top index of most files, and all of small
/// ones.
const TAIL_BYTES: u64 = 32 << 10;

/// The largest read buffer that a thread keeps for the next read.
const SCRATCH_BYTES_MAX: usize = 1 << 20;

/// A store file, open for reading. Shared by all reads of it.
#[derive(Debug)]
pub(crate) struct StoreFile {
    shared: Arc<StoreFileShared>,
    reads: Arc<FamilyReads>,
    path: PathBuf,
    /// The number of the file here: in its name, and in the cache.
    id: u64,
    /// The number that it was written under, which its checksums cover: a different one for an ingested file.
    origin: u64,
    pub(super) footer: Footer,
    properties: StoreFileProperties,
    top: IndexBlock,
    /// The partition of a file that has only one: it is then as good as a top index.
    only_partition: Option<Arc<IndexBlock>>,
    /// Partitions that reads have needed, as far as the server's budget for them allows: without them a get would look
    /// into the block cache twice.
    pinned: Box<[OnceLock<Arc<IndexBlock>>]>,
    filter: Option<Filter>,
    prefix_filter: Option<Filter>,
    /// Keeps the file's name while it may be read.
    _claim: Option<Arc<Claim>>,
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        self.shared.descriptors.close(self.id);
        self.shared.pinned.release_bytes(self.pinned_bytes() as u64);
    }
}

impl StoreFile {
    /// Opens the file `id` of `size` bytes, written under the number `origin` (`None`: any); `reads` counts what reads
    /// of it meet. Blocks.
    pub(crate) fn open(
        shared: &Arc<StoreFileShared>,
        id: u64,
        origin: Option<u64>,
        size: u64,
        reads: &Arc<FamilyReads>,
        claim: Option<Arc<Claim>>,
    ) -> Result<Self, Error> {
        let path = path_of(&shared.dir, id);
        let file = shared.descriptors.get(id, &path).map_err(|error| read_error(&path, 0, error))?;
        let damage = |offset: u64, what: &str| Error::damage(&path, offset, what);
        let read = |offset: u64, len: u64| {
            // Bounded by the size that the manifest records.
            let mut bytes = vec![0; usize::try_from(len).map_err(|_| damage(offset, "a part is beyond memory"))?];
            let done = file.read_exact_at_now(&mut bytes, offset);
            done.map(|()| bytes).map_err(|error| read_error(&path, offset, error))
        };

        let tail_at = size.saturating_sub(TAIL_BYTES);
        let tail = read(tail_at, size - tail_at)?;
        let footer_at = tail.len().saturating_sub(FOOTER_BYTES);
        let footer = Footer::decode(&tail[footer_at..], size).map_err(|bad| match bad {
            BadFooter::Damaged(what) => damage(tail_at + footer_at as u64, what),
            BadFooter::Newer(found) => Error::NewerFormat { file: path.clone(), found, known: FORMAT },
        })?;
        if origin.is_some_and(|origin| footer.id != origin) {
            return Err(damage(0, &format!("it is file {} under another's name", footer.id)));
        }
        let origin = footer.id;

        // Filters and indexes are adjacent; in large files they begin before the tail that was read.
        let first = [footer.filter, footer.prefix_filter].into_iter().flatten().map(|at| at.offset).min();
        let filters_end =
            [footer.filter, footer.prefix_filter].into_iter().flatten().map(|at| at.offset + u64::from(at.len));
        let filters = match (first, filters_end.max()) {
            (Some(first), Some(end)) if first < tail_at => Some((first, read(first, end.saturating_sub(first))?)),
            _ => None,
        };
        let part = |at: BlockAt| -> Result<std::borrow::Cow<'_, [u8]>, Error> {
            let within = |start: u64, bytes: &'_ [u8]| {
                let from = usize::try_from(at.offset.checked_sub(start)?).ok()?;
                let until = from.checked_add(at.len as usize)?;
                (until <= bytes.len()).then_some(from..until)
            };
            if let Some(range) = within(tail_at, &tail) {
                return Ok(std::borrow::Cow::Borrowed(&tail[range]));
            }
            if let Some((start, bytes)) = &filters
                && let Some(range) = within(*start, bytes)
            {
                return Ok(std::borrow::Cow::Borrowed(&bytes[range]));
            }
            read(at.offset, u64::from(at.len)).map(std::borrow::Cow::Owned)
        };
        let verified = |at: BlockAt, sealed: &[u8]| -> Result<usize, Error> {
            let (payload, _) = block::verify(sealed, origin, at.offset).map_err(|what| damage(at.offset, what))?;
            Ok(payload.len())
        };

        let sealed = part(footer.properties)?;
        let len = verified(footer.properties, &sealed)?;
        let mut properties = StoreFileProperties::new(FORMAT, origin, Default::default());
        properties.size = size;
        let properties = properties.decode(&sealed[..len]).map_err(|what| damage(footer.properties.offset, what))?;

        let filter_at = |at: Option<BlockAt>| -> Result<Option<Filter>, Error> {
            let Some(at) = at else { return Ok(None) };
            let sealed = part(at)?;
            let len = verified(at, &sealed)?;
            Filter::new(&sealed[..len]).map(Some).map_err(|what| damage(at.offset, what))
        };
        let filter = filter_at(footer.filter)?;
        let prefix_filter = filter_at(footer.prefix_filter)?;

        let sealed = part(footer.top_index)?;
        let index = |at: BlockAt, sealed: &[u8], end: u64| {
            let payload = block::unseal(sealed, origin, at.offset).map_err(|what| damage(at.offset, what))?;
            IndexBlock::new(&payload, end).map_err(|what| damage(at.offset, what))
        };
        let top = index(footer.top_index, &sealed, footer.top_index.offset)?;
        let only_partition = match top.entries() {
            [only] => Some(Arc::new(index(only.at, &part(only.at)?, footer.data_end)?)),
            _ => None,
        };
        let pinned = (0..if only_partition.is_some() { 0 } else { top.len() }).map(|_| OnceLock::new()).collect();
        let (shared, reads) = (Arc::clone(shared), Arc::clone(reads));
        Ok(Self {
            shared,
            reads,
            path,
            id,
            origin,
            footer,
            properties,
            top,
            only_partition,
            pinned,
            filter,
            prefix_filter,
            _claim: claim,
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn origin(&self) -> u64 {
        self.origin
    }

    pub(crate) fn properties(&self) -> &StoreFileProperties {
        &self.properties
    }

    pub(super) fn shared(&self) -> &Arc<StoreFileShared> {
        &self.shared
    }

    pub(super) fn reads(&self) -> &Arc<FamilyReads> {
        &self.reads
    }

    pub(super) fn top(&self) -> &IndexBlock {
        &self.top
    }

    fn pinned_bytes(&self) -> usize {
        self.pinned.iter().filter_map(OnceLock::get).map(|partition| partition.memory_bytes()).sum()
    }

    /// Whether the file may hold cells at or after this time. A file that does not has nothing that a reader of later
    /// times sees, and nothing that hides cells of other files from it: a tombstone acts on its own time and before.
    pub(crate) fn covers(&self, time_min: i64) -> bool {
        self.properties.timestamps.1 >= time_min
    }

    /// Whether the file may hold the row. `false` is certain.
    pub(crate) fn may_contain(&self, row: &RowKey<'_>) -> bool {
        let inside = row.row >= self.properties.first_row.as_slice() && row.row <= self.properties.last_row.as_slice();
        inside && self.filter.as_ref().is_none_or(|filter| filter.may_contain(row.hash))
    }

    /// Whether the file may hold rows with the prefix that has this hash, among prefixes cut in the way with this id
    /// ([`RowPrefix::id`](crate::row_prefix::RowPrefix)). `false` is certain.
    pub(crate) fn may_contain_prefix(&self, prefix_id: u64, hash: u64) -> bool {
        let asked = self.prefix_filter.as_ref().filter(|_| self.properties.prefix_id == Some(prefix_id));
        asked.is_none_or(|filter| filter.may_contain(hash))
    }

    /// Whether the column may be present, by the filter and the row's hash.
    pub(super) fn may_contain_column(&self, row: u64, qualifier: &[u8]) -> bool {
        match (&self.filter, self.properties.storage.bloom) {
            (Some(filter), Bloom::RowCol) => filter.may_contain(column_hash(row, qualifier)),
            _ => true,
        }
    }

    pub(super) fn may_contain_row_hash(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    pub(super) fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    pub(super) fn prefix_filter(&self) -> Option<&Filter> {
        self.prefix_filter.as_ref()
    }

    /// Bytes of data within `bounds`, approximately, without touching the disk.
    pub(crate) fn bytes_within(&self, bounds: &RowRange) -> u64 {
        if bounds.is_empty() || !bounds.meets(&self.properties.first_row, &self.properties.last_row) {
            return 0;
        }
        if bounds.hold(&self.properties.first_row, &self.properties.last_row) {
            return self.properties.data_bytes;
        }
        let index = self.only_partition.as_deref().unwrap_or(&self.top);
        // A block on the border counts half.
        let before = |row: &[u8]| {
            let at = index.find(Place::row(row));
            let whole: u64 = index.entries()[..at].iter().map(|entry| entry.data_bytes).sum();
            let half = index.entries().get(at).map_or(0, |entry| entry.data_bytes / 2);
            if row <= self.properties.first_row.as_slice() { 0 } else { whole + half }
        };
        let until = if bounds.end.is_empty() { self.properties.data_bytes } else { before(&bounds.end) };
        until.saturating_sub(before(&bounds.start))
    }

    pub(super) fn damage(&self, offset: u64, what: &str) -> Error {
        Error::damage(&self.path, offset, what)
    }

    /// The index partition at this position in the top index.
    pub(super) fn partition(&self, at: usize, reading: Reading) -> Result<Arc<IndexBlock>, Error> {
        let pinned = self.pinned.get(at);
        if let Some(partition) = self.only_partition.as_ref().or_else(|| pinned?.get()) {
            return Ok(Arc::clone(partition));
        }
        let entry = self.top.entry(at);
        let block = self.fetch(entry.at, reading, None, |payload| {
            IndexBlock::new(&payload, self.footer.data_end).map(|index| CachedBlock::Index(Arc::new(index)))
        })?;
        match block {
            CachedBlock::Index(index) => {
                if let Some(pinned) = pinned.filter(|_| reading.fills_cache) {
                    self.pin(pinned, &index);
                }
                Ok(index)
            }
            CachedBlock::Data(_) => Err(self.damage(entry.at.offset, "a block of cells is where the index should be")),
        }
    }

    /// Keeps a partition while the file is open, if the budget allows.
    fn pin(&self, place: &OnceLock<Arc<IndexBlock>>, index: &Arc<IndexBlock>) {
        let bytes = index.memory_bytes() as u64;
        // Of two concurrent readers, the second returns its share.
        if self.shared.pinned.take(bytes) && place.set(Arc::clone(index)).is_err() {
            self.shared.pinned.release_bytes(bytes);
        }
    }

    /// A data block.
    pub(super) fn data(
        &self,
        at: BlockAt,
        reading: Reading,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<Arc<DataBlock>, Error> {
        let block = self.fetch(at, reading, ahead, |payload| {
            DataBlock::new(payload).map(|block| CachedBlock::Data(Arc::new(block)))
        })?;
        match block {
            CachedBlock::Data(block) => Ok(block),
            CachedBlock::Index(_) => Err(self.damage(at.offset, "an index is where a block of cells should be")),
        }
    }

    fn fetch(
        &self,
        at: BlockAt,
        reading: Reading,
        ahead: Option<&mut ReadAhead>,
        take: impl FnOnce(Vec<u8>) -> Result<CachedBlock, &'static str>,
    ) -> Result<CachedBlock, Error> {
        let file = if terrane_env::planted!("the cache confuses files") { 0 } else { self.id };
        let key = BlockKey { file, offset: at.offset };
        let in_memory = self.properties.storage.in_memory;
        let is_gone = terrane_env::buggify!("a cached block is evicted");
        if let Some(block) = self.shared.cache.get(&key, in_memory).filter(|_| !is_gone) {
            FamilyReads::count(&self.reads.hits, 1);
            if let Some(ahead) = ahead {
                ahead.asked(at);
            }
            return Ok(block);
        }
        let unseal = |sealed: &[u8]| block::unseal(sealed, self.origin, at.offset).and_then(take);
        let block = match ahead {
            Some(ahead) if reading.sequential => {
                if !reading.blocking && ahead.get(at).is_none() {
                    return Err(Error::NeedsDisk);
                }
                self.fill(ahead, at)?;
                let sealed =
                    ahead.get(at).ok_or_else(|| self.damage(at.offset, "a block lies beyond the data blocks"))?;
                unseal(sealed)
            }
            _ if !reading.blocking => return Err(Error::NeedsDisk),
            _ => with_scratch(at.len as usize, |scratch| self.read(at.offset, scratch).map(|()| unseal(scratch)))?,
        };
        FamilyReads::count(&self.reads.misses, 1);
        let block = block.map_err(|what| self.damage(at.offset, what))?;
        if reading.fills_cache {
            self.shared.cache.insert(key, block.clone(), in_memory);
        }
        Ok(block)
    }

    /// Makes sure that a block is among what was read ahead.
    pub(super) fn fill(&self, ahead: &mut ReadAhead, at: BlockAt) -> Result<(), Error> {
        if ahead.get(at).is_none() {
            let range = ahead.range(at, self.footer.data_end);
            ahead.bytes.clear();
            ahead.offset = range.start;
            // At most what is read ahead, or one block, whose length is known to lie within the file.
            ahead.bytes.resize((range.end - range.start) as usize, 0);
            if let Err(error) = self.read(range.start, &mut ahead.bytes) {
                ahead.bytes.clear();
                return Err(error);
            }
        }
        ahead.asked(at);
        Ok(())
    }

    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        FamilyReads::count(&self.reads.read_bytes, buffer.len() as u64);
        let file = self.shared.descriptors.get(self.id, &self.path);
        let read = file.and_then(|file| file.read_exact_at_now(buffer, offset));
        read.map_err(|error| read_error(&self.path, offset, error))
    }
}

fn read_error(path: &std::path::Path, offset: u64, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::damage(path, 0, "the file is missing"),
        io::ErrorKind::UnexpectedEof => Error::damage(path, offset, "the file is truncated"),
        _ => Error::io(format!("read {}", path.display()))(error),
    }
}

/// Calls `with` with a buffer of this many bytes, which the thread keeps for the next call.
fn with_scratch<T>(len: usize, with: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            scratch.resize(len, 0);
        }
        let done = with(&mut scratch[..len]);
        if scratch.len() > SCRATCH_BYTES_MAX {
            *scratch = Vec::new();
        }
        done
    })
}
