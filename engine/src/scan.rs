//! Scans: rows of a region in key order or against it, packed into blocks.
//!
//! A scanner captures its sources when it begins, so it needs no lock after and sees one state of the region throughout.
//! The next row is gathered from all sources of each family, resolved family by family, and packed. A row that does not
//! fit the block is given in parts.
//!
//! A scanner that is told not to wait for the disk, and needs it, forgets its cursors and answers so. The next call opens
//! them again behind the last row that was gathered whole, so nothing is skipped or repeated.

mod first;
mod passing;

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellRef, Columns, FamilyName, KeyRange, Projection};

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::merge::Merge;
use crate::read::{FamilyReader, Patience, ReadStats, view_of};
use crate::reading::{PrefixKey, Reading};
use crate::region::{Region, RowPrefix, View as StoreView};
use crate::snapshot::Snapshot;
use crate::source::Bounds;
use crate::window::CellWindow;

/// Cells read without a visible row after which [`RowScanner::next`] returns all the same: a reader of a range full of
/// deleted rows must be able to yield, report where it is, and give up.
const HIDDEN_CELLS_MAX: u64 = 4_096;

/// What a scan is to read.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    /// Rows; what lies outside of the region is left out.
    pub range: KeyRange,
    /// From the last row to the first.
    pub reverse: bool,
    /// Which cells of each row.
    pub projection: Projection,
    /// The time that expiry is judged by.
    pub now_ms: i64,
    /// Goes on inside of the first row, after this cell.
    pub from_cell: Option<CellPosition>,
    /// Whether blocks that are read from disk stay in the cache: not those of a scan over what nobody else reads.
    pub fills_cache: bool,
}

/// A cell's place inside of its row.
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
    /// A part of a row was appended, up to and with this cell; the row goes on.
    Part {
        /// The last cell appended.
        position: CellPosition,
    },
    /// Many cells were read and nothing of them is visible, so nothing was appended. Rows up to and with
    /// [`RowScanner::row`] are done; a call goes on behind them.
    Hidden,
    /// The range is at its end.
    End,
}

struct FamilyScan {
    reader: FamilyReader,
    /// What is read: kept for the whole scan, so that the files stay.
    store: Arc<StoreView>,
    /// `None` until the first call, and after one that needed the disk: a scan that is never read touches nothing.
    merge: Option<Merge>,
    /// All cells of the row at hand, and which of them are visible.
    gathered: Cells,
    visible: Vec<usize>,
}

/// Goes over the rows of a region.
pub struct RowScanner {
    families: Vec<FamilyScan>,
    /// What is still to come.
    bounds: Bounds,
    projection: Projection,
    reverse: bool,
    prefix: Option<RowPrefix>,
    from_cell: Option<CellPosition>,
    fills_cache: bool,
    row: Vec<u8>,
    /// The row that is being gathered: it becomes `row` when all of it is there.
    next_row: Vec<u8>,
    /// Where the row at hand goes on: family and visible cell. `None`: the next row is to be gathered.
    at: Option<(usize, usize)>,
    stats: ReadStats,
    /// Keeps what it sees from being collected.
    snapshot: Snapshot,
}

impl Region {
    /// Begins a scan.
    #[must_use]
    pub fn scan(&self, snapshot: Snapshot, spec: ScanSpec) -> RowScanner {
        let bounds = self.bounds().clip(&spec.range.start, &spec.range.stop);
        let view = view_of(&spec.projection, snapshot.sequence(), spec.now_ms);
        let families = self.views(&spec.projection).into_iter().map(|store| FamilyScan {
            reader: FamilyReader::new(&store.family, view),
            store,
            merge: None,
            gathered: Cells::default(),
            visible: Vec::new(),
        });
        let families = families.collect();
        RowScanner {
            families,
            bounds,
            projection: spec.projection,
            reverse: spec.reverse,
            prefix: self.prefix(),
            from_cell: spec.from_cell,
            fills_cache: spec.fills_cache,
            row: Vec::new(),
            next_row: Vec::new(),
            at: None,
            stats: ReadStats::default(),
            snapshot,
        }
    }
}

impl RowScanner {
    /// Appends the next packed row to `block`, or a part of it once the block holds `bytes_max` bytes. At least one cell
    /// is appended whatever its size.
    ///
    /// # Errors
    /// [`Error::NeedsDisk`] where the patience is [`Patience::MemoryOnly`]: nothing was appended, and the next call goes on
    /// from here. [`Error::Corruption`] or [`Error::Io`] from the files below; the scanner is spent then.
    pub fn next(&mut self, block: &mut Vec<u8>, bytes_max: usize, patience: Patience) -> Result<Step, Error> {
        let seen_before = self.stats.cells_seen;
        let before = block.len();
        // First of all, so that a scan for one row shows it where it lies too.
        if self.at.is_none()
            && !self.bounds.is_empty()
            && let Err(error) = self.open(patience)
        {
            self.close();
            return Err(error);
        }
        while self.at.is_none() {
            let mut show = |row: &[u8], cell: CellRef<'_>| {
                let start = begin_row(block, row);
                terrane_types::cell::pack(block, cell);
                end_row(block, start);
            };
            let shown = match self.show_lone(&mut show) {
                Ok(None) => self.show_first(&mut show).map(|shown| shown.then_some(true)),
                lone => lone,
            };
            match shown {
                Ok(None) => {}
                Ok(Some(true)) => return Ok(Step::Row),
                Ok(Some(false)) if self.stats.cells_seen - seen_before >= HIDDEN_CELLS_MAX => return Ok(Step::Hidden),
                Ok(Some(false)) => continue,
                Err(error) => {
                    block.truncate(before);
                    self.close();
                    return Err(error);
                }
            }
            match self.gather(patience) {
                Ok(true) => {}
                Ok(false) => return Ok(Step::End),
                Err(error) => {
                    self.close();
                    return Err(error);
                }
            }
            if self.families.iter().any(|family| !family.visible.is_empty()) {
                self.at = Some((0, 0));
            } else if self.stats.cells_seen - seen_before >= HIDDEN_CELLS_MAX {
                return Ok(Step::Hidden);
            }
        }
        Ok(self.pack(block, bytes_max))
    }

    /// Goes on, in the direction of the scan, to the first row that is not before `row`; what is left of the row at hand is
    /// skipped. Rows behind are never gone back to.
    ///
    /// # Errors
    /// As [`RowScanner::next`].
    pub fn seek(&mut self, row: &[u8], patience: Patience) -> Result<(), Error> {
        self.at = None;
        if self.reverse {
            let stop = [row, &[0]].concat();
            if self.bounds.stop.is_empty() || stop < self.bounds.stop {
                self.bounds.stop = stop;
            }
        } else if row > self.bounds.start.as_slice() {
            self.bounds.start = row.to_vec();
        }
        let sought = self.open(patience).and_then(|()| {
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
        let reading = Reading {
            blocking: patience == Patience::MayBlock,
            sequential: true,
            fills_cache: self.fills_cache,
            time_min: self.projection.time_min,
            prefix: self.prefix.as_ref().and_then(|prefix| PrefixKey::of(prefix, &self.bounds)),
        };
        for family in self.families.iter_mut().filter(|family| family.merge.is_none()) {
            let mut cursors = Vec::with_capacity(family.store.sources.len());
            for source in &family.store.sources {
                let cursor = Arc::clone(source).cursor(&self.bounds, self.reverse, reading)?;
                if cursor.row().is_some() {
                    cursors.push(cursor);
                }
            }
            family.merge = Some(Merge::new(cursors, self.reverse));
        }
        Ok(())
    }

    /// Forgets the cursors; what was gathered whole is left behind.
    fn close(&mut self) {
        for family in &mut self.families {
            family.merge = None;
        }
        if self.row.is_empty() {
            return;
        }
        // A seek may have gone further than the row at hand.
        if self.reverse {
            if self.bounds.stop.is_empty() || self.row < self.bounds.stop {
                self.bounds.stop.clone_from(&self.row);
            }
        } else if self.row >= self.bounds.start {
            self.bounds.start.clone_from(&self.row);
            self.bounds.start.push(0);
        }
    }

    /// Shows the next row from where it lies, if it is of the only family, has a single cell, and that can be told without
    /// reading on: most rows of a table with one column, which are spared being gathered. Answers whether it is shown, or
    /// `None` where the row has to be gathered. After an error what was shown does not count: the row comes again.
    fn show_lone(&mut self, show: &mut impl FnMut(&[u8], CellRef<'_>)) -> Result<Option<bool>, Error> {
        let [FamilyScan { reader, store, merge: Some(merge), .. }] = self.families.as_mut_slice() else {
            return Ok(None);
        };
        if self.from_cell.is_some() || self.bounds.is_empty() {
            return Ok(None);
        }
        let Some(cell) = merge.lone() else { return Ok(None) };
        let name = store.name.as_bytes();
        let mut window = CellWindow::of(&self.projection);
        let shown = reader.shows_lone(&cell, self.projection.columns(name), &mut self.stats) && window.admits();
        if shown {
            show(cell.row, window.shown(cell.packed(name)));
        }
        self.next_row.clear();
        self.next_row.extend_from_slice(cell.row);
        merge.skip_lone()?;
        std::mem::swap(&mut self.row, &mut self.next_row);
        Ok(Some(shown))
    }

    /// Moves to the next row and resolves it; says no at the end.
    fn gather(&mut self, patience: Patience) -> Result<bool, Error> {
        if self.bounds.is_empty() {
            return Ok(false);
        }
        self.open(patience)?;
        let Self { families, next_row, .. } = self;
        let rows = families.iter().filter_map(|family| family.merge.as_ref()?.row());
        let Some(row) = (if self.reverse { rows.max() } else { rows.min() }) else {
            return Ok(false);
        };
        next_row.clear();
        next_row.extend_from_slice(row);
        for family in families {
            family.gathered.clear();
            family.visible.clear();
            let Some(merge) = family.merge.as_mut().filter(|merge| merge.row() == Some(next_row.as_slice())) else {
                continue;
            };
            let asked = self.projection.columns(family.store.name.as_bytes());
            let columns = asked.map(Columns::sought).unwrap_or_default();
            merge.take(columns, &mut family.gathered)?;
        }
        for family in &mut self.families {
            if family.gathered.is_empty() {
                continue;
            }
            let visible = &mut family.visible;
            let asked = self.projection.columns(family.store.name.as_bytes());
            family.reader.show(&mut family.gathered, asked, &mut self.stats, |at, _| visible.push(at));
        }
        if self.projection.limits_cells() {
            let mut window = CellWindow::of(&self.projection);
            self.families.iter_mut().for_each(|family| family.visible.retain(|_| window.admits()));
        }
        // Only now: what fails before begins again with this row.
        std::mem::swap(&mut self.row, &mut self.next_row);
        if let Some(position) = self.from_cell.take() {
            self.skip_to(&position);
        }
        Ok(true)
    }

    /// Leaves out what earlier parts of the row had.
    fn skip_to(&mut self, position: &CellPosition) {
        for family in &mut self.families {
            match family.store.name.as_bytes().cmp(&position.family) {
                std::cmp::Ordering::Less => family.visible.clear(),
                std::cmp::Ordering::Equal => {
                    let FamilyScan { gathered, visible, .. } = family;
                    visible.retain(|&at| is_after(&gathered.get(at), position));
                }
                std::cmp::Ordering::Greater => {}
            }
        }
    }

    fn pack(&mut self, block: &mut Vec<u8>, bytes_max: usize) -> Step {
        let (mut family, mut cell) = self.at.take().expect("a row is at hand: next() has just seen to it");
        let start = begin_row(block, &self.row);
        let shape = CellWindow::of(&self.projection);
        let mut last = None;
        while let Some(scan) = self.families.get(family) {
            while let Some(&at) = scan.visible.get(cell) {
                // Set once the block is full: what is visible still is for the next part.
                if let Some(position) = last {
                    end_row(block, start);
                    self.at = Some((family, cell));
                    return Step::Part { position };
                }
                let visible = scan.gathered.get(at);
                terrane_types::cell::pack(block, shape.shown(visible.packed(scan.store.name.as_bytes())));
                if block.len() >= bytes_max {
                    last = Some(position_of(&scan.store.name, &visible));
                }
                cell += 1;
            }
            (family, cell) = (family + 1, 0);
        }
        end_row(block, start);
        Step::Row
    }
}

fn position_of(family: &FamilyName, cell: &Cell<'_>) -> CellPosition {
    CellPosition {
        family: Bytes::copy_from_slice(family.as_bytes()),
        qualifier: Bytes::copy_from_slice(cell.qualifier),
        timestamp: cell.timestamp,
        sequence: cell.sequence,
    }
}

/// Visible cells of one column differ in their timestamps, so family, qualifier and timestamp say where one is.
fn is_after(cell: &Cell<'_>, position: &CellPosition) -> bool {
    match cell.qualifier.cmp(&*position.qualifier) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => cell.timestamp < position.timestamp,
        std::cmp::Ordering::Less => false,
    }
}
