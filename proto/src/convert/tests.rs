//! Conversions of schemas: what goes out comes back, and what a peer leaves out or makes up.

use super::*;

fn schema(compression: Compression, bloom: Bloom) -> TableSchema {
    let mut schema = TableSchema::new("t".parse().unwrap());
    for (name, value) in [("key", "user:text, time:desc i64"), ("atomic", "1"), ("bloom_prefix", "2")] {
        schema.set_attribute(name, value).unwrap();
    }
    let storage = FamilyStorage { compression, bloom, block_size: 4 << 10, in_memory: true };
    schema.add_family(FamilySchema { storage, ..FamilySchema::new("f".parse().unwrap()) }).unwrap();
    schema
}

#[test]
fn schemas_come_back_as_they_went() {
    for compression in Compression::ALL {
        for bloom in Bloom::ALL {
            let schema = schema(compression, bloom);
            assert_eq!(TableSchema::try_from(v1::TableSchema::from(&schema)).unwrap(), schema);
        }
    }
}

#[test]
fn a_peer_that_knows_of_no_storage_gets_the_defaults() {
    let message = v1::FamilySchema { name: "f".into(), versions: 1, ..v1::FamilySchema::default() };
    assert_eq!(FamilySchema::try_from(message).unwrap(), FamilySchema::new("f".parse().unwrap()));
}

#[test]
fn numbers_without_a_meaning_are_refused() {
    let plain = || v1::FamilySchema { name: "f".into(), versions: 1, ..v1::FamilySchema::default() };
    for number in [4, -1, i32::MAX] {
        let refused = FamilySchema::try_from(v1::FamilySchema { compression: number, ..plain() }).unwrap_err();
        assert!(refused.to_string().contains(&format!("compression {number} ")), "{refused}");
        let refused = FamilySchema::try_from(v1::FamilySchema { bloom: number, ..plain() }).unwrap_err();
        assert!(refused.to_string().contains(&format!("bloom {number} ")), "{refused}");
    }
}
