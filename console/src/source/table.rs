//! Tables: what they declare, and where their regions are.

use serde::{Deserialize, Serialize};
use terrane_types::admin::cluster::RegionLoad;

use super::cluster::Region;

/// A table in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its name, with the namespace if that is not `default`.
    pub name: String,
    /// The names of its families.
    pub families: Vec<String>,
    /// The declared key, as `table create --key` takes it.
    pub key: Option<String>,
    /// How many regions it has.
    pub regions: u64,
    /// How many bytes it holds.
    pub bytes: u64,
    /// Whether it is disabled.
    pub disabled: bool,
    /// Its load.
    pub load: RegionLoad,
}

/// A table on its page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TableDetail {
    /// What the list shows of it.
    pub table: Table,
    /// The parts of the declared key, in order; empty without one.
    pub key_parts: Vec<KeyPart>,
    /// The table's attributes.
    pub attributes: Vec<Attribute>,
    /// Its families.
    pub family_details: Vec<Family>,
    /// The command that creates a table like it.
    pub create_command: Option<String>,
    /// Its regions, in the order of the keys.
    pub regions: Vec<Region>,
}

/// A part of a declared key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyPart {
    /// Its name; empty for the bucket of a salted key.
    pub name: String,
    /// Its type, as `desc i64` or `bucket16`.
    pub kind: String,
}

/// An attribute of a table or a family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value, as `table alter --set` takes it.
    pub value: String,
    /// Whether the value is the default.
    pub default: bool,
}

/// A column family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// Columns with a declared type: the qualifier and the type.
    pub columns: Vec<(String, String)>,
}
