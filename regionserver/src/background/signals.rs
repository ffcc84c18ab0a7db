//! What state machines and other tasks tell the background work: something was applied, a region must be flushed, there
//! may be something to compact.
//!
//! Signals are raised while entries are applied, so everything here returns at once, except for the wait at the apply
//! gate.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use terrane_types::RegionId;
use tokio::sync::Notify;

use crate::group::apply_gate::ApplyGate;

/// The signals of one server.
#[derive(Default)]
pub struct Signals {
    wake: Notify,
    /// Something was applied since the last turn.
    applied: AtomicBool,
    /// Regions whose flush something waits for. At most one entry per region of this server.
    flushes: Mutex<BTreeSet<RegionId>>,
    /// There may be something to compact.
    compaction: AtomicBool,
    /// Where entries wait until the memtables have space for them.
    gate: ApplyGate,
}

impl Signals {
    /// Signals of a server whose memtables have this budget.
    #[must_use]
    pub fn new(memtable_budget: u64) -> Self {
        Self { gate: ApplyGate::new(memtable_budget), ..Self::default() }
    }

    /// Waits until the memtables have space for an entry of `bytes`. The caller must not hold anything that a flush needs.
    pub async fn wait_for_memtables(&self, bytes: u64) {
        self.gate.enter(bytes, || self.wake()).await;
    }

    /// Sets the total size of all memtables.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.gate.set_memtable_bytes(bytes);
    }

    /// Lets every entry through the apply gate from now on: the server stops, and no further flush will free memory.
    pub fn release_gate(&self) {
        self.gate.release();
    }

    /// Rows were written. `full`: the memtable has just reached its flush size.
    pub fn applied(&self, full: bool) {
        self.applied.store(true, Ordering::Relaxed);
        if full {
            self.wake.notify_one();
        }
    }

    /// Requests a flush of a region, because something waits for it.
    pub fn request_flush(&self, region: RegionId) {
        self.flushes.lock().insert(region);
        self.wake();
    }

    /// Regions with a requested flush that has not begun.
    pub fn requested_flushes(&self) -> BTreeSet<RegionId> {
        self.flushes.lock().clone()
    }

    /// Whether any flush is requested.
    pub fn has_requested_flushes(&self) -> bool {
        !self.flushes.lock().is_empty()
    }

    /// Drops the request for a region: its flush has begun.
    pub fn flush_begins(&self, region: RegionId) {
        self.flushes.lock().remove(&region);
    }

    /// Puts the request for a region back without waking anyone: its flush failed and is retried later.
    pub fn flush_failed(&self, region: RegionId) {
        self.flushes.lock().insert(region);
    }

    /// Drops requests for regions that are gone. Their daughters have requests of their own.
    pub fn retain_flushes(&self, is_here: impl Fn(RegionId) -> bool) {
        self.flushes.lock().retain(|region| is_here(*region));
    }

    /// There may be something to compact: look now.
    pub fn request_compaction(&self) {
        self.note_compaction();
        self.wake();
    }

    /// There may be something to compact: look at the next turn.
    pub fn note_compaction(&self) {
        self.compaction.store(true, Ordering::Relaxed);
    }

    /// Whether there may be something to compact; resets the signal.
    pub fn take_compaction(&self) -> bool {
        self.compaction.swap(false, Ordering::Relaxed)
    }

    /// Marks that there is something to look at, without cutting the present pause short.
    pub fn note_work(&self) {
        self.applied.store(true, Ordering::Relaxed);
    }

    /// Whether anything happened since the last call; resets the signal.
    pub fn take_work(&self) -> bool {
        self.applied.swap(false, Ordering::Relaxed)
    }

    /// Wakes the background task.
    pub fn wake(&self) {
        self.note_work();
        self.wake.notify_one();
    }

    /// Returns when the background task is woken.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}
