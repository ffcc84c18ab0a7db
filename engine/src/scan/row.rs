//! One row of a scan, part by part.
//!
//! A row is gathered family after family, and one part at a time of each family. Mostly that is all of it. What a part
//! shows is handed on before the next one is gathered, so a row of any size passes through the memory of one part.
//!
//! A row continues at the cell that an earlier block ended with: the cursors seek the cell's column, and only the
//! tombstones of the family, which lie before all columns, are read first. A row sent in many blocks is therefore read
//! once.

use std::cmp::Ordering;

use bytes::Bytes;
use terrane_types::FamilyName;
use terrane_types::rows::{RowStart, begin_row, end_row};

use super::{CellPosition, FamilyScan, RowScanner, Step, column_cells};
use crate::Error;
use crate::cell_window::CellWindow;
use crate::cells::Cell;
use crate::column_selection::ColumnSelection;
use crate::family_reader::Patience;
use crate::source::{Reading, RowLookup};

/// What the parts of a row share.
pub(super) struct CurrentRow {
    /// Cells that remain to be left out, and to be shown.
    window: CellWindow,
    /// Families that were gathered: the others wait until these have no more.
    pub(super) reached: usize,
    /// Where the row continues, and whether this scanner returned what comes before it.
    resumed: Option<(CellPosition, bool)>,
    /// The last cell of the last part that was returned.
    pub(super) given: Option<CellPosition>,
    /// Bytes of a part.
    pub(super) part_bytes: usize,
    /// Where the row begins in the block, between two calls that pack it, and its last cell if the block is full.
    pub(super) open: Option<(RowStart, Option<CellPosition>)>,
    /// A call that passes over rows continues within this one, of which nothing is visible so far.
    pub(super) is_passed: bool,
}

impl CurrentRow {
    pub(super) fn new(window: CellWindow, part_bytes: usize) -> Self {
        Self { window, reached: 0, resumed: None, given: None, part_bytes, open: None, is_passed: false }
    }

    /// Whether this scanner returned part of the row.
    fn is_given(&self) -> bool {
        self.given.is_some() || self.resumed.as_ref().is_some_and(|(_, given)| *given)
    }

    /// Where the row continues when it must be read again.
    pub(super) fn resume(&mut self) -> Option<(CellPosition, bool)> {
        self.given.take().map(|position| (position, true)).or_else(|| self.resumed.take())
    }
}

impl RowScanner {
    /// Moves to the next row and gathers its first part; `false` at the end.
    pub(super) fn begin_row(&mut self, patience: Patience, part_bytes: usize) -> Result<bool, Error> {
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
        let column_cells = column_cells(&self.projection, self.part_bytes);
        for family in families {
            family.gathered.clear();
            family.visible.clear();
            (family.decided, family.more, family.begun) = (0, false, false);
            (family.beyond, family.column_cells) = (None, column_cells);
        }
        self.at_hand = CurrentRow::new(CellWindow::of(&self.projection), part_bytes);
        if let Some(from_cell) = self.from_cell.clone() {
            // With a window of cells, those of the earlier parts must be counted.
            if !self.projection.limits_cells() {
                self.seek_cell(&from_cell.0, patience)?;
            }
            self.at_hand.resumed = Some(from_cell);
        }
        self.gather_families()?;
        // Only now: after an earlier failure the scan begins again with this row.
        std::mem::swap(&mut self.row, &mut self.next_row);
        self.from_cell = None;
        self.within = true;
        Ok(true)
    }

    /// Moves within the next row to the column of a cell.
    fn seek_cell(&mut self, position: &CellPosition, patience: Patience) -> Result<(), Error> {
        let reading = self.reading(patience, false);
        let Self { families, next_row, spare, at_hand, part_bytes, .. } = self;
        for FamilyScan { reader, store, merge, begun, .. } in families {
            let Some(merge) = merge.as_mut().filter(|merge| merge.row() == Some(next_row.as_slice())) else {
                at_hand.reached += usize::from(store.name.as_bytes() < &position.family[..]);
                continue;
            };
            match store.name.as_bytes().cmp(&position.family) {
                Ordering::Less => {
                    merge.skip()?;
                    at_hand.reached += 1;
                }
                Ordering::Equal if !position.qualifier.is_empty() => {
                    spare.clear();
                    let mut is_all = true;
                    let (time_min, _) = self.projection.times(store.name.as_bytes());
                    let reading = Reading { time_min, ..reading };
                    let lookup = RowLookup::new(next_row, ColumnSelection::TOMBSTONES, reading, *part_bytes);
                    for source in &store.sources {
                        is_all &= source.row(&lookup, spare)?;
                    }
                    if is_all {
                        spare.sort_from(0);
                        reader.begin_row(next_row);
                        reader.take_tombstones(spare);
                        merge.seek_column(&position.qualifier)?;
                        *begun = true;
                    }
                }
                Ordering::Equal | Ordering::Greater => {}
            }
        }
        Ok(())
    }

    /// Gathers the next families, up to one that has more of the row than a part.
    fn gather_families(&mut self) -> Result<(), Error> {
        while self.at_hand.reached < self.families.len() {
            if self.at_hand.reached > 0 && self.families[self.at_hand.reached - 1].more {
                break;
            }
            self.gather(self.at_hand.reached)?;
            self.at_hand.reached += 1;
        }
        Ok(())
    }

    /// Gathers what comes next of a family.
    fn gather(&mut self, at: usize) -> Result<(), Error> {
        let Self { families, spare, at_hand, part_bytes, .. } = self;
        let key = if self.within { &self.row } else { &self.next_row };
        let FamilyScan { reader, store, merge, gathered, visible, decided, more, begun, beyond, column_cells } =
            &mut families[at];
        if let (Some(merge), Some(qualifier)) = (merge.as_mut(), beyond.take()) {
            merge.seek_column(&qualifier)?;
        }
        let merge = merge.as_mut().filter(|merge| merge.row() == Some(key.as_slice()));
        if merge.is_none() && !*more {
            return Ok(());
        }
        if !std::mem::replace(begun, true) {
            reader.begin_row(key);
        }
        if *more {
            gathered.drop_front(*decided, spare);
            visible.clear();
        }
        let asked = self.projection.columns(store.name.as_bytes());
        let sought = ColumnSelection::of(asked).pausing_after(*column_cells);
        let is_over = match merge {
            Some(merge) => merge.take(sought, at_hand.part_bytes, gathered)?,
            // Nothing is behind what was sought.
            None => true,
        };
        *more = !is_over;
        *decided = reader.show_part(gathered, is_over, asked, &mut self.stats, |at, _| visible.push(at));
        if *more {
            // Each time it was too early to look, the next look waits for more.
            *column_cells = column_cells.saturating_mul(2);
            if let Some(qualifier) = reader.leave_settled(asked) {
                *beyond = Some([qualifier, &[0]].concat());
                *decided = gathered.len();
                *column_cells = super::column_cells(&self.projection, *part_bytes);
            }
        }
        if self.projection.limits_cells() {
            visible.retain(|_| at_hand.window.admits());
        }
        if let Some((position, _)) = &at_hand.resumed {
            match store.name.as_bytes().cmp(&position.family) {
                Ordering::Less => visible.clear(),
                Ordering::Equal => visible.retain(|&at| is_after(&gathered.get(at), position)),
                Ordering::Greater => {}
            }
        }
        Ok(())
    }

    /// Whether all of the current row was gathered, or what is left shows nothing.
    pub(super) fn is_gathered(&self) -> bool {
        self.is_read() || (self.projection.limits_cells() && self.at_hand.window.is_full())
    }

    /// Whether the cursors are past the current row.
    fn is_read(&self) -> bool {
        self.at_hand.reached == self.families.len() && self.families.last().is_none_or(|family| !family.more)
    }

    /// Gathers the next part of the current row; returns the first family that it contains.
    pub(super) fn next_part(&mut self) -> Result<usize, Error> {
        let last = self.at_hand.reached.saturating_sub(1);
        if !self.families[last].more {
            let next = self.at_hand.reached;
            self.gather_families()?;
            return Ok(next);
        }
        self.gather(last)?;
        self.gather_families()?;
        Ok(last)
    }

    /// Leaves the current row, of which nothing more is wanted. After an error it is still current.
    pub(super) fn leave_row(&mut self) -> Result<(), Error> {
        self.at = None;
        if self.within && !self.is_read() {
            self.skip_rest()?;
        }
        self.within = false;
        Ok(())
    }

    /// The same, and after an error the row is left too.
    pub(super) fn drop_row(&mut self) -> Result<(), Error> {
        let left = self.leave_row();
        self.within = false;
        left
    }

    fn skip_rest(&mut self) -> Result<(), Error> {
        for merge in self.families.iter_mut().filter_map(|family| family.merge.as_mut()) {
            if merge.row() == Some(self.row.as_slice()) {
                merge.skip()?;
            }
        }
        Ok(())
    }

    /// Moves to what the current row shows next; `false` where it shows nothing more, or where too much of it is hidden
    /// to continue at once.
    pub(super) fn find_visible(&mut self, seen_before: u64) -> Result<bool, Error> {
        let mut first = 0;
        loop {
            let shows = |family: &FamilyScan| !family.visible.is_empty();
            if let Some(family) = (first..self.at_hand.reached).find(|&at| shows(&self.families[at])) {
                self.at = Some((family, 0));
                return Ok(true);
            }
            if self.is_gathered() || self.has_hidden(seen_before) {
                return Ok(false);
            }
            first = self.next_part()?;
        }
    }

    /// The current row shows nothing more: returns whether parts of it were returned.
    pub(super) fn end_row(&mut self) -> Result<bool, Error> {
        let is_given = self.at_hand.is_given();
        self.leave_row()?;
        Ok(is_given)
    }

    /// Packs the current row from what it shows next, until it is over, the block is full, or much was read that
    /// is not visible.
    pub(super) fn pack(&mut self, block: &mut Vec<u8>, bytes_max: usize) -> Result<Step, Error> {
        let (mut family, mut cell) = self.at.take().expect("next() has just found something visible");
        // The last cell of a full block: only the next one shows whether it is the last of the row.
        let (start, mut full_at) = match self.at_hand.open.take() {
            Some(open) => open,
            None => (begin_row(block, &self.row), None),
        };
        let (shape, hidden_before) = (CellWindow::of(&self.projection), self.hidden_cells());
        loop {
            while family < self.at_hand.reached {
                let scan = &self.families[family];
                while let Some(&at) = scan.visible.get(cell) {
                    if let Some(position) = full_at.take_if(|_| !self.continues_version(family, cell)) {
                        end_row(block, start);
                        self.at = Some((family, cell));
                        self.at_hand.given = Some(CellPosition::clone(&position));
                        return Ok(Step::Part { position });
                    }
                    let visible = scan.gathered.get(at);
                    terrane_types::cell::pack(block, shape.shown(visible.packed(scan.store.name.as_bytes())));
                    if block.len() >= bytes_max {
                        full_at = Some(position_of(&scan.store.name, &visible));
                    }
                    cell += 1;
                }
                (family, cell) = (family + 1, 0);
            }
            if self.is_gathered() {
                break;
            }
            if self.is_much(self.hidden_cells() - hidden_before) {
                // They are packed: the next call continues behind them.
                self.families[..self.at_hand.reached].iter_mut().for_each(|family| family.visible.clear());
                self.at_hand.open = Some((start, full_at));
                return Ok(Step::HiddenPart);
            }
            (family, cell) = (self.next_part()?, 0);
        }
        end_row(block, start);
        self.leave_row()?;
        Ok(Step::Row)
    }
}

impl RowScanner {
    /// Whether this visible cell and the one before it are of one version of a column: raw scans show tombstones beside puts,
    /// and no place within a row lies between them.
    fn continues_version(&self, family: usize, cell: usize) -> bool {
        let FamilyScan { gathered, visible, .. } = &self.families[family];
        let Some(&[before, at]) = cell.checked_sub(1).and_then(|before| visible.get(before..=cell)) else {
            return false;
        };
        let (before, at) = (gathered.get(before), gathered.get(at));
        (before.qualifier, before.timestamp) == (at.qualifier, at.timestamp)
    }
}

pub(super) fn position_of(family: &FamilyName, cell: &Cell<'_>) -> CellPosition {
    CellPosition {
        family: Bytes::copy_from_slice(family.as_bytes()),
        qualifier: Bytes::copy_from_slice(cell.qualifier),
        timestamp: cell.timestamp,
        sequence: cell.sequence,
    }
}

/// Visible cells of one column differ in their timestamps, or stay together in a raw scan, so family, qualifier and timestamp
/// identify a place between two of them.
fn is_after(cell: &Cell<'_>, position: &CellPosition) -> bool {
    match cell.qualifier.cmp(&*position.qualifier) {
        Ordering::Greater => true,
        Ordering::Equal => cell.timestamp < position.timestamp,
        Ordering::Less => false,
    }
}
