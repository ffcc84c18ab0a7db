//! What a table is to look like: the specification of a new one, and changes to an existing one.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::{FamilyName, FamilySchema, KeyDeclaration, RowKey, TableName, TableRow, TableSchema};

use crate::error::Error;

/// What is to be made by [`Admin::create_table`].
///
/// ```
/// use terrane_client::TableSpec;
/// # fn main() -> Result<(), terrane_client::Error> {
/// let spec = TableSpec::new("actions")?
///     .family("a", &[("versions", "3")])?
///     .key("user:u64, time:desc i64, action:u32")?
///     .split_at(&5_000u64.to_be_bytes());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The table as it shall be; its id and version are given by the master.
    pub schema: TableSchema,
    /// Rows at which the table is split from the start.
    pub split_at: Vec<Bytes>,
}

impl TableSpec {
    /// A table without families yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not a name.
    pub fn new(name: &str) -> Result<Self, Error> {
        Ok(Self { schema: TableSchema::new(TableName::new(name)?), split_at: Vec::new() })
    }

    /// A table for rows of this type: with the key of the type, and the families that it names, all attributes at their
    /// defaults.
    ///
    /// ```
    /// use terrane_client::{Desc, Row, RowKey, TableSpec};
    ///
    /// #[derive(Clone, RowKey)]
    /// struct ActionKey { user: u64, time: Desc<i64> }
    ///
    /// #[derive(Row)]
    /// #[row(key = ActionKey, family = "a")]
    /// struct Action {
    ///     #[row(part)]
    ///     user: u64,
    ///     #[row(part)]
    ///     time: Desc<i64>,
    ///     kind: String,
    /// }
    ///
    /// # fn main() -> Result<(), terrane_client::Error> {
    /// let spec = TableSpec::of_rows::<Action>("actions")?;
    /// let same = TableSpec::new("actions")?.family("a", &[])?.key("user:u64, time:desc i64")?;
    /// assert_eq!(spec.schema, same.schema);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not a name, or the type names a family that cannot be.
    pub fn of_rows<R: TableRow>(name: &str) -> Result<Self, Error> {
        let mut spec = Self::new(name)?.keyed_by::<R::Key>();
        for (family, _) in R::COLUMNS {
            if spec.schema.family(family.as_bytes()).is_none() {
                spec = spec.family(family, &[])?;
            }
        }
        Ok(spec)
    }

    /// Adds a family with attributes (`versions`, `min_versions`, `ttl`, `keep_deleted_cells`; `compression`, `bloom`,
    /// `block_size`, `in_memory`; `meta.NAME` for free metadata), each as [`FamilySchema::set_attribute`] takes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name, a family named twice, an attribute that is unknown or out of bounds.
    pub fn family(mut self, name: &str, attributes: &[(&str, &str)]) -> Result<Self, Error> {
        let mut family = FamilySchema::new(FamilyName::new(name)?);
        for (attribute, value) in attributes {
            family.set_attribute(attribute, value)?;
        }
        self.schema.add_family(family)?;
        Ok(self)
    }

    /// Declares the parts of the table's keys, like `user:u64, time:desc i64, action:u32`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the parts cannot be read.
    pub fn key(mut self, parts: &str) -> Result<Self, Error> {
        self.schema.key = Some(KeyDeclaration::parse(parts)?);
        Ok(self)
    }

    /// Declares the parts of a key type, for a [`KeyedTable`](crate::KeyedTable).
    ///
    /// ```
    /// use terrane_client::{Desc, RowKey, TableSpec};
    ///
    /// #[derive(RowKey)]
    /// struct ActionKey { user: u64, time: Desc<i64> }
    ///
    /// # fn main() -> Result<(), terrane_client::Error> {
    /// let spec = TableSpec::new("actions")?.family("a", &[])?.keyed_by::<ActionKey>();
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn keyed_by<K: RowKey>(mut self) -> Self {
        self.schema.key = Some(K::declaration());
        self
    }

    /// Sets a table attribute by its name, like `region_size` to `16MiB` or `bloom_prefix` to `1`; see
    /// [`TableSchema::set_attribute`] for all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is unknown, or its value is out of bounds.
    pub fn set(mut self, attribute: &str, value: &str) -> Result<Self, Error> {
        self.schema.set_attribute(attribute, value)?;
        Ok(self)
    }

    /// Sets the bytes at which a region splits.
    #[must_use]
    pub fn region_size(mut self, bytes: u64) -> Self {
        self.schema.region_size = bytes;
        self
    }

    /// Splits the table at this row from the start.
    #[must_use]
    pub fn split_at(mut self, row: &[u8]) -> Self {
        self.split_at.push(Bytes::copy_from_slice(row));
        self
    }
}

/// Changes to a table, for [`Admin::alter_table`]. All of them come into force together, in each region at one moment of
/// its log; the table serves meanwhile.
///
/// What a lower limit (`versions`, `ttl`) hid stays hidden when it is raised again. A key is declared once. A family that
/// is dropped takes its cells with it; one of the same name that is added later begins empty.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    pub(crate) set: BTreeMap<String, String>,
    pub(crate) families: Vec<FamilyChange>,
    pub(crate) drop_families: Vec<String>,
}

/// Attributes of one family, to be set on an existing family or on a new one.
#[derive(Clone, Debug)]
pub(crate) struct FamilyChange {
    pub(crate) name: String,
    pub(crate) add: bool,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl TableChange {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a table attribute, as [`TableSpec::set`] does; `meta.NAME` with an empty value takes an entry away.
    #[must_use]
    pub fn set(mut self, attribute: &str, value: &str) -> Self {
        self.set.insert(attribute.to_owned(), value.to_owned());
        self
    }

    /// Sets attributes of a family that is there; those not named stay as they are.
    #[must_use]
    pub fn family(self, name: &str, attributes: &[(&str, &str)]) -> Self {
        self.change_family(name, false, attributes)
    }

    /// Adds a family, with the attributes that [`TableSpec::family`] takes.
    #[must_use]
    pub fn add_family(self, name: &str, attributes: &[(&str, &str)]) -> Self {
        self.change_family(name, true, attributes)
    }

    /// Drops a family and everything in it.
    #[must_use]
    pub fn drop_family(mut self, name: &str) -> Self {
        self.drop_families.push(name.to_owned());
        self
    }

    fn change_family(mut self, name: &str, add: bool, attributes: &[(&str, &str)]) -> Self {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.families.push(FamilyChange { name: name.to_owned(), add, attributes });
        self
    }
}
