//! Store files that were written outside of any engine.

use std::sync::Arc;

use crate::Error;
use crate::cells::Cells;
use crate::column_selection::ColumnSelection;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowLookup, Source};

/// A file that was written elsewhere: all its cells have the sequence number of the ingest.
pub(super) struct IngestedSource {
    pub(super) source: Arc<dyn Source>,
    pub(super) sequence: u64,
}

impl Source for IngestedSource {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let first = out.len();
        let is_all = self.source.row(lookup, out)?;
        out.set_sequence_from(first, self.sequence);
        Ok(is_all)
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        let cursor = Arc::clone(&self.source).cursor(bounds, reverse, reading)?;
        Ok(Box::new(IngestedCursor { cursor, sequence: self.sequence }))
    }
}

struct IngestedCursor {
    cursor: Box<dyn Cursor>,
    sequence: u64,
}

impl Cursor for IngestedCursor {
    fn row(&self) -> Option<&[u8]> {
        self.cursor.row()
    }

    fn skip(&mut self) -> Result<(), Error> {
        self.cursor.skip()
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        let first = out.len();
        let is_over = self.cursor.take(sought, bytes_max, out)?;
        out.set_sequence_from(first, self.sequence);
        Ok(is_over)
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        self.cursor.seek_column(qualifier)
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        self.cursor.seek(row)
    }
}
