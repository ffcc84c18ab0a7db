//! Snapshots that are held for a while for readers that will return: of rows that are sent in parts, and of a region that was
//! split while it was read.
//!
//! All parts of a row come from one sequence number. Without a snapshot held between two parts, a single overwritten cell
//! anywhere in the region could let a compaction collect past that number, and the row would restart, again and again under
//! steady writes. So the snapshot is held until its reader has had time to request the next part.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Snapshot;

/// How long a reader has to request the next part, or to find the daughter. Each part restarts the time.
const HOLD: Duration = Duration::from_secs(10);
/// Snapshots held per region; a new one replaces the oldest.
const HELD_MAX: usize = 64;

/// The held snapshots of a region, oldest first, each with its expiry (nanoseconds of the monotonic clock).
#[derive(Default)]
pub struct HeldSnapshots(Mutex<VecDeque<(u64, Snapshot)>>);

impl HeldSnapshots {
    /// Holds a snapshot. It replaces an older hold of the same sequence number.
    pub fn hold(&self, snapshot: Snapshot, now_ns: u64) {
        let mut held = self.0.lock();
        held.retain(|(until, other)| *until > now_ns && other.sequence() != snapshot.sequence());
        if held.len() >= HELD_MAX {
            held.pop_front();
        }
        let hold_ns = u64::try_from(HOLD.as_nanos()).unwrap_or(u64::MAX);
        held.push_back((now_ns.saturating_add(hold_ns), snapshot));
    }

    /// Releases snapshots whose reader did not return in time.
    pub fn expire(&self, now_ns: u64) {
        self.0.lock().retain(|(until, _)| *until > now_ns);
    }
}
