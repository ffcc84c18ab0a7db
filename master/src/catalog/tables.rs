//! The tables: their schemas and states, and the ids of dropped tables.
//!
//! A state other than `Enabled` is a journaled intent: a procedure drives it to completion, and a restarted master
//! resumes it. The id of a dropped table is kept, since a replica that missed the drop may still report its regions.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::{NamespaceName, TableId, TableSchema, states};

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// The state of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableState {
    /// Its regions are being created in their groups.
    Creating,
    /// In use.
    Enabled,
    /// In use; the newest schema is being rolled out to its groups.
    Altering,
    /// Its regions are being removed.
    Dropping,
}

impl TableState {
    /// As it is shown while the schema does not disable the table.
    pub const fn shown(self) -> states::TableState {
        match self {
            Self::Creating => states::TableState::Creating,
            Self::Enabled => states::TableState::Enabled,
            Self::Altering => states::TableState::Altering,
            Self::Dropping => states::TableState::Dropping,
        }
    }

    /// Its name in output.
    pub const fn name(self) -> &'static str {
        self.shown().name()
    }

    /// Whether a table in this state may enter `next`. A drop may follow any state, and nothing takes it back.
    const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Creating => matches!(next, Self::Creating | Self::Enabled | Self::Dropping),
            Self::Enabled | Self::Altering => !matches!(next, Self::Creating),
            Self::Dropping => matches!(next, Self::Dropping),
        }
    }

    const fn byte(self) -> u8 {
        match self {
            Self::Creating => 0,
            Self::Enabled => 1,
            Self::Altering => 2,
            Self::Dropping => 3,
        }
    }

    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Creating,
            1 => Self::Enabled,
            2 => Self::Altering,
            3 => Self::Dropping,
            found => return Err(DecodeError::Tag { what: "table state", found }),
        })
    }
}

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Its newest schema; while it is `Altering`, some groups do not have it yet.
    pub schema: TableSchema,
    /// Its state.
    pub state: TableState,
}

impl TableEntry {
    pub(super) fn enter(&mut self, state: TableState) {
        let (name, before) = (&self.schema.name, self.state.name());
        assert!(self.state.may_become(state), "table {name} went from {before} to {}", state.name());
        self.state = state;
    }

    /// The table gets the next version of its schema and is altered.
    pub(super) fn begin_alter(&mut self, schema: TableSchema) {
        let (name, before) = (&self.schema.name, self.schema.version);
        assert_eq!(schema.version, before + 1, "the schema of table {name} jumped from version {before}");
        assert_eq!(schema.table, self.schema.table, "the schema of table {name} is another table's");
        self.enter(TableState::Altering);
        self.schema = schema;
    }
}

/// All tables, by id and by name. A table that was truncated shares its name with the one that took its place, which has the
/// higher id, until it is dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    by_id: BTreeMap<TableId, TableEntry>,
    by_name: BTreeSet<(String, TableId)>,
    dropped: BTreeSet<TableId>,
}

impl Tables {
    /// The table of this id.
    pub fn get(&self, table: TableId) -> Option<&TableEntry> {
        self.by_id.get(&table)
    }

    /// The newest table of this name.
    pub fn named(&self, name: &str) -> Option<&TableEntry> {
        let of_name = (name.to_owned(), TableId(0))..=(name.to_owned(), TableId(u64::MAX));
        self.by_name.range(of_name).next_back().and_then(|(_, table)| self.by_id.get(table))
    }

    /// Whether a table of a name is there whose id is `last` or an earlier one.
    pub fn has_up_to(&self, name: &str, last: TableId) -> bool {
        self.by_name.range((name.to_owned(), TableId(0))..=(name.to_owned(), last)).next().is_some()
    }

    /// All tables by name.
    pub fn iter(&self) -> impl Iterator<Item = &TableEntry> {
        self.by_name.iter().filter_map(|(_, table)| self.by_id.get(table))
    }

    /// The tables of a namespace by name.
    pub fn in_namespace<'a>(&'a self, namespace: &'a NamespaceName) -> impl Iterator<Item = &'a TableEntry> {
        self.iter().filter(|entry| entry.schema.name.namespace() == namespace.as_str())
    }

    /// The number of tables.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether a table of this id was dropped.
    pub fn was_dropped(&self, table: TableId) -> bool {
        self.dropped.contains(&table)
    }

    pub(super) fn add(&mut self, entry: TableEntry) {
        let table = entry.schema.table;
        assert!(!self.by_id.contains_key(&table) && !self.was_dropped(table), "table id {table} was handed out twice");
        self.put(entry);
    }

    fn put(&mut self, entry: TableEntry) {
        self.by_name.insert((entry.schema.name.to_string(), entry.schema.table));
        self.by_id.insert(entry.schema.table, entry);
    }

    pub(super) fn get_mut(&mut self, table: TableId) -> Option<&mut TableEntry> {
        self.by_id.get_mut(&table)
    }

    pub(super) fn remove(&mut self, table: TableId) {
        if let Some(entry) = self.by_id.remove(&table) {
            self.by_name.remove(&(entry.schema.name.to_string(), table));
        }
        self.dropped.insert(table);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.by_id.values(), |out, entry| {
            out.u8(entry.state.byte());
            encode_schema(&entry.schema, out);
        });
        out.list(self.dropped.iter(), |out, table| out.u64(table.0));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut tables = Self::default();
        let entries = from.list(|from| {
            let state = TableState::from_byte(from.u8()?)?;
            Ok::<_, DecodeError>(TableEntry { schema: decode_schema(from)?, state })
        })?;
        entries.into_iter().for_each(|entry| tables.put(entry));
        tables.dropped = from.list(|from| from.u64().map(TableId))?.into_iter().collect();
        Ok(tables)
    }
}

/// Encodes a schema in the versioned layout that logs and manifests use, too.
pub(super) fn encode_schema(schema: &TableSchema, out: &mut Vec<u8>) {
    out.bytes(&schema.encode());
}

pub(super) fn decode_schema(from: &mut Reader<'_>) -> Result<TableSchema, DecodeError> {
    Ok(TableSchema::decode(from.bytes()?)?)
}
