//! Limits the bytes of peers' requests in progress in this server, on all links together.
//!
//! A request counts from when it is read until it is answered, which for entries is when they are synced. Without headroom,
//! no entries are read from any link, and the transport's flow control holds the peers back. Frames that have begun to arrive
//! are still read to their end, because half a frame is of no use. So the maximum is the limit plus one frame per link.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use terrane_env::budget::{Budget, Unit};
use tokio::sync::Notify;

/// Bytes of requests in progress above which no more entries are read.
const REQUEST_BYTES_MAX: u64 = 128 << 20;

/// The bytes that may still be read.
pub(crate) struct Headroom {
    used: AtomicU64,
    shown: Arc<Budget>,
    freed: Notify,
}

/// The bytes of one request; returned when dropped.
pub(crate) struct HeadroomPermit {
    headroom: Arc<Headroom>,
    bytes: u64,
}

impl Headroom {
    pub(crate) fn new() -> Arc<Headroom> {
        Headroom::of(REQUEST_BYTES_MAX)
    }

    fn of(limit: u64) -> Arc<Headroom> {
        let shown = Budget::new("peer_requests", Unit::Bytes, limit);
        Arc::new(Headroom { used: AtomicU64::new(0), shown, freed: Notify::new() })
    }

    /// For metrics and status.
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.shown.clone()
    }

    /// Whether another request may be read.
    pub(crate) fn is_left(&self) -> bool {
        self.used.load(Ordering::Relaxed) < self.shown.limit()
    }

    /// Counts a request that was read.
    pub(crate) fn take(self: &Arc<Headroom>, bytes: u64) -> HeadroomPermit {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.shown.set_used(used);
        if used >= self.shown.limit() {
            self.shown.count_refusal();
        }
        HeadroomPermit { headroom: self.clone(), bytes }
    }

    /// Returns when another request may be read.
    pub(crate) async fn wait(&self) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            // From here on no notification is missed.
            freed.as_mut().enable();
            if self.is_left() {
                return;
            }
            freed.await;
        }
    }
}

impl Drop for HeadroomPermit {
    fn drop(&mut self) {
        let before = self.headroom.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.headroom.shown.set_used(before - self.bytes);
        if before >= self.headroom.shown.limit() {
            self.headroom.freed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn nothing_more_is_read_until_a_request_is_answered() {
        let headroom = Headroom::of(10);
        let first = headroom.take(6);
        assert!(headroom.is_left());
        let second = headroom.take(6);
        assert!(!headroom.is_left() && headroom.wait().now_or_never().is_none());
        let waiting = tokio::spawn({
            let headroom = headroom.clone();
            async move { headroom.wait().await }
        });
        tokio::task::yield_now().await;
        drop(first);
        waiting.await.unwrap();
        assert!(headroom.is_left());
        drop(second);
        let usage = headroom.budget().usage();
        assert_eq!((usage.used, usage.peak, usage.limit), (0, 12, 10));
    }
}
