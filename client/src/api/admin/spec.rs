//! What a table is to look like: the specification of a new one, and changes to an existing one.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::{FamilyName, FamilySchema, KeyDeclaration, RowKey, TableName, TableRow, TableSchema};

use crate::error::Error;

/// The table that [`Admin::create_table`](crate::Admin::create_table) creates.
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
    /// The table's schema; the master assigns its id and version.
    pub schema: TableSchema,
    /// Rows at which the new table is split into regions.
    pub split_at: Vec<Bytes>,
}

impl TableSpec {
    /// A table without families.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the name is malformed.
    pub fn new(name: &str) -> Result<Self, Error> {
        Ok(Self { schema: TableSchema::new(TableName::new(name)?), split_at: Vec::new() })
    }

    /// A table for rows of this type: with the type's key and families, and default attributes.
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
    /// [`Error::Invalid`] when the name, or a family that the type names, is malformed.
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
    /// `block_size`, `in_memory`; `meta.NAME` for free metadata), each in the form of [`FamilySchema::set_attribute`].
    ///
    /// # Errors
    /// [`Error::Invalid`] for a malformed name, a family named twice, or an attribute that is unknown or out of range.
    pub fn family(mut self, name: &str, attributes: &[(&str, &str)]) -> Result<Self, Error> {
        let mut family = FamilySchema::new(FamilyName::new(name)?);
        for (attribute, value) in attributes {
            family.set_attribute(attribute, value)?;
        }
        self.schema.add_family(family)?;
        Ok(self)
    }

    /// Declares the parts of the table's key, such as `user:u64, time:desc i64, action:u32`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the declaration cannot be parsed.
    pub fn key(mut self, parts: &str) -> Result<Self, Error> {
        self.schema.key = Some(KeyDeclaration::parse(parts)?);
        Ok(self)
    }

    /// Declares the key of a key type, for a [`KeyedTable`](crate::KeyedTable).
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

    /// Sets a table attribute by name, such as `region_size` to `16MiB` or `bloom_prefix` to `1`. For all attributes see
    /// [`TableSchema::set_attribute`].
    ///
    /// # Errors
    /// [`Error::Invalid`] when the attribute is unknown or its value is out of range.
    pub fn set(mut self, attribute: &str, value: &str) -> Result<Self, Error> {
        self.schema.set_attribute(attribute, value)?;
        Ok(self)
    }

    /// Sets the size, in bytes, at which a region splits.
    #[must_use]
    pub fn region_size(mut self, bytes: u64) -> Self {
        self.schema.region_size = bytes;
        self
    }

    /// Splits the new table at this row.
    #[must_use]
    pub fn split_at(mut self, row: &[u8]) -> Self {
        self.split_at.push(Bytes::copy_from_slice(row));
        self
    }
}

/// Changes to a table, for [`Admin::alter_table`](crate::Admin::alter_table). They take effect together, in each region at one
/// point of its log. The table keeps serving.
///
/// Cells that a lower limit (`versions`, `ttl`) has hidden stay hidden when the limit is raised again. A key can be declared
/// once and not changed. Dropping a family drops its cells; a family of the same name added later starts empty.
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
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a table attribute, as [`TableSpec::set`] does; `meta.NAME` with an empty value removes the entry.
    #[must_use]
    pub fn set(mut self, attribute: &str, value: &str) -> Self {
        self.set.insert(attribute.to_owned(), value.to_owned());
        self
    }

    /// Sets attributes of an existing family; attributes not named keep their values.
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
