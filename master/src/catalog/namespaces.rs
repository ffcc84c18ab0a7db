//! The namespaces: groups of tables, created before the first table in them.
//!
//! `default` always exists and is not stored. A table needs an existing namespace, and only a namespace without tables
//! can be dropped. Both are checked when the edit is applied, so that a concurrent create and drop see each other.
//! Catalogs and edits of builds before namespaces imply the namespaces of their tables.

use std::collections::BTreeSet;

use terrane_types::NamespaceName;
use terrane_types::limits::NAMESPACES_MAX;

use super::codec::{DecodeError, Reader, Writer};
use super::outcome::Refusal;
use super::tables::Tables;

/// Number of tables listed in the refusal to drop their namespace.
const TABLES_NAMED_MAX: usize = 3;

/// All namespaces except `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    names: BTreeSet<NamespaceName>,
}

impl Namespaces {
    /// Whether the namespace exists.
    pub fn contains(&self, name: &NamespaceName) -> bool {
        name.is_default() || self.names.contains(name)
    }

    /// All namespaces including `default`, sorted.
    pub fn list(&self) -> Vec<NamespaceName> {
        let mut names: Vec<_> = self.names.iter().cloned().chain([NamespaceName::default()]).collect();
        names.sort_unstable();
        names
    }

    /// The namespaces of the tables of a catalog from before namespaces.
    pub(super) fn implied_by(tables: &Tables) -> Self {
        let mut namespaces = Self::default();
        tables.iter().for_each(|table| namespaces.imply(table.schema.name.namespace_name()));
        namespaces
    }

    /// Adds a namespace implied by one of its tables.
    pub(super) fn imply(&mut self, name: NamespaceName) {
        if !name.is_default() {
            self.names.insert(name);
        }
    }

    pub(super) fn create(&mut self, name: &NamespaceName) -> Result<(), Refusal> {
        if self.contains(name) {
            return Err(Refusal::AlreadyExists(format!("namespace {name}")));
        }
        if self.names.len() >= NAMESPACES_MAX {
            return Err(Refusal::Invalid(format!("there are already {NAMESPACES_MAX} namespaces, which is the limit")));
        }
        self.names.insert(name.clone());
        Ok(())
    }

    pub(super) fn drop(&mut self, name: &NamespaceName, tables: &Tables) -> Result<(), Refusal> {
        if name.is_default() {
            return Err(Refusal::Invalid("the namespace default cannot be dropped".to_owned()));
        }
        if !self.names.contains(name) {
            return Err(Refusal::NotFound(format!("namespace {name}")));
        }
        let inside: Vec<String> = tables.in_namespace(name).map(|table| table.schema.name.to_string()).collect();
        if !inside.is_empty() {
            return Err(Refusal::Invalid(not_empty(name, &inside)));
        }
        self.names.remove(name);
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.list(self.names.iter(), |out, name| out.text(name.as_str()));
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { names: from.list(decode_name)?.into_iter().collect() })
    }
}

pub(super) fn decode_name(from: &mut Reader<'_>) -> Result<NamespaceName, DecodeError> {
    Ok(NamespaceName::new(&from.text()?)?)
}

/// The message for a missing namespace.
pub fn missing(name: &NamespaceName) -> String {
    format!("there is no namespace {name}; create it first, for example with `terrane namespace create {name}`")
}

fn not_empty(name: &NamespaceName, inside: &[String]) -> String {
    let named = inside.iter().take(TABLES_NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    let more = match inside.len().saturating_sub(TABLES_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let tables = if inside.len() == 1 { "a table" } else { "tables" };
    format!("namespace {name} has {tables}: {named}{more}; drop them first")
}
