//! Rows that a block does not complete: those that are sent in parts, and those of which a part was read.

use bytes::Bytes;
use terrane_engine::CellPosition;

use super::{Filler, Source, key_of};
use crate::region::resume_token::{CellAt, Position};

impl Filler {
    /// Handles a part of a row. If the row is not sent, its parts are dropped and the scan continues.
    pub(super) fn part(&mut self, sequence: u64, at: CellPosition, before: usize) -> bool {
        if self.block.cursor.offset_left > 0 || self.request.count_only {
            self.block.rows.truncate(before);
            return false;
        }
        let cell =
            CellAt { family: at.family, qualifier: at.qualifier, timestamp: at.timestamp, sequence: at.sequence };
        let row = Bytes::copy_from_slice(key_of(&self.block.rows[before..]));
        self.hold(sequence);
        self.last_row.clear();
        if terrane_env::planted!("a row larger than a block is cut short") {
            self.block.cursor.position = Position::After(row);
            return true;
        }
        self.block.cursor.position = Position::Within { row, sequence, cell, unseen: false };
        self.block.row_continues = true;
        true
    }

    /// Part of a row was read and is not done. If nothing of it is visible so far, a block may end there; otherwise the block holds
    /// the beginning of the row, and continues to its end or until it is full.
    pub(super) fn hidden_part(&mut self) {
        let (Source::Rest { scanner, sequence, .. } | Source::Rows { scanner, sequence }) = &self.source else {
            return;
        };
        self.open_row = scanner.row_start();
        let unsent = match &self.source {
            Source::Rest { unseen, .. } => *unseen,
            // The rest of a row is neither filtered nor aggregated.
            _ => self.request.aggregate.is_none() && self.filtering.is_none(),
        };
        self.unseen = scanner.hidden_up_to().filter(|_| unsent).map(|at| Position::Within {
            row: Bytes::copy_from_slice(scanner.row()),
            sequence: *sequence,
            cell: CellAt { family: at.family, qualifier: at.qualifier, timestamp: at.timestamp, sequence: at.sequence },
            unseen: true,
        });
        self.within_hidden = self.unseen.is_none();
    }

    /// Keeps what a row is read from until its next part is asked for.
    pub(super) fn hold(&self, sequence: u64) {
        // The scanner's own snapshot still exists, so its number can be taken once more, to outlive the block.
        if let Ok(snapshot) = self.hosted.engine.snapshot_at(sequence)
            && !terrane_env::buggify!("a snapshot is not held for the next part of a row")
        {
            self.hosted.held_snapshots.hold(snapshot, terrane_env::time::now_ns());
        }
    }
}
