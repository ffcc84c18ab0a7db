//! The heat map: how the load of a table spreads over time and keys, what is hottest, and what to do about it.
//!
//! A map is a rectangle of counts, one row per key range and one column per step of time. The source chooses the ranges
//! (regions, or parts of them when few are asked for) and the step, so that the rectangle stays within the limits of the
//! query; zooming in asks again with a smaller span.

use serde::{Deserialize, Serialize};
use terrane_types::admin::past::LoadMeasure;

use super::key::Key;

/// Which heat map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeatQuery {
    /// The table.
    pub table: String,
    /// What to count.
    pub measure: LoadMeasure,
    /// The first time; without it, `span_ms` before the last.
    pub from_ms: Option<u64>,
    /// The time behind the last; without it, now.
    pub to_ms: Option<u64>,
    /// How long the map is if `from_ms` does not say so.
    pub span_ms: u64,
    /// The first key; empty for the start of the table.
    pub start: Vec<u8>,
    /// The key behind the last; empty for the end of the table.
    pub end: Vec<u8>,
    /// The most columns to answer.
    pub columns_max: usize,
    /// The most rows to answer.
    pub rows_max: usize,
}

/// A heat map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heat {
    /// The table.
    pub table: String,
    /// What is counted.
    pub measure: LoadMeasure,
    /// The start of the first column.
    pub from_ms: u64,
    /// The end of the last column.
    pub to_ms: u64,
    /// The duration of a column: a minute or a multiple of it.
    pub step_ms: u64,
    /// The time from which on counts are known; earlier columns are empty because nothing was recorded.
    pub known_from_ms: Option<u64>,
    /// The key ranges, in the order of the keys.
    pub rows: Vec<HeatRow>,
    /// For each row, the count of each column, for the whole step (not per second). All are of one length.
    pub counts: Vec<Vec<u64>>,
    /// The hottest ranges and keys within the map, hottest first, at most ten.
    pub hottest: Vec<Hotspot>,
}

/// A key range of a heat map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeatRow {
    /// Its first key.
    pub start: Key,
    /// The key behind its last.
    pub end: Key,
    /// The region that holds it now.
    pub region: Option<u64>,
}

/// A hot range, or a hot key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hotspot {
    /// The first key; the key itself, if it is a single one.
    pub start: Key,
    /// The key behind the last; `None` for a single key.
    pub end: Option<Key>,
    /// The region that holds it now.
    pub region: Option<u64>,
    /// What share of the table's load it has, from 0 to 1.
    pub share: f64,
    /// Its load per second, in the unit of the map's measure.
    pub per_second: f64,
    /// What to do about it; `None` if it needs nothing.
    pub advice: Option<Advice>,
}

/// What to do about a hot range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What kind of change it is.
    pub kind: AdviceKind,
    /// Why and what, in one or two sentences.
    pub text: String,
    /// The command that does it, if one does.
    pub command: Option<String>,
}

/// The kinds of advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdviceKind {
    /// Split a region at a key.
    Split,
    /// Put a bucket first in the key, or more buckets.
    AddBuckets,
    /// Store a part of the key in reverse, so that new rows are not neighbours.
    ReversePart,
    /// Move a region to another server.
    Move,
    /// One key is too hot: change what the application does (spread a counter, cache a row).
    SpreadKey,
}
