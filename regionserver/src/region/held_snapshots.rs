//! Moments that readers come back for keep for a while: those of rows that are sent in parts, and those that were read of
//! a region when it was split.
//!
//! All parts of a row come from one sequence number. Without a snapshot between two parts, a single overwritten cell
//! anywhere in the region would collect past that number and the row would start anew, for ever under steady writes. So
//! the moment of a cut row is held until its reader had time to ask for the next part.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Snapshot;

/// How long a reader has to ask for the next part, or to find the daughter; each part begins it anew.
const HOLD: Duration = Duration::from_secs(10);
/// Moments held per region; the oldest goes for a new one.
const HELD_MAX: usize = 64;

/// The moments that are held of one region, the oldest first, each with when it goes (nanoseconds of the monotonic clock).
#[derive(Default)]
pub struct HeldSnapshots(Mutex<VecDeque<(u64, Snapshot)>>);

impl HeldSnapshots {
    /// Holds a moment. Another hold of the same moment takes the place of this one.
    pub fn hold(&self, snapshot: Snapshot, now_ns: u64) {
        let mut held = self.0.lock();
        held.retain(|(until, other)| *until > now_ns && other.sequence() != snapshot.sequence());
        if held.len() >= HELD_MAX {
            held.pop_front();
        }
        let hold_ns = u64::try_from(HOLD.as_nanos()).unwrap_or(u64::MAX);
        held.push_back((now_ns.saturating_add(hold_ns), snapshot));
    }

    /// Lets go what nobody came back for.
    pub fn let_go(&self, now_ns: u64) {
        self.0.lock().retain(|(until, _)| *until > now_ns);
    }
}
