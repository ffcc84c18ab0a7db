//! How long simulated operations take.

use std::time::Duration;

use crate::{rand, sim};

/// A pause between two bounds (both included), drawn to the millisecond.
pub(crate) fn random_pause(least: Duration, most: Duration) -> Duration {
    let (least, most) = (least.as_millis() as u64, most.as_millis() as u64);
    Duration::from_millis(rand::range(least..most.saturating_add(1)))
}

/// How long the next sync takes.
pub(crate) fn sync_pause() -> Duration {
    let disk = sim::disk();
    let stalls = disk.stall_one_in != 0 && rand::range(0..disk.stall_one_in) == 0;
    let most = if stalls { disk.stall_max } else { disk.sync_max };
    random_pause(disk.sync_min, most)
}
