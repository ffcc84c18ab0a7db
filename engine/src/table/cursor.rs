//! A cursor over the rows of a file, first to last.

use std::sync::Arc;

use bytes::Bytes;

use super::data_block::Place;
use super::reader::Table;
use super::walk::{Walk, Wanted};
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::reading::{Cursor, Reading};
use crate::source::Bounds;

/// Goes forward. Whether it is at a row is decided when it gets there, so that asking costs nothing.
pub(super) struct ForwardCursor {
    table: Arc<Table>,
    walk: Walk,
    reading: Reading,
    /// Empty: no row of the file is at or behind the end of the bounds.
    stop: Vec<u8>,
    at_row: bool,
}

impl ForwardCursor {
    pub(super) fn open(table: Arc<Table>, bounds: &Bounds, reading: Reading) -> Result<Self, Error> {
        let properties = table.properties();
        let inside = !bounds.is_empty() && bounds.meets(&properties.first_row, &properties.last_row);
        let beyond = !bounds.stop.is_empty() && bounds.stop <= properties.last_row;
        let stop = if beyond { bounds.stop.clone() } else { Vec::new() };
        let worth = inside && table.covers(reading.time_min);
        let mut cursor = Self { table, walk: Walk::default(), reading, stop, at_row: false };
        if worth {
            let found = cursor.walk.seek(&cursor.table, Place::row(&bounds.start), reading)?;
            cursor.arrive(found);
        }
        Ok(cursor)
    }

    fn arrive(&mut self, found: bool) {
        self.at_row = found && (self.stop.is_empty() || self.walk.at_row() < self.stop.as_slice());
    }
}

impl Cursor for ForwardCursor {
    fn row(&self) -> Option<&[u8]> {
        self.at_row.then(|| self.walk.at_row())
    }

    fn lone(&self) -> Option<Cell<'_>> {
        if self.at_row { self.walk.lone() } else { None }
    }

    fn first(&self) -> Option<Cell<'_>> {
        if self.at_row { self.walk.at_cell() } else { None }
    }

    fn skip(&mut self) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        // Spent, unless all goes well.
        self.at_row = false;
        let found = self.walk.skip_row(&self.table, self.reading)?;
        self.arrive(found);
        Ok(())
    }

    fn take(&mut self, columns: &[Bytes], out: &mut Cells) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        // Spent, unless all goes well.
        self.at_row = false;
        let before = out.len();
        let mut wanted = Wanted::new(columns);
        match self.walk.gather(&self.table, &mut wanted, self.reading, out) {
            Ok(found) => {
                self.arrive(found);
                Ok(())
            }
            Err(error) => {
                out.truncate(before);
                Err(error)
            }
        }
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if !self.at_row || self.walk.at_row() >= row {
            return Ok(());
        }
        self.at_row = false;
        let found = self.walk.seek(&self.table, Place::row(row), self.reading)?;
        self.arrive(found);
        Ok(())
    }
}
