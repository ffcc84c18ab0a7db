//! Holds entries back from being applied while the memtables are too full.
//!
//! A leader's own writes are slowed down and rejected by admission long before that. Nothing slows down a follower that
//! catches up, or a server that replays its log: entries arrive as fast as they can be read, and only flushes free memory.
//! So every entry waits here, before it takes anything that a flush needs, until the memtables are below the limit again.
//!
//! The total of the memtables is known as of the last turn of the background task; what was applied since is added to it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

/// The limit, in percent of the memtable budget. Leaders reject writes at 100 percent; the rest is for writes that they
/// admitted before.
const LIMIT_PERCENT: u64 = 125;

/// How often the background task is woken while an entry waits.
const REMIND: Duration = Duration::from_millis(100);

/// The gate. The numbers only guard memory and order nothing, so relaxed accesses suffice.
pub struct ApplyGate {
    limit: u64,
    memtables: AtomicU64,
    applied_since: AtomicU64,
    waiting: AtomicU64,
    /// The server stops: what is applied now is in the log, and no further flush will free memory.
    released: AtomicBool,
    opened: Notify,
}

impl Default for ApplyGate {
    /// A gate without a limit.
    fn default() -> Self {
        Self {
            limit: u64::MAX,
            memtables: AtomicU64::new(0),
            applied_since: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            released: AtomicBool::new(false),
            opened: Notify::new(),
        }
    }
}

impl ApplyGate {
    #[must_use]
    pub fn new(memtable_budget: u64) -> Self {
        Self { limit: memtable_budget / 100 * LIMIT_PERCENT, ..Self::default() }
    }

    /// Waits until the memtables are below the limit, and adds `bytes` to them. Below the limit an entry of any size passes.
    /// Calls `remind` now and then while it waits.
    pub async fn enter(&self, bytes: u64, remind: impl Fn()) {
        if !self.is_open() {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            let waits = Waits(self);
            while !self.is_open() {
                let opened = self.opened.notified();
                tokio::pin!(opened);
                // From here on no notification is missed.
                opened.as_mut().enable();
                if !self.is_open() {
                    remind();
                    // Every turn updates the total. Without the reminder an idle turn would skip that.
                    tokio::time::timeout(REMIND, opened).await.ok();
                }
            }
            drop(waits);
        }
        self.applied_since.fetch_add(bytes, Ordering::Relaxed);
    }

    fn is_open(&self) -> bool {
        self.used() < self.limit || self.released.load(Ordering::Relaxed)
    }

    fn used(&self) -> u64 {
        self.memtables.load(Ordering::Relaxed).saturating_add(self.applied_since.load(Ordering::Relaxed))
    }

    /// Sets the present total of all memtables.
    pub fn set_memtable_bytes(&self, bytes: u64) {
        self.applied_since.store(0, Ordering::Relaxed);
        self.memtables.store(bytes, Ordering::Relaxed);
        // A waiter reminds the task that calls this. Woken while the gate is shut, it would remind again at once, and both would
        // spin.
        if self.is_open() {
            self.opened.notify_waiters();
        }
    }

    /// The number of waiting entries.
    #[cfg(test)]
    fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Lets everything through from now on.
    pub fn release(&self) {
        self.released.store(true, Ordering::Relaxed);
        self.opened.notify_waiters();
    }
}

/// Counts a waiting entry until it is dropped.
struct Waits<'a>(&'a ApplyGate);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod script_tests;
#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn entries_wait_while_the_memtables_are_over_their_limit() {
        let gate = ApplyGate::new(1000);
        gate.enter(1249, || {}).now_or_never().expect("below the limit");
        gate.enter(5000, || {}).now_or_never().expect("below the limit an entry of any size passes");
        let reminded = AtomicUsize::new(0);
        let remind = || {
            reminded.fetch_add(1, Ordering::Relaxed);
        };
        assert!(gate.enter(1, remind).now_or_never().is_none());
        assert_eq!((reminded.load(Ordering::Relaxed), gate.waiting()), (1, 0));
        gate.set_memtable_bytes(1250);
        assert!(gate.enter(1, || {}).now_or_never().is_none());
        gate.set_memtable_bytes(1249);
        gate.enter(1, || {}).now_or_never().expect("a flush freed memory");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reminder_that_frees_nothing_is_not_repeated_at_once() {
        let gate = ApplyGate::new(1000);
        gate.set_memtable_bytes(9999);
        let (reminded, began) = (AtomicUsize::new(0), tokio::time::Instant::now());
        // The background task looks at once and finds that its flushes still run.
        let look = || match reminded.fetch_add(1, Ordering::Relaxed) {
            0..=2 => gate.set_memtable_bytes(9999),
            _ => gate.set_memtable_bytes(0),
        };
        gate.enter(1, look).await;
        assert_eq!(reminded.load(Ordering::Relaxed), 4);
        assert!(began.elapsed() >= 3 * REMIND, "reminders within {:?}", began.elapsed());
    }

    #[tokio::test]
    async fn a_waiting_entry_passes_after_a_flush_and_when_the_server_stops() {
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
