//! Scans: rows of a region in ascending or descending key order, packed into blocks.
//!
//! A scanner captures its sources when it begins, so it needs no lock afterwards and sees one state of the region
//! throughout. The next row is gathered from all sources of each family, resolved family by family, and packed; a large
//! one part by part ([`row`]). A row that does not fit the block is returned in parts.
//!
//! A scanner that must not wait for the disk, and needs it, drops its cursors and returns an error. The next call opens
//! them again after the last row that was gathered completely, so nothing is skipped or repeated.

mod first_cell;
mod row;
mod skip;
mod walk;

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellRef, FamilyName, KeyRange, Projection};

use self::row::CurrentRow;
pub(crate) use self::walk::FIRST_PART_BYTES;
use crate::Error;
use crate::cell_window::CellWindow;
use crate::cells::{Cells, SLOT_BYTES};
use crate::family_reader::{FamilyReader, Patience, ReadStats, view_of};
use crate::merging_cursor::MergingCursor;
use crate::region::{Region, StoreView};
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;
use crate::snapshot::Snapshot;
use crate::source::{PrefixKey, Reading};

/// Cells read without a visible row after which [`RowScanner::next`] returns anyway: a reader of a range full of
/// deleted rows must be able to yield, report its position, and give up.
const HIDDEN_CELLS_MAX: u64 = 4_096;
/// The same for each byte of a part: fewer cells, where parts are tiny.
const HIDDEN_CELLS_PER_BYTE: u64 = 64;

/// Cells of a column that are read before it is seen whether the others are needed, in addition to the versions that are
/// requested.
const COLUMN_CELLS: usize = 256;

/// After how many cells of one column a read in parts of this size looks whether it needs the others.
pub(crate) fn column_cells(projection: &Projection, part_bytes: usize) -> usize {
    let more = COLUMN_CELLS.min(part_bytes.div_ceil(SLOT_BYTES));
    more.saturating_add(usize::try_from(projection.versions).unwrap_or(usize::MAX))
}

/// What a scan reads.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// The rows; those outside of the region are left out.
    pub range: KeyRange,
    /// From the last row to the first.
    pub reverse: bool,
    /// Which cells of each row.
    pub projection: Projection,
    /// The time by which expiry is judged.
    pub now_ms: i64,
    /// Continues within the first row, after this cell.
    pub from_cell: Option<CellPosition>,
    /// Whether blocks read from disk stay in the cache: not those of a scan over rarely read data.
    pub fills_cache: bool,
}

impl ScanSpec {
    /// From the first row of a range to the last. What it reads from disk stays in the cache.
    #[must_use]
    pub const fn new(range: KeyRange, projection: Projection, now_ms: i64) -> Self {
        Self { range, reverse: false, projection, now_ms, from_cell: None, fills_cache: true }
    }
}

/// The position of a cell within its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPosition {
    /// Its family.
    pub family: Bytes,
    /// Its qualifier.
    pub qualifier: Bytes,
    /// Its timestamp.
    pub timestamp: i64,
    /// Its sequence number.
    pub sequence: u64,
}

/// What [`RowScanner::next`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A whole row was appended, or the last part of one.
    Row,
    /// Part of a row was appended, up to and including this cell; the row continues.
    Part {
        /// The last cell appended.
        position: CellPosition,
    },
    /// Many cells were read and none is visible, so nothing was appended. Rows up to and including [`RowScanner::row`]
    /// are done; the next call continues after them.
    Hidden,
    /// Many cells of a row were read, and most of them are not visible: [`RowScanner::row`] is not done, and the next call continues
    /// with the rest of it. What was appended of it is not complete: the next call takes the same block and completes it.
    HiddenPart,
    /// The end of the range.
    End,
}

struct FamilyScan {
    reader: FamilyReader,
    /// What is read: kept for the whole scan, so that the files stay.
    store: Arc<StoreView>,
    /// `None` until the first call, and after one that needed the disk: a scan that is never read touches nothing.
    merge: Option<MergingCursor>,
    /// Cells of the current row, and which of them are visible.
    gathered: Cells,
    visible: Vec<usize>,
    /// The number of cells known to be visible or not; the others are of a column that may continue.
    decided: usize,
    /// Whether the row continues after them.
    more: bool,
    /// Whether the reader has begun the row.
    begun: bool,
    /// The row continues at the first column that is not before this one: nothing else of it is wanted.
    beyond: Option<Vec<u8>>,
    /// After how many cells of a column to look whether the others are wanted.
    column_cells: usize,
}

/// Moves over the rows of a region.
pub struct RowScanner {
    families: Vec<FamilyScan>,
    /// What remains.
    bounds: RowRange,
    projection: Projection,
    reverse: bool,
    prefix: Option<RowPrefix>,
    /// Where the next row continues, and whether this scanner returned what comes before.
    from_cell: Option<(CellPosition, bool)>,
    fills_cache: bool,
    row: Vec<u8>,
    /// The row being begun: it becomes `row` when its first part is present. After that, the previous row.
    next_row: Vec<u8>,
    /// Whether `row` is current: it was begun and not all of it was returned.
    within: bool,
    at_hand: CurrentRow,
    /// Where the current row continues: family and visible cell. `None`: something visible must be found first.
    at: Option<(usize, usize)>,
    /// A buffer for cells that are put aside.
    spare: Cells,
    part_bytes: usize,
    stats: ReadStats,
    /// Keeps what the scan sees from being collected.
    snapshot: Snapshot,
}

impl Region {
    /// Begins a scan.
    #[must_use]
    pub fn scan(&self, snapshot: Snapshot, spec: ScanSpec) -> RowScanner {
        let bounds = self.bounds().clip(&spec.range.start, &spec.range.end);
        let view = |family: &FamilyName| view_of(&spec.projection, family.as_bytes(), snapshot.sequence(), spec.now_ms);
        let families = self.views(&spec.projection).into_iter().map(|store| FamilyScan {
            reader: FamilyReader::new(&store.family, view(&store.name)),
            store,
            merge: None,
            gathered: Cells::default(),
            visible: Vec::new(),
            decided: 0,
            more: false,
            begun: false,
            beyond: None,
            column_cells: 0,
        });
        let families = families.collect();
        let at_hand = CurrentRow::new(CellWindow::of(&spec.projection), self.part_bytes());
        RowScanner {
            families,
            bounds,
            projection: spec.projection,
            reverse: spec.reverse,
            prefix: self.prefix(),
            from_cell: spec.from_cell.map(|position| (position, false)),
            fills_cache: spec.fills_cache,
            row: Vec::new(),
            next_row: Vec::new(),
            within: false,
            at_hand,
            at: None,
            spare: Cells::default(),
            part_bytes: self.part_bytes(),
            stats: ReadStats::default(),
            snapshot,
        }
    }
}

impl RowScanner {
    /// Appends the next packed row to `block`, or part of it once the block holds `bytes_max` bytes. At least one cell
    /// is appended whatever its size.
    ///
    /// # Errors
    /// [`Error::NeedsDisk`] where the patience is [`Patience::MemoryOnly`]: nothing was appended, and the next call
    /// continues from here. [`Error::Corruption`] or [`Error::Io`] from the files below; the scanner cannot be used any
    /// more.
    pub fn next(&mut self, block: &mut Vec<u8>, bytes_max: usize, patience: Patience) -> Result<Step, Error> {
        let before = self.row_start().unwrap_or(block.len());
        let step = self.next_step(block, bytes_max, patience);
        if step.is_err() {
            block.truncate(before);
            self.close();
        }
        step
    }

    fn next_step(&mut self, block: &mut Vec<u8>, bytes_max: usize, patience: Patience) -> Result<Step, Error> {
        let seen_before = self.stats.cells_seen;
        if self.at.is_some() {
            return self.pack(block, bytes_max);
        }
        // Before anything else, so that a scan of one row also shows it from where it lies.
        if !self.bounds.is_empty() {
            self.open(patience)?;
        }
        loop {
            if self.within {
                if self.find_visible(seen_before)? {
                    return self.pack(block, bytes_max);
                }
                if !self.is_gathered() {
                    return Ok(Step::HiddenPart);
                }
                if let Some((start, _)) = self.at_hand.open {
                    self.leave_row()?;
                    end_row(block, start);
                    return Ok(Step::Row);
                }
                if self.end_row()? {
                    // The last part of a row that was returned in parts is empty.
                    let start = begin_row(block, &self.row);
                    end_row(block, start);
                    return Ok(Step::Row);
                }
                if self.has_hidden(seen_before) {
                    return Ok(Step::Hidden);
                }
            }
            let mut show = |row: &[u8], cell: CellRef<'_>| {
                let start = begin_row(block, row);
                terrane_types::cell::pack(block, cell);
                end_row(block, start);
            };
            let shown = match self.show_single(&mut show)? {
                None => self.show_first(&mut show)?.then_some(true),
                single => single,
            };
            match shown {
                Some(true) => return Ok(Step::Row),
                Some(false) if self.has_hidden(seen_before) => return Ok(Step::Hidden),
                Some(false) => {}
                None => {
                    if !self.begin_row(patience, self.part_bytes)? {
                        return Ok(Step::End);
                    }
                }
            }
        }
    }

    /// After [`Step::HiddenPart`]: where the current row begins in the block, if something of it was appended.
    #[must_use]
    pub fn row_start(&self) -> Option<usize> {
        self.at_hand.open.as_ref().filter(|_| self.within).map(|(start, _)| start.start())
    }

    /// Whether so much was read since then without a visible cell that the caller should get control.
    fn has_hidden(&self, seen_before: u64) -> bool {
        self.is_much(self.stats.cells_seen - seen_before)
    }

    /// Cells that were read and are not visible.
    fn hidden_cells(&self) -> u64 {
        self.stats.cells_seen.saturating_sub(self.stats.cells_shown)
    }

    fn is_much(&self, hidden: u64) -> bool {
        let cells_max = terrane_env::limit!("hidden cells in a step", HIDDEN_CELLS_MAX, 1..=16);
        hidden >= cells_max.min(HIDDEN_CELLS_PER_BYTE * self.part_bytes as u64)
    }

    /// Moves, in the direction of the scan, to the first row that is not before `row`, skipping the rest of the current
    /// row. It never moves back.
    ///
    /// # Errors
    /// As [`RowScanner::next`].
    pub fn seek(&mut self, row: &[u8], patience: Patience) -> Result<(), Error> {
        self.from_cell = None;
        if self.reverse {
            let end = [row, &[0]].concat();
            if self.bounds.end.is_empty() || end < self.bounds.end {
                self.bounds.end = end;
            }
        } else if row > self.bounds.start.as_slice() {
            self.bounds.start = row.to_vec();
        }
        let sought = self.drop_row().and_then(|()| self.open(patience)).and_then(|()| {
            self.families.iter_mut().filter_map(|family| family.merge.as_mut()).try_for_each(|merge| merge.seek(row))
        });
        if sought.is_err() {
            self.close();
        }
        sought
    }

    /// The key of the row that the last call to [`RowScanner::next`] was about.
    #[must_use]
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    /// What was read since the last call.
    pub fn take_stats(&mut self) -> ReadStats {
        std::mem::take(&mut self.stats)
    }

    /// The sequence number that the scan reads at.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.snapshot.sequence()
    }

    fn open(&mut self, patience: Patience) -> Result<(), Error> {
        if self.families.iter().all(|family| family.merge.is_some()) {
            return Ok(());
        }
        let prefix = self.prefix.as_ref().and_then(|prefix| PrefixKey::of(prefix, &self.bounds));
        let reading = Reading { prefix, ..self.reading(patience, true) };
        for family in self.families.iter_mut().filter(|family| family.merge.is_none()) {
            let (time_min, _) = self.projection.times(family.store.name.as_bytes());
            let reading = Reading { time_min, ..reading };
            let mut cursors = Vec::with_capacity(family.store.sources.len());
            for source in &family.store.sources {
                let cursor = Arc::clone(source).cursor(&self.bounds, self.reverse, reading)?;
                if cursor.row().is_some() {
                    cursors.push(cursor);
                }
            }
            family.merge = Some(MergingCursor::new(cursors, self.reverse));
        }
        Ok(())
    }

    /// How the sources of a family without times of its own are read.
    fn reading(&self, patience: Patience, sequential: bool) -> Reading {
        Reading {
            blocking: patience == Patience::MayBlock,
            sequential,
            fills_cache: self.fills_cache,
            time_min: self.projection.time_min,
            prefix: None,
        }
    }

    /// Drops the cursors. Rows that are done are not read again; the current row is, from after its last returned part.
    fn close(&mut self) {
        for family in &mut self.families {
            family.merge = None;
        }
        if std::mem::replace(&mut self.within, false) {
            self.at = None;
            self.from_cell = self.at_hand.resume();
            // A seek may have moved further than the current row.
            if self.reverse {
                let end = [self.row.as_slice(), &[0]].concat();
                if self.bounds.end.is_empty() || end < self.bounds.end {
                    self.bounds.end = end;
                }
            } else if self.row > self.bounds.start {
                self.bounds.start.clone_from(&self.row);
            }
            // The last row that is done.
            std::mem::swap(&mut self.row, &mut self.next_row);
            return;
        }
        if self.row.is_empty() {
            return;
        }
        // A seek may have moved further than the current row.
        if self.reverse {
            if self.bounds.end.is_empty() || self.row < self.bounds.end {
                self.bounds.end.clone_from(&self.row);
            }
        } else if self.row >= self.bounds.start {
            self.bounds.start.clone_from(&self.row);
            self.bounds.start.push(0);
        }
    }

    /// Shows the next row from where it lies, if it belongs to the only family, has a single cell, and that is known
    /// without further reading: most rows of a table with one column, which need no gathering. Returns whether it is
    /// shown, or `None` where the row must be gathered.
    fn show_single(&mut self, show: &mut impl FnMut(&[u8], CellRef<'_>)) -> Result<Option<bool>, Error> {
        let [FamilyScan { reader, store, merge: Some(merge), .. }] = self.families.as_mut_slice() else {
            return Ok(None);
        };
        if self.from_cell.is_some() || self.bounds.is_empty() {
            return Ok(None);
        }
        let Some(cell) = merge.single() else { return Ok(None) };
        let name = store.name.as_bytes();
        let mut window = CellWindow::of(&self.projection);
        let shown = reader.shows_single(&cell, self.projection.columns(name), &mut self.stats) && window.admits();
        if shown {
            show(cell.row, window.shown(cell.packed(name)));
        }
        self.next_row.clear();
        self.next_row.extend_from_slice(cell.row);
        let moved = merge.skip_single();
        std::mem::swap(&mut self.row, &mut self.next_row);
        if moved.is_err() {
            // The row is done all the same. An error that lasts comes with the next one.
            self.close();
        }
        Ok(Some(shown))
    }
}

#[cfg(test)]
mod script_tests;
