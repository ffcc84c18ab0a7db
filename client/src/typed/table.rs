//! Tables whose rows are structs that derive [`Row`](derive@crate::Row).

use std::marker::PhantomData;

use terrane_types::{IntoSpan, Returns, RowKey, TableRow};

use crate::api::table::Table;
use crate::error::Error;
use crate::typed::keyed::check_declared;
use crate::typed::mutation::mutation_of;
use crate::typed::reads::{Side, TypedCount, TypedEnd, TypedGet, TypedPageRequest, TypedScan, typed_reads};
use crate::typed::writer::TypedWriter;
use crate::write::batch_writer::WriterOptions;
use crate::write::operations::Delete;
use crate::write::requests::{WriteManyRequest, WriteRequest, answers};
use crate::write::row_mutation::RowMutation;

/// A table of structs: each struct is a row; its fields are parts of the key, and columns.
///
/// ```no_run
/// use terrane_client::{Client, Desc, Row, RowKey, TypedTable};
///
/// #[derive(Clone, RowKey)]
/// struct ActionKey {
///     user: u64,
///     time: Desc<i64>,
///     action: u32,
/// }
///
/// #[derive(Debug, Row)]
/// #[row(key = ActionKey, family = "a")]
/// struct Action {
///     #[row(part)]
///     user: u64,
///     #[row(part)]
///     time: Desc<i64>,
///     #[row(part)]
///     action: u32,
///     kind: String,
///     note: Option<String>,
/// }
///
/// # async fn run(token: Option<terrane_client::PageToken>) -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("127.0.0.1:7600").await?;
/// let actions: TypedTable<Action> = TypedTable::new(client.table("actions").await?)?;
/// let login = Action { user: 7, time: Desc(1_000), action: 3, kind: "login".into(), note: None };
/// actions.put(&login).await?;
///
/// let user = 7;
/// let newest = actions.latest(user).await?;
/// let page = actions.page(user).after(token).limit(10).await?;
/// let mut early = actions.scan(ActionKey::prefix().user(user).time_between(..1_000)).reverse().await?;
/// while let Some(action) = early.next().await {
///     println!("{:?}", action?);
/// }
/// # Ok(()) }
/// ```
///
/// A key that starts with a [`Bucket`](crate::Bucket) spreads rows that are written at the same time over the table. Nothing
/// else changes: the client computes the bucket, and rows are read in the order of the parts after it.
///
/// A row exists while it has a column of a field; give the struct a field that is not an `Option`.
#[derive(Debug)]
pub struct TypedTable<R> {
    table: Table,
    row: PhantomData<fn() -> R>,
}

impl<R> Clone for TypedTable<R> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), row: PhantomData }
    }
}

impl<R: TableRow + Send + 'static> TypedTable<R> {
    /// Wraps `table` with the row type. If the table declares a key, it must be that of the type; the table must have all
    /// families that the type names.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the table declares another key, or lacks a family.
    pub fn new(table: Table) -> Result<Self, Error> {
        check_declared::<R::Key>(&table)?;
        let schema = table.schema();
        if let Some((family, _)) = R::COLUMNS.iter().find(|(family, _)| schema.family(family.as_bytes()).is_none()) {
            return Err(Error::invalid(format!(
                "table {} has no family {}, which the row type names",
                schema.name,
                terrane_types::escape_family(family.as_bytes())
            )));
        }
        Ok(Self { table, row: PhantomData })
    }

    /// Writes a row, all or nothing: columns with a value are put, and those of an `Option` that is `None` are deleted, so the
    /// row reads back as it was put. Columns that the struct does not name keep their values. A condition can guard the write:
    /// `actions.put(&row).when(column("a", "kind").is_absent()).await?.held`.
    ///
    /// **Durability** and **retry safety** are those of [`Table::mutate`].
    ///
    /// # Errors
    /// As for [`Table::mutate`]; [`Error::Invalid`] also when the encoded key is too long, or a value cannot be encoded.
    pub fn put(&self, row: &R) -> WriteRequest<()> {
        WriteRequest::new(&self.table, mutation_of(row).unwrap_or_else(RowMutation::refused), answers::nothing)
    }

    /// Writes many rows as [`TypedTable::put`] does, independently; the outcomes come in order. As [`Table::mutate_many`].
    ///
    /// # Errors
    /// As for [`Table::mutate_many`].
    pub fn put_many<'r>(&self, rows: impl IntoIterator<Item = &'r R>) -> WriteManyRequest
    where
        R: 'r,
    {
        let mutations = rows.into_iter().map(|row| mutation_of(row).unwrap_or_else(RowMutation::refused));
        self.table.mutate_many(mutations.collect())
    }

    /// The mutation that [`TypedTable::put`] sends, for a writer or for [`Table::atomic`].
    ///
    /// # Errors
    /// [`Error::Invalid`] when the encoded key is too long, or a value cannot be encoded.
    pub fn mutation(row: &R) -> Result<RowMutation, Error> {
        Ok(mutation_of(row)?)
    }

    /// A writer that collects rows into batches and sends them in the background. As [`Table::writer`].
    #[must_use]
    pub fn writer(&self, options: WriterOptions) -> TypedWriter<R> {
        TypedWriter::new(self.table.writer(options))
    }

    /// Adds `by` to a counter of the row and returns its new value. As [`Table::increment`]; an `i64` field of the struct can be
    /// a counter.
    ///
    /// # Errors
    /// As for [`Table::increment`]; [`Error::Invalid`] also when the encoded key is too long.
    pub fn increment(&self, key: &R::Key, family: &str, qualifier: impl AsRef<[u8]>, by: i64) -> WriteRequest<i64> {
        let mutation = RowMutation::of_key(key).increment(family, qualifier, by).returning(Returns::New);
        WriteRequest::new(&self.table, mutation, answers::counter)
    }

    /// Deletes the whole row, including columns that the struct does not name.
    ///
    /// **Durability** and **retry safety** are those of [`Table::delete`].
    ///
    /// # Errors
    /// As for [`TypedTable::put`].
    pub fn delete(&self, key: &R::Key) -> WriteRequest<()> {
        let mutation = key.encode().map_or_else(RowMutation::refused, |row| Delete::new(row).into());
        WriteRequest::new(&self.table, mutation, answers::nothing)
    }

    typed_reads!(R, R::Key);
}
