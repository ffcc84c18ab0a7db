//! Where a reader continues: places between cells, in the order of cells.

use std::cmp::{Ordering, Reverse};

use bytes::Bytes;
use terrane_types::Onward;

use crate::cell_block::KeyValue;

/// The place of a cell.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellCoordinates<'a> {
    pub row: &'a [u8],
    pub family: &'a [u8],
    pub qualifier: &'a [u8],
    pub timestamp: i64,
}

impl<'a> CellCoordinates<'a> {
    pub const fn of(cell: &KeyValue<'a>) -> Self {
        let KeyValue { row, cell } = *cell;
        Self { row, family: cell.family, qualifier: cell.qualifier, timestamp: cell.timestamp }
    }
}

/// A place in front of the versions of a column, between them, or behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    First,
    /// Before the version with this timestamp.
    At(Reverse<i64>),
    Last,
}

/// A place between two cells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub row: Vec<u8>,
    family: Vec<u8>,
    qualifier: Vec<u8>,
    version: Version,
}

impl Position {
    /// Before the row.
    pub const fn row(row: Vec<u8>) -> Self {
        Self { row, family: Vec::new(), qualifier: Vec::new(), version: Version::First }
    }

    /// Before a column of the same row and family.
    pub fn column(at: CellCoordinates<'_>, qualifier: &[u8]) -> Self {
        Self {
            row: at.row.to_vec(),
            family: at.family.to_vec(),
            qualifier: qualifier.to_vec(),
            version: Version::First,
        }
    }

    /// Before the version of the same column with this timestamp.
    pub fn version(at: CellCoordinates<'_>, timestamp: i64) -> Self {
        Self { version: Version::At(Reverse(timestamp)), ..Self::column(at, at.qualifier) }
    }

    /// Behind the column.
    pub fn behind_column(at: CellCoordinates<'_>) -> Self {
        Self { version: Version::Last, ..Self::column(at, at.qualifier) }
    }

    /// Where a reader continues that is at a cell of the same row before this place.
    pub fn onward(&self, at: CellCoordinates<'_>) -> Onward {
        if self.family != at.family {
            return Onward::Family;
        }
        match self.version {
            Version::First => Onward::From(Bytes::copy_from_slice(&self.qualifier)),
            Version::Last if self.qualifier == at.qualifier => Onward::Column,
            // The others of its column are passed over one by one.
            Version::At(_) if self.qualifier == at.qualifier => Onward::Cell,
            Version::At(_) | Version::Last => Onward::From(Bytes::copy_from_slice(&self.qualifier)),
        }
    }

    /// Where this place is, seen from a cell: never [`Ordering::Equal`].
    pub fn seen_from(&self, at: CellCoordinates<'_>) -> Ordering {
        let column = (&self.row[..], &self.family[..], &self.qualifier[..]).cmp(&(at.row, at.family, at.qualifier));
        column.then_with(|| match self.version {
            Version::First => Ordering::Less,
            Version::Last => Ordering::Greater,
            Version::At(Reverse(timestamp)) if timestamp < at.timestamp => Ordering::Greater,
            Version::At(_) => Ordering::Less,
        })
    }
}
