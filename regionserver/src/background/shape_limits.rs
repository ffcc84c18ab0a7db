//! When regions are split for their load and merged: all limits in one place.
//!
//! A *unit* of load is a row read or written, or a KiB of it. A region splits by size at its table's `region_size`, whatever
//! these limits say. None of this applies to tables with `split_policy=none`: they split and merge on request only.

use std::time::Duration;

/// The limits of one server.
#[derive(Clone, Debug)]
pub struct ShapeLimits {
    /// Units per second from which a region is split, 20,000 by default.
    pub split_load: u64,
    /// Seconds in a row at that load before it is split, 10 by default. It counts on from three quarters of the load, and
    /// starts over below.
    pub split_seconds: u32,
    /// How long a region rests after a split, merge or restart before its load splits it, 30 s by default.
    pub split_rest: Duration,
    /// Two neighbours merge if together they have at most this share of `region_size`, in percent: 25 by default. So a merged
    /// region has to grow fourfold before it splits again.
    pub merge_size_percent: u64,
    /// The same for the load of both and `split_load`: 25 by default.
    pub merge_load_percent: u64,
    /// How long both must have existed in their present form, on this server since it started: 10 minutes by default.
    pub merge_rest: Duration,
}

impl Default for ShapeLimits {
    fn default() -> Self {
        Self {
            split_load: terrane_env::limit!("units of load that split a region", 20_000, 200..=2_000),
            split_seconds: 10,
            split_rest: Duration::from_secs(30),
            merge_size_percent: 25,
            merge_load_percent: 25,
            merge_rest: Duration::from_secs(terrane_env::limit!("seconds before regions merge", 600, 4..=20)),
        }
    }
}
