//! The effect of single cells on what is known. Random mixes are in `evaluate/tests.rs`.

use terrane_types::cell::pack;
use terrane_types::{FamilySchema, TableName};

use super::*;

const REGION: RegionId = RegionId(1);

fn schema(ttl_ms: Option<u64>, min_versions: u32) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    let mut family = FamilySchema::new("f".parse().unwrap());
    family.rules = FamilyRules { versions: 3, min_versions, ttl_ms, ..FamilyRules::default() };
    schema.add_family(family).unwrap();
    schema
}

fn column() -> Column {
    Column::new(b"f", b"q")
}

fn version(timestamp: i64, value: &'static str) -> Version {
    Version { timestamp, value: value.into(), ttl_ms: None }
}

/// An overlay that knows one column as it was read.
fn knowing(newest: Newest) -> Overlay {
    let mut overlay = Overlay::default();
    overlay.wake();
    overlay.set(REGION, b"row", column(), Known { newest, protected: false });
    overlay
}

fn put(timestamp: i64, value: &str) -> Vec<u8> {
    packed(CellRef::put(b"f", b"q", timestamp, value.as_bytes()))
}

fn packed(cell: CellRef<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    pack(&mut out, cell);
    out
}

/// What is known after a write over version 10.
fn after_ten(cells: &[u8]) -> Look {
    let mut overlay = knowing(Some(version(10, "ten")));
    overlay.note(1, REGION, b"row", cells, &schema(None, 0));
    overlay.look(REGION, b"row", &column(), &schema(None, 0), 1_000)
}

#[test]
fn a_put_at_or_above_the_newest_wins_and_one_below_changes_nothing() {
    assert_eq!(after_ten(&put(11, "new")), Look::Known(Some(version(11, "new"))));
    assert_eq!(after_ten(&put(10, "new")), Look::Known(Some(version(10, "new"))));
    assert_eq!(after_ten(&put(9, "new")), Look::Known(Some(version(10, "ten"))));
}

#[test]
fn a_delete_up_to_the_newest_leaves_nothing_and_one_below_changes_nothing() {
    for kind in [CellKind::DeleteColumn, CellKind::DeleteFamily] {
        let qualifier = if kind.is_family_tombstone() { &b""[..] } else { b"q" };
        let delete = |timestamp| packed(CellRef::delete(kind, b"f", qualifier, timestamp));
        assert_eq!(after_ten(&delete(10)), Look::Known(None));
        assert_eq!(after_ten(&delete(9)), Look::Known(Some(version(10, "ten"))));
    }
}

#[test]
fn a_delete_of_the_newest_version_alone_leaves_open_what_is_below() {
    for kind in [CellKind::Delete, CellKind::DeleteFamilyVersion] {
        let qualifier = if kind.is_family_tombstone() { &b""[..] } else { b"q" };
        let delete = |timestamp| packed(CellRef::delete(kind, b"f", qualifier, timestamp));
        assert_eq!(after_ten(&delete(10)), Look::InFlight);
        assert_eq!(after_ten(&delete(9)), Look::Known(Some(version(10, "ten"))));
    }
}

#[test]
fn an_expired_version_is_absent_unless_it_may_be_protected() {
    let mut overlay = knowing(Some(version(10, "ten")));
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema(Some(5), 0), 15), Look::Known(Some(version(10, "ten"))));
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema(Some(5), 0), 16), Look::Known(None));
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema(Some(5), 1), 16), Look::Unknown);
}

#[test]
fn a_version_that_was_seen_although_expired_stays_until_the_column_is_written() {
    let schema = schema(Some(5), 1);
    let mut overlay = Overlay::default();
    overlay.wake();
    overlay.insert(REGION, b"row", &[column()], &put(10, "ten"), &schema, 16);
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema, 20), Look::Known(Some(version(10, "ten"))));
    overlay.note(1, REGION, b"row", &put(9, "nine"), &schema);
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema, 20), Look::InFlight);
}

#[test]
fn an_unused_column_waits_only_for_writes_in_flight_to_it() {
    let schema = schema(None, 0);
    let mut overlay = Overlay::default();
    overlay.wake();
    overlay.note(1, REGION, b"row", &put(1, "v"), &schema);
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema, 9), Look::InFlight);
    assert_eq!(overlay.look(REGION, b"row", &Column::new(b"f", b"other"), &schema, 9), Look::Unknown);
    assert_eq!(overlay.look(RegionId(2), b"row", &column(), &schema, 9), Look::Unknown);
    assert!(overlay.is_row_in_flight(REGION, b"row") && !overlay.is_row_in_flight(REGION, b"other"));
    overlay.land(1);
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema, 9), Look::Unknown);
}

#[test]
fn a_family_deleted_in_flight_is_waited_for_in_all_of_its_columns() {
    let schema = schema(None, 0);
    let mut overlay = Overlay::default();
    overlay.wake();
    overlay.note(1, REGION, b"row", &packed(CellRef::delete(CellKind::DeleteFamily, b"f", b"", 9)), &schema);
    assert_eq!(overlay.look(REGION, b"row", &column(), &schema, 9), Look::InFlight);
    assert_eq!(overlay.look(REGION, b"row", &Column::new(b"g", b"q"), &schema, 9), Look::Unknown);
}

#[test]
fn the_least_recently_used_columns_are_dropped() {
    let schema = schema(None, 0);
    let mut overlay = Overlay::default();
    overlay.wake();
    let hot = Column::new(b"f", b"hot");
    overlay.set(REGION, b"row", hot.clone(), Known { newest: None, protected: false });
    for n in 0..3 * COLUMNS_MAX {
        overlay.evaluated(1);
        let known = Known { newest: Some(version(1, "v")), protected: false };
        overlay.set(REGION, &n.to_be_bytes(), column(), known);
        assert_eq!(overlay.look(REGION, b"row", &hot, &schema, 9), Look::Known(None), "looked at all the time");
        assert!(overlay.young_columns <= COLUMNS_MAX / 2 + 1);
    }
    assert_eq!(overlay.look(REGION, &0usize.to_be_bytes(), &column(), &schema, 9), Look::Unknown);
    let all: usize = overlay.young.values().chain(overlay.old.values()).map(BTreeMap::len).sum();
    assert!(all <= COLUMNS_MAX + 2, "{all}");
}

#[test]
fn it_becomes_inactive_when_nothing_was_evaluated_for_a_while() {
    let mut overlay = knowing(None);
    overlay.evaluated(1_000);
    overlay.rest(1_000 + REST_AFTER_MS);
    assert!(overlay.is_active());
    overlay.rest(1_001 + REST_AFTER_MS);
    assert!(!overlay.is_active() && overlay.young.is_empty());
}
