//! The one loop that writes the log.
//!
//! It takes everything that all groups have queued, writes it as one batch, syncs once and then reports, in order. The loop
//! owns the position, the chain of headers and the knowledge of what is durable; nothing else writes segments while it runs.
//! A failed write or sync ends the process: the kernel may have dropped the pages, so the state on disk is unknown, and a
//! replica that continued could acknowledge entries it does not have.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use terrane_env::{fs, task};
use terrane_types::GroupId;

use super::allocation::{AllocatedSegment, Allocator, is_full};
use super::batch::{BatchHeader, HEADER_BYTES, Position, aligned};
use super::cache::Cache;
use super::extents::Extents;
use super::files::Files;
use super::held;
use super::memory::{Appended, GroupLog, payload_bytes};
use super::place::Place;
use super::record::{self, Mark};
use super::recover::{Chain, Recovered};
use super::shared::{Change, Item, Shared, SpillRequest, Totals};
use crate::GroupSpec;
use crate::types::{Entry, Vote};

/// The records that rebuild a group, apart from its entries; repeated at the head of each segment.
#[derive(Default)]
struct Head {
    created: Vec<u8>,
    vote: Vec<u8>,
    purged: Vec<u8>,
    /// The replica was removed: all that is left is that it existed.
    removed: Vec<u8>,
}

pub(super) struct Writer {
    shared: Arc<Shared>,
    files: Arc<Files>,
    allocator: Allocator,
    file: fs::File,
    /// Bytes allocated for the file.
    allocated: u64,
    /// Where the next batch goes.
    at: Position,
    /// Everything before this is synced.
    synced: Position,
    chain: Chain,
    heads: BTreeMap<GroupId, Head>,
    extents: Extents,
    cache: Cache,
    /// The finished segments, with the bytes used in each.
    segments: BTreeMap<u64, u64>,
    totals: Totals,
    /// Reused from batch to batch.
    buffer: Vec<u8>,
}

/// A buffer that grew beyond this for one batch is shrunk.
const BUFFER_KEPT_BYTES: usize = 8 << 20;

impl Writer {
    /// Starts a segment after what was recovered. No older segment is ever written to again.
    pub(super) async fn start(
        shared: Arc<Shared>,
        files: Arc<Files>,
        segment_bytes: u64,
        found: Recovered,
        new_log: u64,
    ) -> io::Result<Writer> {
        let chain = found.chain.unwrap_or(Chain { log: new_log, batch: 0, crc: 0, end: Position::default() });
        let segment = found.segments.last_key_value().map_or(1, |(segment, _)| segment + 1);
        let mut allocator = Allocator::new(files.clone(), segment_bytes);
        let last = found.segments.last_key_value().map(|(segment, end)| (*segment, *end));
        let AllocatedSegment { file, bytes: allocated } = allocator.first(segment, last).await?;
        let mut writer = Writer {
            shared,
            files,
            allocator,
            file,
            allocated,
            at: Position { segment, offset: 0 },
            synced: chain.end,
            chain,
            heads: heads(&found),
            extents: found.extents,
            cache: found.cache,
            segments: found.segments,
            totals: Totals::default(),
            buffer: Vec::new(),
        };
        writer.files.held.lock().log = writer.chain.log;
        writer.write_heads().await?;
        writer.sync().await?;
        writer.remove_unneeded().await?;
        writer.allocate_ahead().await?;
        writer.publish();
        Ok(writer)
    }

    /// Writes until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        while let Some(items) = self.shared.next_items().await {
            let done =
                if items.is_empty() { self.allocate_ahead().await.map(|()| true) } else { self.write(items).await };
            match done {
                Ok(true) => {}
                // Nothing may be written after what was left out: the next start would find entries missing.
                Ok(false) => {
                    self.shared.abandon();
                    break;
                }
                Err(error) => {
                    let directory = self.files.directory().display();
                    task::abort_process(&format!("cannot write the log in {directory}: {error}"));
                }
            }
        }
        if let Err(error) = self.seal().await {
            tracing::warn!(%error, "cannot seal the log: its last batch will not be known to be synced");
        }
    }

    /// Writes a batch. Returns false if the log was closed while the batch waited for disk space; then nothing of the batch is
    /// written or reported.
    pub(super) async fn write(&mut self, items: Vec<Item>) -> io::Result<bool> {
        self.begin_batch();
        let records = self.encode(&items);
        if records.count == 0 {
            return self.note_moved(items).await.map(|()| true);
        }
        let segment = self.at.segment;
        if !self.ensure_space().await? {
            return Ok(false);
        }
        let start = self.at.offset;
        self.shared.syncs.begin(terrane_env::time::now_ns());
        self.end_batch(records.count).await?;
        terrane_env::buggify_pause!("the log waits before it syncs").await;
        self.sync().await?;
        self.shared.syncs.end(terrane_env::time::now_ns());
        // Nothing is reported, and nothing is removed, before this line.
        let unneeded = self.report(items, &records.entries, start);
        let removes = self.remove(unneeded).await?;
        if removes || self.at.segment != segment {
            self.allocate_ahead().await?;
        }
        self.publish();
        Ok(true)
    }

    async fn note_moved(&mut self, items: Vec<Item>) -> io::Result<()> {
        let unneeded = self.report(items, &[], self.at.offset);
        if self.remove(unneeded).await? {
            self.allocate_ahead().await?;
        }
        self.publish();
        Ok(())
    }

    /// Removes what is no longer needed: held files before segments, see `held.rs`. Returns whether segments may have been removed.
    async fn remove(&mut self, unneeded: Obsolete) -> io::Result<bool> {
        for (group, last) in unneeded.truncated {
            held::truncated(&self.files, group, last).await?;
        }
        for (group, index) in &unneeded.purged {
            held::purged(&self.files, *group, *index).await?;
        }
        let removes = unneeded.segments || !unneeded.purged.is_empty();
        if removes {
            self.remove_unneeded().await?;
        }
        Ok(removes)
    }

    /// Makes sure that space for the batch in the buffer is allocated, if necessary by beginning the next segment. Waits while
    /// the disk has none; false if the log was closed meanwhile.
    async fn ensure_space(&mut self) -> io::Result<bool> {
        let length = aligned(self.buffer.len()) as u64;
        let ends_early = self.allocator.has_spare() && terrane_env::buggify!("a log segment ends early", 8);
        let usable = |writer: &Self| if ends_early { 0 } else { writer.allocator.usable(writer.allocated) };
        while self.at.offset > 0 && self.at.offset + length > usable(self) {
            let segment = self.at.segment + 1;
            if let Some(allocated) = self.allocator.next(segment).await? {
                let batch = std::mem::take(&mut self.buffer);
                self.rotate(segment, allocated).await?;
                self.buffer = batch;
                break;
            }
            if !self.wait_for_space().await {
                return Ok(false);
            }
        }
        // A batch larger than a segment.
        let end = self.at.offset + length;
        while end > self.allocated {
            match self.file.allocate(end).await {
                Ok(()) => self.allocated = end,
                Err(error) if is_full(&error) => {
                    if !self.wait_for_space().await {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    async fn wait_for_space(&mut self) -> bool {
        self.allocator.publish(&self.shared.space);
        self.shared.wait_for_space().await
    }

    /// Allocates the next segment before it is needed, and publishes whether that succeeded.
    async fn allocate_ahead(&mut self) -> io::Result<()> {
        self.allocator.prepare().await?;
        self.allocator.publish(&self.shared.space);
        Ok(())
    }

    /// Begins a new segment with the records that rebuild every group, as of before the batch that did not fit.
    async fn rotate(&mut self, segment: u64, allocated: AllocatedSegment) -> io::Result<()> {
        assert_eq!(segment, self.at.segment + 1, "segment {segment} cannot follow segment {}", self.at.segment);
        self.segments.insert(self.at.segment, self.at.offset);
        (self.file, self.allocated) = (allocated.file, allocated.bytes);
        self.at = Position { segment, offset: 0 };
        // Before any older segment is removed: the data directory counts as gone when the newest segment does not exist.
        self.totals.newest = segment;
        self.shared.totals.lock().newest = segment;
        self.write_heads().await
    }

    async fn write_heads(&mut self) -> io::Result<()> {
        self.begin_batch();
        let mut count = 0;
        for head in self.heads.values() {
            for part in [&head.created, &head.vote, &head.purged, &head.removed] {
                self.buffer.extend_from_slice(part);
                count += u32::from(!part.is_empty());
            }
        }
        self.end_batch(count).await
    }

    /// Writes a last header, so that the final batch is known to be synced: damage to it will not pass for a torn tail.
    async fn seal(&mut self) -> io::Result<()> {
        self.begin_batch();
        self.end_batch(0).await?;
        self.sync().await
    }

    fn begin_batch(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_KEPT_BYTES);
        self.buffer.resize(HEADER_BYTES, 0);
    }

    /// Completes the batch in the buffer and writes it, without a sync.
    async fn end_batch(&mut self, records: u32) -> io::Result<()> {
        let length = self.buffer.len() - HEADER_BYTES;
        self.buffer.resize(aligned(self.buffer.len()), 0);
        let header = BatchHeader {
            log: self.chain.log,
            segment: self.at.segment,
            batch: self.chain.batch + 1,
            synced: self.synced,
            previous: self.chain.crc,
            length: u32::try_from(length).expect("the queue is bounded far below four gigabytes"),
            records,
        };
        self.chain.crc = header.write(&mut self.buffer);
        self.chain.batch = header.batch;
        self.file.write_all_at(&self.buffer, self.at.offset).await?;
        self.at.offset += self.buffer.len() as u64;
        self.totals.written += self.buffer.len() as u64;
        Ok(())
    }

    async fn sync(&mut self) -> io::Result<()> {
        if !terrane_env::planted!("acknowledge before the sync") {
            let synced = self.file.sync_data().await;
            synced.or_else(|error| {
                if terrane_env::planted!("a failed sync of the log is ignored") { Ok(()) } else { Err(error) }
            })?;
        }
        assert!(self.at >= self.synced, "the synced position regressed from {:?} to {:?}", self.synced, self.at);
        self.synced = self.at;
        self.totals.syncs += 1;
        Ok(())
    }

    fn encode(&mut self, items: &[Item]) -> Encoded {
        let out = &mut self.buffer;
        let mut encoded = Encoded::default();
        for item in items {
            let group = item.log.group();
            match &item.change {
                Change::Created => record::put_created(out, item.log.spec()),
                Change::Vote(vote) => record::put_vote_record(out, group, vote),
                Change::Truncated(last) => record::put_truncated(out, group, *last),
                Change::Purged(mark) => record::put_purged(out, group, mark),
                Change::Removed => record::put_removed(out, group, item.log.spec().replica),
                Change::Moved { .. } | Change::Forgotten => continue,
                Change::Entries(_, entries) => {
                    for entry in entries {
                        let start = out.len();
                        record::put_entry_record(out, group, &entry.log_id, &entry.payload);
                        encoded.entries.push((start, out.len() - start));
                        encoded.count += 1;
                    }
                    continue;
                }
            }
            encoded.count += 1;
        }
        encoded
    }

    /// Records what is durable now and notifies the waiting callers, in the order of the queue. Returns what is no longer
    /// needed.
    fn report(&mut self, items: Vec<Item>, entries: &[(usize, usize)], start: u64) -> Obsolete {
        assert_eq!(self.synced, self.at, "a batch must not be acknowledged before everything up to its end is synced");
        let mut entries = entries.iter();
        let mut unneeded = Obsolete::default();
        for item in items {
            let group = item.log.group();
            match item.change {
                Change::Created => drop(self.heads.insert(group, Head::created(item.log.spec()))),
                Change::Vote(vote) => self.heads.entry(group).or_default().set_vote(group, &vote),
                Change::Truncated(last) => {
                    self.extents.truncated(group, last);
                    unneeded.truncated.push((group, last));
                }
                Change::Purged(mark) => {
                    self.extents.purged(group, mark.log_id.index);
                    self.heads.entry(group).or_default().set_purged(group, &mark);
                    unneeded.purged.push((group, mark.log_id.index));
                }
                Change::Removed => {
                    self.extents.truncated(group, None);
                    self.heads.insert(group, Head::removed(item.log.spec()));
                    // Its held files go before the segments with this record.
                    unneeded.truncated.push((group, None));
                    unneeded.segments = true;
                }
                Change::Forgotten => drop(self.heads.remove(&group)),
                Change::Moved { before, last } => {
                    self.extents.moved(group, before, last);
                    unneeded.segments = true;
                }
                Change::Entries(appended, written) => {
                    let places = entries.by_ref().take(written.len());
                    let places: Vec<Place> = places.map(|(at, length)| self.place(start, *at, *length)).collect();
                    self.entries_written(&item.log, appended, &written, &places);
                }
            }
            item.done.report();
        }
        unneeded
    }

    fn place(&self, start: u64, at: usize, length: usize) -> Place {
        Place {
            segment: self.at.segment,
            offset: start + at as u64,
            length: u32::try_from(length).expect("a record is shorter than its batch"),
        }
    }

    fn entries_written(&mut self, log: &Arc<GroupLog>, appended: Appended, entries: &[Entry], places: &[Place]) {
        assert_eq!(places.len(), entries.len(), "every entry of group {} that was written has a place", log.group());
        log.placed(appended, places);
        self.totals.entries += entries.len() as u64;
        for (at, entry) in (0..).zip(entries) {
            self.extents.entry(log.group(), self.at.segment, entry.log_id.index);
            let bytes = payload_bytes(&entry.payload);
            self.cache.admit(log, appended.first_index + at, appended.first_serial + at, bytes);
        }
    }

    /// Removes the segments that no group needs, from the oldest on. Each removal is synced before the next, so the remaining
    /// segments are always contiguous and end with the newest.
    async fn remove_unneeded(&mut self) -> io::Result<()> {
        let needed = self.extents.oldest().map_or(self.at.segment, |(segment, _)| segment);
        while let Some((&segment, _)) = self.segments.first_key_value()
            && segment < needed
        {
            assert!(segment < self.at.segment, "segment {segment} is still being written");
            self.files.disk().remove_file(&self.files.path(segment)).await?;
            self.files.disk().sync_dir(self.files.directory()).await?;
            self.files.forget(segment);
            self.segments.remove(&segment);
        }
        Ok(())
    }

    fn publish(&mut self) {
        self.totals.bytes = self.segments.values().sum::<u64>() + self.at.offset;
        self.totals.segments = self.segments.len() as u64 + 1;
        self.totals.newest = self.at.segment;
        self.totals.oldest = self.extents.oldest().map(|(_, group)| group);
        let over = |bytes: u64| self.totals.bytes > bytes;
        let holders =
            over(self.shared.budget_bytes).then(|| self.extents.holders(self.cutoff(self.shared.budget_bytes)));
        let early = terrane_env::buggify!("entries are copied out of the log early", 16);
        let request = (early || over(self.shared.spill_bytes)).then(|| {
            let before = if early { self.at.segment } else { self.cutoff(self.shared.spill_bytes) };
            SpillRequest { before, groups: self.extents.holders(before).into_iter().map(|(group, _)| group).collect() }
        });
        let held = self.files.held.lock();
        (self.totals.held_bytes, self.totals.held_files) = (held.bytes(), held.count());
        drop(held);
        self.shared.publish(self.totals, holders.unwrap_or_default(), request);
    }

    /// The segment before which everything must be removed for the segments to shrink to half of `bytes`.
    fn cutoff(&self, bytes: u64) -> u64 {
        let mut kept = self.at.offset;
        for (segment, of_segment) in self.segments.iter().rev() {
            kept += of_segment;
            if kept > bytes / 2 {
                return segment + 1;
            }
        }
        self.at.segment
    }
}

/// What is no longer needed after a batch.
#[derive(Default)]
struct Obsolete {
    truncated: Vec<(GroupId, Option<u64>)>,
    purged: Vec<(GroupId, u64)>,
    /// Segments may have become removable in another way.
    segments: bool,
}

/// Where the entries of a batch are in its buffer, and how many records it has.
#[derive(Default)]
struct Encoded {
    entries: Vec<(usize, usize)>,
    count: u32,
}

fn heads(found: &Recovered) -> BTreeMap<GroupId, Head> {
    let removed = found.removed.iter().map(|(group, log)| (*group, Head::removed(log.spec())));
    removed.chain(found.groups.iter().map(|(group, log)| (*group, Head::of(log)))).collect()
}

impl Head {
    fn of(log: &GroupLog) -> Head {
        let mut head = Head::created(log.spec());
        if let Some(vote) = log.vote() {
            head.set_vote(log.group(), &vote);
        }
        if let Some(mark) = log.purged() {
            head.set_purged(log.group(), &mark);
        }
        head
    }

    fn created(spec: &GroupSpec) -> Head {
        let mut head = Head::default();
        record::put_created(&mut head.created, spec);
        head
    }

    fn removed(spec: &GroupSpec) -> Head {
        let mut head = Head::created(spec);
        record::put_removed(&mut head.removed, spec.group, spec.replica);
        head
    }

    fn set_vote(&mut self, group: GroupId, vote: &Vote) {
        self.vote.clear();
        record::put_vote_record(&mut self.vote, group, vote);
    }

    fn set_purged(&mut self, group: GroupId, mark: &Mark) {
        self.purged.clear();
        record::put_purged(&mut self.purged, group, mark);
    }
}
