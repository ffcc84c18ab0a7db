//! How long simulated operations take.

use std::time::Duration;

use crate::rand;

/// A pause between two bounds (both included), drawn to the millisecond.
pub(crate) fn random_pause(least: Duration, most: Duration) -> Duration {
    let (least, most) = (least.as_millis() as u64, most.as_millis() as u64);
    Duration::from_millis(rand::range(least..most.saturating_add(1)))
}
