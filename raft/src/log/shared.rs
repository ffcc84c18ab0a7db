//! What the callers of the log and its writer share: the queue in front of the writer, and the state that the writer
//! publishes after each batch.

use std::sync::Arc;

use openraft::storage::IOFlushed;
use terrane_env::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use terrane_env::sync::{Mutex, is_planted, limit, point};
use terrane_types::GroupId;
use tokio::sync::{Notify, oneshot};

use super::allocation::Space;
use super::memory::{Appended, GroupLog, payload_bytes};
use super::record::Mark;
use super::shares::{self, Refusals};
use crate::LogConfig;
use crate::leadership::stall::SyncTimes;
use crate::types::{Entry, Types, Vote};

/// Bytes queued for the writer; beyond that, appends wait.
const QUEUE_BYTES_MAX: usize = limit(64 << 20, 200);

/// The shares of groups are computed again whenever the log has grown by this part of its limit.
const LOOKS_PER_LIMIT: u64 = 32;

/// A change of one group that is queued for the log.
pub(super) struct Item {
    pub(super) log: Arc<GroupLog>,
    pub(super) change: Change,
    pub(super) done: Completion,
}

pub(super) enum Change {
    Created,
    Vote(Vote),
    Entries(Appended, Vec<Entry>),
    Truncated(Option<u64>),
    Purged(Mark),
    /// The last change of a replica.
    Removed,
    /// Nothing is left of a removed replica, so the log need not say any longer that it was removed. Writes nothing.
    Forgotten,
    /// Entries up to `last` were copied out of the segments before `before`. Writes nothing.
    Moved {
        before: u64,
        last: u64,
    },
}

/// Notified when an item is synced.
pub(super) enum Completion {
    Unobserved,
    Raft(IOFlushed<Types>),
    Waiter(oneshot::Sender<()>),
}

impl Completion {
    pub(super) fn report(self) {
        match self {
            Completion::Unobserved => {}
            Completion::Raft(flushed) => flushed.io_completed(Ok(())),
            // The waiter may have given up.
            Completion::Waiter(waiter) => drop(waiter.send(())),
        }
    }
}

/// The groups whose entries prevent the removal of the segments before `before`.
#[derive(Clone, Debug)]
pub(super) struct SpillRequest {
    pub(super) before: u64,
    pub(super) groups: Vec<GroupId>,
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

#[derive(Default)]
struct Queue {
    items: Vec<Item>,
    bytes: usize,
    /// The writer should try again to allocate the next segment.
    retry_allocation: bool,
    closed: bool,
    /// The process is stopping; see [`Shared::stop_waiting`].
    stopping: bool,
}

pub(super) struct Shared {
    queue: Mutex<Queue>,
    /// Something was queued, or the queue was closed.
    work: Notify,
    /// The writer emptied the queue.
    emptied: Notify,
    pub(super) totals: Mutex<Totals>,
    pub(super) space: Space,
    pub(super) syncs: SyncTimes,
    /// The groups that hold back a log over its budget, each with the last index that must be purged.
    pub(super) holders: Mutex<Vec<(GroupId, u64)>>,
    /// What keeps the log from being purged, for people.
    pub(super) held_by: Mutex<Option<String>>,
    /// What should be copied out of old segments.
    pub(super) spill_request: Mutex<Option<SpillRequest>>,
    pub(super) spill: Notify,
    /// Why copying fails, while it does.
    pub(super) spill_trouble: Mutex<Option<String>>,
    /// At least one group is refused.
    pub(super) refusing: AtomicBool,
    pub(super) refusals: Mutex<Refusals>,
    /// The log has grown far beyond its limit: every group is refused at once.
    pub(super) overrun: AtomicBool,
    /// The log grew past its budget or its limit, or by a good part since the last look at it.
    pub(super) pressed: Notify,
    /// Its size at that look.
    pub(super) looked_at: AtomicU64,
    pub(super) limit_bytes: u64,
    pub(super) budget_bytes: u64,
    /// Above this size of all segments together, the entries that hold back old ones are copied to held files.
    pub(super) spill_bytes: u64,
}

impl Shared {
    pub(super) fn new(config: &LogConfig) -> Shared {
        let budget_bytes = config.purge_budget_bytes.min(config.limit_bytes / 4);
        Shared {
            queue: Mutex::default(),
            work: Notify::new(),
            emptied: Notify::new(),
            totals: Mutex::default(),
            space: Space::default(),
            syncs: SyncTimes::default(),
            holders: Mutex::default(),
            held_by: Mutex::default(),
            spill_request: Mutex::default(),
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

    /// Everything that is queued; waits while there is nothing. `None` when the queue is closed and empty; no items when the
    /// writer should try again to allocate the next segment.
    pub(super) async fn next_items(&self) -> Option<Vec<Item>> {
        loop {
            {
                let mut queue = self.queue.lock();
                if !queue.items.is_empty() {
                    queue.bytes = 0;
                    let items = std::mem::take(&mut queue.items);
                    drop(queue);
                    self.emptied.notify_waiters();
                    return Some(items);
                }
                if std::mem::take(&mut queue.retry_allocation) {
                    return Some(Vec::new());
                }
                if queue.closed {
                    return None;
                }
            }
            // A push after the check above leaves a permit, so it is not missed.
            self.work.notified().await;
        }
    }

    /// Queues an item. After the close the item is dropped, which its waiter notices.
    pub(super) fn push(&self, item: Item) {
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

    /// Returns when the queue accepts more bytes, or is closed.
    pub(super) async fn wait_for_queue(&self) {
        loop {
            let mut emptied = self.emptied.notified();
            {
                let queue = self.queue.lock();
                if queue.bytes <= QUEUE_BYTES_MAX || queue.closed {
                    return;
                }
            }
            if is_planted("a caller begins to wait after it has looked") {
                point();
                emptied = self.emptied.notified();
            }
            emptied.await;
        }
    }

    /// Asks the writer to try again to allocate the next segment.
    pub(super) fn retry_allocation(&self) {
        self.queue.lock().retry_allocation = true;
        self.space.retry.notify_one();
        self.work.notify_one();
    }

    /// Waits for the next request to retry an allocation; false when the log is closed or the process is stopping.
    pub(super) async fn wait_for_space(&self) -> bool {
        if !self.ends() {
            self.space.retry.notified().await;
        }
        !self.ends()
    }

    fn ends(&self) -> bool {
        let queue = self.queue.lock();
        queue.closed || queue.stopping
    }

    /// From now on the writer does not wait for disk space: what does not fit is left out, and the log ends there.
    pub(super) fn stop_waiting(&self) {
        self.queue.lock().stopping = true;
        self.space.retry.notify_one();
    }

    /// Closes the queue and drops its items, which their waiters notice.
    pub(super) fn abandon(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        let items = std::mem::take(&mut queue.items);
        drop(queue);
        drop(items);
        self.emptied.notify_waiters();
    }

    /// Closes the queue; what is in it is still written.
    pub(super) fn close(&self) {
        self.queue.lock().closed = true;
        self.space.retry.notify_one();
        self.work.notify_one();
        self.emptied.notify_waiters();
    }

    /// Publishes the state after a batch, and wakes the tasks that have to act on it.
    pub(super) fn publish(&self, totals: Totals, holders: Vec<(GroupId, u64)>, spill_request: Option<SpillRequest>) {
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
        let spills = spill_request.is_some();
        *self.spill_request.lock() = spill_request;
        if spills {
            self.spill.notify_one();
        }
    }

    pub(super) fn set_spill_trouble(&self, trouble: Option<String>) {
        let mut current = self.spill_trouble.lock();
        if let (None, Some(trouble)) = (&*current, &trouble) {
            // Not an error: the next try may succeed, and until then `status` says so.
            tracing::warn!("{trouble}; retrying");
        }
        *current = trouble;
    }
}
