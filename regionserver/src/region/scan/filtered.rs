//! The steps of a scan with a filter that needs rows: each row is read whole, evaluated, and only then counted, aggregated or
//! sent; rows that cannot pass are skipped by seeking.

use terrane_engine::{Patience, Step};

use super::{Filler, Halt, Source};
use crate::region::filter::{FILTERED_ROW_BYTES_MAX, Hop, too_large};

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
        let before = self.block.rows.len();
        let row_bytes_max = if is_whole { FILTERED_ROW_BYTES_MAX } else { self.request.block_bytes };
        let step = scanner.next(&mut self.block.rows, before + row_bytes_max, patience)?;
        match step {
            Step::Row => self.within_hidden = false,
            Step::Part { .. } if is_whole => return Err(too_large(scanner.row()).into()),
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
        self.block.rows_filtered += u64::from(!shown);
        let hop = filtering.hop(&self.last_row, reverse);
        if let Hop::Seek(target) = &hop {
            // The scanner is at its target even if this fails, so what was read is not read again.
            let sought = scanner.seek(target, patience);
            if shown {
                self.give_filtered(before)?;
            }
            sought?;
        } else if shown {
            self.give_filtered(before)?;
        }
        if matches!(hop, Hop::Leave) {
            self.leave_source();
        }
        Ok(self.block.rows.len() >= self.request.block_bytes)
    }
}
