//! A cursor over the rows of a file, first to last.

use std::sync::Arc;

use super::data_block::{Next, Place};
use super::reader::StoreFile;
use super::walk::{Walk, WantedColumns};
use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::row_range::RowRange;
use crate::source::{Cursor, Reading};

/// Moves forward. Whether it is at a row is decided on arrival, so that the query costs nothing.
pub(super) struct ForwardCursor {
    file: Arc<StoreFile>,
    walk: Walk,
    reading: Reading,
    /// Empty: no row of the file is at or after the end of the bounds.
    end: Vec<u8>,
    at_row: bool,
}

impl ForwardCursor {
    pub(super) fn open(file: Arc<StoreFile>, bounds: &RowRange, reading: Reading) -> Result<Self, Error> {
        let properties = file.properties();
        let inside = !bounds.is_empty() && bounds.meets(&properties.first_row, &properties.last_row);
        let beyond = !bounds.end.is_empty() && bounds.end <= properties.last_row;
        let end = if beyond { bounds.end.clone() } else { Vec::new() };
        let worth = inside && file.covers(reading.time_min);
        let mut cursor = Self { file, walk: Walk::default(), reading, end, at_row: false };
        if worth {
            let found = cursor.walk.seek(&cursor.file, Place::row(&bounds.start), reading)?;
            cursor.arrive(found);
        }
        Ok(cursor)
    }

    fn arrive(&mut self, found: bool) {
        self.at_row = found && (self.end.is_empty() || self.walk.at_row() < self.end.as_slice());
    }

    fn arrive_at(&mut self, next: Next) {
        match next {
            Next::SameRow => self.at_row = true,
            Next::NewRow => self.arrive(true),
            Next::End => self.arrive(false),
        }
    }
}

impl Cursor for ForwardCursor {
    fn row(&self) -> Option<&[u8]> {
        self.at_row.then(|| self.walk.at_row())
    }

    fn single(&self) -> Option<Cell<'_>> {
        if self.at_row { self.walk.single() } else { None }
    }

    fn first(&self) -> Option<Cell<'_>> {
        if self.at_row { self.walk.at_cell() } else { None }
    }

    fn skip(&mut self) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        // Exhausted, unless everything succeeds.
        self.at_row = false;
        let found = self.walk.skip_row(&self.file, self.reading)?;
        self.arrive(found);
        Ok(())
    }

    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error> {
        if !self.at_row {
            return Ok(true);
        }
        // Exhausted, unless everything succeeds.
        self.at_row = false;
        let mark = out.mark();
        let mut wanted = WantedColumns::new(sought);
        match self.walk.gather(&self.file, &mut wanted, self.reading, bytes_max, out) {
            Ok(next) => {
                self.arrive_at(next);
                Ok(next != Next::SameRow)
            }
            Err(error) => {
                out.rewind(mark);
                Err(error)
            }
        }
    }

    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error> {
        if !self.at_row {
            return Ok(());
        }
        self.at_row = false;
        let next = self.walk.seek_column(&self.file, qualifier, self.reading)?;
        self.arrive_at(next);
        Ok(())
    }

    fn seek(&mut self, row: &[u8]) -> Result<(), Error> {
        if !self.at_row || self.walk.at_row() >= row {
            return Ok(());
        }
        self.at_row = false;
        let found = self.walk.seek(&self.file, Place::row(row), self.reading)?;
        self.arrive(found);
        Ok(())
    }
}
