//! The write calls of a table, and the checks before a request is sent.

use std::time::Duration;

use bytes::Bytes;
use terrane_types::mutation::checks::{check_atomic, check_batch_bytes, check_batch_rows};
use terrane_types::{Returns, TableId};

use crate::api::table::Table;
use crate::error::{Error, RowError};
use crate::wire::mutate::RowWrite;
use crate::write::batch_writer::{BatchWriter, WriterOptions};
use crate::write::condition::Condition;
use crate::write::many::Outcomes;
use crate::write::operations::{Delete, Put};
use crate::write::outcome::{AtomicOutcome, MutationOutcome};
use crate::write::requests::{AtomicRequest, WriteManyRequest, WriteRequest, answers};
use crate::write::row_mutation::RowMutation;
use crate::write::scatter;
use crate::write::unit::Unit;

/// # Writing
///
/// **Durability**: when a write returns `Ok`, a quorum of servers has it on disk.
///
/// **Retry safety**: every row mutation has an operation number and is applied once, even if its answer is lost, the leader
/// changes or the region splits. The client repeats it until the deadline and returns the first answer. After
/// [`Error::Timeout`] with [`Error::is_uncertain`], and after [`Error::Uncertain`], a write may have been applied; calling again
/// is a new operation.
impl Table {
    /// Writes cells of one row, all or none. [`WriteRequest`] has further settings.
    ///
    /// # Errors
    /// [`Error::Invalid`] before any request is sent, for rows, families and values outside the limits; see [`Error`].
    pub fn put(&self, put: Put) -> WriteRequest<()> {
        WriteRequest::new(self, put.into(), answers::nothing)
    }

    /// Deletes cells of one row, all or none; the whole row if the delete names nothing, or if a row key is given in its place
    /// (`delete("user-17")`). The whole row is every family that the table has when the delete takes effect, including
    /// families that this client does not know yet.
    ///
    /// # Errors
    /// As for [`Table::put`].
    pub fn delete(&self, delete: impl Into<Delete>) -> WriteRequest<()> {
        WriteRequest::new(self, delete.into().into(), answers::nothing)
    }

    /// Applies a mixture of puts, deletes, increments and appends to one row, all or none.
    ///
    /// # Errors
    /// As for [`Table::put`]. [`Error::Invalid`] also when an incremented column is not a counter or would overflow; nothing is
    /// applied then.
    pub fn mutate(&self, mutation: impl Into<RowMutation>) -> WriteRequest<MutationOutcome> {
        WriteRequest::new(self, mutation.into(), Ok)
    }

    /// Adds `by` to a counter and returns its new value. A counter is a column of 8 bytes, a big-endian `i64`; an absent
    /// column counts as 0.
    ///
    /// # Errors
    /// As for [`Table::mutate`].
    pub fn increment(
        &self,
        row: impl AsRef<[u8]>,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        by: i64,
    ) -> WriteRequest<i64> {
        let mutation = RowMutation::new(row).increment(family, qualifier, by).returning(Returns::New);
        WriteRequest::new(self, mutation, answers::counter)
    }

    /// Appends `value` to the value of a column and returns the whole new value (up to 1 MiB; to append to larger values use
    /// [`Table::mutate`], which returns none). An absent column counts as empty.
    ///
    /// # Errors
    /// As for [`Table::mutate`]. [`Error::ResultLost`] when the answer was lost and the new value is above 4 KiB: `value` was
    /// appended once.
    pub fn append(
        &self,
        row: impl AsRef<[u8]>,
        family: &str,
        qualifier: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> WriteRequest<Bytes> {
        let mutation = RowMutation::new(row).append(family, qualifier, value).returning(Returns::New);
        WriteRequest::new(self, mutation, answers::value)
    }

    /// Puts if a condition holds for the row; returns whether it did. The server evaluates the condition in the order of the
    /// row's writes: no write comes between the condition and the put.
    ///
    /// ```no_run
    /// # async fn run(jobs: terrane_client::Table) -> Result<(), terrane_client::Error> {
    /// use terrane_client::{Put, column};
    /// let take = Put::new("job-17").set("job", "owner", "worker-3");
    /// if jobs.check_and_put(column("job", "owner").is_absent(), take).await? {
    ///     println!("it is ours");
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As for [`Table::put`]. [`Error::Invalid`] also when a column does not have the type that the condition compares.
    pub fn check_and_put(&self, condition: impl Into<Condition>, put: Put) -> WriteRequest<bool> {
        self.check_and_mutate(condition, put)
    }

    /// Deletes if a condition holds for the row; returns whether it did.
    ///
    /// # Errors
    /// As for [`Table::check_and_put`].
    pub fn check_and_delete(&self, condition: impl Into<Condition>, delete: impl Into<Delete>) -> WriteRequest<bool> {
        self.check_and_mutate(condition, delete.into())
    }

    /// Mutates a row if a condition holds; returns whether it did.
    ///
    /// # Errors
    /// As for [`Table::check_and_put`] and [`Table::mutate`].
    pub fn check_and_mutate(
        &self,
        condition: impl Into<Condition>,
        mutation: impl Into<RowMutation>,
    ) -> WriteRequest<bool> {
        WriteRequest::new(self, mutation.into().when(condition), answers::held)
    }

    /// Applies many mutations, grouped by server. Each is atomic and has its own outcome, in the order given; together they are
    /// not atomic. Mutations of one row are applied in the order given while none of them fails.
    ///
    /// # Errors
    /// [`Error::Invalid`] when any mutation is outside the limits; then no request was sent. If a row occurs twice, a mutation
    /// of it that deletes cannot return cells: that mutation is refused, so send the two in separate calls.
    pub fn mutate_many(&self, mutations: Vec<RowMutation>) -> WriteManyRequest {
        WriteManyRequest::new(self, mutations)
    }

    /// Writes many rows independently: [`Table::mutate_many`] of puts.
    ///
    /// # Errors
    /// As for [`Table::mutate_many`].
    pub fn put_many(&self, puts: impl IntoIterator<Item = Put>) -> WriteManyRequest {
        self.mutate_many(puts.into_iter().map(RowMutation::from).collect())
    }

    /// Deletes from many rows independently: [`Table::mutate_many`] of deletes. A row key deletes its whole row.
    ///
    /// # Errors
    /// As for [`Table::mutate_many`].
    pub fn delete_many<D: Into<Delete>>(&self, deletes: impl IntoIterator<Item = D>) -> WriteManyRequest {
        self.mutate_many(deletes.into_iter().map(|delete| delete.into().into()).collect())
    }

    /// Applies mutations of several rows atomically: all or none, at one moment, including their conditions. If one condition
    /// does not hold, or one mutation fails, nothing is applied.
    ///
    /// Several rows must share the table's atomic key prefix: the first `atomic=N` parts of its declared key.
    ///
    /// ```no_run
    /// # async fn run(client: terrane_client::Client) -> Result<(), terrane_client::Error> {
    /// use terrane_client::{RowKey, RowMutation, TableSpec, column};
    /// #[derive(RowKey)]
    /// struct Account { owner: u64, kind: u32 }
    /// // All rows of one owner are one unit.
    /// let spec = TableSpec::new("accounts")?.family("a", &[])?.keyed_by::<Account>().set("atomic", "1")?;
    /// let accounts = client.open_or_create(spec).await?;
    /// let (current, savings) = (Account { owner: 7, kind: 1 }.encode()?, Account { owner: 7, kind: 2 }.encode()?);
    /// let enough = column("a", "cents").as_i64().at_least(500);
    /// let moved = accounts
    ///     .atomic(vec![
    ///         RowMutation::new(current).increment("a", "cents", -500).when(enough),
    ///         RowMutation::new(savings).increment("a", "cents", 500),
    ///     ])
    ///     .await?;
    /// println!("{}", if moved.held { "moved" } else { "not enough there" });
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] before any request is sent, when the rows do not share the prefix (the message names them), the table
    /// declares none, or a mutation is outside the limits. An error of one row is the error of the batch.
    pub fn atomic(&self, mutations: Vec<RowMutation>) -> AtomicRequest {
        AtomicRequest::new(self, mutations)
    }

    /// A writer that collects mutations into batches and sends them in the background. Must be called within a runtime.
    #[doc(alias("BufferedMutator", "Appender"))]
    #[must_use]
    pub fn writer(&self, options: WriterOptions) -> BatchWriter {
        BatchWriter::new(self.clone(), options)
    }

    pub(crate) async fn write_row(&self, mutation: RowMutation, timeout: Duration) -> Result<MutationOutcome, Error> {
        let row = self.prepare(mutation).await?;
        let router = &self.core.router;
        let mut outcomes = Unit::one(router, row).send(router, &self.target, timeout).await?;
        outcomes.pop().ok_or_else(|| Error::internal("a mutation without an outcome"))
    }

    pub(crate) async fn write_many(
        &self,
        mutations: Vec<RowMutation>,
        timeout: Duration,
    ) -> Result<Vec<Result<MutationOutcome, RowError>>, Error> {
        let mut rows = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            rows.push(self.prepare(mutation).await?);
        }
        let keys: Vec<Bytes> = rows.iter().map(|row| row.row.clone()).collect();
        let mut sent = self.write_prepared(rows, timeout).await;
        let outcomes = keys.into_iter().enumerate();
        Ok(outcomes.map(|(index, row)| sent.take(index).map_err(|error| RowError { row, error })).collect())
    }

    /// Sends checked mutations.
    pub(crate) async fn write_prepared(&self, rows: Vec<RowWrite>, timeout: Duration) -> Outcomes {
        scatter::send_many(&self.core.router, &self.target, rows, timeout).await
    }

    pub(crate) async fn write_atomic(
        &self,
        mutations: Vec<RowMutation>,
        timeout: Duration,
    ) -> Result<AtomicOutcome, Error> {
        if mutations.is_empty() {
            return Ok(AtomicOutcome { held: true, rows: Vec::new() });
        }
        check_batch_rows(mutations.len())?;
        check_batch_bytes(mutations.iter().map(RowMutation::size_bytes).sum())?;
        let mut rows = Vec::with_capacity(mutations.len());
        for mutation in mutations {
            rows.push(self.prepare(mutation).await?);
        }
        if rows.len() > 1 && self.schema().atomic == 0 {
            self.refresh_for_call(timeout).await?;
        }
        let keys: Vec<&[u8]> = rows.iter().map(|row| &row.row[..]).collect();
        check_atomic(&keys, &self.schema())?;
        let router = &self.core.router;
        let rows = Unit::atomic(router, rows).send(router, &self.target, timeout).await?;
        Ok(AtomicOutcome { held: rows.iter().all(|row| row.held), rows })
    }

    /// Checks a mutation against the limits and the schema. The result is complete except for its operation number.
    pub(crate) async fn prepare(&self, mutation: RowMutation) -> Result<RowWrite, Error> {
        if self.target.table == TableId::META {
            return Err(Error::ReadOnly { what: "table meta".to_owned() });
        }
        mutation.check()?;
        if self.target.is_outdated() {
            // Rare, so it has a box of its own: the future of a plain put stays small.
            Box::pin(self.catch_up()).await;
        }
        let mut schema = self.target.schema();
        if mutation.parts().check_families(&schema).is_err() {
            Box::pin(self.refresh_for_call(self.timeout)).await?;
            schema = self.target.schema();
            mutation.parts().check_families(&schema)?;
        }
        let RowMutation { row, cells, whole_row, extra, .. } = mutation;
        Ok(RowWrite { row, cells: cells.into(), delete_row: whole_row, extra, ..RowWrite::default() })
    }
}
