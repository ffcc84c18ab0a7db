//! Gets of rows from a store file, and cursors over it.

use std::cell::Cell;
use std::sync::Arc;

use super::block_cache::FamilyReads;
use super::cursor::ForwardCursor;
use super::data_block::Next;
use super::reader::StoreFile;
use super::reverse::ReverseCursor;
use super::walk::{Walk, WantedColumns};
use crate::Error;
use crate::cells::Cells;
use crate::column_selection::ColumnSelection;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading, RowKey, RowLookup, Source};

thread_local! {
    /// The buffer for the row that a get decodes, kept by the thread for the next get. At most the length of a row.
    static ROW_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl StoreFile {
    /// The columns worth searching for in a row, of those wanted; `None` when the filter says that none is present.
    fn wanted<'a>(&self, row: &RowKey<'_>, sought: ColumnSelection<'a>) -> Option<WantedColumns<'a>> {
        if !self.may_contain_row_hash(row.hash) {
            return None;
        }
        let mut wanted = WantedColumns::new(sought);
        let narrowed = wanted.retain(|qualifier| self.may_contain_column(row.hash, qualifier));
        narrowed.then_some(wanted)
    }
}

impl Source for StoreFile {
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error> {
        let RowLookup { key, sought, reading, bytes_max } = *lookup;
        let properties = self.properties();
        let outside = key.row < properties.first_row.as_slice() || key.row > properties.last_row.as_slice();
        if outside || !self.covers(reading.time_min) {
            return Ok(true);
        }
        let Some(mut wanted) = self.wanted(&key, sought) else {
            FamilyReads::count(&self.reads().filter_negative, 1);
            return Ok(true);
        };
        let mark = out.mark();
        let mut walk = Walk::with_buffer(ROW_BUFFER.take());
        let gathered = walk.row(self, key.row, &mut wanted, reading, bytes_max, out);
        ROW_BUFFER.set(walk.into_buffer());
        if gathered.is_err() {
            out.rewind(mark);
        } else if self.has_filter() {
            FamilyReads::count(&self.reads().filter_positive, 1);
            FamilyReads::count(&self.reads().filter_false, u64::from(matches!(gathered, Ok(None))));
        }
        Ok(gathered? != Some(Next::SameRow))
    }

    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error> {
        if reverse {
            Ok(Box::new(ReverseCursor::open(self, bounds, reading)?))
        } else {
            Ok(Box::new(ForwardCursor::open(self, bounds, reading)?))
        }
    }
}
