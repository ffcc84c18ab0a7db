//! What a store must be able to do to be measured.

use std::path::Path;

use crate::SubjectError;

/// What every store gets alike.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
    /// Size at which a memtable is flushed, where there are memtables.
    pub write_buffer_bytes: u64,
}

/// A store that takes part: its name and how it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name, as reports have it.
    pub name: &'static str,
    /// Its settings, in a line for people.
    pub about: &'static str,
    /// Opens the store in a directory that exists: an empty one, or one that a store of this kind was closed in.
    pub open: Open,
}

/// How a store is opened.
pub type Open = fn(&Path, &Settings) -> Result<Box<dyn Subject>, SubjectError>;

/// An open store. Rows have one column with one value.
pub trait Subject {
    /// Writes a row. It may be in memory only.
    ///
    /// # Errors
    /// The store's own.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError>;

    /// Writes rows that are sorted by key.
    ///
    /// # Errors
    /// The store's own.
    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError>;

    /// Reads a row, value and all; says whether it is there.
    ///
    /// # Errors
    /// The store's own.
    fn get(&self, key: &[u8]) -> Result<bool, SubjectError>;

    /// Reads at most `limit` rows, keys and values: from `start` on, or in reverse from `start` down. Says how many.
    ///
    /// # Errors
    /// The store's own.
    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError>;

    /// Writes everything to disk, and waits until the store has nothing more to do of its own accord.
    ///
    /// # Errors
    /// The store's own.
    fn drain(&mut self) -> Result<(), SubjectError>;

    /// Compacts everything, to the last level, and waits for the end.
    ///
    /// # Errors
    /// The store's own.
    fn compact(&mut self) -> Result<(), SubjectError>;

    /// Begins a compaction of everything in the background; says no when the store knows no such thing.
    ///
    /// # Errors
    /// The store's own.
    fn start_compaction(&mut self) -> Result<bool, SubjectError>;

    /// Whether a compaction runs at this moment. Asked every few milliseconds.
    fn compacting(&self) -> bool;

    /// Closes the store. After [`Subject::drain`] nothing may be lost by it.
    ///
    /// # Errors
    /// The store's own.
    fn close(self: Box<Self>) -> Result<(), SubjectError>;
}
