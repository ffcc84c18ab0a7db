//! Tables whose rows are structs that derive [`Row`](derive@crate::Row).

use std::marker::PhantomData;

use terrane_types::{IntoSpan, RowKey, TableRow};

use crate::error::Error;
use crate::keyed::check_declared;
use crate::mutation::RowMutation;
use crate::operations::{Delete, Put};
use crate::table::Table;
use crate::typed_reads::{Side, TypedEnd, TypedGet, TypedPageRequest, TypedScan, count, typed_reads};

/// A table of structs: each is a row, its fields are the parts of the key and columns.
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
/// A key that begins with a [`Bucket`](crate::Bucket) spreads rows that are written at one time over the table. Nothing else
/// changes: the writer computes the bucket, and rows are read in the order of the parts behind it.
///
/// A row is there as long as it has a column of a field; give it one that is not an `Option`.
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
    /// Sees `table` as rows of this type. A table that declares its key must declare that of the type, and it must have
    /// all families that the type names.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the table declares other parts of the key, or lacks a family.
    pub fn new(table: Table) -> Result<Self, Error> {
        check_declared::<R::Key>(&table)?;
        let schema = table.schema();
        if let Some((family, _)) = R::COLUMNS.iter().find(|(family, _)| schema.family(family.as_bytes()).is_none()) {
            return Err(Error::invalid(format!(
                "table {} has no family {family}, which the row type names",
                schema.name
            )));
        }
        Ok(Self { table, row: PhantomData })
    }

    /// Writes a row, all of it or nothing: every column that has a value is put, and every `Option` that is `None` is
    /// deleted, so that the row reads back as it was put. Columns that the struct does not name are left as they are.
    ///
    /// **Durability** and **retry safety** are those of [`Table::mutate`].
    ///
    /// # Errors
    /// As for [`Table::mutate`]; [`Error::Invalid`] also when the key's parts are too long together.
    pub async fn put(&self, row: &R) -> Result<(), Error> {
        self.table.mutate(Self::mutation(row)?).await?;
        Ok(())
    }

    /// The mutation that [`TypedTable::put`] sends: for a writer, for [`Table::mutate_many`], or to be sent under a condition.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the key's parts are too long together, or a value has no encoding.
    pub fn mutation(row: &R) -> Result<RowMutation, Error> {
        let name = row.key().encode()?;
        let mut mutation = RowMutation::new(&name);
        for ((family, qualifier), value) in R::COLUMNS.iter().zip(row.columns()?) {
            mutation = match value {
                Some(value) => mutation.put(Put::new(&name).set(family, qualifier, value)),
                None => mutation.delete(Delete::new(&name).column(family, qualifier)),
            };
        }
        Ok(mutation)
    }

    /// Deletes a row, also what it has besides the fields of the struct.
    ///
    /// **Durability** and **retry safety** are those of [`Table::delete`].
    ///
    /// # Errors
    /// As for [`TypedTable::put`].
    pub async fn delete(&self, key: &R::Key) -> Result<(), Error> {
        self.table.delete(Delete::new(key.encode()?)).await?;
        Ok(())
    }

    typed_reads!(R, R::Key);
}
