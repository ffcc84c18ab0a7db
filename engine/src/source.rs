//! Where a read finds cells: memtables, store files and the other backends' stores, all behind two small traits.
//!
//! A [`Source`] returns one row, or a [`Cursor`] over rows in one direction. Cursors move row by row: a merge compares
//! rows, and cells are only compared where several sources hold the same row. What is read is copied once, into
//! [`Cells`].
//!
//! No read takes a whole row at once unless the row is small: a row comes in parts of about [`PART_BYTES`], so that one
//! of any size passes through bounded memory. A part ends between two cells.
//!
//! A read may be told not to wait for the disk ([`Reading::blocking`]). If it needs something that is not in memory it
//! ends with [`Error::NeedsDisk`], and the caller repeats it where blocking is allowed. So runtime threads never wait
//! for a disk, and a read that finds everything in memory costs no hand-over.

use std::sync::Arc;

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::row_prefix::RowPrefix;
use crate::row_range::RowRange;

/// Bytes of cells after which a row is cut into parts.
pub(crate) const PART_BYTES: usize = 512 << 10;

/// How a read proceeds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Whether it may wait for the disk.
    pub(crate) blocking: bool,
    /// Whether it covers many rows in order: files are then read ahead.
    pub(crate) sequential: bool,
    /// Whether blocks read from files stay in the cache: not those of compactions and checks.
    pub(crate) fills_cache: bool,
    /// Files that hold only lower timestamps may be skipped.
    pub(crate) time_min: i64,
    /// The common prefix of all rows that are read: files without such rows may be skipped.
    pub(crate) prefix: Option<PrefixKey>,
}

impl Reading {
    /// How flushes and compactions read.
    pub(crate) const BULK: Self =
        Self { blocking: true, sequential: true, fills_cache: false, time_min: i64::MIN, prefix: None };
}

/// A row prefix to look up in filters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefixKey {
    /// The way keys are cut, see [`RowPrefix::id`].
    pub(crate) id: u64,
    pub(crate) hash: u64,
}

impl PrefixKey {
    /// The prefix that all rows within `bounds` share, if they share one.
    pub(crate) fn of(prefix: &RowPrefix, bounds: &RowRange) -> Option<Self> {
        let length = (prefix.length)(&bounds.start)?;
        let head = bounds.start.get(..length)?;
        // A last key part that extends to the end of the row makes each row its own prefix: longer rows do not share
        // the prefix.
        let goes_on = |byte: u8| (prefix.length)(&[head, &[byte]].concat()) == Some(length);
        let inside = !bounds.end.is_empty() && (bounds.end.starts_with(head) || is_successor(head, &bounds.end));
        (inside && goes_on(0) && goes_on(0xFF)).then(|| Self { id: prefix.id, hash: hash_of(head) })
    }
}

/// Whether `end` is the first row after all that begin with `head`.
fn is_successor(head: &[u8], end: &[u8]) -> bool {
    let kept = head.len() - head.iter().rev().take_while(|byte| **byte == 0xFF).count();
    match head[..kept].split_last() {
        Some((last, front)) => end.split_last() == Some((&(last + 1), front)),
        None => false,
    }
}

/// A row to look up, with its hash for filters: computed once for all sources.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowKey<'a> {
    pub(crate) row: &'a [u8],
    pub(crate) hash: u64,
}

impl<'a> RowKey<'a> {
    pub(crate) fn new(row: &'a [u8]) -> Self {
        Self { row, hash: hash_of(row) }
    }
}

/// What is read of one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLookup<'a> {
    pub(crate) key: RowKey<'a>,
    pub(crate) sought: ColumnSelection<'a>,
    pub(crate) reading: Reading,
    /// About so many bytes at the most.
    pub(crate) bytes_max: usize,
}

impl<'a> RowLookup<'a> {
    pub(crate) fn new(row: &'a [u8], sought: ColumnSelection<'a>, reading: Reading, bytes_max: usize) -> Self {
        Self { key: RowKey::new(row), sought, reading, bytes_max }
    }
}

/// The hash that filters on disk and in memory are built from. It is stored on disk and never changes.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// A sorted source of cells of one family.
pub(crate) trait Source: Send + Sync {
    /// Appends the cells of one row in store order: at least those that are sought and those of the empty qualifier (which
    /// holds the tombstones of the whole family), and possibly others. After an error, `out` is unchanged.
    ///
    /// Returns whether those are all. After about `bytes_max` bytes, or the cells of one column after which to pause, it
    /// gives up: some of the row's cells are missing, not always the last ones, and the row must be read with a cursor.
    fn row(&self, lookup: &RowLookup<'_>, out: &mut Cells) -> Result<bool, Error>;

    /// A cursor over the rows within `bounds`, from the first, or with `reverse` from the last.
    fn cursor(self: Arc<Self>, bounds: &RowRange, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error>;
}

/// Moves over the rows of a source in one direction. After an error it is exhausted.
pub(crate) trait Cursor: Send {
    /// The current row; `None` at the end.
    fn row(&self) -> Option<&[u8]>;

    /// The only cell of the current row, where the row has a single one and that is known without further reading. Such
    /// a row can be shown from where it lies.
    fn single(&self) -> Option<Cell<'_>> {
        None
    }

    /// The first cell, in store order, of the current row, where it is known without further reading.
    fn first(&self) -> Option<Cell<'_>> {
        self.single()
    }

    /// Moves to the next row, from anywhere in the current one.
    fn skip(&mut self) -> Result<(), Error> {
        let mut skipped = Cells::default();
        while self.row().is_some() && !self.take(ColumnSelection::ALL, PART_BYTES, &mut skipped)? {
            skipped.clear();
        }
        Ok(())
    }

    /// Appends the cells of the current row, in store order whatever the direction, and moves to the next row.
    /// `sought` acts as in [`Source::row`].
    ///
    /// Returns whether the row is over. After about `bytes_max` bytes, or the cells of one column after which to pause, it is
    /// not: the cursor stays within the row, and the next call appends what follows.
    fn take(&mut self, sought: ColumnSelection<'_>, bytes_max: usize, out: &mut Cells) -> Result<bool, Error>;

    /// Moves, within what is left of the current row, to the first cell whose qualifier is not below this one. Where there is
    /// none, the row is over.
    fn seek_column(&mut self, qualifier: &[u8]) -> Result<(), Error>;

    /// Moves to the first row, in the cursor's direction, that is not before `row`.
    fn seek(&mut self, row: &[u8]) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(length: impl Fn(&[u8]) -> Option<usize> + Send + Sync + 'static, start: &[u8], end: &[u8]) -> Option<u64> {
        let prefix = RowPrefix { id: 1, length: Arc::new(length) };
        PrefixKey::of(&prefix, &RowRange { start: start.to_vec(), end: end.to_vec() }).map(|key| key.hash)
    }

    fn two(row: &[u8]) -> Option<usize> {
        (row.len() >= 2).then_some(2)
    }

    #[test]
    fn rows_share_a_prefix_only_where_the_bounds_say_so() {
        let ab = Some(hash_of(b"ab"));
        assert_eq!(key(two, b"ab", b"ac"), ab);
        assert_eq!(key(two, b"ab1", b"ab2"), ab);
        assert_eq!(key(two, b"a\xff", b"b"), Some(hash_of(b"a\xff")));
        assert_eq!(key(two, b"ab", b"ad"), None);
        assert_eq!(key(two, b"ab", b""), None);
        assert_eq!(key(two, b"a", b"b"), None);
        assert_eq!(key(two, b"\xff\xff", b""), None);
    }

    #[test]
    fn a_prefix_that_takes_the_whole_row_is_shared_by_no_two() {
        assert_eq!(key(|row| Some(row.len()), b"ab", b"ac"), None);
    }
}
