//! Tables with typed keys and named columns: a struct that derives [`RowKey`] instead of bytes.

use std::marker::PhantomData;

use terrane_types::{IntoSpan, Returns, RowKey};

use crate::api::table::Table;
use crate::error::Error;
use crate::typed::reads::{Side, TypedCount, TypedEnd, TypedGet, TypedPageRequest, TypedScan, typed_reads};
use crate::typed::typed_row::TypedRow;
use crate::write::operations::{Delete, Put};
use crate::write::outcome::MutationOutcome;
use crate::write::requests::{WriteRequest, answers};
use crate::write::row_mutation::RowMutation;

/// A table with a typed key; columns are named as in a [`Table`]. For structs that are whole rows see
/// [`TypedTable`](crate::TypedTable).
///
/// ```no_run
/// use terrane_client::{Client, Desc, KeyedTable, RowKey};
///
/// #[derive(RowKey)]
/// struct Action {
///     user: u64,
///     time: Desc<i64>,
///     action: u32,
/// }
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("127.0.0.1:7600").await?;
/// let actions: KeyedTable<Action> = KeyedTable::new(client.table("actions").await?)?;
/// let key = Action { user: 7, time: Desc(1_000), action: 3 };
/// actions.put(&key, |row| row.set("a", "kind", "login")).await?;
///
/// // The user's newest ten: the key sorts times in descending order.
/// let mut newest = actions.scan(7).limit(10).await?;
/// while let Some(row) = newest.next().await {
///     println!("{}", row?.key.time.0);
/// }
/// // What the user did in the first second, and the last action before `key` in time.
/// let early = actions.scan(Action::prefix().user(7).time_between(0..1_000)).await?;
/// let before = actions.higher(&key).within(7).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct KeyedTable<K> {
    table: Table,
    key: PhantomData<fn() -> K>,
}

impl<K> Clone for KeyedTable<K> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), key: PhantomData }
    }
}

/// Checks that the table declares this key, if it declares any. Times and their `i64` are the same bytes.
pub(crate) fn check_declared<K: RowKey>(table: &Table) -> Result<(), Error> {
    let (schema, ours) = (table.schema(), K::declaration());
    match &schema.key {
        Some(declared) if declared.as_stored() != ours.as_stored() => Err(Error::invalid(format!(
            "table {} declares its key as `{declared}`; the key type is `{ours}`",
            schema.name
        ))),
        _ => Ok(()),
    }
}

impl<K: RowKey + Send + 'static> KeyedTable<K> {
    /// Wraps `table` with the key type. If the table declares a key, it must be this one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the table declares another key.
    pub fn new(table: Table) -> Result<Self, Error> {
        check_declared::<K>(&table)?;
        Ok(Self { table, key: PhantomData })
    }

    /// Writes cells of one row: `put(&key, |row| row.set("family", "qualifier", value))`. Add `.when(...)` to write only if a
    /// condition holds.
    ///
    /// **Durability** and **retry safety** are those of [`Table::put`].
    ///
    /// # Errors
    /// As for [`Table::put`]; [`Error::Invalid`] also when the encoded key is too long.
    pub fn put(&self, key: &K, cells: impl FnOnce(Put) -> Put) -> WriteRequest<()> {
        let mutation = key.encode().map_or_else(RowMutation::refused, |row| cells(Put::new(row)).into());
        WriteRequest::new(&self.table, mutation, answers::nothing)
    }

    /// Deletes the cells of one row that `what` names; the whole row if it names none.
    ///
    /// **Durability** and **retry safety** are those of [`Table::delete`].
    ///
    /// # Errors
    /// As for [`KeyedTable::put`].
    pub fn delete(&self, key: &K, what: impl FnOnce(Delete) -> Delete) -> WriteRequest<()> {
        let mutation = key.encode().map_or_else(RowMutation::refused, |row| what(Delete::new(row)).into());
        WriteRequest::new(&self.table, mutation, answers::nothing)
    }

    /// Applies a mixture of puts, deletes, increments and appends to one row, all or none:
    /// `mutate(&key, |row| row.set("a", "kind", "login").increment("a", "logins", 1))`. As [`Table::mutate`].
    ///
    /// # Errors
    /// As for [`Table::mutate`]; [`Error::Invalid`] also when the encoded key is too long.
    pub fn mutate(&self, key: &K, changes: impl FnOnce(RowMutation) -> RowMutation) -> WriteRequest<MutationOutcome> {
        WriteRequest::new(&self.table, changes(RowMutation::of_key(key)), Ok)
    }

    /// Adds `by` to a counter and returns its new value. As [`Table::increment`].
    ///
    /// # Errors
    /// As for [`Table::increment`]; [`Error::Invalid`] also when the encoded key is too long.
    pub fn increment(&self, key: &K, family: &str, qualifier: impl AsRef<[u8]>, by: i64) -> WriteRequest<i64> {
        let mutation = RowMutation::of_key(key).increment(family, qualifier, by).returning(Returns::New);
        WriteRequest::new(&self.table, mutation, answers::counter)
    }

    typed_reads!(TypedRow<K>, K);
}
