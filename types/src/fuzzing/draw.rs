//! Draws valid values of the shared types.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Dice;
use crate::cell::{LATEST, pack};
use crate::key::KeyPart;
use crate::keycodec::{PartKind, PartType};
use crate::limits::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, TIMESTAMP_MAX, VERSIONS_MAX};
use crate::schema::{Foreign, KeepDeleted};
use crate::{
    Bloom, CellKind, CellRef, Compression, FamilyName, FamilyRules, FamilySchema, FamilyStorage, GroupId,
    KeyDeclaration, KeyRange, RegionDescriptor, RegionEpoch, RegionId, SplitPolicy, TableId, TableName, TableSchema,
    ValueType,
};

/// A family's name.
pub fn family(dice: &mut Dice) -> FamilyName {
    let name = dice.name();
    let name = &name[..name.len().min(100)];
    let free = dice.pick(&["", "", "", " ", "ü', (", "\u{202e}=\""]);
    // Only a name that a table could have begins with a dot.
    let name = if free.is_empty() { name } else { name.trim_start_matches('.') };
    FamilyName::new(&[name, free].concat()).expect("the dice draw valid names")
}

/// A row key of at least one byte.
pub fn row(dice: &mut Dice) -> Vec<u8> {
    let mut row = dice.bytes(200);
    if row.is_empty() {
        row.push(b'r');
    }
    row
}

/// A range; an empty end is unbounded.
pub fn range(dice: &mut Dice) -> KeyRange {
    let (one, other) = (dice.bytes(40), dice.bytes(40));
    let (start, end) = if one <= other { (one, other) } else { (other, one) };
    if start == end { KeyRange::new(start, Bytes::new()) } else { KeyRange::new(start, end) }
        .expect("the start is below the end")
}

fn metadata(dice: &mut Dice) -> BTreeMap<String, String> {
    let entry = |dice: &mut Dice| (dice.name(), format!("v{}", dice.text(20)));
    dice.list(3, entry).into_iter().collect()
}

/// How a family is stored.
pub fn storage(dice: &mut Dice) -> FamilyStorage {
    FamilyStorage {
        compression: dice.pick(&Compression::ALL),
        bloom: dice.pick(&Bloom::ALL),
        block_size: dice.pick(&[BLOCK_SIZE_MIN, 4096, 16 << 10, BLOCK_SIZE_MAX]),
        in_memory: dice.flag(),
    }
}

/// Which cells readers see.
pub fn rules(dice: &mut Dice) -> FamilyRules {
    let versions = dice.pick(&[1, 2, 3, VERSIONS_MAX]);
    FamilyRules {
        versions,
        min_versions: dice.pick(&[0, 1, versions]),
        ttl_ms: dice.pick(&[None, Some(1), Some(86_400_000), Some(i64::MAX.cast_unsigned())]),
        keep_deleted_cells: dice.pick(&[KeepDeleted::No, KeepDeleted::Yes, KeepDeleted::Ttl]),
    }
}

/// The declaration of a key.
pub fn key(dice: &mut Dice) -> KeyDeclaration {
    let mut parts: Vec<KeyPart> = Vec::new();
    if dice.one_in(4) {
        let buckets = dice.pick(&[1, 8, 255, 256]);
        parts.push(KeyPart { name: "bucket".to_owned(), kind: PartKind::asc(PartType::Bucket(buckets)) });
    }
    for at in 0..1 + dice.below(4) {
        let part = dice.pick(&[
            PartType::U32,
            PartType::U64,
            PartType::I32,
            PartType::I64,
            PartType::F64,
            PartType::Time,
            PartType::Bool,
            PartType::Uuid,
            PartType::Text,
            PartType::Bytes,
            PartType::Fixed(1),
            PartType::Fixed(7),
        ]);
        parts.push(KeyPart { name: format!("p{at}"), kind: PartKind { part, desc: dice.flag() } });
    }
    if dice.one_in(3) {
        parts.push(KeyPart { name: "rest".to_owned(), kind: PartKind::asc(PartType::Tail) });
    }
    KeyDeclaration::new(parts).expect("a bucket is first and a tail last")
}

/// Attributes of another protocol, mostly none.
fn foreign(dice: &mut Dice) -> Foreign {
    let few = if dice.one_in(3) { 2 } else { 0 };
    (0..few).map(|_| (dice.name().as_bytes().to_vec().into(), dice.pick(&[&b""[..], b"\xff\0"]).into())).collect()
}

/// A schema that passes its own check.
pub fn schema(dice: &mut Dice) -> TableSchema {
    let name = if dice.flag() { format!("t{}", dice.name()) } else { format!("n{}:t{}", dice.name(), dice.name()) };
    let name = TableName::new(&name.chars().take(120).collect::<String>());
    let mut schema = TableSchema::new(name.unwrap_or_else(|_| "t".parse().expect("a valid name")));
    schema.table = TableId(dice.number());
    schema.version = dice.number();
    for _ in 0..1 + dice.below(3) {
        let types = (0..dice.below(3)).map(|_| (Bytes::from(dice.name().to_string()), dice.pick(&ValueType::ALL)));
        let family = FamilySchema {
            types: types.collect(),
            name: family(dice),
            rules: rules(dice),
            storage: storage(dice),
            metadata: metadata(dice),
            foreign: foreign(dice),
        };
        // A name that is taken is left out.
        schema.add_family(family).ok();
    }
    schema.region_size = dice.pick(&[16 << 10, 256 << 20, u64::MAX]);
    schema.flush_size = dice.pick(&[4 << 10, 64 << 20, u64::MAX]);
    if dice.flag() {
        let key = key(dice);
        let parts = u32::try_from(key.parts().len()).expect("few parts");
        (schema.atomic, schema.bloom_prefix) = (dice.pick(&[0, 1, parts]), dice.pick(&[0, 1, parts]));
        schema.key = Some(key);
    }
    schema.read_only = dice.flag();
    schema.strict_reads = dice.one_in(8);
    schema.disabled = dice.below(4) == 0;
    schema.history_ms = dice.pick(&[0, 1, 3_600_000, i64::MAX.cast_unsigned()]);
    schema.split_policy = dice.pick(&[SplitPolicy::Size, SplitPolicy::None]);
    schema.metadata = metadata(dice);
    schema.foreign = foreign(dice);
    schema.check().expect("the schema is valid");
    schema
}

/// The descriptor of a region.
pub fn descriptor(dice: &mut Dice) -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(dice.number()),
        table: TableId(dice.number()),
        range: range(dice),
        epoch: RegionEpoch(dice.number()),
        group: GroupId(dice.number()),
        schema_version: dice.number(),
    }
}

/// A timestamp of a cell; also the one that a leader fills in.
pub fn timestamp(dice: &mut Dice) -> i64 {
    dice.pick(&[0, 1, 1_700_000_000_000, TIMESTAMP_MAX, LATEST])
}

/// Packed cells of these families.
pub fn cells(dice: &mut Dice, families: &[FamilyName], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..1 + dice.below(most) {
        let family = dice.pick(families);
        let (qualifier, value) = (dice.bytes(60), dice.bytes(300));
        let timestamp = timestamp(dice);
        let kind = dice.pick(&[CellKind::Put, CellKind::Put, CellKind::DeleteColumn, CellKind::DeleteFamily]);
        let cell = match kind {
            CellKind::Put => CellRef::put(family.as_bytes(), &qualifier, timestamp, &value),
            CellKind::DeleteFamily => CellRef::delete(kind, family.as_bytes(), &[], timestamp),
            _ => CellRef::delete(kind, family.as_bytes(), &qualifier, timestamp),
        };
        pack(&mut out, cell);
    }
    out
}
