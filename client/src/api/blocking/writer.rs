//! The batch writer for programs without async code.

use std::sync::Arc;

use super::Waiter;
use crate::error::Error;
use crate::write::batch_writer::{FlushError, Receipt};
use crate::write::operations::{Delete, Put};
use crate::write::row_mutation::RowMutation;

/// Writes many rows in batches: see [`crate::BatchWriter`] for its bounds, and for what can be lost. Cheap to clone: threads may
/// share one writer.
#[derive(Clone, Debug)]
pub struct BatchWriter {
    writer: crate::BatchWriter,
    waiter: Arc<Waiter>,
}

impl BatchWriter {
    pub(super) const fn new(writer: crate::BatchWriter, waiter: Arc<Waiter>) -> Self {
        Self { writer, waiter }
    }

    /// Accepts a mutation: see [`crate::BatchWriter::mutate`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::mutate`].
    pub fn mutate(&self, mutation: impl Into<RowMutation>) -> Result<(), Error> {
        self.waiter.wait(self.writer.mutate(mutation))
    }

    /// Accepts a put: see [`crate::BatchWriter::put`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::put`].
    pub fn put(&self, put: Put) -> Result<(), Error> {
        self.mutate(put)
    }

    /// Accepts a delete: see [`crate::BatchWriter::delete`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::delete`].
    pub fn delete(&self, delete: impl Into<Delete>) -> Result<(), Error> {
        self.mutate(delete.into())
    }

    /// Accepts a mutation and returns a receipt: see [`crate::BatchWriter::submit`]. [`Client::wait`](super::Client::wait) waits
    /// for it: `client.wait(receipt)`.
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::submit`].
    pub fn submit(&self, mutation: impl Into<RowMutation>) -> Result<Receipt, Error> {
        self.waiter.wait(self.writer.submit(mutation))
    }

    /// Waits until every mutation given so far is answered: see [`crate::BatchWriter::flush`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::flush`].
    pub fn flush(&self) -> Result<(), FlushError> {
        self.waiter.wait(self.writer.flush())
    }

    /// Flushes, and closes the writer and its clones: see [`crate::BatchWriter::close`].
    ///
    /// # Errors
    /// As for [`crate::BatchWriter::close`].
    pub fn close(self) -> Result<(), FlushError> {
        self.waiter.wait(self.writer.close())
    }

    /// Rows acknowledged so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.writer.written()
    }
}
