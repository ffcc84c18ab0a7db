//! The steps of a scan with a filter that needs rows: each row is judged while it is read, and only then counted, aggregated or
//! sent; rows that cannot pass are skipped by seeking.

use terrane_engine::{Patience, Step};

use super::{Filler, Halt, Source};
use crate::region::filter::Hop;

impl Filler {
    /// Reads the next row for the filter, and handles it if it passes.
    pub(super) fn filter(&mut self, patience: Patience) -> Result<bool, Halt> {
        let (Source::Rows { scanner, sequence }, Some(filtering)) = (&mut self.source, &mut self.filtering) else {
            return Ok(false);
        };
        let (sequence, reverse) = (*sequence, self.request.reverse);
        if filtering.is_done() {
            // An earlier block ended with the filter's last row.
            self.leave_source();
            return Ok(false);
        }
        let is_whole = filtering.needs_whole_rows() || self.request.aggregate.is_some();
        if is_whole {
            return self.filter_whole(patience, reverse);
        }
        let before = self.open_row.take().unwrap_or(self.block.rows.len());
        let step = scanner.next(&mut self.block.rows, before + self.request.block_bytes, patience)?;
        match step {
            Step::Row => (self.within_hidden, self.unseen) = (false, None),
            // The rest of a row that does not pass arrives as further parts, which do not pass either. No token can express
            // that, so the block continues to the end of the row.
            Step::Part { .. } => {
                if filtering.judge(&mut self.block.rows, before, reverse)? {
                    return Ok(self.sent(step, sequence, before));
                }
                self.within_hidden = true;
                return Ok(false);
            }
            Step::Hidden | Step::HiddenPart | Step::End => {
                return Ok(self.sent(step, sequence, before));
            }
        }
        self.last_row.clear();
        self.last_row.extend_from_slice(scanner.row());
        let shown = filtering.judge(&mut self.block.rows, before, reverse)?;
        self.after_row(shown.then_some(before), patience, reverse)
    }

    /// The same for a filter that decides at the end of a row.
    fn filter_whole(&mut self, patience: Patience, reverse: bool) -> Result<bool, Halt> {
        let (Source::Rows { scanner, .. }, Some(filtering)) = (&mut self.source, &mut self.filtering) else {
            return Ok(false);
        };
        let rows = &mut self.block.rows;
        let step = scanner.walk(patience, |row, cell| filtering.take(row, cell, rows, reverse))?;
        match step {
            Step::Row => {}
            // The filter has judged part of the row. No token can express that, so the block continues to the end of the row.
            Step::HiddenPart | Step::Part { .. } => {
                self.within_hidden = true;
                return Ok(false);
            }
            Step::Hidden | Step::End => {
                let end = rows.len();
                return Ok(self.sent(step, 0, end));
            }
        }
        self.within_hidden = false;
        self.last_row.clear();
        self.last_row.extend_from_slice(scanner.row());
        if !filtering.is_within_row() {
            // Nothing of it is visible.
            return Ok(false);
        }
        let shown = filtering.end_row(&self.last_row, rows)?;
        self.after_row(shown, patience, reverse)
    }

    /// Handles a row that was judged, which is in the block if it passed, and moves on.
    fn after_row(&mut self, shown: Option<usize>, patience: Patience, reverse: bool) -> Result<bool, Halt> {
        let (Source::Rows { scanner, .. }, Some(filtering)) = (&mut self.source, &mut self.filtering) else {
            return Ok(false);
        };
        self.block.rows_filtered += u64::from(shown.is_none());
        let hop = filtering.hop(&self.last_row, reverse);
        if let Hop::Seek(target) = &hop {
            // The scanner is at its target even if this fails, so what was read is not read again.
            let sought = scanner.seek(target, patience);
            if let Some(at) = shown {
                self.give_filtered(at)?;
            }
            sought?;
        } else if let Some(at) = shown {
            self.give_filtered(at)?;
        }
        if matches!(hop, Hop::Leave) {
            self.leave_source();
        }
        Ok(self.block.rows.len() >= self.request.block_bytes)
    }
}
