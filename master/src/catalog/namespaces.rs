//! The namespaces: groups of tables, created before the first table in them.
//!
//! `default` always exists and is not stored. A table needs an existing namespace, and only a namespace without tables
//! can be dropped. Both are checked when the edit is applied, so that a concurrent create and drop see each other.
//! Properties are texts that HBase's clients give a namespace; they mean nothing here and are kept as they are.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::NamespaceName;
use terrane_types::limits::{ALL_PROPERTIES_BYTES_MAX, NAMESPACE_PROPERTIES_BYTES_MAX, NAMESPACES_MAX};

use super::codec::{ByteWriter as _, DecodeError, Reader};
use super::outcome::Refusal;
use super::tables::Tables;

/// Number of tables listed in the refusal to drop their namespace.
const TABLES_NAMED_MAX: usize = 3;

/// The properties of a namespace by name.
pub type Properties = BTreeMap<String, String>;

/// All namespaces except `default`, and the properties of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespaces {
    names: BTreeSet<NamespaceName>,
    /// Of the namespaces that have any.
    properties: BTreeMap<NamespaceName, Properties>,
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

    /// The namespaces of the tables of a rebuilt catalog.
    pub(super) fn implied_by(tables: &Tables) -> Self {
        let names = tables.iter().map(|table| table.schema.name.namespace_name());
        Self { names: names.filter(|name| !name.is_default()).collect(), properties: BTreeMap::new() }
    }

    /// The properties of those namespaces that have any.
    pub const fn properties(&self) -> &BTreeMap<NamespaceName, Properties> {
        &self.properties
    }

    pub(super) fn create(&mut self, name: &NamespaceName, properties: &Properties) -> Result<(), Refusal> {
        if self.contains(name) {
            return Err(Refusal::AlreadyExists(format!("namespace {name}")));
        }
        if self.names.len() >= NAMESPACES_MAX {
            return Err(Refusal::Invalid(format!("there are already {NAMESPACES_MAX} namespaces, which is the limit")));
        }
        self.check_room(name, properties)?;
        self.names.insert(name.clone());
        self.keep(name, properties);
        Ok(())
    }

    /// Replaces the properties of a namespace.
    pub(super) fn set_properties(&mut self, name: &NamespaceName, properties: &Properties) -> Result<(), Refusal> {
        if !self.contains(name) {
            return Err(Refusal::NotFound(format!("namespace {name}")));
        }
        self.check_room(name, properties)?;
        self.keep(name, properties);
        Ok(())
    }

    fn keep(&mut self, name: &NamespaceName, properties: &Properties) {
        if properties.is_empty() {
            self.properties.remove(name);
        } else {
            self.properties.insert(name.clone(), properties.clone());
        }
    }

    fn check_room(&self, name: &NamespaceName, properties: &Properties) -> Result<(), Refusal> {
        let bytes = bytes_of(properties);
        if bytes > NAMESPACE_PROPERTIES_BYTES_MAX {
            return Err(Refusal::Invalid(format!(
                "the properties of namespace {name} have {bytes} bytes; the limit is {NAMESPACE_PROPERTIES_BYTES_MAX}"
            )));
        }
        let others = self.properties.iter().filter(|(other, _)| *other != name).map(|(_, kept)| bytes_of(kept));
        if bytes > 0 && others.sum::<usize>() + bytes > ALL_PROPERTIES_BYTES_MAX {
            return Err(Refusal::Invalid(format!(
                "the properties of all namespaces would have more than {ALL_PROPERTIES_BYTES_MAX} bytes, which is the limit"
            )));
        }
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
        self.properties.remove(name);
        Ok(())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.names.iter(), |out, name| out.text(name.as_str()));
        out.list(self.properties.iter(), |out, (name, properties)| {
            out.text(name.as_str());
            encode_properties(properties, out);
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let names = from.list(decode_name)?.into_iter().collect();
        let mut namespaces = Self { names, properties: BTreeMap::new() };
        for (name, properties) in
            from.list(|from| Ok::<_, DecodeError>((decode_name(from)?, decode_properties(from)?)))?
        {
            if !namespaces.contains(&name) {
                return Err(DecodeError::Rule(format!("namespace {name} has properties and does not exist")));
            }
            namespaces.keep(&name, &properties);
        }
        Ok(namespaces)
    }
}

fn bytes_of(properties: &Properties) -> usize {
    properties.iter().map(|(name, value)| name.len() + value.len()).sum()
}

pub(super) fn encode_properties(properties: &Properties, out: &mut Vec<u8>) {
    out.list(properties.iter(), |out, (name, value)| {
        out.text(name);
        out.text(value);
    });
}

pub(super) fn decode_properties(from: &mut Reader<'_>) -> Result<Properties, DecodeError> {
    Ok(from.list(|from| Ok::<_, DecodeError>((from.text()?, from.text()?)))?.into_iter().collect())
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
