//! The load of the last 24 hours, per minute: of the whole cluster, and of each key range of each table. Without I/O or a
//! clock of its own.
//!
//! Region servers report rates; [`LoadHistory::look`] adds them up. A table's history is a row of **strips**, one per region
//! while there is room. When a region splits, each half of its strip takes half of what was counted, because nothing says
//! how the load was spread within it; when regions merge, their strips are added. So the history of a range continues under
//! whatever regions it becomes, and no sum changes. A move changes nothing: a strip knows keys, not regions.
//!
//! Invariants:
//! - the strips of a table cover all keys, each key once, and begin where regions begin;
//! - there are at most [`STRIPS_MAX`] strips of at most 17 KiB, which is less than 32 MiB in all. Beyond that, a strip
//!   covers several regions, and a table for which there is no room has no history;
//! - minutes only move forward, also when the clock of the master is set back.
//!
//! Nothing is durable and masters do not exchange it: a master that begins to lead begins without a history.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use terrane_types::{KeyRange, TableId};

use crate::servers::liveness::Moment;

/// How many minutes are kept.
pub const MINUTES: usize = 24 * 60;
/// The most strips. Each takes at most [`MINUTES`] × 3 × 4 bytes.
pub const STRIPS_MAX: usize = 1_800;
/// A look that is later than this counts only so much: what happened meanwhile is not known.
const LOOK_GAP_MAX: Duration = Duration::from_secs(2);
/// Bytes are kept in this unit, rounded up, so that a minute's fit 32 bits.
const BYTES_UNIT: u64 = 1 << 10;
/// Sums of the unfinished minute are in thousandths, because rates per second are multiplied by milliseconds.
const THOUSANDTHS: u64 = 1_000;

/// What is counted, in this order everywhere: rows read, rows written, bytes of both.
pub type Counts = [u64; 3];

/// The reported rates of one region, per second.
#[derive(Clone, Debug)]
pub struct RegionRates {
    /// Where the region begins.
    pub start: Bytes,
    /// What is requested of it; zero if it is not known.
    pub rates: Counts,
}

/// The load of a key range.
#[derive(Debug, Default)]
struct Strip {
    /// Of the unfinished minute, in thousandths.
    running: Counts,
    /// One ring per count, one after another; empty while all are zero, as in most ranges of most tables.
    rings: Vec<u32>,
}

impl Strip {
    fn get(&self, what: usize, slot: usize) -> u64 {
        let count = self.rings.get(what * MINUTES + slot).map_or(0, |count| u64::from(*count));
        if what == BYTES { count * BYTES_UNIT } else { count }
    }

    fn set(&mut self, what: usize, slot: usize, count: u64) {
        let count = if what == BYTES { count.div_ceil(BYTES_UNIT) } else { count };
        if self.rings.is_empty() {
            if count == 0 {
                return;
            }
            self.rings = vec![0; WHATS * MINUTES];
        }
        self.rings[what * MINUTES + slot] = u32::try_from(count).unwrap_or(u32::MAX);
    }

    /// Ends a minute.
    fn close(&mut self, slot: usize) -> Counts {
        let counts = std::mem::take(&mut self.running).map(rounded);
        counts.into_iter().enumerate().for_each(|(what, count)| self.set(what, slot, count));
        counts
    }

    /// Adds another strip to this one.
    fn join(&mut self, other: Self) {
        (0..WHATS).for_each(|what| self.running[what] = self.running[what].saturating_add(other.running[what]));
        if self.rings.is_empty() {
            self.rings = other.rings;
        } else {
            self.rings.iter_mut().zip(other.rings).for_each(|(own, more)| *own = own.saturating_add(more));
        }
    }

    /// Gives half of every count away.
    fn halve(&mut self) -> Self {
        let rings = self.rings.iter_mut().map(|own| take_half(own, *own / 2)).collect();
        let running = self.running.each_mut().map(|own| take_half(own, *own / 2));
        Self { running, rings }
    }

    fn is_zero(&self) -> bool {
        self.rings.iter().all(|count| *count == 0)
    }
}

fn take_half<T: std::ops::SubAssign + Copy>(own: &mut T, half: T) -> T {
    *own -= half;
    half
}

fn rounded(thousandths: u64) -> u64 {
    (thousandths + THOUSANDTHS / 2) / THOUSANDTHS
}

/// The number of counts, and the place of the bytes among them.
const WHATS: usize = 3;
const BYTES: usize = 2;

/// One minute of the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterMinute {
    /// Minutes since 1970.
    pub minute: u64,
    /// What was counted in it.
    pub counts: Counts,
}

/// Which part of a table's history to show, and how finely.
#[derive(Clone, Debug)]
pub struct HeatRequest {
    /// Which of the [`Counts`].
    pub what: usize,
    /// The first minute.
    pub first: u64,
    /// The minute behind the last.
    pub end: u64,
    /// The keys.
    pub range: KeyRange,
    /// The most columns; each is one or several minutes.
    pub columns_max: usize,
    /// The most rows; each is one or several strips.
    pub rows_max: usize,
}

/// The load of a table by time and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heat {
    /// The first minute of the first column.
    pub first: u64,
    /// The minutes of a column.
    pub step: u64,
    /// The columns of each row.
    pub columns: usize,
    /// Key ranges in order, each with the sum of every column.
    pub rows: Vec<(KeyRange, Vec<u64>)>,
}

/// The load of the cluster and its tables.
#[derive(Debug)]
pub struct LoadHistory {
    tables: BTreeMap<TableId, BTreeMap<Bytes, Strip>>,
    cluster: Vec<Counts>,
    /// Which minutes of the ring were watched.
    known: Vec<bool>,
    /// The last look, and the unfinished minute at it.
    last: Option<(Moment, u64)>,
    /// When the history began, in milliseconds since 1970.
    since_ms: Option<u64>,
    strips_max: usize,
}

impl Default for LoadHistory {
    fn default() -> Self {
        Self::with_room(STRIPS_MAX)
    }
}

impl LoadHistory {
    fn with_room(strips_max: usize) -> Self {
        let (cluster, known) = (vec![Counts::default(); MINUTES], vec![false; MINUTES]);
        Self { tables: BTreeMap::new(), cluster, known, last: None, since_ms: None, strips_max }
    }

    /// Takes the present rates of all regions of all tables, each table's in key order.
    pub fn look(&mut self, now: Moment, wall_ms: u64, tables: &BTreeMap<TableId, Vec<RegionRates>>) {
        let (before, minute) = self.last.unwrap_or((now, wall_ms / 60_000));
        self.since_ms.get_or_insert(wall_ms);
        let present = (wall_ms / 60_000).max(minute);
        if present > minute {
            self.close(minute, present);
        }
        self.last = Some((now, present));
        self.fit(tables);
        let elapsed = u64::try_from(now.since(before).min(LOOK_GAP_MAX).as_millis()).unwrap_or(0);
        for (table, regions) in tables {
            let Some(strips) = self.tables.get_mut(table) else { continue };
            for region in regions.iter().filter(|region| region.rates != Counts::default()) {
                let Some((_, strip)) = strips.range_mut(..=region.start.clone()).next_back() else { continue };
                for (sum, rate) in strip.running.iter_mut().zip(region.rates) {
                    *sum = sum.saturating_add(rate.saturating_mul(elapsed));
                }
                if terrane_env::planted!("a report counts twice") {
                    (0..WHATS).for_each(|what| strip.running[what] += region.rates[what] * elapsed);
                }
            }
        }
    }

    /// Ends the unfinished minute. Those between it and the present one were not watched.
    fn close(&mut self, minute: u64, present: u64) {
        let slot = slot_of(minute);
        let mut total = Counts::default();
        for strip in self.tables.values_mut().flat_map(BTreeMap::values_mut) {
            let counts = strip.close(slot);
            (0..WHATS).for_each(|what| total[what] = total[what].saturating_add(counts[what]));
        }
        (self.cluster[slot], self.known[slot]) = (total, true);
        let missed = (present - minute - 1).min(MINUTES as u64);
        // The slot of the present minute still has the counts of a day ago.
        for slot in (present - missed..=present).map(slot_of) {
            (self.cluster[slot], self.known[slot]) = (Counts::default(), false);
            for strip in self.tables.values_mut().flat_map(BTreeMap::values_mut) {
                (0..WHATS).for_each(|what| strip.set(what, slot, 0));
            }
        }
        for strip in self.tables.values_mut().flat_map(BTreeMap::values_mut) {
            if !strip.rings.is_empty() && strip.is_zero() {
                strip.rings = Vec::new();
            }
        }
    }

    /// Makes the strips begin where regions begin.
    fn fit(&mut self, tables: &BTreeMap<TableId, Vec<RegionRates>>) {
        self.tables.retain(|table, _| tables.contains_key(table));
        for (table, strips) in &mut self.tables {
            let starts: BTreeSet<&Bytes> = tables[table].iter().map(|region| &region.start).collect();
            let gone: Vec<Bytes> = strips.keys().filter(|start| !starts.contains(start)).cloned().collect();
            for start in gone.into_iter().filter(|start| !start.is_empty()) {
                let strip = strips.remove(&start);
                let left = strips.range_mut(..start).next_back();
                left.into_iter().zip(strip).for_each(|((_, left), strip)| left.join(strip));
            }
        }
        let mut room = self.strips_max.saturating_sub(self.tables.values().map(BTreeMap::len).sum());
        for (table, regions) in tables {
            if !self.tables.contains_key(table) {
                if room == 0 {
                    continue;
                }
                room -= 1;
                self.tables.entry(*table).or_default().insert(Bytes::new(), Strip::default());
            }
            let Some(strips) = self.tables.get_mut(table) else { continue };
            for region in regions {
                if room == 0 {
                    break;
                }
                if !strips.contains_key(&region.start)
                    && let Some((_, left)) = strips.range_mut(..region.start.clone()).next_back()
                {
                    let right = left.halve();
                    strips.insert(region.start.clone(), right);
                    room -= 1;
                }
            }
        }
    }

    /// When the history began, in milliseconds since 1970; `None` before the first look. A master keeps [`MINUTES`] only.
    pub fn known_from_ms(&self) -> Option<u64> {
        let (since, (_, present)) = (self.since_ms?, self.last?);
        Some(since.max((present.saturating_sub(MINUTES as u64 - 1)) * 60_000))
    }

    /// The finished minutes of the whole cluster that were watched, oldest first.
    pub fn cluster(&self) -> Vec<ClusterMinute> {
        let Some((_, present)) = self.last else { return Vec::new() };
        let minutes = present.saturating_sub(MINUTES as u64 - 1)..present;
        let known = minutes.filter(|minute| self.known[slot_of(*minute)]);
        known.map(|minute| ClusterMinute { minute, counts: self.cluster[slot_of(minute)] }).collect()
    }

    /// The load of a table, with the unfinished minute so far. `None`: there is no history of it.
    pub fn heat(&self, table: TableId, request: &HeatRequest) -> Option<Heat> {
        let (strips, (_, present)) = (self.tables.get(&table)?, self.last?);
        let oldest = present.saturating_sub(MINUTES as u64 - 1);
        let first = request.first.clamp(oldest, present);
        let end = request.end.clamp(first + 1, present + 1);
        let step = (end - first).div_ceil(request.columns_max.max(1) as u64);
        // Columns begin at multiples of the step, so that a map that is drawn again a minute later keeps its columns.
        let first = first / step * step;
        let columns = usize::try_from((end - first).div_ceil(step)).unwrap_or(0);
        let ends = strips.keys().skip(1).cloned().chain([Bytes::new()]);
        let shown: Vec<(KeyRange, &Strip)> = strips
            .iter()
            .zip(ends)
            .map(|((start, strip), end)| (KeyRange { start: start.clone(), end }, strip))
            .filter(|(range, _)| overlaps(range, &request.range))
            .collect();
        let together = shown.len().div_ceil(request.rows_max.max(1)).max(1);
        let row = |strips: &[(KeyRange, &Strip)]| {
            let range = KeyRange { start: strips[0].0.start.clone(), end: strips[strips.len() - 1].0.end.clone() };
            let mut sums = vec![0_u64; columns];
            for (_, strip) in strips {
                for minute in first.max(oldest)..end {
                    let count = if minute == present {
                        rounded(strip.running[request.what])
                    } else {
                        strip.get(request.what, slot_of(minute))
                    };
                    let column = usize::try_from((minute - first) / step).unwrap_or(0);
                    sums[column] = sums[column].saturating_add(count);
                }
            }
            (range, sums)
        };
        Some(Heat { first, step, columns, rows: shown.chunks(together).map(row).collect() })
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        let strips = self.tables.values().flat_map(BTreeMap::values);
        strips.map(|strip| strip.rings.capacity() * size_of::<u32>() + size_of::<Strip>()).sum()
    }
}

fn slot_of(minute: u64) -> usize {
    usize::try_from(minute % MINUTES as u64).unwrap_or(0)
}

fn overlaps(one: &KeyRange, other: &KeyRange) -> bool {
    let below = |start: &Bytes, end: &Bytes| end.is_empty() || start < end;
    below(&one.start, &other.end) && below(&other.start, &one.end)
}

#[cfg(test)]
mod tests;
