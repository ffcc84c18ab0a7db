//! The checks of a create or alter before it is journaled. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use terrane_types::limits::{SPLIT_POINTS_BYTES_MAX, SPLIT_POINTS_MAX};
use terrane_types::{
    Error, FamilyName, FamilySchema, Invalid, KeyDeclaration, TableId, TableName, TableSchema, escape, range,
};

/// Prepares the schema of a new table: fills in defaults, sorts families and checks everything.
pub fn new_table(mut schema: TableSchema, split_at: &[Bytes]) -> Result<TableSchema, Error> {
    let defaults = TableSchema::new(schema.name.clone());
    schema.table = TableId::default();
    schema.families.sort_by(|a, b| a.name.cmp(&b.name));
    if schema.region_size == 0 {
        schema.region_size = defaults.region_size;
    }
    if schema.flush_size == 0 {
        schema.flush_size = defaults.flush_size;
    }
    schema.families.iter_mut().for_each(|family| family.rules.versions = family.rules.versions.max(1));
    schema.check()?;
    check_split_points(&schema, split_at)?;
    Ok(schema)
}

fn check_split_points(schema: &TableSchema, split_at: &[Bytes]) -> Result<(), Invalid> {
    if split_at.len() > SPLIT_POINTS_MAX {
        return Err(Invalid::new(format!("{} split points exceed the limit of {SPLIT_POINTS_MAX}", split_at.len())));
    }
    let bytes: usize = split_at.iter().map(Bytes::len).sum();
    if bytes > SPLIT_POINTS_BYTES_MAX {
        return Err(Invalid::new(format!(
            "the split points have {bytes} bytes in total; the limit is {SPLIT_POINTS_BYTES_MAX}: create the table with \
             fewer and split it afterwards"
        )));
    }
    for key in split_at {
        range::check_boundary(key)?;
        check_boundary(schema, key)?;
    }
    match split_at.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) if pair[0] == pair[1] => {
            Err(Invalid::new(format!("the split point {} is given twice", escape(&pair[0]))))
        }
        Some(pair) => Err(Invalid::new(format!(
            "split points must ascend, but {} comes before {}",
            escape(&pair[0]),
            escape(&pair[1])
        ))),
        None => Ok(()),
    }
}

/// Rejects a boundary inside the atomic key prefix of the table.
pub fn check_boundary(schema: &TableSchema, key: &[u8]) -> Result<(), Invalid> {
    let Some(declaration) = schema.key.as_ref().filter(|_| schema.atomic > 0) else { return Ok(()) };
    match declaration.prefix_len(key, schema.atomic) {
        Some(prefix) if prefix < key.len() => Err(Invalid::new(format!(
            "the boundary {} would separate rows that share the first {} parts of the key (atomic={}); use {}",
            escape(key),
            schema.atomic,
            schema.atomic,
            escape(&key[..prefix])
        ))),
        // A boundary that ends inside the prefix separates no two rows with the same prefix.
        Some(_) | None => Ok(()),
    }
}

/// One family in an alter.
#[derive(Clone, Debug)]
pub struct FamilyChange {
    /// Its name.
    pub name: FamilyName,
    /// Whether it is new.
    pub add: bool,
    /// Attributes to set, by name.
    pub attributes: BTreeMap<String, String>,
}

/// The changes of an alter.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    /// Table attributes to set, by name.
    pub set: BTreeMap<String, String>,
    /// Families to add or change.
    pub families: Vec<FamilyChange>,
    /// Families to drop.
    pub drop_families: Vec<FamilyName>,
}

impl TableChange {
    fn is_empty(&self) -> bool {
        self.set.is_empty() && self.families.is_empty() && self.drop_families.is_empty()
    }
}

/// The next version of a schema; `boundaries` are the start keys of the table's regions.
pub fn altered<'a>(
    schema: &TableSchema,
    change: &TableChange,
    boundaries: impl Iterator<Item = &'a Bytes>,
) -> Result<TableSchema, Error> {
    if change.is_empty() {
        return Err(Invalid::new("an alter must change at least one attribute or family").into());
    }
    let mut next = TableSchema { version: schema.version + 1, ..schema.clone() };
    for (name, value) in &change.set {
        next.set_attribute(name, value)?;
    }
    check_key(schema, &next)?;
    for family in &change.families {
        change_family(&mut next, family)?;
    }
    for family in &change.drop_families {
        if change.families.iter().any(|other| other.name == *family) {
            let what = format!(
                "family {family} cannot be dropped and changed in one alter: drop it first, then add it in another alter"
            );
            return Err(Invalid::new(what).into());
        }
        let found = next.families.iter().position(|known| known.name == *family);
        let found = found.ok_or_else(|| no_family(schema.name.clone(), family))?;
        next.families.remove(found);
    }
    next.check()?;
    for boundary in boundaries.filter(|boundary| !boundary.is_empty()) {
        check_boundary(&next, boundary)?;
    }
    Ok(next)
}

/// The next version of a schema that is given as a whole; its version is that of the schema it was made from.
pub fn modified<'a>(
    schema: &TableSchema,
    wanted: &TableSchema,
    boundaries: impl Iterator<Item = &'a Bytes>,
) -> Result<TableSchema, Error> {
    if wanted.version != schema.version {
        return Err(Error::SchemaChanged { table: schema.table, version: schema.version });
    }
    let (table, name) = (schema.table, schema.name.clone());
    let mut next = TableSchema { table, name, version: schema.version + 1, ..wanted.clone() };
    next.families.sort_by(|a, b| a.name.cmp(&b.name));
    check_key(schema, &next)?;
    next.check()?;
    for boundary in boundaries.filter(|boundary| !boundary.is_empty()) {
        check_boundary(&next, boundary)?;
    }
    Ok(next)
}

/// Rejects a change of the key declaration. Clients that opened the table split row keys by the old declaration, and so
/// do region bounds and the filters of store files. Declaring the key of a table that has none is fine, and so is to name a
/// part `time` that was `i64`, or back: the bytes are the same.
fn check_key(schema: &TableSchema, next: &TableSchema) -> Result<(), Invalid> {
    match &schema.key {
        Some(key) if next.key.as_ref().map(KeyDeclaration::as_stored) != Some(key.as_stored()) => {
            Err(Invalid::new(format!(
                "the key of table {} is declared as '{key}' and cannot be changed: create another table with the new key and \
             copy the rows",
                schema.name
            )))
        }
        _ => Ok(()),
    }
}

fn change_family(schema: &mut TableSchema, change: &FamilyChange) -> Result<(), Error> {
    if change.add {
        schema.add_family(FamilySchema::new(change.name.clone()))?;
    }
    let name = schema.name.clone();
    let family = schema.families.iter_mut().find(|family| family.name == change.name);
    let family = family.ok_or_else(|| no_family(name, &change.name))?;
    for (attribute, value) in &change.attributes {
        family.set_attribute(attribute, value)?;
    }
    Ok(())
}

fn no_family(table: TableName, family: &FamilyName) -> Error {
    Error::NotFound { what: format!("family {family} of table {table}") }
}

/// The schema of the meta table, which is read-only and in no group.
pub fn meta() -> TableSchema {
    let mut schema = TableSchema::new(TableName::meta());
    schema.table = TableId::META;
    schema.read_only = true;
    let family = FamilyName::new(crate::meta::FAMILY).expect("the meta table's family name is a constant");
    schema.families.push(FamilySchema::new(family));
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(key: Option<&str>, atomic: u32) -> TableSchema {
        let mut schema = TableSchema::new("t".parse().unwrap());
        schema.add_family(FamilySchema::new("f".parse().unwrap())).unwrap();
        schema.key = key.map(|key| key.parse().unwrap());
        schema.atomic = atomic;
        schema
    }

    fn keys(keys: &[&'static [u8]]) -> Vec<Bytes> {
        keys.iter().map(|key| Bytes::from_static(key)).collect()
    }

    fn refusal(schema: TableSchema, split_at: &[Bytes]) -> String {
        new_table(schema, split_at).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_schema_replaces_only_the_version_it_was_made_from() {
        let current = schema(None, 0);
        let mut wanted = current.clone();
        wanted.read_only = true;
        wanted.add_family(FamilySchema::new("e".parse().unwrap())).unwrap();
        let next = modified(&current, &wanted, [].iter()).unwrap();
        assert_eq!((next.version, next.read_only, next.families.len()), (2, true, 2));
        wanted.version = 7;
        assert!(matches!(modified(&current, &wanted, [].iter()), Err(Error::SchemaChanged { version: 1, .. })));
        let keyed = schema(Some("user:text"), 0);
        assert!(modified(&keyed, &current, [].iter()).is_err(), "the key declaration stays");
    }

    #[test]
    fn split_points_ascend_and_are_rows() {
        assert!(new_table(schema(None, 0), &keys(&[b"a", b"b"])).is_ok());
        assert!(refusal(schema(None, 0), &keys(&[b"b", b"a"])).contains("b comes before a"));
        assert!(refusal(schema(None, 0), &keys(&[b"a", b"a"])).contains("twice"));
        assert!(refusal(schema(None, 0), &keys(&[b""])).contains("1 to 32767"));
    }

    #[test]
    fn split_points_are_encodable_at_their_limits_and_rejected_beyond() {
        use crate::catalog::{CatalogEdit, NewTable};
        let point = |number: usize, bytes: usize| Bytes::from(format!("{number:0>bytes$}"));
        let most = SPLIT_POINTS_BYTES_MAX / 32_767;
        for split_at in [
            (0..most).map(|number| point(number, 32_767)).collect::<Vec<_>>(),
            (0..SPLIT_POINTS_MAX).map(|number| point(number, 8)).collect(),
        ] {
            let checked = new_table(schema(None, 0), &split_at).unwrap();
            let groups = vec![terrane_types::GroupId(1); split_at.len() + 1];
            let new = NewTable { schema: checked, split_at, groups };
            let edit = CatalogEdit::CreateTable(new);
            assert_eq!(CatalogEdit::decode(&edit.encode()).unwrap(), edit);
        }
        assert!(refusal(schema(None, 0), &[point(1, 32_768)]).contains("this one has 32768"));
        assert!(refusal(schema(None, 0), &[point(1, 40_000)]).contains("this one has 40000"));
        let large: Vec<_> = (0..=most).map(|number| point(number, 32_767)).collect();
        assert!(refusal(schema(None, 0), &large).contains("the limit is 8388608"));
        let many: Vec<_> = (0..=SPLIT_POINTS_MAX).map(|number| point(number, 8)).collect();
        assert!(refusal(schema(None, 0), &many).contains("10001 split points exceed"));
    }

    #[test]
    fn split_points_do_not_cut_an_atomic_prefix() {
        let declared = || schema(Some("user:u32, time:desc i64"), 1);
        assert!(new_table(declared(), &keys(&[&[0, 0, 0, 5]])).is_ok());
        assert!(new_table(declared(), &keys(&[&[0, 1]])).is_ok(), "between prefixes");
        let refused = refusal(declared(), &keys(&[&[0, 0, 0, 5, 1]]));
        assert!(refused.contains("atomic=1") && refused.contains(r"\x00\x00\x00\x05"), "{refused}");
    }

    #[test]
    fn what_was_left_out_gets_its_default() {
        let mut wanted = schema(None, 0);
        (wanted.region_size, wanted.flush_size, wanted.families[0].rules.versions) = (0, 0, 0);
        assert_eq!(new_table(wanted, &[]).unwrap(), schema(None, 0));
    }

    #[test]
    fn sizes_names_and_parts_are_checked() {
        let mut small = schema(None, 0);
        small.region_size = 1_000;
        assert!(refusal(small, &[]).contains("16KiB"));
        let mut reserved = schema(None, 0);
        reserved.name = TableName::meta();
        assert!(refusal(reserved, &[]).contains("reserved"));
        assert!(refusal(schema(Some("user:u32"), 2), &[]).contains("atomic=2"));
        let prefixed = TableSchema { bloom_prefix: 2, ..schema(Some("user:u32"), 1) };
        assert!(refusal(prefixed, &[]).contains("bloom_prefix=2"));
        let mut blocks = schema(None, 0);
        blocks.families[0].storage.block_size = 1 << 30;
        assert!(refusal(blocks, &[]).contains("1KiB to 1MiB"));
    }

    #[test]
    fn an_alter_raises_the_version_and_refuses_unknown_names() {
        let set = |name: &str, value: &str| TableChange {
            set: BTreeMap::from([(name.to_owned(), value.to_owned())]),
            ..TableChange::default()
        };
        let next = altered(&schema(None, 0), &set("region_size", "1MiB"), [].iter()).unwrap();
        assert_eq!((next.version, next.region_size), (2, 1 << 20));
        for (name, value) in
            [("compression", "lz4"), ("split_policy", "load"), ("colour", "red"), ("bloom_prefix", "1")]
        {
            let refused = altered(&schema(None, 0), &set(name, value), [].iter()).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn every_table_attribute_is_altered() {
        let set = [
            ("region_size", "1MiB"),
            ("flush_size", "64KiB"),
            ("split_policy", "none"),
            ("history", "1h"),
            ("key", "user:u32, time:desc i64"),
            ("atomic", "1"),
            ("bloom_prefix", "1"),
            ("read_only", "true"),
            ("disabled", "true"),
            ("strict_reads", "true"),
            ("meta.owner", "ann"),
        ];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let change = TableChange { set: BTreeMap::from(set), ..TableChange::default() };
        let next = altered(&schema(None, 0), &change, [].iter()).unwrap();
        let shown = next.attributes();
        for (name, value) in &change.set {
            let value = if name == "history" { "3600000ms" } else { value };
            assert_eq!(shown.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn a_key_is_declared_once() {
        let declare = |key: &str| TableChange {
            set: BTreeMap::from([("key".to_owned(), key.to_owned())]),
            ..TableChange::default()
        };
        let declared = altered(&schema(None, 0), &declare("user:u32"), [].iter()).unwrap();
        assert_eq!(declared.key.as_ref().map(ToString::to_string).as_deref(), Some("user:u32"));
        assert!(altered(&declared, &declare("user:u32"), [].iter()).is_ok(), "the same again says nothing new");
        let refused = altered(&declared, &declare("user:u64"), [].iter()).unwrap_err().to_string();
        assert!(refused.contains("'user:u32'") && refused.contains("copy the rows"), "{refused}");
    }

    #[test]
    fn a_part_of_the_key_may_become_a_time_and_a_number_again() {
        let declare = |key: &str| TableChange {
            set: BTreeMap::from([("key".to_owned(), key.to_owned())]),
            ..TableChange::default()
        };
        let numbers = schema(Some("user:u32, at:desc i64"), 0);
        let dates = altered(&numbers, &declare("user:u32, at:desc time"), [].iter()).unwrap();
        assert_eq!(dates.key.as_ref().map(ToString::to_string).as_deref(), Some("user:u32, at:desc time"));
        assert_eq!(altered(&dates, &declare("user:u32, at:desc i64"), [].iter()).unwrap().key, numbers.key);
        assert!(altered(&dates, &declare("user:u32, at:time"), [].iter()).is_err(), "another order");
        assert!(altered(&dates, &declare("user:u32, time:desc time"), [].iter()).is_err(), "another name");
    }

    #[test]
    fn an_alter_says_something_and_does_not_contradict_itself() {
        assert!(altered(&schema(None, 0), &TableChange::default(), [].iter()).is_err());
        let family = FamilyChange { name: "f".parse().unwrap(), add: true, attributes: BTreeMap::new() };
        let change =
            TableChange { drop_families: vec![family.name.clone()], families: vec![family], ..TableChange::default() };
        let refused = altered(&schema(None, 0), &change, [].iter()).unwrap_err().to_string();
        assert!(refused.contains("f already") || refused.contains("another"), "{refused}");
    }

    #[test]
    fn an_alter_of_storage_leaves_the_rules_alone() {
        let attributes = BTreeMap::from([("block_size".to_owned(), "4KiB".to_owned())]);
        let change = FamilyChange { name: "f".parse().unwrap(), add: false, attributes };
        let set = BTreeMap::from([("bloom_prefix".to_owned(), "1".to_owned())]);
        let change = TableChange { families: vec![change], set, ..TableChange::default() };
        let declared = schema(Some("user:u32, time:desc i64"), 0);
        let next = altered(&declared, &change, [].iter()).unwrap();
        assert_eq!((next.version, next.bloom_prefix, next.families[0].storage.block_size), (2, 1, 4 << 10));
        assert_eq!(next.families[0].rules, declared.families[0].rules);
    }

    #[test]
    fn families_are_added_changed_and_dropped() {
        let family = |name: &str, add, versions: &str| FamilyChange {
            name: name.parse().unwrap(),
            add,
            attributes: BTreeMap::from([("versions".to_owned(), versions.to_owned())]),
        };
        let change = TableChange {
            families: vec![family("g", true, "3"), family("f", false, "2")],
            drop_families: vec![],
            ..TableChange::default()
        };
        let next = altered(&schema(None, 0), &change, [].iter()).unwrap();
        assert_eq!(next.families.iter().map(|f| f.rules.versions).collect::<Vec<_>>(), [2, 3]);
        let drop = TableChange { drop_families: vec!["f".parse().unwrap()], ..TableChange::default() };
        assert!(altered(&schema(None, 0), &drop, [].iter()).is_err(), "the last family stays");
        let missing = TableChange { families: vec![family("x", false, "1")], ..TableChange::default() };
        assert!(matches!(altered(&schema(None, 0), &missing, [].iter()), Err(Error::NotFound { .. })));
    }

    #[test]
    fn an_alter_cannot_declare_atomic_what_is_split_already() {
        let change =
            TableChange { set: BTreeMap::from([("atomic".to_owned(), "1".to_owned())]), ..TableChange::default() };
        let declared = schema(Some("user:u32, time:desc i64"), 0);
        assert!(altered(&declared, &change, keys(&[b"", &[0, 0, 0, 5, 1]]).iter()).is_err());
        assert!(altered(&declared, &change, keys(&[b"", &[0, 0, 0, 5]]).iter()).is_ok());
    }
}
