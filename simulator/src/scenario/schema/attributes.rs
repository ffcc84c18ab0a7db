//! The attributes that are altered, with legal values, and the form in which a description shows them.

use std::collections::BTreeMap;

use terrane_client::types::{FamilySchema, Invalid};
use terrane_client::{TableChange, TableSchema};
use terrane_oracle::settings::Value;

use super::{ALTERED, KEPT};
use crate::scenario::play::below;

type Attribute = (&'static str, &'static [&'static str]);

/// An empty value removes the entry.
const OF_TABLE: [Attribute; 8] = [
    ("region_size", &["16KiB", "24KiB", "32KiB"]),
    ("flush_size", &["4KiB", "8KiB"]),
    ("split_policy", &["size", "none"]),
    ("history", &["none", "1s", "5s"]),
    ("bloom_prefix", &["0", "1"]),
    // Not back to 1: a region that has split within a group meanwhile would forbid it.
    ("atomic", &["0"]),
    ("strict_reads", &["true", "false"]),
    ("meta.owner", &["ada", "grace", ""]),
];
/// Without a limit that would hide the numbers.
const OF_KEPT: [Attribute; 6] = [
    ("versions", &["1", "2", "5"]),
    ("keep_deleted_cells", &["true", "false"]),
    ("compression", &["none", "lz4", "zstd"]),
    ("bloom", &["none", "row", "rowcol"]),
    ("block_size", &["1KiB", "4KiB", "16KiB"]),
    ("in_memory", &["true", "false"]),
];
const OF_ALTERED: [Attribute; 9] = [
    ("versions", &["2", "3"]),
    ("min_versions", &["0", "1", "2"]),
    ("ttl", &["none", "500ms", "1h"]),
    ("keep_deleted_cells", &["true", "false", "ttl"]),
    ("compression", &["none", "lz4", "zstd"]),
    ("bloom", &["none", "row", "rowcol"]),
    ("block_size", &["1KiB", "4KiB", "16KiB"]),
    ("in_memory", &["true", "false"]),
    ("meta.unit", &["cents", ""]),
];

/// A change of a table, and what its description shows afterwards.
pub struct Alter {
    pub change: TableChange,
    pub values: BTreeMap<String, Value>,
}

impl Alter {
    /// Sets some attributes of the table and of its families.
    pub fn some_attributes(schema: &TableSchema) -> Alter {
        let of_table = some(&OF_TABLE);
        let mut alter = Alter::of_table(schema, of_table);
        for (name, attributes) in [(KEPT, &OF_KEPT[..]), (ALTERED, &OF_ALTERED[..])] {
            let family = schema.families.iter().find(|family| family.name.to_string() == name);
            if let Some(family) = family.filter(|_| below(2) == 0) {
                alter.set_of_family(family, some(attributes));
            }
        }
        alter
    }

    /// Sets one attribute of the table.
    pub fn of_table(schema: &TableSchema, (attribute, value): (&str, &str)) -> Alter {
        let mut scratch = schema.clone();
        legal(scratch.set_attribute(attribute, value));
        let shown = scratch.attributes().remove(attribute);
        Alter {
            change: TableChange::new().set(attribute, value),
            values: BTreeMap::from([(attribute.to_owned(), shown)]),
        }
    }

    fn set_of_family(&mut self, family: &FamilySchema, (attribute, value): (&str, &str)) {
        let (mut scratch, name) = (family.clone(), family.name.to_string());
        legal(scratch.set_attribute(attribute, value));
        self.change = std::mem::take(&mut self.change).family(&name, &[(attribute, value)]);
        self.values.insert(setting(&name, attribute), scratch.attributes().remove(attribute));
    }

    /// Drops a family.
    pub fn drop_family(name: &str) -> Alter {
        Alter { change: TableChange::new().drop_family(name), values: BTreeMap::from([(name.to_owned(), None)]) }
    }

    /// Adds a family.
    pub fn add_family(name: &str) -> Alter {
        let versions = ["1", "3"][below(2)];
        Alter {
            change: TableChange::new().add_family(name, &[("versions", versions)]),
            values: BTreeMap::from([(name.to_owned(), Some(String::new()))]),
        }
    }
}

fn some(attributes: &[Attribute]) -> (&'static str, &'static str) {
    let (attribute, values) = attributes[below(attributes.len())];
    (attribute, values[below(values.len())])
}

fn legal(set: Result<(), Invalid>) {
    set.expect("the values above are legal");
}

/// What a description shows: the attributes of the table and of two families, and whether each other family exists.
pub fn settings_of(schema: &TableSchema) -> BTreeMap<String, String> {
    let mut settings = schema.attributes();
    for family in &schema.families {
        let name = family.name.to_string();
        if [KEPT, ALTERED].contains(&name.as_str()) {
            settings.extend(family.attributes().into_iter().map(|(at, value)| (setting(&name, &at), value)));
        } else {
            settings.insert(name, String::new());
        }
    }
    settings
}

fn setting(family: &str, attribute: &str) -> String {
    format!("{family}.{attribute}")
}
