//! Where a reader continues within a row, as the judge of its cells says.

use bytes::Bytes;

/// Where a reader continues after a cell. What lies between may be left unread; the judge may be shown it all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Onward {
    /// At the next cell.
    Cell,
    /// At the next column of the family.
    Column,
    /// At the first column of the family that is not before this one.
    From(Bytes),
    /// At the next family.
    Family,
    /// At the next row.
    Row,
}
