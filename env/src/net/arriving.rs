//! Which unfinished messages give way when there is no room: those that hardly arrive although the server reads them, the
//! largest first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::budget::Budget;

/// The bytes of a message that must arrive in each second after the first ones.
pub const RATE_MIN: u64 = 64 << 10;
/// A message of which less than [`RATE_MIN`] bytes have come in this time gives way to others.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// The shortest time between two searches for messages that give way.
const ROOM_EVERY: Duration = Duration::from_millis(100);

/// The unfinished messages of a server that count.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    places: BTreeMap<u64, Arc<Place>>,
    last: u64,
    looked_at: Option<Instant>,
}

impl Arriving {
    pub(super) fn add(&mut self, held: u64) -> Arc<Place> {
        self.last += 1;
        let progress = Progress { is_read: true, since: Instant::now(), bytes: 0 };
        let place = Arc::new(Place {
            number: self.last,
            held: AtomicU64::new(held),
            progress: Mutex::new(progress),
            gives_way: AtomicBool::new(false),
            task: AtomicWaker::new(),
        });
        self.places.insert(self.last, place.clone());
        place
    }

    /// The message is no longer unfinished.
    pub(super) fn remove(&mut self, place: &Place) {
        self.places.remove(&place.number);
    }

    /// Lets messages that hardly move give way, the largest first, until half of the budget would be free.
    pub(super) fn make_room(&mut self, bodies: &Budget) {
        let now = Instant::now();
        if self.looked_at.is_some_and(|looked_at| now.duration_since(looked_at) < ROOM_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        let mut slow: Vec<&Arc<Place>> = self.places.values().filter(|place| place.is_slow(now)).collect();
        slow.sort_by_key(|place| std::cmp::Reverse(place.held.load(Ordering::Relaxed)));
        let mut excess = bodies.used().saturating_sub(bodies.limit() / 2);
        for place in slow {
            if excess == 0 {
                return;
            }
            let held = place.held.load(Ordering::Relaxed);
            tracing::debug!(held, "an unfinished message that hardly arrives gives way to others");
            place.gives_way.store(true, Ordering::Release);
            place.task.wake();
            excess = excess.saturating_sub(held);
        }
    }
}

/// What others see of an unfinished message.
#[derive(Debug)]
pub(super) struct Place {
    number: u64,
    held: AtomicU64,
    progress: Mutex<Progress>,
    gives_way: AtomicBool,
    /// The task that reads it.
    task: AtomicWaker,
}

/// How a message arrives.
#[derive(Debug)]
struct Progress {
    /// The server reads it: otherwise it is not the sender who is slow.
    is_read: bool,
    since: Instant,
    /// Bytes that have arrived since then.
    bytes: u64,
}

impl Place {
    /// So many of its bytes count.
    pub(super) fn holds(&self, bytes: u64) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Whether it has to give way; otherwise this task is woken when it does.
    pub(super) fn gives_way(&self, task: &Waker) -> bool {
        self.task.register(task);
        self.gives_way.load(Ordering::Acquire)
    }

    /// More of it has arrived.
    pub(super) fn received(&self, bytes: u64) {
        let mut progress = self.progress.lock();
        progress.bytes += bytes;
        if progress.bytes >= RATE_MIN {
            (progress.since, progress.bytes) = (Instant::now(), 0);
        }
    }

    /// The server reads it from now on, or does not.
    pub(super) fn is_read(&self, is_read: bool) {
        let mut progress = self.progress.lock();
        if is_read && !progress.is_read {
            (progress.since, progress.bytes) = (Instant::now(), 0);
        }
        progress.is_read = is_read;
    }

    fn is_slow(&self, now: Instant) -> bool {
        let progress = self.progress.lock();
        let is_slow = progress.is_read && now.saturating_duration_since(progress.since) >= SLOW_AFTER;
        is_slow && !self.gives_way.load(Ordering::Relaxed)
    }
}
