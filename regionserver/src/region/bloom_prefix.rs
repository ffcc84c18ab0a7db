//! The row prefix that a table's `bloom_prefix` declares, in the form the engine needs.

use std::sync::Arc;

use terrane_engine::RowPrefix;
use terrane_types::TableSchema;

/// How the table's rows are cut for bloom filters on prefixes. `None`: the table declares no prefix.
#[must_use]
pub fn row_prefix(schema: &TableSchema) -> Option<RowPrefix> {
    let parts = Some(schema.bloom_prefix).filter(|parts| *parts > 0)?;
    let key = schema.key.clone()?;
    let id = id_of(&key.to_string(), parts);
    Some(RowPrefix { id, length: Arc::new(move |row| key.prefix_len(row, parts)) })
}

/// The id of a way of cutting. It is stored with every filter, so it must never change for the same declaration. FNV-1a over
/// the declaration's text and the number of parts.
fn id_of(declaration: &str, parts: u32) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let bytes = declaration.bytes().chain(parts.to_le_bytes());
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use terrane_types::{KeyDeclaration, TableName};

    use super::*;

    fn schema(key: &str, parts: u32) -> TableSchema {
        let mut schema = TableSchema::new(TableName::new("t").unwrap());
        schema.key = Some(KeyDeclaration::parse(key).unwrap());
        schema.bloom_prefix = parts;
        schema
    }

    #[test]
    fn rows_are_cut_after_the_declared_parts() {
        let prefix = row_prefix(&schema("user:u32, time:u32", 1)).unwrap();
        assert_eq!((prefix.length)(&[0, 0, 0, 7, 0, 0, 0, 9]), Some(4));
        assert_eq!((prefix.length)(&[0, 0]), None);
    }

    #[test]
    fn tables_without_the_attribute_have_none() {
        assert!(row_prefix(&schema("user:u32, time:u32", 0)).is_none());
    }

    #[test]
    fn each_way_of_cutting_has_its_own_stable_id() {
        let id = |key, parts| row_prefix(&schema(key, parts)).unwrap().id;
        assert_eq!(id("user:u32, time:u32", 1), id("user:u32, time:u32", 1));
        assert_ne!(id("user:u32, time:u32", 1), id("user:u32, time:u32", 2));
        assert_ne!(id("user:u32, time:u32", 1), id("user:u64, time:u32", 1));
        // Filters on disk carry this id.
        assert_eq!(id_of("user:u32", 1), 0x9b53_878b_584f_cd8b);
    }
}
