//! Handing on the cells of rows one by one, to someone who judges them as they come and says where the row continues.
//!
//! What need not be read is sought past, so what a row costs follows what is judged of it. The first part is small, because its
//! cells often say that most of the row is not wanted; while nothing is passed over, parts grow to their full size.
//!
//! What was handed on counts, even if an error follows: the next call continues behind it.

use bytes::Bytes;
use terrane_types::{CellRef, Onward};

use super::row::position_of;
use super::{CellPosition, FamilyScan, RowScanner, Step};
use crate::Error;
use crate::cell_window::CellWindow;
use crate::family_reader::Patience;

/// Bytes of the first part of a row, and of the first one behind what is passed over.
pub(crate) const FIRST_PART_BYTES: usize = 32 << 10;

/// What of a family is to be passed over.
enum Passing {
    Nothing,
    /// The rest of the column of this gathered cell.
    Column(usize),
    /// What is before this column.
    Before(Bytes),
    Family,
}

impl RowScanner {
    /// Hands the visible cells of the next row, or of the rest of the current one, to `each`, which says where to continue. It may
    /// be given cells that it asked to pass over. [`Step::Row`]: the row is done, whether anything of it is visible or not.
    /// [`Step::HiddenPart`]: much was read, and the next call continues within the row.
    ///
    /// # Errors
    /// As [`RowScanner::next`]. What `each` was given counts.
    pub fn walk(
        &mut self,
        patience: Patience,
        mut each: impl FnMut(&[u8], CellRef<'_>) -> Onward,
    ) -> Result<Step, Error> {
        let walked = self.walk_step(patience, &mut each);
        if walked.is_err() {
            self.close();
        }
        walked
    }

    fn walk_step(
        &mut self,
        patience: Patience,
        each: &mut impl FnMut(&[u8], CellRef<'_>) -> Onward,
    ) -> Result<Step, Error> {
        let seen_before = self.stats.cells_seen;
        let mut first = 0;
        if self.within {
            if self.is_gathered() {
                return Ok(self.leave_walked());
            }
            first = self.next_part()?;
        } else {
            if let Some(step) = self.hand_on_first(seen_before, patience, each)? {
                return Ok(step);
            }
            if !self.begin_row(patience, FIRST_PART_BYTES.min(self.part_bytes))? {
                return Ok(Step::End);
            }
        }
        loop {
            if self.emit(first, each)? || self.is_gathered() {
                return Ok(self.leave_walked());
            }
            if let Some(position) = self.place_behind(first) {
                self.at_hand.given = Some(position);
            }
            if self.has_hidden(seen_before) {
                return Ok(Step::HiddenPart);
            }
            first = self.next_part()?;
        }
    }

    /// Hands on the next rows from where they lie, up to the first that is visible; `None` where it must be gathered.
    fn hand_on_first(
        &mut self,
        seen_before: u64,
        patience: Patience,
        each: &mut impl FnMut(&[u8], CellRef<'_>) -> Onward,
    ) -> Result<Option<Step>, Error> {
        let mut show = |row: &[u8], cell: CellRef<'_>| {
            // It is the only cell, so it makes no difference where the row continues.
            let _onward = each(row, cell);
        };
        loop {
            if !self.bounds.is_empty() {
                self.open(patience)?;
            }
            match self.show_single(&mut show)? {
                Some(true) => return Ok(Some(Step::Row)),
                Some(false) if self.has_hidden(seen_before) => return Ok(Some(Step::Hidden)),
                Some(false) => {}
                None => return Ok(self.show_first(&mut show)?.then_some(Step::Row)),
            }
        }
    }

    /// Hands on what was gathered of the families from `first` on; returns whether that is enough of the row.
    fn emit(&mut self, first: usize, each: &mut impl FnMut(&[u8], CellRef<'_>) -> Onward) -> Result<bool, Error> {
        let shape = CellWindow::of(&self.projection);
        // Cells that are counted are not passed over unseen.
        let counts = self.projection.limits_cells();
        let Self { families, row, at_hand, part_bytes, .. } = self;
        for family in &mut families[first..at_hand.reached] {
            let FamilyScan { store, gathered, visible, more, beyond, merge, .. } = family;
            let mut passing = Passing::Nothing;
            for &at in visible.iter() {
                let cell = gathered.get(at);
                match &passing {
                    Passing::Column(passed) if gathered.get(*passed).qualifier == cell.qualifier => continue,
                    Passing::Before(qualifier) if cell.qualifier < &qualifier[..] => continue,
                    _ => {}
                }
                passing = match each(row, shape.shown(cell.packed(store.name.as_bytes()))) {
                    Onward::Cell => Passing::Nothing,
                    Onward::Column => Passing::Column(at),
                    Onward::From(qualifier) => Passing::Before(qualifier),
                    Onward::Family => Passing::Family,
                    Onward::Row => return Ok(true),
                };
                if matches!(passing, Passing::Family) {
                    break;
                }
            }
            // The column without a name is read to its end, because it holds the tombstones of the family.
            let holds_tombstones = |cell: usize| gathered.get(cell).qualifier.is_empty();
            if !*more || counts || gathered.len().checked_sub(1).is_none_or(holds_tombstones) {
                continue;
            }
            let passed = match passing {
                Passing::Nothing => None,
                Passing::Column(at) => Some([gathered.get(at).qualifier, &[0]].concat()),
                Passing::Before(qualifier) => Some(qualifier.to_vec()),
                Passing::Family => {
                    if let Some(merge) = merge.as_mut() {
                        merge.skip()?;
                    }
                    *more = false;
                    continue;
                }
            };
            at_hand.part_bytes = match passed {
                Some(_) => FIRST_PART_BYTES.min(*part_bytes),
                None => at_hand.part_bytes.saturating_mul(2).min(*part_bytes),
            };
            *beyond = passed.max(beyond.take());
        }
        Ok(false)
    }

    /// A place within the row behind what was handed on of the families from `first` on.
    fn place_behind(&self, first: usize) -> Option<CellPosition> {
        let shown = self.families[first..self.at_hand.reached].iter().rev().find_map(|family| {
            let last = family.gathered.get(*family.visible.last()?);
            Some(position_of(&family.store.name, &last))
        });
        shown.or_else(|| self.hidden_up_to())
    }

    /// Leaves the row. What remains of it is not wanted, so that an error on the way past it comes with the next row, if it lasts.
    fn leave_walked(&mut self) -> Step {
        if self.drop_row().is_err() {
            self.close();
        }
        Step::Row
    }

    /// After [`Step::HiddenPart`]: a cell up to which the row was read. A scan can continue after it. `None` where there is no such
    /// place yet, or where something of the row was appended.
    #[must_use]
    pub fn hidden_up_to(&self) -> Option<CellPosition> {
        if self.projection.limits_cells() || !self.within || self.at_hand.open.is_some() {
            return None;
        }
        let FamilyScan { store, gathered, decided, .. } = self.families[..self.at_hand.reached].last()?;
        let place = |at: usize| {
            let cell = gathered.get(at);
            (cell.qualifier, cell.timestamp)
        };
        // Of cells with one timestamp, an older one may be visible although a newer one is not.
        let last = (1..=*decided).rev().find(|&at| at < gathered.len() && place(at - 1) != place(at))?;
        Some(position_of(&store.name, &gathered.get(last - 1)))
    }
}
