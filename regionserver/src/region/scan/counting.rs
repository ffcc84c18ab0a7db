//! Rows that are not sent: skipped, counted, aggregated.
//!
//! Rows that are skipped or counted are passed over several at a time, and rows that are aggregated are read in place. With a
//! filter that needs whole rows, they are packed for the filter and aggregated from there.

use terrane_engine::{Patience, Step};
use terrane_types::cell::Cells;
use terrane_types::rows::ROW_HEADER_BYTES;
use terrane_types::{Error, Invalid, escape};

use super::block::ScanRequest;
use super::{Filler, Halt, ROWS_PASSED_PER_STEP, Source, key_of};
use crate::group::region_state::RegionState;
use crate::region::aggregate::Aggregate;

impl Filler {
    /// A row has passed the filter: it is aggregated, skipped, counted or sent.
    pub(super) fn give_filtered(&mut self, before: usize) -> Result<(), Halt> {
        if let Some(aggregate) = self.request.aggregate.as_ref().filter(|_| self.block.cursor.offset_left == 0) {
            let row = &self.block.rows[before..];
            let key = key_of(row);
            let mut cells = Cells::new(&row[ROW_HEADER_BYTES + key.len()..]);
            let value =
                cells.find(|cell| aggregate.is_of(cell)).map(|cell| aggregate.read(key, cell.value)).transpose()?;
            self.block.cursor.totals.get_or_insert_with(|| aggregate.nothing()).add(value)?;
            self.block.rows.truncate(before);
            self.give(1);
            return Ok(());
        }
        self.finish_row(before);
        Ok(())
    }

    /// Passes over rows that are skipped or counted.
    pub(super) fn pass(&mut self, patience: Patience) -> Result<bool, Halt> {
        let Source::Rows { scanner, .. } = &mut self.source else { return Ok(false) };
        let cursor = &self.block.cursor;
        let wanted = match (cursor.offset_left, cursor.limit_left) {
            (0, limit) => limit.unwrap_or(u64::MAX),
            (offset, _) => offset,
        };
        // Each row may be the last one requested of its prefix.
        let wanted = wanted.min(if self.cutter.is_some() { 1 } else { ROWS_PASSED_PER_STEP });
        let mut left = wanted;
        let step = scanner.pass(&mut left, patience);
        if !scanner.done_row().is_empty() {
            self.last_row.clear();
            self.last_row.extend_from_slice(scanner.done_row());
        }
        if left < wanted {
            self.give(wanted - left);
        }
        (self.within_hidden, self.unseen) = (false, None);
        match step? {
            Step::HiddenPart => self.hidden_part(),
            Step::End => self.end(),
            Step::Row | Step::Part { .. } | Step::Hidden => {}
        }
        Ok(false)
    }

    /// Aggregates the next row.
    pub(super) fn sum_up(&mut self, patience: Patience) -> Result<bool, Halt> {
        let (Source::Rows { scanner, .. }, Some(aggregate)) = (&mut self.source, &self.request.aggregate) else {
            return Ok(false);
        };
        // The newest version of a column comes first.
        let mut value = Ok(None);
        let step = scanner.look(patience, |row, cell| {
            if matches!(value, Ok(None)) && aggregate.is_of(&cell) {
                value = aggregate.read(row, cell.value).map(Some);
            }
        })?;
        self.within_hidden = step == Step::HiddenPart;
        match step {
            Step::Row => {
                self.block.cursor.totals.get_or_insert_with(|| aggregate.nothing()).add(value?)?;
                self.last_row.clear();
                self.last_row.extend_from_slice(scanner.row());
                self.give(1);
            }
            Step::Hidden => self.hidden(),
            Step::Part { .. } | Step::HiddenPart => {}
            Step::End => self.end(),
        }
        Ok(false)
    }
}

/// Checks that an aggregate names a column that is read.
pub(super) fn check_aggregate(aggregate: &Aggregate, request: &ScanRequest, state: &RegionState) -> Result<(), Error> {
    let Aggregate { family, qualifier, .. } = aggregate;
    if state.schema.family(family.as_bytes()).is_none() {
        return Err(Invalid::new(format!("table {} has no family {family}", state.schema.name)).into());
    }
    if !request.lookup.projection().selects(family.as_bytes(), qualifier) {
        let column = format!("{family}:{}", escape(qualifier));
        return Err(
            Invalid::new(format!("column {column} is to be aggregated but is not among the columns read")).into()
        );
    }
    Ok(())
}
