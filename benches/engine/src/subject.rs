//! What a store must be able to do to be measured.

use std::path::Path;

use crate::SubjectError;

/// Settings that are equal for all stores.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memory for blocks read from files.
    pub cache_bytes: u64,
    /// Size at which a memtable is flushed, in stores that have memtables.
    pub write_buffer_bytes: u64,
}

/// A store to measure: its name and how to open it.
#[derive(Clone, Copy, Debug)]
pub struct Contender {
    /// Its name in reports.
    pub name: &'static str,
    /// Its settings, as one line of text.
    pub about: &'static str,
    /// Opens the store in an existing directory, which is empty or holds a closed store of this kind.
    pub open: Open,
}

/// Opens a store.
pub type Open = fn(&Path, &Settings) -> Result<Box<dyn Subject>, SubjectError>;

/// An open store. Rows have one column with one value.
pub trait Subject {
    /// Writes a row, possibly to memory only.
    ///
    /// # Errors
    /// The store's own.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), SubjectError>;

    /// Writes rows that are sorted by key.
    ///
    /// # Errors
    /// The store's own.
    fn put_batch(&mut self, rows: &[(Vec<u8>, Vec<u8>)]) -> Result<(), SubjectError>;

    /// Reads a row with its value; returns whether it exists.
    ///
    /// # Errors
    /// The store's own.
    fn get(&self, key: &[u8]) -> Result<bool, SubjectError>;

    /// Reads at most `limit` rows with keys and values, forward or in reverse from `start`. Returns how many.
    ///
    /// # Errors
    /// The store's own.
    fn scan(&self, start: &[u8], limit: usize, reverse: bool) -> Result<usize, SubjectError>;

    /// Writes everything to disk and waits until the store is idle.
    ///
    /// # Errors
    /// The store's own.
    fn drain(&mut self) -> Result<(), SubjectError>;

    /// Compacts everything to the last level and waits for the end.
    ///
    /// # Errors
    /// The store's own.
    fn compact(&mut self) -> Result<(), SubjectError>;

    /// Starts a compaction of everything in the background; returns false if the store cannot.
    ///
    /// # Errors
    /// The store's own.
    fn start_compaction(&mut self) -> Result<bool, SubjectError>;

    /// Whether a compaction is running. Called every few milliseconds.
    fn compacting(&self) -> bool;

    /// Closes the store. Nothing written before [`Subject::drain`] may be lost.
    ///
    /// # Errors
    /// The store's own.
    fn close(self: Box<Self>) -> Result<(), SubjectError>;
}
