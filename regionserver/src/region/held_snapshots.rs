//! Snapshots that are held for a while for readers that will return: of rows that are sent in parts, and of a region that was
//! split or moved while it was read, or whose leader changed.
//!
//! All parts of a row come from one sequence number. Without a snapshot held between two parts, a single overwritten cell
//! anywhere in the region could let a compaction collect past that number, and the row would restart, again and again under
//! steady writes. So the snapshot is held until its reader has had time to request the next part.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Snapshot;
use terrane_types::ServerId;

/// How long a reader has to request the next part. Each part restarts the time.
const HOLD: Duration = Duration::from_secs(10);
/// How long a reader has to find a region that was split or moved, or its new leader: as long as HBase's scanners wait for their next
/// call.
pub const HANDED_OVER: Duration = Duration::from_secs(60);
/// Snapshots held per region; a new one replaces the oldest.
const HELD_MAX: usize = 64;

/// The held snapshots of a region, oldest first, each with its expiry (nanoseconds of the monotonic clock).
#[derive(Default)]
pub struct HeldSnapshots(Mutex<VecDeque<(u64, Snapshot)>>);

impl HeldSnapshots {
    /// Holds a snapshot for the next part of a row.
    pub fn hold(&self, snapshot: Snapshot, now_ns: u64) {
        self.hold_for(HOLD, snapshot, now_ns);
    }

    /// Holds a snapshot for a reader that finds the region elsewhere, or under another leader.
    pub fn hand_over(&self, snapshot: Snapshot, now_ns: u64) {
        self.hold_for(HANDED_OVER, snapshot, now_ns);
    }

    /// A snapshot that is held already stays so for the longer of the two times.
    fn hold_for(&self, time: Duration, snapshot: Snapshot, now_ns: u64) {
        let mut until = now_ns.saturating_add(nanoseconds(time));
        let mut held = self.0.lock();
        held.retain(|(other_until, other)| {
            let is_same = other.sequence() == snapshot.sequence();
            if is_same {
                until = until.max(*other_until);
            }
            *other_until > now_ns && !is_same
        });
        if held.len() >= HELD_MAX {
            held.pop_front();
        }
        held.push_back((until, snapshot));
    }

    /// Releases snapshots whose reader did not return in time.
    pub fn expire(&self, now_ns: u64) {
        self.0.lock().retain(|(until, _)| *until > now_ns);
    }
}

/// How long views of a region's leader are kept here, which were named by this server last: until then (nanoseconds of the monotonic
/// clock). See `crate::views`.
#[derive(Clone, Copy, Debug)]
pub struct KeptViews {
    pub by: ServerId,
    pub until_ns: u64,
}

impl KeptViews {
    /// From now on for as long as a reader has to come here.
    pub fn named_by(by: ServerId, now_ns: u64) -> Self {
        Self { by, until_ns: now_ns.saturating_add(nanoseconds(HANDED_OVER)) }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
