//! Holds entries back from being applied while the memtables have no room for them.
//!
//! A leader's own writes are slowed down and refused by the admission long before that. But nobody asks a follower that
//! catches up, or a server that replays its log: entries come as fast as they can be read, and only flushes make room. So
//! every entry waits here, before it takes anything that a flush needs, until the memtables are below the limit again.
//!
//! The sum of the memtables is known as of the last turn of the housekeeping; what was applied since is added to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The limit, in percent of the memtable budget. Leaders refuse at a hundred: the rest is for what they took in before.
const LIMIT_PERCENT: u64 = 125;

/// How often the housekeeping is reminded while an entry waits.
const REMIND: Duration = Duration::from_millis(100);

/// The gate. Numbers only guard memory, they order nothing: relaxed accesses do.
pub struct ApplyGate {
    limit: u64,
    memtables: AtomicU64,
    applied_since: AtomicU64,
    waiting: AtomicU64,
    /// The server stops: what is applied now is in the log, and no flush will make room.
    released: AtomicBool,
    room: Notify,
}

impl Default for ApplyGate {
    /// Without a limit.
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            memtables: AtomicU64::new(0),
            applied_since: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            released: AtomicBool::new(false),
            room: Notify::new(),
        }
    }
}

impl ApplyGate {
    #[must_use]
    pub fn new(memtable_budget: u64) -> Self {
        Self { limit: memtable_budget / 100 * LIMIT_PERCENT, ..Self::default() }
    }

    /// Waits until there is room, and takes up `bytes` of it. Calls `remind` while it waits. An entry is let in whatever its
    /// size once the memtables are below the limit.
    pub async fn enter(&self, bytes: u64, remind: impl Fn()) {
        if !self.has_room() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let waits = Waits(self);
            while !self.has_room() {
                let room = self.room.notified();
                tokio::pin!(room);
                // From here on no notice is missed.
                room.as_mut().enable();
                if !self.has_room() {
                    remind();
                    // The sum is renewed at every turn; the turn must not be left out because nothing was applied.
                    tokio::time::timeout(REMIND, room).await.ok();
                }
            }
            drop(waits);
        }
        self.applied_since.fetch_add(bytes, Ordering::Relaxed);
    }

    fn has_room(&self) -> bool {
        self.used() < self.limit || self.released.load(Ordering::Relaxed)
    }

    fn used(&self) -> u64 {
        self.memtables.load(Ordering::Relaxed).saturating_add(self.applied_since.load(Ordering::Relaxed))
    }

    /// The sum of all memtables, as of now.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.applied_since.store(0, Ordering::Relaxed);
        self.memtables.store(bytes, Ordering::Relaxed);
        self.room.notify_waiters();
    }

    /// Entries that wait.
    #[cfg(test)]
    fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets everything through from now on.
    pub fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
        self.room.notify_waiters();
    }
}

/// Counts one that waits, until it is dropped.
struct Waits<'a>(&'a ApplyGate);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn entries_wait_while_the_memtables_are_over_their_limit() {
        let gate = ApplyGate::new(1000);
        gate.enter(1249, || {}).now_or_never().expect("there is room");
        gate.enter(5000, || {}).now_or_never().expect("below the limit any entry is let in");
        let reminded = AtomicUsize::new(0);
        let remind = || {
            reminded.fetch_add(1, Ordering::Relaxed);
        };
        assert!(gate.enter(1, remind).now_or_never().is_none());
        assert_eq!((reminded.load(Ordering::Relaxed), gate.waiting()), (1, 0));
        gate.set_memtable_bytes(1250);
        assert!(gate.enter(1, || {}).now_or_never().is_none());
        gate.set_memtable_bytes(1249);
        gate.enter(1, || {}).now_or_never().expect("a flush made room");
    }

    #[tokio::test]
    async fn who_waits_goes_on_at_a_flush_and_at_the_end() {
        let gate = Arc::new(ApplyGate::new(1000));
        for end in [false, true] {
            gate.set_memtable_bytes(9999);
            let waiting = gate.clone();
            let entered = tokio::spawn(async move { waiting.enter(1, || {}).await });
            while gate.waiting() == 0 {
                tokio::task::yield_now().await;
            }
            if end {
                gate.release()
            } else {
                gate.set_memtable_bytes(0)
            }
            entered.await.unwrap();
        }
    }
}
