//! A writer of structs: [`BatchWriter`] for the rows of a [`TypedTable`](crate::TypedTable).

use std::fmt;
use std::marker::PhantomData;

use terrane_types::TableRow;

use crate::error::Error;
use crate::typed::mutation::mutation_of;
use crate::write::batch_writer::{BatchWriter, FlushError, Receipt};

/// Writes many structs in batches. Created by [`TypedTable::writer`](crate::TypedTable::writer). Cheap to clone; clones share the
/// batches.
///
/// Batches, memory, durability, and what can be lost are those of [`BatchWriter`].
///
/// ```no_run
/// use terrane_client::{Row, RowKey, TypedTable, WriterOptions};
/// #[derive(Clone, RowKey)]
/// struct SensorKey { sensor: u64, second: u64 }
/// #[derive(Row)]
/// #[row(family = "d")]
/// struct Reading { #[row(key)] key: SensorKey, value: i32 }
///
/// # async fn run(readings: TypedTable<Reading>) -> Result<(), Box<dyn std::error::Error>> {
/// let writer = readings.writer(WriterOptions::default());
/// for second in 0..100_000 {
///     writer.put(&Reading { key: SensorKey { sensor: 7, second }, value: 21 }).await?;
/// }
/// writer.close().await?;
/// # Ok(()) }
/// ```
pub struct TypedWriter<R> {
    writer: BatchWriter,
    row: PhantomData<fn(&R)>,
}

impl<R> Clone for TypedWriter<R> {
    fn clone(&self) -> Self {
        Self { writer: self.writer.clone(), row: PhantomData }
    }
}

impl<R> fmt::Debug for TypedWriter<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TypedWriter").field(&self.writer).finish()
    }
}

impl<R: TableRow> TypedWriter<R> {
    pub(crate) const fn new(writer: BatchWriter) -> Self {
        Self { writer, row: PhantomData }
    }

    /// Accepts a row. Waits while the writer's memory is full.
    ///
    /// # Errors
    /// As for [`BatchWriter::put`]; [`Error::Invalid`] also when the encoded key is too long, or a value cannot be encoded.
    pub async fn put(&self, row: &R) -> Result<(), Error> {
        self.writer.mutate(mutation_of(row)?).await
    }

    /// Accepts a row and returns a receipt, as [`BatchWriter::submit`] does.
    ///
    /// # Errors
    /// As for [`TypedWriter::put`].
    pub async fn submit(&self, row: &R) -> Result<Receipt, Error> {
        self.writer.submit(mutation_of(row)?).await
    }

    /// Sends what is collected, and waits until everything given so far is answered.
    ///
    /// # Errors
    /// As for [`BatchWriter::flush`].
    pub async fn flush(&self) -> Result<(), FlushError> {
        self.writer.flush().await
    }

    /// Flushes, and closes the writer and its clones.
    ///
    /// # Errors
    /// As for [`BatchWriter::flush`].
    pub async fn close(self) -> Result<(), FlushError> {
        self.writer.close().await
    }

    /// The writer beneath, for deletes and other mutations in the same batches.
    #[must_use]
    pub const fn inner(&self) -> &BatchWriter {
        &self.writer
    }
}
