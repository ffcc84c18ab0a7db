//! Where imported rows go.
//!
//! Everything before this point (files, parsing, counting, checkpoints) is the same whichever way rows take: through the
//! batch writer, as any client writes, or under `--bulk` as store files that servers build and take in.

use terrane_client::{BatchWriter, BulkLoader, BulkOptions, Error, Put, RowError, Table, WriterOptions};

use crate::formats::Record;

/// A way into a table.
pub enum Sink {
    /// As any client writes.
    Writer(BatchWriter),
    /// As store files. A flush ends a load, and the next row begins another.
    Loader { table: Table, options: BulkOptions, loader: Box<BulkLoader> },
}

impl Sink {
    /// The usual way.
    pub fn writer(table: &Table) -> Sink {
        Sink::Writer(table.writer(WriterOptions::default()))
    }

    /// As store files; `timestamp_ms` is that of cells without one, if the import has chosen it.
    pub fn loader(table: &Table, timestamp_ms: Option<u64>) -> Sink {
        let mut options = BulkOptions::default();
        options.timestamp_ms = timestamp_ms;
        Sink::Loader { table: table.clone(), options, loader: Box::new(table.bulk_load(options)) }
    }

    /// Accepts a row, and waits while too many are not yet written. An invalid one is refused, and the rest goes on.
    pub async fn put(&mut self, record: Record) -> Result<(), Error> {
        match self {
            Sink::Writer(writer) => writer.put(put_of(&record)).await,
            Sink::Loader { loader, .. } => loader.put(put_of(&record)).await,
        }
    }

    /// Waits until all rows accepted so far are durable, and returns those that are not. A load fails as a whole.
    pub async fn flush(&mut self) -> Result<Vec<RowError>, Error> {
        match self {
            Sink::Writer(writer) => Ok(writer.flush().await.map_or_else(|error| error.rows, |()| Vec::new())),
            Sink::Loader { table, options, loader } => {
                let ended = std::mem::replace(&mut **loader, table.bulk_load(*options));
                ended.finish().await.map(|_| Vec::new())
            }
        }
    }

    /// Flushes for the last time.
    pub async fn finish(mut self) -> Result<Vec<RowError>, Error> {
        let rest = self.flush().await?;
        match self {
            Sink::Writer(writer) => Ok(writer.close().await.map_or_else(|error| error.rows, |()| rest)),
            Sink::Loader { .. } => Ok(rest),
        }
    }
}

fn put_of(record: &Record) -> Put {
    record.cells.iter().fold(Put::new(&record.row), |put, cell| {
        // Families come from a parser that has checked them, so they are UTF-8.
        let family = String::from_utf8_lossy(&cell.family);
        match cell.timestamp {
            Some(timestamp) => put.set_at(&family, &cell.qualifier, timestamp, &cell.value),
            None => put.set(&family, &cell.qualifier, &cell.value),
        }
    })
}
