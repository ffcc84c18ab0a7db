//! Where a read finds cells: memtables, store files and the other backends' stores, all behind two small traits.
//!
//! A [`Source`] gives one row, or a [`Cursor`] over rows one way. Cursors are row by row: a merge compares rows, and cells
//! are only compared where several sources hold the same row. What is read is copied once, into [`Cells`].
//!
//! A read may be told not to wait for the disk ([`Reading::blocking`]): what it needs and is not in memory then ends it
//! with [`Error::NeedsDisk`], and whoever asked begins again where blocking is allowed. So runtime threads never wait for
//! a disk, and a read that finds everything in memory costs no hand-over.

use std::sync::Arc;

use bytes::Bytes;

use crate::Error;
use crate::cells::Cells;
use crate::source::Bounds;

/// How a read goes about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Whether it may wait for the disk.
    pub(crate) blocking: bool,
    /// Whether it goes over many rows in order: files are then read ahead.
    pub(crate) sequential: bool,
    /// Whether blocks read from files stay in the cache: not those of compactions and checks.
    pub(crate) fills_cache: bool,
    /// Files that hold only lower timestamps may be left out.
    pub(crate) time_min: i64,
}

/// A row to look up, with what filters want to know of it: computed once for all sources.
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

/// The hash that filters on disk and in memory are made of. It reaches the disk: it never changes.
pub(crate) fn hash_of(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Something sorted that holds cells of one family.
pub(crate) trait Source: Send + Sync {
    /// Appends the cells of one row in store order. With `columns` not empty, at least those of these qualifiers and of
    /// the empty qualifier (where the markers of the whole family are); others may come too. After an error, `out` is as
    /// it was.
    fn row(&self, row: &RowKey<'_>, columns: &[Bytes], reading: Reading, out: &mut Cells) -> Result<(), Error>;

    /// A cursor over the rows inside of `bounds`, from the first, or with `reverse` from the last.
    fn cursor(self: Arc<Self>, bounds: &Bounds, reverse: bool, reading: Reading) -> Result<Box<dyn Cursor>, Error>;
}

/// Goes over the rows of a source, one way. After an error it is spent.
pub(crate) trait Cursor: Send {
    /// The row at hand; `None` at the end.
    fn row(&self) -> Option<&[u8]>;

    /// Appends the cells of the row at hand, in store order whatever the direction, and goes on to the next row; of which
    /// columns, as with [`Source::row`].
    fn take(&mut self, columns: &[Bytes], out: &mut Cells) -> Result<(), Error>;

    /// Goes on to the first row, in the cursor's direction, that is not before `row`.
    fn seek(&mut self, row: &[u8]) -> Result<(), Error>;
}
