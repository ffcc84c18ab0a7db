//! One region, and single puts into it.

use terrane_engine::BackendKind;
use terrane_types::{CellKind, FamilyRules, KeyRange};

use super::model::ModelCell;
use super::world::World;

pub fn cell(row: &[u8], timestamp: i64, kind: CellKind, value: &str) -> ModelCell {
    ModelCell {
        row: row.to_vec(),
        family: "f".to_owned(),
        qualifier: b"q".to_vec(),
        timestamp,
        kind,
        ttl_ms: None,
        value: value.into(),
        sequence: 0,
        position: 0,
    }
}

pub fn put(world: &mut World, region: u64, row: &[u8], value: &str) {
    let timestamp = i64::try_from(world.stamp).unwrap();
    world.write(region, vec![cell(row, timestamp, CellKind::Put, value)]);
}

pub async fn one_region(backend: BackendKind) -> (World, u64) {
    let mut world = World::new(backend).await;
    let region = world.create(KeyRange::all(), &[("f", FamilyRules { versions: 2, ..FamilyRules::default() })]);
    (world, region)
}
