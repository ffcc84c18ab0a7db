//! Merging runs: which ones, and how.
//!
//! Runs arrive one after the other, so the list would grow with every batch. Merging is tiered: several neighbours of
//! similar size become one, so that each cell is copied once per tier. A merge is a copy of bounded length, done by
//! whatever thread notices that one is due; readers and the writer continue with the present runs meanwhile.
//!
//! A merge also drops **puts that no reader can see any more**, where the family keeps one version. Let `v` be a put
//! and `n` a later put of the same column with the same or a higher timestamp, written while one version was kept. `v`
//! may go when `n` is published and the newest live snapshot is older than `v`: every read from then on is at or after
//! `n`, or at a snapshot that does not see `v`.
//! At and after `n` no state of the column depends on `v`: with and without it the live cell is the same, or both are
//! no newer by timestamp than `v` and give way to `n`, whatever was put or deleted between the two. So cells between
//! them in other runs or files need not be examined.
//! Where `v` or `n` has a time to live of its own, `n` must not expire before `v`: then it hides whatever `v` hides.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use terrane_types::CellKind;

use super::run::SortedRun;
use crate::cells::{Cell, Cells};
use crate::row_heads::Prefix;

/// The most runs merged at once; at least a third of these, so that merging is worth the copy.
const FAN_IN: [usize; 3] = [8, 6, 4];

/// The most bytes of data in a merged run: offsets in it have 32 bits.
const BYTES_MAX: usize = 1 << 30;

/// What live snapshots and published writes allow to be dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The newest live snapshot.
    pub(crate) newest_snapshot: Option<u64>,
    /// The last published sequence number.
    pub(crate) published: u64,
}

/// Knows the snapshots of the region.
pub(crate) trait Retention: Send + Sync {
    /// Declares that versions from before the last published sequence number will be dropped. The same step reads the
    /// numbers and refuses new snapshots at lower ones from then on (except where one lives).
    fn begin_drop(&self) -> Limits;
}

/// What one merge may drop.
pub(super) struct Dropping<'a> {
    retention: &'a dyn Retention,
    /// The sequence number since which one version is kept.
    since: u64,
    /// Requested once there is something to drop: the request closes the past to new snapshots.
    limits: Option<Limits>,
}

impl<'a> Dropping<'a> {
    pub(super) fn new(retention: &'a dyn Retention, since: u64) -> Self {
        Self { retention, since, limits: None }
    }

    fn limits(&mut self) -> Limits {
        *self.limits.get_or_insert_with(|| self.retention.begin_drop())
    }

    /// Drops what is replaced from the cells of one row.
    fn retain(&mut self, cells: &mut Vec<Cell<'_>>) {
        let mut qualifier: &[u8] = &[];
        // The latest write among the puts above in the column, except those known to be unpublished. And of those with a
        // time to live of their own, one that outlives the others above it.
        let mut latest: Option<(u64, u32)> = None;
        let mut mortal: Option<((u64, u32), i64)> = None;
        cells.retain(|cell| {
            if cell.qualifier != qualifier {
                (qualifier, latest, mortal) = (cell.qualifier, None, None);
            }
            if cell.kind != CellKind::Put {
                return true;
            }
            let written = (cell.sequence, cell.position);
            let expires_ms = cell.expires_ms();
            let outlives = |mortal: &((u64, u32), i64)| written < mortal.0 && expires_ms <= mortal.1;
            if latest.is_some_and(|latest| written < latest) || mortal.as_ref().is_some_and(outlives) {
                let limits = self.limits();
                latest = latest.filter(|(sequence, _)| *sequence <= limits.published);
                mortal = mortal.filter(|((sequence, _), _)| *sequence <= limits.published);
                let is_replaced =
                    latest.is_some_and(|latest| written < latest) || mortal.as_ref().is_some_and(outlives);
                if is_replaced && Some(cell.sequence) > limits.newest_snapshot {
                    return false;
                }
            }
            let published = self.limits.map_or(u64::MAX, |limits| limits.published);
            if (self.since..=published).contains(&cell.sequence) {
                if expires_ms == i64::MAX {
                    latest = latest.max(Some(written));
                } else if mortal.is_none_or(|mortal| mortal.1 <= expires_ms) {
                    mortal = Some((written, expires_ms));
                }
            }
            true
        });
    }
}

/// Which neighbours to merge next, so that the result has at most `cells_max` cells; the sizes are the runs' cells and
/// bytes of data. Neighbours are of similar size when none is larger than half of all others together. Fewer than usual
/// are merged only where the usual number would have too many cells.
pub(super) fn pick(sizes: &[(usize, usize)], cells_max: usize) -> Option<Range<usize>> {
    FAN_IN.into_iter().find_map(|fan_in| {
        cheapest(sizes, fan_in, |cells, bytes, largest| {
            let is_last_tier = fan_in == FAN_IN[0] || cells / fan_in * FAN_IN[0] > cells_max;
            is_last_tier && is_fit(cells, bytes, largest, cells_max)
        })
    })
}

/// Which neighbours to merge next when there is time: as few as two, if the result is at least half as long again as
/// the largest, so that the number of copies of a cell grows slowly with the number of cells.
pub(super) fn pick_idle(sizes: &[(usize, usize)], cells_max: usize) -> Option<Range<usize>> {
    let fit = |cells: usize, bytes: usize, largest: usize| {
        cells <= cells_max && bytes <= BYTES_MAX && largest * 3 <= cells * 2
    };
    [16, 8, 4, 2].into_iter().find_map(|count| cheapest(sizes, count, fit))
}

/// Which neighbours to merge next when most of what they hold is replaced: few suffice.
pub(super) fn pick_replaced(sizes: &[(usize, usize)], cells_max: usize) -> Option<Range<usize>> {
    FAN_IN
        .into_iter()
        .find_map(|fan_in| cheapest(sizes, fan_in, |cells, bytes, largest| is_fit(cells, bytes, largest, cells_max)))
}

fn is_fit(cells: usize, bytes: usize, largest: usize, cells_max: usize) -> bool {
    cells <= cells_max && bytes <= BYTES_MAX && largest * 3 <= cells
}

/// The neighbours that are merged when there are simply too many runs: the cheapest.
pub(super) fn pick_any(sizes: &[(usize, usize)]) -> Option<Range<usize>> {
    FAN_IN.into_iter().find_map(|fan_in| cheapest(sizes, fan_in, |_, bytes, _| bytes <= BYTES_MAX))
}

/// The `count` neighbours with the fewest cells among those that `fit` accepts, by cells, bytes and cells of the
/// largest.
fn cheapest(sizes: &[(usize, usize)], count: usize, fit: impl Fn(usize, usize, usize) -> bool) -> Option<Range<usize>> {
    let mut best: Option<(usize, usize)> = None;
    for (first, window) in sizes.windows(count).enumerate() {
        let (mut cells, mut bytes, mut largest) = (0, 0, 0);
        for (run_cells, run_bytes) in window {
            cells += run_cells;
            bytes += run_bytes;
            largest = largest.max(*run_cells);
        }
        if fit(cells, bytes, largest) && best.is_none_or(|(least, _)| cells < least) {
            best = Some((cells, first));
        }
    }
    best.map(|(_, first)| first..first + count)
}

/// The position of a merge in one of its inputs.
struct Lane<'a> {
    run: &'a SortedRun,
    at: usize,
    /// Of the current row, under the common prefix.
    head: u64,
}

impl<'a> Lane<'a> {
    fn new(run: &'a SortedRun, prefix: &Prefix) -> Self {
        let mut lane = Self { run, at: 0, head: 0 };
        lane.set_head(prefix);
        lane
    }

    fn set_head(&mut self, prefix: &Prefix) {
        if self.run.prefix().len() == prefix.len() {
            self.head = self.run.head(self.at);
        } else {
            self.head = prefix.head_inside(self.run.row(self.at));
        }
    }

    fn row(&self) -> &'a [u8] {
        self.run.row(self.at)
    }

    /// Returns whether there is a next row.
    fn advance(&mut self, prefix: &Prefix) -> bool {
        self.at += 1;
        if self.at == self.run.rows() {
            return false;
        }
        self.set_head(prefix);
        true
    }
}

/// Merges runs, oldest first, into one.
pub(super) fn merge(inputs: &[Arc<SortedRun>], mut dropping: Option<Dropping<'_>>) -> Option<SortedRun> {
    let prefix = inputs.iter().map(|run| run.prefix().clone()).reduce(|a, b| a.common_with(&b))?;
    let count = inputs.iter().map(|run| run.cells().len()).sum();
    let bytes = inputs.iter().map(|run| run.cells().data_bytes()).sum();
    let mut out = Cells::with_capacity(count, bytes);
    // Newest first: of two cells at one place the newer run's is kept.
    let mut lanes: SmallVec<[Lane<'_>; 8]> = inputs.iter().rev().map(|run| Lane::new(run, &prefix)).collect();
    let mut row: Vec<Cell<'_>> = Vec::new();
    let mut same: SmallVec<[usize; 8]> = SmallVec::new();
    while !lanes.is_empty() {
        lowest(&lanes, &mut same);
        row.clear();
        for index in &same {
            let lane = &lanes[*index];
            row.extend(lane.run.cells_of(lane.at).map(|cell| lane.run.cells().get(cell)));
        }
        if same.len() > 1 {
            // Stable: the newer run's cells stay in front of those they equal.
            row.sort_by(Cell::cmp_in_row);
            row.dedup_by(|later, earlier| later.cmp_in_row(earlier).is_eq());
        }
        if let Some(dropping) = &mut dropping
            && row.len() > 1
        {
            dropping.retain(&mut row);
        }
        out.push(row[0]);
        row[1..].iter().for_each(|cell| out.push_in_row(*cell));
        for index in same.iter().rev() {
            if !lanes[*index].advance(&prefix) {
                lanes.remove(*index);
            }
        }
    }
    SortedRun::new(out)
}

/// The lanes that are at the lowest row, in order.
#[inline]
fn lowest(lanes: &[Lane<'_>], same: &mut SmallVec<[usize; 8]>) {
    same.clear();
    same.push(0);
    let mut head = lanes[0].head;
    for (index, lane) in lanes.iter().enumerate().skip(1) {
        if lane.head > head {
            continue;
        }
        if lane.head == head {
            match lane.row().cmp(lanes[same[0]].row()) {
                std::cmp::Ordering::Greater => continue,
                std::cmp::Ordering::Equal => {
                    same.push(index);
                    continue;
                }
                std::cmp::Ordering::Less => {}
            }
        }
        head = lane.head;
        same.clear();
        same.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(cells: &[usize]) -> Vec<(usize, usize)> {
        cells.iter().map(|cells| (*cells, cells * 100)).collect()
    }

    #[test]
    fn neighbours_of_similar_size_are_merged_the_smallest_first() {
        let runs = sizes(&[8_000, 8_000, 8_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 500]);
        assert_eq!(pick(&runs, 100_000), Some(4..12));
        assert_eq!(pick(&runs[..11], 100_000), Some(3..11));
        assert_eq!(pick(&runs[..4], 100_000), None);
        assert_eq!(pick(&runs[..4], 40_000), Some(0..4));
        assert_eq!(pick(&runs[..4], 10_000), None);
        assert_eq!(pick_replaced(&runs[..4], 100_000), Some(0..4));
        assert_eq!(pick_replaced(&sizes(&[100_000, 10, 10, 10]), usize::MAX), None);
        assert_eq!(pick_any(&sizes(&[100_000, 10, 10, 10])), Some(0..4));
    }

    #[test]
    fn every_cell_is_copied_once_per_tier() {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let (mut copied, mut longest) = (0, 0);
        for _ in 0..1_000 {
            runs.push((1_000, 200_000));
            if runs.len() > 12
                && let Some(window) = pick(&runs, 65_536)
            {
                let merged = runs[window.clone()].iter().fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1));
                copied += merged.0;
                runs.splice(window, [merged]);
            }
            longest = longest.max(runs.len());
        }
        assert!(copied <= 2_700_000, "{copied}");
        assert!(longest <= 48, "{longest}");
    }
}
