//! Tables whose keys are typed: a struct that derives [`RowKey`] in place of bytes.

use std::marker::PhantomData;

use terrane_types::{KeyRange, RowKey};

use crate::error::Error;
use crate::operations::{Delete, Put};
use crate::reading::{Get, RowData, Scan};
use crate::scan::RowStream;
use crate::table::Table;

/// A table seen through a key type.
///
/// ```no_run
/// use terrane_client::{Client, Desc, RowKey, Scan, TypedTable};
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
/// let actions: TypedTable<Action> = TypedTable::new(client.table("actions").await?)?;
/// let key = Action { user: 7, time: Desc(1_000), action: 3 };
/// actions.put(&key, |row| row.set("a", "kind", "login")).await?;
///
/// // The user's newest ten, as the key sorts times from high to low.
/// let mut newest = actions.scan(Action::prefix_1(&7), |scan| scan.limit(10)).await?;
/// while let Some(row) = newest.next().await {
///     println!("{}", row?.key.time.0);
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TypedTable<K> {
    table: Table,
    key: PhantomData<fn() -> K>,
}

impl<K> Clone for TypedTable<K> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), key: PhantomData }
    }
}

/// A row with its key decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedRow<K> {
    /// The key.
    pub key: K,
    /// The row as it was read.
    pub data: RowData,
}

impl<K: RowKey> TypedTable<K> {
    /// Sees `table` through the key type. A table that declares its key must declare this one.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the table declares other parts.
    pub fn new(table: Table) -> Result<Self, Error> {
        let (schema, ours) = (table.schema(), K::declaration());
        match &schema.key {
            Some(declared) if *declared != ours => Err(Error::invalid(format!(
                "table {} declares its key as `{declared}`; the key type given has `{ours}`",
                schema.name
            ))),
            _ => Ok(Self { table, key: PhantomData }),
        }
    }

    /// The table beneath.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Writes cells of one row: `put(&key, |row| row.set("family", "qualifier", value))`.
    ///
    /// **Durability** and **retry safety** are those of [`Table::put`].
    ///
    /// # Errors
    /// As for [`Table::put`]; [`Error::Invalid`] also when the key's parts are too long together.
    pub async fn put(&self, key: &K, cells: impl FnOnce(Put) -> Put) -> Result<(), Error> {
        self.table.put(cells(Put::new(key.encode()?))).await
    }

    /// Deletes of one row what `what` names; the whole row if it names nothing.
    ///
    /// **Durability** and **retry safety** are those of [`Table::delete`].
    ///
    /// # Errors
    /// As for [`TypedTable::put`].
    pub async fn delete(&self, key: &K, what: impl FnOnce(Delete) -> Delete) -> Result<(), Error> {
        self.table.delete(what(Delete::new(key.encode()?))).await
    }

    /// Reads one row.
    ///
    /// # Errors
    /// As for [`Table::get`].
    pub async fn get(&self, key: &K) -> Result<Option<TypedRow<K>>, Error> {
        self.table.get(Get::new(key.encode()?)).await?.map(typed).transpose()
    }

    /// Reads the rows of a range: a prefix of the key (`K::prefix_1(..)` and so on), or [`KeyRange::all`]. `how` may set
    /// limit, offset, direction and columns.
    ///
    /// # Errors
    /// As for [`Table::scan`].
    pub async fn scan(&self, range: KeyRange, how: impl FnOnce(Scan) -> Scan) -> Result<TypedRows<K>, Error> {
        let rows = self.table.scan(how(Scan::range(range))).await?;
        Ok(TypedRows { rows, key: PhantomData })
    }

    /// The first row of a range.
    ///
    /// # Errors
    /// As for [`Table::first`].
    pub async fn first(&self, range: KeyRange) -> Result<Option<TypedRow<K>>, Error> {
        self.table.first(range).await?.map(typed).transpose()
    }

    /// The last row of a range.
    ///
    /// # Errors
    /// As for [`Table::last`].
    pub async fn last(&self, range: KeyRange) -> Result<Option<TypedRow<K>>, Error> {
        self.table.last(range).await?.map(typed).transpose()
    }
}

/// The rows of a typed scan, one after another.
#[derive(Debug)]
pub struct TypedRows<K> {
    rows: RowStream,
    key: PhantomData<fn() -> K>,
}

impl<K: RowKey> TypedRows<K> {
    /// The next row; `None` at the end. A row whose key is no `K` is an error; the scan can go on behind it.
    pub async fn next(&mut self) -> Option<Result<TypedRow<K>, Error>> {
        let row = self.rows.next().await?;
        Some(row.and_then(typed))
    }
}

fn typed<K: RowKey>(data: RowData) -> Result<TypedRow<K>, Error> {
    Ok(TypedRow { key: K::decode(data.row())?, data })
}
