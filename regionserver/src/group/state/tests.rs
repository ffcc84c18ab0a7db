//! The group's decisions, as dense one-line states.

use std::fmt::Write as _;

use terrane_types::{FamilyName, FamilySchema, KeyRange, TableName};

use super::*;

fn schema(version: u64, families: &[&str]) -> TableSchema {
    let mut schema = TableSchema::new(TableName::new("t").unwrap());
    (schema.table, schema.version) = (TableId(5), version);
    for family in families {
        schema.add_family(FamilySchema::new(FamilyName::new(family).unwrap())).unwrap();
    }
    schema
}

fn descriptor(region: u64, start: &str, end: &str) -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(region),
        table: TableId(5),
        range: KeyRange::new(start.to_owned(), end.to_owned()).unwrap(),
        epoch: RegionEpoch(1),
        group: GroupId(9),
        schema_version: 1,
    }
}

fn create(regions: &[RegionDescriptor]) -> ChangeTables {
    ChangeTables { schema: Some(schema(1, &["f"])), create: regions.to_vec(), drop: None }
}

fn split(region: u64, epoch: u64, at: &'static str, left: u64, right: u64) -> Split {
    let [region, left, right] = [region, left, right].map(RegionId);
    Split { region, epoch: RegionEpoch(epoch), left, right, at: at.into() }
}

/// `r1@2[a,m)s1 r3@2[m,)s1`: region, epoch, range, schema version.
fn shown<'a>(regions: impl IntoIterator<Item = &'a RegionDescriptor>) -> String {
    let mut out = String::new();
    for region in regions {
        let (start, end) = (String::from_utf8_lossy(&region.range.start), String::from_utf8_lossy(&region.range.end));
        let (id, epoch, schema) = (region.region, region.epoch, region.schema_version);
        write!(out, "{}r{id}@{epoch}[{start},{end})s{schema}", if out.is_empty() { "" } else { " " }).unwrap();
    }
    out
}

fn state_of(state: &GroupState) -> String {
    shown(state.regions().map(|region| &region.descriptor))
}

fn refused(result: Result<(RegionState, RegionState), Reply>) -> String {
    match result.unwrap_err() {
        Reply::Stale { region, current } => format!("stale r{region}: {}", shown(&current)),
        other => format!("{other:?}"),
    }
}

fn with_one_region() -> GroupState {
    let mut state = GroupState::new(GroupId(2));
    state.change_tables(&create(&[descriptor(1, "", "")]));
    state
}

fn write_header(region: u64, epoch: u64) -> WriteHeader {
    WriteHeader {
        region: RegionId(region),
        epoch: RegionEpoch(epoch),
        schema_version: 0,
        client: [0; 16],
        lowest_unsettled: 0,
        atomic: false,
        exact_schema: false,
        families_checked: false,
    }
}

#[test]
fn a_split_raises_the_epoch_and_tiles_the_parent() {
    let mut state = with_one_region();
    state.split(&split(1, 1, "m", 2, 3)).unwrap();
    assert_eq!(state_of(&state), "r2@2[,m)s1 r3@2[m,)s1");
}

#[test]
fn a_write_to_the_parent_after_a_split_is_refused_and_names_both_daughters() {
    let mut state = with_one_region();
    state.split(&split(1, 1, "m", 2, 3)).unwrap();
    let Err(Reply::Stale { region, current }) = state.check_write(&write_header(1, 1)) else { panic!("not stale") };
    assert_eq!((region.0, shown(&current)), (1, "r2@2[,m)s1 r3@2[m,)s1".to_owned()));
}

#[test]
fn the_refusal_names_granddaughters_once_the_daughters_are_split() {
    let mut state = with_one_region();
    state.split(&split(1, 1, "m", 2, 3)).unwrap();
    state.split(&split(2, 2, "f", 4, 5)).unwrap();
    assert_eq!(shown(&state.successors(RegionId(1))), "r4@3[,f)s1 r5@3[f,m)s1 r3@2[m,)s1");
}

#[test]
fn a_split_of_an_old_epoch_or_outside_the_range_changes_nothing() {
    let mut state = with_one_region();
    state.split(&split(1, 1, "m", 2, 3)).unwrap();
    assert_eq!(refused(state.split(&split(2, 1, "c", 4, 5))), "stale r2: r2@2[,m)s1");
    assert_eq!(refused(state.split(&split(1, 1, "c", 4, 5))), "stale r1: r2@2[,m)s1 r3@2[m,)s1");
    assert!(refused(state.split(&split(2, 2, "x", 4, 5))).contains("does not lie inside"));
    assert!(refused(state.split(&split(3, 2, "m", 4, 5))).contains("is its first row"));
    assert!(refused(state.split(&split(2, 2, "c", 3, 5))).contains("in use"));
    assert_eq!(state_of(&state), "r2@2[,m)s1 r3@2[m,)s1");
}

#[test]
fn creating_twice_is_creating_once() {
    let mut state = with_one_region();
    let again = state.change_tables(&create(&[descriptor(1, "", "")]));
    assert_eq!(again, TableChanges::default());
    assert_eq!(state_of(&state), "r1@1[,)s1");
}

#[test]
fn a_replayed_creation_of_a_region_that_was_split_since_is_skipped() {
    let mut state = GroupState::new(GroupId(2));
    for (region, start, end) in [(2, "", "m"), (3, "m", "")] {
        let descriptor = descriptor(region, start, end);
        state.restore(RegionState { descriptor, schema: Arc::new(schema(1, &["f"])) });
    }
    assert!(state.change_tables(&create(&[descriptor(1, "", "")])).created.is_empty());
    assert_eq!(refused(state.split(&split(1, 1, "m", 2, 3))), "stale r1: ");
    assert_eq!(state_of(&state), "r2@1[,m)s1 r3@1[m,)s1");
}

#[test]
fn an_alter_raises_each_region_once() {
    let mut state = with_one_region();
    let alter = |version| ChangeTables { schema: Some(schema(version, &["f", "g"])), create: vec![], drop: None };
    let altered = state.change_tables(&alter(2)).altered;
    assert_eq!(altered.iter().map(|(region, before)| (region.0, before.version)).collect::<Vec<_>>(), [(1, 1)]);
    assert_eq!(state_of(&state), "r1@1[,)s2");
    assert!(state.change_tables(&alter(2)).altered.is_empty());
    assert!(state.change_tables(&alter(1)).altered.is_empty());
    assert_eq!(state_of(&state), "r1@1[,)s2");
}

#[test]
fn a_dropped_table_stays_dropped() {
    let mut state = with_one_region();
    let drop = ChangeTables { schema: None, create: vec![], drop: Some(TableId(5)) };
    assert_eq!(state.change_tables(&drop).dropped, [RegionId(1)]);
    assert!(state.change_tables(&create(&[descriptor(4, "", "")])).created.is_empty());
    assert_eq!(state_of(&state), "");
    let restored = GroupState::decode(GroupId(2), state.encode()).unwrap();
    assert_eq!(state_of(&restored), "");
    assert!(restored.table(TableId(5)).is_none());
}

#[test]
fn a_read_only_table_takes_no_write() {
    let mut state = with_one_region();
    assert!(state.check_write(&write_header(1, 1)).is_ok());
    let mut read_only = schema(2, &["f"]);
    read_only.read_only = true;
    state.change_tables(&ChangeTables { schema: Some(read_only), create: vec![], drop: None });
    assert_eq!(state.check_write(&write_header(1, 1)), Err(Reply::ReadOnly { what: "table t".into() }));
}

#[test]
fn a_write_made_for_one_version_of_the_schema_has_no_effect_under_another() {
    let mut state = with_one_region();
    let exact = |schema_version| WriteHeader { schema_version, exact_schema: true, ..write_header(1, 1) };
    assert!(state.check_write(&exact(1)).is_ok());
    state.change_tables(&ChangeTables { schema: Some(schema(2, &["f", "g"])), create: vec![], drop: None });
    assert_eq!(state.check_write(&exact(1)), Err(Reply::SchemaChanged { table: TableId(5), version: 2 }));
    assert!(state.check_write(&exact(2)).is_ok());
    assert!(state.check_write(&write_header(1, 1)).is_ok());
}

#[test]
fn both_parts_come_back_from_their_records() {
    let mut state = with_one_region();
    let (left, right) = state.split(&split(1, 1, "m", 2, 3)).unwrap();
    let mut restored = GroupState::decode(GroupId(2), state.encode()).unwrap();
    for region in [left, right] {
        restored.restore(RegionState::decode(region.encode()).unwrap());
    }
    assert_eq!(state_of(&restored), state_of(&state));
    assert_eq!(shown(&restored.successors(RegionId(1))), "r2@2[,m)s1 r3@2[m,)s1");
    assert_eq!(restored.table(TableId(5)), state.table(TableId(5)));
}

#[test]
fn forwarding_notes_are_bounded() {
    let mut state = GroupState::new(GroupId(2));
    for region in 0..2 * RETIRED_MAX as u64 {
        state.retire(RegionId(region), [RegionId(region + 10_000), RegionId(region + 20_000)]);
    }
    assert_eq!((state.retired.len(), state.retired_order.len()), (RETIRED_MAX, RETIRED_MAX));
}

#[test]
fn a_boundary_inside_an_atomic_prefix_is_refused_at_its_entry() {
    let mut state = with_one_region();
    let keyed = TableSchema { key: Some("user:u32, time:u32".parse().unwrap()), atomic: 1, ..schema(2, &["f"]) };
    // The boundary was chosen before the alter came, the split is applied after it.
    state.change_tables(&ChangeTables { schema: Some(keyed), create: vec![], drop: None });
    let split = |at: &[u8]| Split {
        region: RegionId(1),
        epoch: state.region(RegionId(1)).unwrap().descriptor.epoch,
        left: RegionId(2),
        right: RegionId(3),
        at: Bytes::copy_from_slice(at),
    };
    let refused = state.check_split(&split(&[b'c', 0, 0, 7, 0])).err();
    assert!(matches!(refused, Some(Reply::Invalid { ref what }) if what.contains("would separate")), "{refused:?}");
    assert!(state.check_split(&split(&[b'c', 0, 0, 7])).is_ok());
}
