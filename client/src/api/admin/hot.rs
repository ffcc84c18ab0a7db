//! The hottest rows, as the leaders of regions sample them.

use bytes::Bytes;
use terrane_types::admin::cluster::RegionLoad;
use terrane_types::{RegionId, TableId};

/// What was sampled of a region in the last minute or two, by the server that leads it.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HotRegion {
    /// The address of that server.
    pub server: String,
    /// The region.
    pub region: RegionId,
    /// Its table.
    pub table: TableId,
    /// The table's name.
    pub table_name: String,
    /// Its load per second, averaged over the last few seconds.
    pub load: RegionLoad,
    /// The rows that are read most, the hottest first. Rows with few samples are left out, and keys over 1 KiB.
    pub reads: Vec<HotRow>,
    /// The rows that are written most, likewise.
    pub writes: Vec<HotRow>,
    /// A key at which a split would halve the load. `None`: too little was sampled, or no split would spread it.
    pub split_at: Option<Bytes>,
    /// What the heavier side of that split would keep, in percent.
    pub heavier_percent: u32,
    /// Whether the keys grow: each write lies beyond those before it, so that no split divides the load to come. A bucket first in
    /// the key does.
    pub grows: bool,
}

/// A row that is read or written much.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HotRow {
    /// The row.
    pub row: Bytes,
    /// Its share of the region's rows read, or written, from 0 to 1. An estimate that is rather too low than too high.
    pub share: f64,
}
