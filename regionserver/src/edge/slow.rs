//! The latest slow requests of a server: a ring of fixed size, which an administrator reads.
//!
//! A request is compared with the threshold once, when it is answered. Only those above it take the lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_env::trace::TraceId;
use terrane_types::{RegionId, TableId};

use crate::metrics::Operation;

/// Requests kept.
const KEPT_MAX: usize = 256;
/// Of a longer key, this prefix is kept.
const KEY_BYTES_MAX: usize = 256;

/// How long a request spent in each stage, in nanoseconds; 0: it did not pass that stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// At the edge, before its work began.
    pub edge_ns: u64,
    /// Until it was established what a read must see.
    pub read_point_ns: u64,
    /// In the engine.
    pub read_ns: u64,
    /// Of a write: in the group's queue, in flight until a quorum had synced it, and while it was applied.
    pub log: terrane_raft::Timing,
}

/// A request that took long.
#[derive(Clone, Debug)]
pub struct SlowRequest {
    /// When it was answered, in milliseconds since 1970.
    pub at_ms: u64,
    pub operation: Operation,
    pub table: TableId,
    pub region: RegionId,
    /// The first row it named.
    pub first: Bytes,
    /// The last row it named, or the first one after it if it named a range; empty: unbounded.
    pub last: Bytes,
    /// Whether it named a range.
    pub is_range: bool,
    /// How many rows it named; 0 for a range.
    pub rows: u64,
    pub took_ns: u64,
    pub stages: Stages,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// The trace that it belongs to, if one is recorded.
    pub trace: Option<TraceId>,
}

/// The latest slow requests.
#[derive(Debug)]
pub struct SlowRequests {
    started_with: Duration,
    /// [`u64::MAX`]: none is kept.
    threshold_ns: AtomicU64,
    kept: Mutex<VecDeque<SlowRequest>>,
}

impl SlowRequests {
    /// Keeps requests that take longer than this; none at zero.
    pub fn new(threshold: Duration) -> Self {
        let slow = Self { started_with: threshold, threshold_ns: AtomicU64::new(u64::MAX), kept: Mutex::default() };
        slow.set_threshold(None);
        slow
    }

    /// Keeps requests that take longer than this from now on, none at zero; `None`: as at the start. Those that are kept stay.
    pub fn set_threshold(&self, threshold: Option<Duration>) {
        let ns = u64::try_from(threshold.unwrap_or(self.started_with).as_nanos()).unwrap_or(u64::MAX);
        // Requests are compared one by one, and nothing else follows from it.
        self.threshold_ns.store(if ns == 0 { u64::MAX } else { ns }, Ordering::Relaxed);
    }

    /// The threshold; zero: no request is kept.
    pub fn threshold(&self) -> Duration {
        match self.threshold_ns.load(Ordering::Relaxed) {
            u64::MAX => Duration::ZERO,
            ns => Duration::from_nanos(ns),
        }
    }

    /// The threshold that the process was started with.
    pub const fn started_with(&self) -> Duration {
        self.started_with
    }

    /// The threshold in microseconds; 0: no request is kept.
    pub fn threshold_us(&self) -> u64 {
        u64::try_from(self.threshold().as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether a request that took so long is kept.
    pub fn is_slow(&self, took_ns: u64) -> bool {
        took_ns > self.threshold_ns.load(Ordering::Relaxed)
    }

    /// Keeps a request, in place of the oldest one if necessary.
    pub fn note(&self, mut request: SlowRequest) {
        // A copy: a slice would keep the whole message in memory that the key came in.
        for key in [&mut request.first, &mut request.last] {
            *key = Bytes::copy_from_slice(&key[..key.len().min(KEY_BYTES_MAX)]);
        }
        let mut kept = self.kept.lock();
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(request);
    }

    /// Those that are kept, the newest first.
    pub fn newest(&self, limit: usize) -> Vec<SlowRequest> {
        self.kept.lock().iter().rev().take(limit).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at_ms: u64, first: Vec<u8>) -> SlowRequest {
        SlowRequest {
            at_ms,
            operation: Operation::Get,
            table: TableId(1),
            region: RegionId(2),
            first: first.into(),
            last: Bytes::new(),
            is_range: false,
            rows: 1,
            took_ns: 1,
            stages: Stages::default(),
            failure: None,
            trace: None,
        }
    }

    #[test]
    fn only_requests_above_the_threshold_are_slow_and_none_at_zero() {
        let slow = SlowRequests::new(Duration::from_micros(1));
        assert!(!slow.is_slow(1_000) && slow.is_slow(1_001));
        assert!(!SlowRequests::new(Duration::ZERO).is_slow(u64::MAX - 1));
    }

    #[test]
    fn the_threshold_changes_while_requests_arrive_and_goes_back_to_that_of_the_start() {
        let slow = SlowRequests::new(Duration::from_micros(5));
        slow.set_threshold(Some(Duration::from_micros(1)));
        assert!(slow.is_slow(1_001));
        assert_eq!((slow.threshold(), slow.started_with()), (Duration::from_micros(1), Duration::from_micros(5)));
        slow.set_threshold(None);
        assert!(!slow.is_slow(1_001) && slow.is_slow(5_001));
    }

    #[test]
    fn the_newest_are_kept_with_bounded_keys() {
        let slow = SlowRequests::new(Duration::from_millis(1));
        (0..KEPT_MAX as u64 + 5).for_each(|at_ms| slow.note(request(at_ms, vec![7; 10_000])));
        let kept = slow.newest(usize::MAX);
        assert_eq!((kept.len(), kept[0].at_ms, kept[KEPT_MAX - 1].at_ms), (KEPT_MAX, KEPT_MAX as u64 + 4, 5));
        assert_eq!(kept[0].first.len(), KEY_BYTES_MAX);
        assert_eq!(slow.newest(2).len(), 2);
    }
}
