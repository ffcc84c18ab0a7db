//! Rows that are judged cell by cell, as they are read, and where the reader continues.
//!
//! HBase's reader asks its filter while it reads, and the filter's answers move the reader: to the next column, to the next row of the
//! family, to a hint. Here the answers move the reader of the data path in the same way, so that a row costs what the filter looks at,
//! and only what is returned is kept.
//!
//! A row is judged whole instead where that is not HBase's order of evaluation: where a filter changes the cells of a row after all of
//! them, and where families that the filter does not need are read for rows that pass.
//!
//! The reader may give cells that were to be passed over. They are passed over here.

use terrane_types::cell::{CellRef, pack};
use terrane_types::{Invalid, Onward};

use super::Evaluator;
use crate::cell_block::KeyValue;
use crate::filter::row_progress::{FamilyProgress, RowDecision, RowProgress, pack_shown};
use crate::filter::{CellCoordinates, Code, Position, Shown};

/// What becomes of a cell.
enum Judged {
    Kept(Onward),
    LeftOut(Onward),
}

impl Evaluator {
    /// Whether rows are judged cell by cell as HBase does it.
    pub(super) fn judges_as_read(&self) -> bool {
        let needs = |(family, _): &(Vec<u8>, bool)| self.filter.needs_family(family);
        !self.filter.edits_cells() && (!self.defers || (!self.families.is_empty() && self.families.iter().all(needs)))
    }

    /// Judges the next cell of a row and packs what is returned of it.
    pub(super) fn judge_cell(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<Onward, Invalid> {
        if !self.looks_at_cells() {
            return self.judge_by_key(row, cell, out);
        }
        if self.row.begun.is_none() && self.is_done() {
            return Ok(Onward::Row);
        }
        let mut family = match self.row.family.take() {
            Some(family) if family.name == cell.family => family,
            other => {
                self.leave_family(row, other);
                self.enter_family(cell.family)
            }
        };
        let cell = KeyValue { row, cell };
        let judged = self.judge_in_family(&mut family, &cell);
        self.row.family = Some(family);
        match judged? {
            Judged::LeftOut(onward) => Ok(onward),
            Judged::Kept(onward) => {
                if self.row.begun == Some(RowDecision::Taken) {
                    self.row.kept += 1;
                    let shown = self.filter.shown(Shown::Whole, cell.cell.value.len());
                    pack_shown(out, cell.cell, shown);
                }
                Ok(onward)
            }
        }
    }

    /// Whether the row is returned of which all cells were given, or enough of them.
    pub(super) fn judge_end(&mut self, row: &[u8]) -> bool {
        let family = self.row.family.take();
        self.leave_family(row, family);
        let RowProgress { begun, families, targets, kept, .. } = std::mem::take(&mut *self.row);
        self.progress.target = None;
        let Some(begun) = begun else {
            self.progress.over |= self.filter.is_over();
            return false;
        };
        if !self.looks_at_cells() {
            let shown = begun == RowDecision::Taken && !self.filter.drops_row();
            self.filter.reset();
            self.progress.over |= self.filter.is_over();
            return shown;
        }
        if families > 0 && targets.len() == families && !self.filter.watches_rows() {
            self.progress.target = if self.reverse { targets.into_iter().max() } else { targets.into_iter().min() };
        }
        let shown = match begun {
            RowDecision::Over => false,
            RowDecision::Skipped => {
                self.filter.reset();
                false
            }
            RowDecision::Taken => {
                // A row that is empty is not counted.
                let shown = kept > 0 && !self.filter.drops_row();
                self.filter.reset();
                shown
            }
        };
        self.progress.over |= self.filter.is_over();
        shown
    }

    /// The filter does not judge cells: it says of the row whether it passes.
    fn judge_by_key(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<Onward, Invalid> {
        let begun = match self.row.begun {
            Some(begun) => begun,
            None if self.is_done() => return Ok(Onward::Row),
            None if self.filter.skips_row(row)? => RowDecision::Skipped,
            None => RowDecision::Taken,
        };
        self.row.begun = Some(begun);
        if begun != RowDecision::Taken {
            return Ok(Onward::Row);
        }
        pack(out, cell);
        Ok(Onward::Cell)
    }

    fn enter_family(&mut self, name: &[u8]) -> FamilyProgress {
        let is_done = self.progress.ended.iter().any(|ended| ended == name);
        let sought = self.progress.sought.iter().find(|(sought, _)| sought == name);
        let place = sought.map(|(_, place)| place.clone());
        FamilyProgress { name: name.to_vec(), is_done, place, ..FamilyProgress::default() }
    }

    /// All cells of the family that are judged in this row were.
    fn leave_family(&mut self, row: &[u8], family: Option<FamilyProgress>) {
        let Some(family) = family.filter(|family| family.is_here && !family.is_done) else { return };
        self.end_family(row, family.name, family.place);
    }

    fn end_family(&mut self, row: &[u8], name: Vec<u8>, place: Option<Position>) {
        if self.filter.is_over() {
            // The reader asks about the family's next cell, wherever that is, and learns that there is none for it.
            self.progress.ended.push(name);
        } else if let Some(place) = place.filter(|place| place.row != row) {
            self.row.targets.push(place.row.clone());
            self.progress.sought.push((name, place));
        }
    }

    fn judge_in_family(&mut self, family: &mut FamilyProgress, cell: &KeyValue<'_>) -> Result<Judged, Invalid> {
        if family.is_done {
            return Ok(Judged::LeftOut(Onward::Family));
        }
        if let Some(place) = family.place.as_ref().filter(|place| self.is_ahead(place, CellCoordinates::of(cell))) {
            return Ok(Judged::LeftOut(self.onward_to(place, CellCoordinates::of(cell))));
        }
        family.place = None;
        if !family.is_here {
            family.is_here = true;
            self.row.families += 1;
            self.progress.sought.retain(|(sought, _)| *sought != family.name);
        }
        let begun = match self.row.begun {
            Some(begun) => begun,
            None if !self.filter.skips_row(cell.row)? => RowDecision::Taken,
            None if self.filter.is_over() => RowDecision::Over,
            None => RowDecision::Skipped,
        };
        self.row.begun = Some(begun);
        if begun == RowDecision::Over {
            return Ok(Judged::LeftOut(Onward::Row));
        }
        if family.column.as_deref() != Some(cell.cell.qualifier) {
            family.column.get_or_insert_default().clear();
            family.column.get_or_insert_default().extend_from_slice(cell.cell.qualifier);
            (family.versions, family.column_done) = (0, false);
        } else if family.column_done {
            return Ok(Judged::LeftOut(Onward::Column));
        }
        if self.filter.is_over() {
            self.progress.ended.push(std::mem::take(&mut family.name));
            family.name.extend_from_slice(cell.cell.family);
            family.is_done = true;
            return Ok(Judged::LeftOut(Onward::Family));
        }
        self.ask(family, cell)
    }

    /// Asks the filter about a cell.
    fn ask(&mut self, family: &mut FamilyProgress, cell: &KeyValue<'_>) -> Result<Judged, Invalid> {
        let code = self.filter.cell(cell)?;
        let passes = self.passes_columns(cell);
        family.column_done = passes && matches!(code, Code::IncludeAndNextColumn | Code::NextColumn);
        let mut is_kept = false;
        if code.includes() {
            // A raw scan shows tombstones, which are no versions.
            family.versions += usize::from(!cell.cell.kind.is_delete());
            if family.versions > self.versions {
                family.column_done = passes;
                return Ok(Judged::LeftOut(if passes { Onward::Column } else { Onward::Cell }));
            }
            family.included += 1;
            is_kept = family.included > self.limits.offset;
            // The limit is looked at behind a cell: a limit of none lets one through, as in HBase.
            let is_last = |limit: u32| is_kept && family.included >= limit.saturating_add(self.limits.offset);
            if self.limits.limit.is_some_and(is_last) {
                family.is_done = true;
                return Ok(Judged::Kept(Onward::Family));
            }
        }
        let onward = match code {
            Code::NextRow => {
                family.is_done = true;
                self.end_family(cell.row, family.name.clone(), None);
                Onward::Family
            }
            Code::Seek => {
                let hint = self.filter.hint(CellCoordinates::of(cell));
                // A reader that goes down stays in the row only to take the next cell.
                family.place = hint.filter(|place| self.is_ahead(place, CellCoordinates::of(cell)));
                family.place.as_ref().map_or(Onward::Cell, |place| self.onward_to(place, CellCoordinates::of(cell)))
            }
            _ if family.column_done => Onward::Column,
            _ => Onward::Cell,
        };
        Ok(if is_kept { Judged::Kept(onward) } else { Judged::LeftOut(onward) })
    }

    /// Where the reader continues that is at a cell and goes to a place ahead.
    fn onward_to(&self, place: &Position, at: CellCoordinates<'_>) -> Onward {
        if self.reverse || place.row != at.row {
            return Onward::Family;
        }
        place.onward(at)
    }
}
