//! Writing a store file outside of any engine, to be ingested by one.

use std::path::{Path, PathBuf};

use terrane_env::fs::Disk;
use terrane_types::CellRef;
use terrane_types::schema::FamilyStorage;

use super::writer::{StoreFileOptions, StoreFileWriter};
use crate::Error;
use crate::cells::Cell;

/// Bytes that gather before they are written.
const WRITE_BYTES: usize = 1 << 20;

/// Writes a store file of one family, to be taken in by [`Engine::ingest`](crate::Engine::ingest).
pub struct StoreFileBuilder {
    writer: StoreFileWriter,
}

impl StoreFileBuilder {
    /// The name of the file with this number.
    #[must_use]
    pub fn file_name(number: u64) -> String {
        format!("{number:016}{}", super::EXTENSION_WITH_DOT)
    }

    /// Creates the file `<number, 16 digits>.tbl` in `dir`, which must have none of that number.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub async fn create(disk: &Disk, dir: &Path, number: u64, storage: FamilyStorage) -> Result<Self, Error> {
        let options = StoreFileOptions { storage, prefix: None };
        let writer = StoreFileWriter::create(disk, dir, number, options).await?;
        Ok(Self { writer })
    }

    /// Adds a cell: rows and qualifiers ascending, timestamps of one column descending, no two cells at one place.
    ///
    /// # Errors
    /// [`Error::Io`].
    ///
    /// # Panics
    /// In builds with debug assertions, when the order is violated. [`Engine::ingest`](crate::Engine::ingest) refuses such a
    /// file.
    pub async fn add(&mut self, row: &[u8], cell: CellRef<'_>) -> Result<(), Error> {
        self.writer.add(Cell::of_mutation(row, cell, 0, 0));
        if self.writer.pending_bytes() >= WRITE_BYTES { self.writer.write_pending().await } else { Ok(()) }
    }

    /// Writes the rest and syncs the file; returns its path. The name is durable once its directory is synced.
    ///
    /// # Errors
    /// [`Error::Io`], also for a file without cells.
    pub async fn finish(self) -> Result<PathBuf, Error> {
        let path = self.writer.path().to_owned();
        self.writer.finish().await?;
        Ok(path)
    }
}
