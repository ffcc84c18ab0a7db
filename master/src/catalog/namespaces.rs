//! The namespaces: names that tables are grouped under, each made before the first table in it.
//!
//! `default` is always there and is not kept. A table can only be in a namespace that is there, and a namespace is only
//! dropped without tables; both are decided when the edit is applied, so a create and a drop under way at once cannot miss
//! each other. Catalogs and edits of builds before there were namespaces imply those that their tables are in.

use std::collections::BTreeSet;

use terrane_types::NamespaceName;
use terrane_types::limits::NAMESPACES_MAX;

use super::codec::{DecodeError, Reader, Writer};
use super::outcome::Refusal;
use super::tables::Tables;

/// How many tables are named to somebody who wants to drop the namespace they are in.
const TABLES_NAMED_MAX: usize = 3;

/// All namespaces but `default`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    names: BTreeSet<NamespaceName>,
}

impl Namespaces {
    /// Whether tables can be in it.
    pub fn contains(&self, name: &NamespaceName) -> bool {
        name.is_default() || self.names.contains(name)
    }

    /// All of them, sorted, `default` among them.
    pub fn list(&self) -> Vec<NamespaceName> {
        let mut names: Vec<_> = self.names.iter().cloned().chain([NamespaceName::default()]).collect();
        names.sort_unstable();
        names
    }

    /// Those that tables of builds before there were namespaces are in.
    pub(super) fn implied_by(tables: &Tables) -> Self {
        let mut namespaces = Self::default();
        tables.iter().for_each(|table| namespaces.imply(table.schema.name.namespace_name()));
        namespaces
    }

    /// Puts a namespace that was there before namespaces were written down.
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
            return Err(Refusal::Invalid(format!("there are {NAMESPACES_MAX} namespaces, which is the limit")));
        }
        self.names.insert(name.clone());
        Ok(())
    }

    pub(super) fn drop(&mut self, name: &NamespaceName, tables: &Tables) -> Result<(), Refusal> {
        if name.is_default() {
            return Err(Refusal::Invalid("the namespace default is always there and cannot be dropped".to_owned()));
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

/// What whoever names a namespace hears that is not there.
pub fn missing(name: &NamespaceName) -> String {
    format!("there is no namespace {name}: make it first, as with `terrane namespace create {name}`")
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
