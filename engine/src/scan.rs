//! Scans: rows of a region in key order or against it, packed into blocks.
//!
//! A scanner captures its sources when it begins, so it needs no lock after and sees one state of the region throughout.
//! Each source is read by whole rows; the lowest (or highest) row at hand is gathered from all of them, resolved family
//! by family, and packed. A row that does not fit the block is given in parts.

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{FamilyName, KeyRange, Projection};

use crate::Error;
use crate::cell::StoredCell;
use crate::read::{FamilyReader, ReadStats, sort_cells, view_of};
use crate::region::Region;
use crate::snapshot::Snapshot;
use crate::source::{Bounds, Cursor, Source};

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
    /// What is still to be opened, by the first call: a scan that is never read touches nothing.
    sources: Vec<Arc<dyn Source>>,
    cursors: Vec<Cursor>,
    /// Visible cells of the row at hand.
    visible: Vec<StoredCell>,
}

/// Goes over the rows of a region.
pub struct RowScanner {
    families: Vec<FamilyScan>,
    bounds: Bounds,
    projection: Projection,
    reverse: bool,
    from_cell: Option<CellPosition>,
    row: Vec<u8>,
    gathered: Vec<StoredCell>,
    /// Where the row at hand goes on: family and cell. `None`: the next row is to be gathered.
    at: Option<(usize, usize)>,
    stats: ReadStats,
    /// Keeps what it sees from being collected.
    snapshot: Snapshot,
}

impl Region {
    /// Begins a scan.
    #[must_use]
    pub fn scan(&self, snapshot: Snapshot, spec: ScanSpec) -> RowScanner {
        let bounds = Bounds { start: spec.range.start.to_vec(), stop: spec.range.stop.to_vec() };
        let bounds = bounds.intersect(self.bounds());
        let view = view_of(&spec.projection, snapshot.sequence(), spec.now_ms);
        let families = self.readers(&spec.projection, view).into_iter().map(|(reader, sources)| FamilyScan {
            reader,
            sources,
            cursors: Vec::new(),
            visible: Vec::new(),
        });
        let families = families.collect();
        RowScanner {
            families,
            bounds,
            projection: spec.projection,
            reverse: spec.reverse,
            from_cell: spec.from_cell,
            row: Vec::new(),
            gathered: Vec::new(),
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
    /// [`Error::Corruption`] or [`Error::Io`] from the files below; the scanner is spent then.
    pub fn next(&mut self, block: &mut Vec<u8>, bytes_max: usize) -> Result<Step, Error> {
        self.open()?;
        let seen_before = self.stats.cells_seen;
        while self.at.is_none() {
            if !self.gather()? {
                return Ok(Step::End);
            }
            if self.families.iter().any(|family| !family.visible.is_empty()) {
                self.at = Some((0, 0));
            } else if self.stats.cells_seen - seen_before >= HIDDEN_CELLS_MAX {
                return Ok(Step::Hidden);
            }
        }
        Ok(self.pack(block, bytes_max))
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

    fn open(&mut self) -> Result<(), Error> {
        for family in &mut self.families {
            for source in family.sources.drain(..) {
                let cursor = Cursor::new(source, self.bounds.clone(), self.reverse)?;
                if cursor.row().is_some() {
                    family.cursors.push(cursor);
                }
            }
        }
        Ok(())
    }

    /// Moves to the next row and resolves it; says no at the end.
    fn gather(&mut self) -> Result<bool, Error> {
        let rows = self.families.iter().flat_map(|family| &family.cursors).filter_map(Cursor::row);
        let Some(row) = (if self.reverse { rows.max() } else { rows.min() }) else {
            return Ok(false);
        };
        self.row.clear();
        self.row.extend_from_slice(row);
        for family in &mut self.families {
            self.gathered.clear();
            let mut with_row = 0;
            for cursor in &mut family.cursors {
                if cursor.row() == Some(self.row.as_slice()) {
                    cursor.take(&mut self.gathered)?;
                    with_row += 1;
                }
            }
            if with_row > 1 {
                sort_cells(&mut self.gathered);
            }
            family.visible.clear();
            let visible = &mut family.visible;
            let show = |cell: &StoredCell, _: &[u8]| visible.push(cell.clone());
            family.reader.show(&mut self.gathered, &self.projection, &mut self.stats, show);
        }
        if let Some(position) = self.from_cell.take() {
            self.skip_to(&position);
        }
        Ok(true)
    }

    /// Leaves out what earlier parts of the row had.
    fn skip_to(&mut self, position: &CellPosition) {
        for family in &mut self.families {
            match family.reader.name().as_bytes().cmp(&position.family) {
                std::cmp::Ordering::Less => family.visible.clear(),
                std::cmp::Ordering::Equal => family.visible.retain(|cell| is_after(cell, position)),
                std::cmp::Ordering::Greater => {}
            }
        }
    }

    fn pack(&mut self, block: &mut Vec<u8>, bytes_max: usize) -> Step {
        let (mut family, mut cell) = self.at.take().expect("a row is at hand: next() has just seen to it");
        let start = begin_row(block, &self.row);
        let mut last = None;
        while let Some(scan) = self.families.get(family) {
            while let Some(visible) = scan.visible.get(cell) {
                // Set once the block is full: what is visible still is for the next part.
                if let Some(position) = last {
                    end_row(block, start);
                    self.at = Some((family, cell));
                    return Step::Part { position };
                }
                terrane_types::cell::pack(block, visible.as_ref(scan.reader.name().as_bytes()));
                if block.len() >= bytes_max {
                    last = Some(position_of(scan.reader.name(), visible));
                }
                cell += 1;
            }
            (family, cell) = (family + 1, 0);
        }
        end_row(block, start);
        Step::Row
    }
}

fn position_of(family: &FamilyName, cell: &StoredCell) -> CellPosition {
    CellPosition {
        family: Bytes::copy_from_slice(family.as_bytes()),
        qualifier: Bytes::copy_from_slice(cell.qualifier()),
        timestamp: cell.timestamp(),
        sequence: cell.sequence(),
    }
}

/// Visible cells of one column differ in their timestamps, so family, qualifier and timestamp say where one is.
fn is_after(cell: &StoredCell, position: &CellPosition) -> bool {
    match cell.qualifier().cmp(&*position.qualifier) {
        std::cmp::Ordering::Greater => true,
        std::cmp::Ordering::Equal => cell.timestamp() < position.timestamp,
        std::cmp::Ordering::Less => false,
    }
}
