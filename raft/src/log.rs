//! The shared log: one stream of records for all groups of a process, written and synced by one loop.
//!
//! [`SharedLog`] holds the groups' logs and the handle of the writer; [`store::Store`] is one group's log as openraft sees
//! it. A call changes the group's memory at once and queues the same change for the writer, under no lock that spans groups,
//! so the order of one group's records is the order of its calls.
//!
//! Invariants. A violation is a bug, so an assertion ends the process before the log is harmed. The same violation found in
//! files is damage: an error with file and offset.
//! 1. Entries of a group are contiguous: an appended entry's index is the last index + 1 (`memory::State::push`; recovery:
//!    `memory::State::truncate_held_from`, `memory::GroupLog::replayed`).
//! 2. The term of an entry is never below its predecessor's (`memory::State::push`; recovery: `memory::GroupLog::replay`).
//! 3. A vote never regresses (`memory::GroupLog::set_vote`; recovery: `memory::GroupLog::replay`).
//! 4. Purging never regresses, covers only what a snapshot covered, and nothing purged is truncated
//!    (`memory::GroupLog::purge`, `memory::GroupLog::truncate_after`). What may be covered is decided in `retention.rs`: only what
//!    is in synced files here and in the log of every member.
//! 5. Nothing is reported before it is synced, and the synced position never regresses (`writer::Writer::sync`,
//!    `writer::Writer::report`). What was reported is found again by recovery, or recovery refuses to open.
//! 6. Segments are written in order without gaps (`writer::Writer::rotate`, `extents::Extents::entry`; recovery:
//!    `recover::segment_numbers`, `recover::Recovery::breaks_chain`).
//! 7. Segments are removed from the oldest on, and only if everything still needed in them is in synced held files
//!    (`writer::Writer::remove_unneeded`, `held::copy`).
//! 8. Every segment begins with the `Created`, vote and purge records of every group (`writer::Writer::write_heads`). Nothing
//!    of a replica follows its `Removed`, which each segment repeats until nothing is left of the replica.
//!
//! `docs/formats/log.md` describes the layout.

mod allocation;
mod batch;
mod cache;
mod check;
mod extents;
mod files;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod held;
mod held_list;
mod index;
#[cfg(feature = "interleave")]
pub mod interleavings;
mod memory;
mod names;
mod place;
mod record;
mod recover;
mod shared;
mod shares;
pub(crate) mod spill;
pub(crate) mod store;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the directory and damage it from outside")]
mod tests;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use terrane_env::fs::Disk;
use terrane_env::task::{self, IoLoop};
use terrane_types::GroupId;
use tokio::sync::oneshot;

use self::allocation::SEGMENT_BYTES_MIN;
pub(crate) use self::batch::VERSIONS as SEGMENT_VERSIONS;
pub use self::check::{LoggedGroup, check_log};
use self::files::Files;
pub(crate) use self::held::VERSIONS as HELD_VERSIONS;
pub(crate) use self::memory::GroupLog;
pub(crate) use self::memory::payload_bytes;
#[cfg(test)]
pub(crate) use self::record::tests::marks;
pub(crate) use self::record::{Mark, put_mark, read_mark};
use self::shared::{Change, Completion, Item, Shared, Totals};
pub(crate) use self::shares::{GroupUse, Refusal, Role};
use self::writer::Writer;
use crate::leadership::stall::SyncTimes;
use crate::{GroupSpec, LogConfig, OpenError};

const SEGMENTS_PER_LIMIT: u64 = LogConfig::SEGMENTS_PER_LIMIT;
const _: () = assert!(LogConfig::LIMIT_BYTES_MIN >= SEGMENTS_PER_LIMIT * SEGMENT_BYTES_MIN);

/// The log of a process.
pub(crate) struct SharedLog {
    shared: Arc<Shared>,
    files: Arc<Files>,
    groups: Mutex<BTreeMap<GroupId, Arc<GroupLog>>>,
    /// The groups whose replica was removed and is not forgotten yet.
    removed: Mutex<BTreeMap<GroupId, Arc<GroupLog>>>,
    writer: Mutex<Option<IoLoop>>,
    limit_bytes: u64,
    segment_bytes: u64,
}

impl SharedLog {
    /// Recovers the log in `directory` and starts its writer.
    pub(crate) async fn open(directory: PathBuf, config: &LogConfig) -> Result<Arc<SharedLog>, OpenError> {
        if config.limit_bytes < LogConfig::LIMIT_BYTES_MIN {
            let least = LogConfig::LIMIT_BYTES_MIN;
            let what = format!("a log limit of {} bytes is too small; the least is {least}", config.limit_bytes);
            return Err(OpenError::Settings { what });
        }
        let segment_bytes = config.segment_bytes.min(config.limit_bytes / SEGMENTS_PER_LIMIT).max(SEGMENT_BYTES_MIN);
        let files = Arc::new(Files::new(Disk::os(), directory.clone()));
        let shared = Arc::new(Shared::new(config));
        let (cache_bytes, recovering, sharing) = (config.cache_bytes, files.clone(), shared.clone());
        // Off the runtime's threads: recovery reads and checks every byte of the log.
        let opened = task::run_io(async move {
            let found = recover::recover(&recovering, cache_bytes).await?;
            let groups = (found.groups.clone(), found.removed.clone());
            let new_log = terrane_env::rand::u64();
            let writer = Writer::start(sharing, recovering, segment_bytes, found, new_log).await;
            let writer = writer.map_err(|source| OpenError::Io { dir: directory.display().to_string(), source })?;
            Ok::<_, OpenError>((groups, writer))
        });
        let ((groups, removed), writer) = opened.await?;
        let running = task::spawn_io_loop("raft-log", writer.run());
        Ok(Arc::new(SharedLog {
            shared,
            files,
            groups: Mutex::new(groups),
            removed: Mutex::new(removed),
            writer: Mutex::new(Some(running)),
            limit_bytes: config.limit_bytes,
            segment_bytes,
        }))
    }

    /// The logs of all groups, by id.
    pub(crate) fn groups(&self) -> Vec<Arc<GroupLog>> {
        self.groups.lock().values().cloned().collect()
    }

    /// The groups whose replica was removed, until [`SharedLog::forget`]. A restart finds them again.
    pub(crate) fn removed(&self) -> Vec<GroupId> {
        self.removed.lock().keys().copied().collect()
    }

    /// Files in the log's directory that are neither segments nor held files that the log knows, with their lengths. A file
    /// that is being made may be among them.
    pub(crate) async fn unnamed_files(&self) -> std::io::Result<Vec<(PathBuf, u64)>> {
        let files = self.files.clone();
        let listed = task::run_io(async move {
            let mut unnamed = Vec::new();
            for name in files.disk().list(files.directory()).await? {
                let is_held = |number| files.held.lock().has(number);
                let is_known = name == names::SPARE
                    || names::segment_number(&name).is_some()
                    || names::is_unfinished(&name)
                    || names::held_number(&name).is_some_and(is_held);
                let path = files.directory().join(&name);
                if !is_known && let Ok(length) = files.disk().file_len(&path).await {
                    unnamed.push((path, length));
                }
            }
            Ok(unnamed)
        });
        listed.await
    }

    /// Nothing is left of a removed replica of this group.
    pub(crate) fn forget(&self, group: GroupId) {
        if let Some(log) = self.removed.lock().remove(&group) {
            self.shared.push(Item { log, change: Change::Forgotten, done: Completion::Unobserved });
        }
    }

    /// Records a new group, durably. `None` if the log was closed.
    pub(crate) async fn create(&self, spec: GroupSpec) -> Option<Arc<GroupLog>> {
        let log = Arc::new(GroupLog::new(spec, self.files.clone()));
        self.removed.lock().remove(&log.group());
        let before = self.groups.lock().insert(log.group(), log.clone());
        assert!(before.is_none(), "group {} was created twice: its first log would be lost", log.group());
        let (done, synced) = oneshot::channel();
        self.shared.push(Item { log: log.clone(), change: Change::Created, done: Completion::Waiter(done) });
        synced.await.ok().map(|()| log)
    }

    /// Removes a group, durably. Its replica must have stopped. `None` if the log was closed.
    pub(crate) async fn remove(&self, log: &Arc<GroupLog>) -> Option<()> {
        self.groups.lock().remove(&log.group());
        log.set_removed();
        self.removed.lock().insert(log.group(), log.clone());
        let (done, synced) = oneshot::channel();
        self.shared.push(Item { log: log.clone(), change: Change::Removed, done: Completion::Waiter(done) });
        synced.await.ok()
    }

    /// A group's log as openraft sees it.
    pub(crate) fn store(&self, log: &Arc<GroupLog>) -> store::Store {
        store::Store::new(self.shared.clone(), log.clone())
    }

    /// When the writer writes and syncs.
    pub(crate) fn sync_times(&self) -> &SyncTimes {
        &self.shared.syncs
    }

    /// The segment that is being written. It exists for as long as the data directory is there.
    pub(crate) fn newest_file(&self) -> PathBuf {
        self.files.path(self.totals().newest)
    }

    /// Counts as of the last batch.
    pub(crate) fn totals(&self) -> Totals {
        *self.shared.totals.lock()
    }

    /// Returns when the log has grown past its budget or limit.
    pub(crate) async fn over_budget(&self) {
        self.shared.pressed.notified().await;
    }

    /// The groups that hold back a log over its budget, each with the last index that must be purged.
    pub(crate) fn holders(&self) -> Vec<(GroupId, u64)> {
        self.shared.holders.lock().clone()
    }

    /// Why the disk permits no entries with operations from other leaders, if it does not.
    pub(crate) fn space_refusal(&self) -> Option<String> {
        self.shared.space.refusal()
    }

    /// Why the next segment cannot be allocated, while that is so. Then nothing is proposed here either.
    pub(crate) fn lacks_space(&self) -> Option<String> {
        self.shared.space.lacking()
    }

    /// Sets or clears the reason why the owner of the disk reserves the remaining space for something else.
    pub(crate) fn set_reserved(&self, reason: Option<String>) {
        self.shared.space.set_reserved(reason);
    }

    /// Asks the writer to try again to allocate the next segment, if that failed.
    pub(crate) fn retry_allocation(&self) {
        if self.lacks_space().is_some() {
            self.shared.retry_allocation();
        }
    }

    pub(crate) fn set_held_by(&self, held_by: Option<String>) {
        *self.shared.held_by.lock() = held_by;
    }

    pub(crate) fn held_by(&self) -> Option<String> {
        self.shared.held_by.lock().clone()
    }

    /// The log of a group.
    fn group(&self, group: GroupId) -> Option<Arc<GroupLog>> {
        self.groups.lock().get(&group).cloned()
    }

    /// Whether at least one group is refused.
    pub(crate) fn full(&self) -> bool {
        self.shared.refusing.load(Ordering::Relaxed) || self.shared.overrun.load(Ordering::Relaxed)
    }

    /// Why a group may write no more proposals (or, on a follower, no more entries), if it may not.
    pub(crate) fn refusal(&self, group: GroupId, role: Role) -> Option<Refusal> {
        if !self.full() {
            return None;
        }
        let refusals = self.shared.refusals.lock();
        let refusal = refusals.get(group, role);
        let overrun = self.shared.overrun.load(Ordering::Relaxed);
        refusal.or_else(|| overrun.then(|| Refusal { share: self.limit_bytes, used: self.totals().all_bytes() }))
    }

    /// Decides again which groups are refused.
    pub(crate) fn share_out(&self, uses: &[GroupUse]) {
        let totals = self.totals();
        self.shared.looked_at.store(totals.all_bytes(), Ordering::Relaxed);
        let refusals = shares::decide(uses, totals.all_bytes(), self.limit_bytes, self.shared.spill_bytes);
        self.shared.refusing.store(!refusals.is_empty(), Ordering::Relaxed);
        *self.shared.refusals.lock() = refusals;
    }

    /// The refused groups, each with the reason.
    pub(crate) fn refusals(&self) -> Vec<(GroupId, Refusal)> {
        self.shared.refusals.lock().all()
    }

    /// Why copying entries out of old segments fails, while it is needed and does.
    pub(crate) fn spill_trouble(&self) -> Option<String> {
        // A failed copy is not repeated once the segments have become few in another way.
        let is_needed = self.totals().bytes > self.shared.spill_bytes;
        self.shared.spill_trouble.lock().clone().filter(|_| is_needed)
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The process is stopping: a writer that waits for space on a full disk gives up instead of blocking the stop.
    pub(crate) fn stop_waiting(&self) {
        self.shared.stop_waiting();
    }

    /// Returns when everything queued so far is synced and the writer has ended. Later calls on stores fail.
    pub(crate) async fn close(&self) {
        self.shared.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            writer.join().await;
        }
    }
}
