//! Bytes of requests from peers that are under way in this server, all links together.
//!
//! A request is counted from when it was read until it is answered, which for entries is when they are synced. While there is no
//! room, no entries are read from any link, and the transport's flow control holds the peers back. What has begun to come
//! is still read to its end: half a frame helps nobody. So the most is the limit and one frame a link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_env::budget::{Budget, Unit};
use tokio::sync::Notify;

/// Bytes of requests under way beyond which no further entries are read.
const REQUEST_BYTES_MAX: u64 = 128 << 20;

/// What is left of it.
pub(crate) struct Room {
    used: AtomicU64,
    shown: Arc<Budget>,
    freed: Notify,
}

/// A request's part; returned when dropped.
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: u64,
}

impl Room {
    pub(crate) fn new() -> Arc<Room> {
        Room::of(REQUEST_BYTES_MAX)
    }

    fn of(limit: u64) -> Arc<Room> {
        let shown = Budget::new("peer_requests", Unit::Bytes, limit);
        Arc::new(Room { used: AtomicU64::new(0), shown, freed: Notify::new() })
    }

    /// For metrics and status.
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.shown.clone()
    }

    /// Whether another request may be read.
    pub(crate) fn is_there(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.shown.limit()
    }

    /// Counts a request that was read.
    pub(crate) fn take(self: &Arc<Room>, bytes: u64) -> Taken {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.shown.set_used(used);
        if used >= self.shown.limit() {
            self.shown.count_refusal();
        }
        Taken { room: self.clone(), bytes }
    }

    /// Returns when another request may be read.
    pub(crate) async fn wait(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notice is missed.
            freed.as_mut().enable();
            if self.is_there() {
                return;
            }
            freed.await;
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let before = self.room.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.room.shown.set_used(before - self.bytes);
        if before >= self.room.shown.limit() {
            self.room.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn nothing_more_is_read_until_a_request_is_answered() {
        let room = Room::of(10);
        let first = room.take(6);
        assert!(room.is_there());
        let second = room.take(6);
        assert!(!room.is_there() && room.wait().now_or_never().is_none());
        let waiting = tokio::spawn({
            let room = room.clone();
            async move { room.wait().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        waiting.await.unwrap();
        assert!(room.is_there());
        drop(second);
        let usage = room.budget().usage();
        assert_eq!((usage.used, usage.peak, usage.limit), (0, 12, 10));
    }
}
