//! The shared log: one stream of records for all groups of a process, written and synced by one loop.
//!
//! [`SharedLog`] is the queue in front of the writer and the directory of groups; [`store::Store`] is what openraft sees of
//! one group. A call changes the group's memory at once and queues the same change for the writer, under no lock that spans
//! groups, so the order of one group's records is the order of its calls.
//!
//! Invariants:
//! - What was reported as synced is found again by recovery, or recovery refuses to open.
//! - Segments are removed only from the oldest on, and only when nothing in them is needed by what is durable, or when what is
//!   needed was copied to held files, durably.
//! - `Created`, vote and purge state of every group stand at the head of every segment.
//!
//! The layout is written down in `docs/formats/log.md`.

mod batch;
mod cache;
mod check;
mod extents;
mod files;
mod held;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests look at the directory and damage it from outside")]
mod held_tests;
mod index;
mod memory;
mod record;
mod recover;
mod room;
#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests fill a disk from outside")]
mod room_tests;
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use terrane_env::task::{self, IoLoop};
use terrane_types::GroupId;
use tokio::sync::{Notify, oneshot};

pub use self::check::{LoggedGroup, check_log};
use self::files::Files;
pub(crate) use self::memory::GroupLog;
pub(crate) use self::memory::payload_bytes;
pub(crate) use self::record::Mark;
use self::room::Space;
use self::shares::Refusals;
pub(crate) use self::shares::{Refusal, Role, Use};
use self::spill::Wanted;
use self::writer::{Change, Done, Item, Writer};
use crate::{GroupSpec, LogConfig, OpenError};

/// Bytes that may wait for the writer; appends wait for room beyond that.
const QUEUE_BYTES_MAX: usize = 64 << 20;

const SEGMENTS_PER_LIMIT: u64 = LogConfig::SEGMENTS_PER_LIMIT;

/// The shares of groups are reckoned anew whenever the log has grown by this part of its limit.
const LOOKS_PER_LIMIT: u64 = 32;

/// Segments below this size would hold little beside the state at their head.
const SEGMENT_BYTES_MIN: u64 = 4 << 10;

/// The log of a process.
pub(crate) struct SharedLog {
    shared: Arc<Shared>,
    files: Arc<Files>,
    groups: Mutex<BTreeMap<GroupId, Arc<GroupLog>>>,
    writer: Mutex<Option<IoLoop>>,
    limit_bytes: u64,
    segment_bytes: u64,
}

/// What the callers of the log and its writer have in common.
struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued, or the queue was closed.
    work: Notify,
    /// The writer emptied the queue.
    room: Notify,
    totals: Mutex<Totals>,
    space: Space,
    /// The groups that hold back a log over its budget, with the last index that has to go.
    holders: Mutex<Vec<(GroupId, u64)>>,
    /// In words, who keeps the log from being purged.
    held_by: Mutex<Option<String>>,
    /// What is to be copied out of old segments.
    wanted: Mutex<Option<Wanted>>,
    spill: Notify,
    /// Why that failed, while it does.
    spill_trouble: Mutex<Option<String>>,
    /// Some group may take no more.
    refusing: AtomicBool,
    refusals: Mutex<Refusals>,
    /// The log grew far beyond its limit: all that write it are refused at once.
    overrun: AtomicBool,
    /// The log grew past its budget or its limit, or by a good part since it was last looked at.
    pressed: Notify,
    /// Its size when it was.
    looked_at: AtomicU64,
    limit_bytes: u64,
    budget_bytes: u64,
    /// Above this size of all segments together, what holds back old ones is copied to held files.
    spill_bytes: u64,
}

#[derive(Default)]
struct Queue {
    items: Vec<Item>,
    bytes: usize,
    /// Somebody wants the writer to look for room on the disk.
    look_for_room: bool,
    closed: bool,
    /// The process stops; see [`Shared::stop_waiting`].
    stopping: bool,
}

/// Counts of the log, as of the last batch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) bytes: u64,
    pub(crate) segments: u64,
    pub(crate) syncs: u64,
    pub(crate) entries: u64,
    pub(crate) written: u64,
    /// The number of the newest segment.
    pub(crate) newest: u64,
    /// The group that needs the oldest segment.
    pub(crate) oldest: Option<GroupId>,
    pub(crate) held_bytes: u64,
    pub(crate) held_files: u64,
}

impl Totals {
    /// Bytes of segments and held files.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.bytes + self.held_bytes
    }
}

impl Shared {
    fn new(config: &LogConfig) -> Shared {
        let budget_bytes = config.purge_budget_bytes.min(config.limit_bytes / 4);
        Shared {
            queue: Mutex::default(),
            work: Notify::new(),
            room: Notify::new(),
            totals: Mutex::default(),
            space: Space::default(),
            holders: Mutex::default(),
            held_by: Mutex::default(),
            wanted: Mutex::default(),
            spill: Notify::new(),
            spill_trouble: Mutex::default(),
            refusing: AtomicBool::new(false),
            refusals: Mutex::default(),
            overrun: AtomicBool::new(false),
            pressed: Notify::new(),
            looked_at: AtomicU64::new(0),
            limit_bytes: config.limit_bytes,
            budget_bytes,
            spill_bytes: shares::spill_bytes(config.limit_bytes, budget_bytes),
        }
    }

    /// Everything that is queued; waits while there is nothing. `None` when the queue is closed and empty, no items when the
    /// writer is to look for room on the disk.
    async fn next_items(&self) -> Option<Vec<Item>> {
        loop {
            {
                let mut queue = self.queue.lock();
                if !queue.items.is_empty() {
                    queue.bytes = 0;
                    let items = std::mem::take(&mut queue.items);
                    drop(queue);
                    self.room.notify_waiters();
                    return Some(items);
                }
                if std::mem::take(&mut queue.look_for_room) {
                    return Some(Vec::new());
                }
                if queue.closed {
                    return None;
                }
            }
            // A push after the look above leaves a permit, so it is not missed.
            self.work.notified().await;
        }
    }

    /// Queues an item. After the close it is dropped, which whoever waits for it notices.
    fn push(&self, item: Item) {
        let bytes = match &item.change {
            Change::Entries(_, entries) => entries.iter().map(|entry| payload_bytes(&entry.payload)).sum(),
            _ => 0,
        };
        let mut queue = self.queue.lock();
        if queue.closed {
            return;
        }
        queue.bytes += bytes;
        queue.items.push(item);
        let first = queue.items.len() == 1;
        drop(queue);
        if first {
            self.work.notify_one();
        }
    }

    async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            {
                let queue = self.queue.lock();
                if queue.bytes <= QUEUE_BYTES_MAX || queue.closed {
                    return;
                }
            }
            room.await;
        }
    }

    /// Waits for the next time that somebody has the writer look for room; false when the log is closed.
    async fn wait_for_space(&self) -> bool {
        if !self.ends() {
            self.space.look.notified().await;
        }
        !self.ends()
    }

    fn ends(&self) -> bool {
        let queue = self.queue.lock();
        queue.closed || queue.stopping
    }

    /// From now on the writer waits for no room on the disk: what does not fit is left out, and the log ends there.
    fn stop_waiting(&self) {
        self.queue.lock().stopping = true;
        self.space.look.notify_one();
    }

    /// Closes the queue and drops what is in it, which whoever waits for it notices.
    fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let items = std::mem::take(&mut queue.items);
        drop(queue);
        drop(items);
        self.room.notify_waiters();
    }

    fn close(&self) {
        self.queue.lock().closed = true;
        self.space.look.notify_one();
        self.work.notify_one();
        self.room.notify_waiters();
    }

    fn publish(&self, totals: Totals, holders: Vec<(GroupId, u64)>, wanted: Option<Wanted>) {
        let pressed = !holders.is_empty() && self.holders.lock().is_empty();
        let bytes = totals.all_bytes();
        let grown = bytes > self.looked_at.load(Ordering::Relaxed) + self.limit_bytes / LOOKS_PER_LIMIT;
        let grown = grown && bytes > self.budget_bytes;
        *self.holders.lock() = holders;
        self.overrun.store(bytes >= shares::overrun(self.limit_bytes), Ordering::Relaxed);
        *self.totals.lock() = totals;
        if pressed || grown {
            self.pressed.notify_one();
        }
        let spills = wanted.is_some();
        *self.wanted.lock() = wanted;
        if spills {
            self.spill.notify_one();
        }
    }

    fn set_spill_trouble(&self, trouble: Option<String>) {
        let mut current = self.spill_trouble.lock();
        if let (None, Some(trouble)) = (&*current, &trouble) {
            tracing::error!("{trouble}; trying again");
        }
        *current = trouble;
    }
}

impl SharedLog {
    /// Recovers the log in `directory` and starts its writer.
    pub(crate) async fn open(directory: PathBuf, config: &LogConfig) -> Result<Arc<SharedLog>, OpenError> {
        if config.limit_bytes < SEGMENTS_PER_LIMIT * SEGMENT_BYTES_MIN {
            let least = SEGMENTS_PER_LIMIT * SEGMENT_BYTES_MIN;
            let what = format!("a log limit of {} bytes leaves no room; the least is {least}", config.limit_bytes);
            return Err(OpenError::Settings { what });
        }
        let segment_bytes = config.segment_bytes.min(config.limit_bytes / SEGMENTS_PER_LIMIT).max(SEGMENT_BYTES_MIN);
        let files = Arc::new(Files::new(directory.clone()));
        let shared = Arc::new(Shared::new(config));
        let (cache_bytes, recovering, sharing) = (config.cache_bytes, files.clone(), shared.clone());
        // Off the runtime's threads: it reads and checks every byte of the log.
        let opened = task::run_io(async move {
            let found = recover::recover(&recovering, cache_bytes).await?;
            let groups = found.groups.clone();
            let new_log = terrane_env::rand::u64();
            let writer = Writer::start(sharing, recovering, segment_bytes, found, new_log).await;
            let writer = writer.map_err(|source| OpenError::Io { dir: directory.display().to_string(), source })?;
            Ok::<_, OpenError>((groups, writer))
        });
        let (groups, writer) = opened.await?;
        let running = task::spawn_io_loop("raft-log", writer.run());
        Ok(Arc::new(SharedLog {
            shared,
            files,
            groups: Mutex::new(groups),
            writer: Mutex::new(Some(running)),
            limit_bytes: config.limit_bytes,
            segment_bytes,
        }))
    }

    /// The groups that are recorded, by id.
    pub(crate) fn groups(&self) -> Vec<Arc<GroupLog>> {
        self.groups.lock().values().cloned().collect()
    }

    /// Records a group, durably. The caller made sure that it is not there.
    pub(crate) async fn create(&self, spec: GroupSpec) -> Option<Arc<GroupLog>> {
        let log = Arc::new(GroupLog::new(spec, self.files.clone()));
        self.groups.lock().insert(log.group(), log.clone());
        let (done, synced) = oneshot::channel();
        self.shared.push(Item { log: log.clone(), change: Change::Created, done: Done::Waiter(done) });
        synced.await.ok().map(|()| log)
    }

    /// What openraft sees of a group's log.
    pub(crate) fn store(&self, log: &Arc<GroupLog>) -> store::Store {
        store::Store::new(self.shared.clone(), log.clone())
    }

    /// Counts as of the last batch.
    pub(crate) fn totals(&self) -> Totals {
        *self.shared.totals.lock()
    }

    /// Returns when the log has grown past its budget or limit.
    pub(crate) async fn pressed(&self) {
        self.shared.pressed.notified().await;
    }

    /// The groups that hold back a log over its budget, each with the last index that has to go.
    pub(crate) fn holders(&self) -> Vec<(GroupId, u64)> {
        self.shared.holders.lock().clone()
    }

    /// Why no entry of another leader with operations may be taken, as far as the disk is concerned.
    pub(crate) fn space_refusal(&self) -> Option<String> {
        self.shared.space.refusal()
    }

    /// Why no segment can be allocated ahead, while that is so. Then nothing is proposed here either.
    pub(crate) fn lacks_room(&self) -> Option<String> {
        self.shared.space.lacking()
    }

    /// The owner of the disk keeps what is left of it for something else, or no longer does.
    pub(crate) fn set_reserved(&self, reason: Option<String>) {
        self.shared.space.set_reserved(reason);
    }

    /// Has the writer look for room, if it lacks any.
    pub(crate) fn look_for_room(&self) {
        if self.lacks_room().is_some() {
            self.shared.queue.lock().look_for_room = true;
            self.shared.space.look.notify_one();
            self.shared.work.notify_one();
        }
    }

    pub(crate) fn set_held_by(&self, held_by: Option<String>) {
        *self.shared.held_by.lock() = held_by;
    }

    pub(crate) fn held_by(&self) -> Option<String> {
        self.shared.held_by.lock().clone()
    }

    /// The recorded group of that id.
    fn group(&self, group: GroupId) -> Option<Arc<GroupLog>> {
        self.groups.lock().get(&group).cloned()
    }

    /// Whether some group takes no more.
    pub(crate) fn full(&self) -> bool {
        self.shared.refusing.load(Ordering::Relaxed) || self.shared.overrun.load(Ordering::Relaxed)
    }

    /// Why a group takes no more proposals (or, on a follower, no more entries), if it does not.
    pub(crate) fn refusal(&self, group: GroupId, role: Role) -> Option<Refusal> {
        if !self.full() {
            return None;
        }
        let refusals = self.shared.refusals.lock();
        let refusal = refusals.get(group, role);
        let overrun = self.shared.overrun.load(Ordering::Relaxed);
        refusal.or_else(|| overrun.then(|| Refusal { share: self.limit_bytes, used: self.totals().all_bytes() }))
    }

    /// Decides anew which groups take no more.
    pub(crate) fn share_out(&self, uses: &[Use]) {
        let totals = self.totals();
        self.shared.looked_at.store(totals.all_bytes(), Ordering::Relaxed);
        let refusals = shares::decide(uses, totals.all_bytes(), self.limit_bytes, self.shared.spill_bytes);
        self.shared.refusing.store(!refusals.is_empty(), Ordering::Relaxed);
        *self.shared.refusals.lock() = refusals;
    }

    /// The groups that take no more, each with why.
    pub(crate) fn refusals(&self) -> Vec<(GroupId, Refusal)> {
        self.shared.refusals.lock().all()
    }

    /// Why old segments cannot be relieved, while they cannot.
    pub(crate) fn spill_trouble(&self) -> Option<String> {
        self.shared.spill_trouble.lock().clone()
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns when everything queued so far is synced and the writer has ended. Later calls on stores fail.
    /// The process stops: a writer that waits for room on a full disk gives up instead of holding everything up.
    pub(crate) fn stop_waiting(&self) {
        self.shared.stop_waiting();
    }

    pub(crate) async fn close(&self) {
        self.shared.close();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer {
            writer.join().await;
        }
    }
}
