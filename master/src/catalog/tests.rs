//! Edits of the catalog: their effects and refusals. [`any_edits`] draws them at random.

mod any_edits;

use bytes::Bytes;
use terrane_types::limits::{ALL_PROPERTIES_BYTES_MAX, NAMESPACE_PROPERTIES_BYTES_MAX};
use terrane_types::{
    ClusterId, FamilySchema, GroupId, KeyRange, NamespaceName, RegionDescriptor, RegionEpoch, RegionId, ServerId,
    TableId, TableSchema,
};

use super::checkpoint::Checkpoint;
use super::groups::GroupPlan;
use super::namespaces::Properties;
use super::page_keys::{ROTATE_AFTER_MS, Secret};
use super::requests::RequestId;
use super::servers::Registration;
use super::tables::TableState;
use super::{Bootstrap, Catalog, CatalogEdit, NewTable, Outcome, Refusal};

/// A region of table 1 in group 1.
pub(crate) fn descriptor(region: u64, start: &str, end: &str, epoch: u64) -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(region),
        table: TableId(1),
        range: KeyRange::new(start.to_owned(), end.to_owned()).unwrap(),
        epoch: RegionEpoch(epoch),
        group: GroupId(1),
        schema_version: 1,
    }
}

pub(super) fn registration(address: &str) -> Registration {
    Registration { address: address.into(), console: String::new(), engine: "memory".into(), zone: String::new() }
}

pub(super) fn schema(name: &str) -> TableSchema {
    let mut schema = TableSchema::new(name.parse().unwrap());
    schema.add_family(FamilySchema::new("f".parse().unwrap())).unwrap();
    schema
}

fn namespace(name: &str) -> NamespaceName {
    name.parse().unwrap()
}

fn bootstrap() -> Bootstrap {
    Bootstrap { cluster: ClusterId([7; 16]), peers: vec!["a:1".into()], replication: 1 }
}

fn create(name: &str, split_at: &[&'static str]) -> CatalogEdit {
    let split_at: Vec<Bytes> = split_at.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
    let groups = vec![GroupId(1); split_at.len() + 1];
    CatalogEdit::CreateTable(NewTable { schema: schema(name), split_at, groups })
}

fn applied(catalog: &mut Catalog, edit: CatalogEdit) -> Outcome {
    let outcome = catalog.apply(&edit, 1_000);
    assert!(!matches!(outcome, Outcome::Refused(_)), "{edit:?}: {outcome:?}");
    outcome
}

fn refused(catalog: &mut Catalog, edit: CatalogEdit) -> Refusal {
    let before = catalog.clone();
    let Outcome::Refused(refusal) = catalog.apply(&edit, 1_000) else { panic!("{edit:?} was not refused") };
    assert_eq!(*catalog, before, "a refused edit changes nothing");
    refusal
}

/// One server, one group, no table.
fn small() -> Catalog {
    let mut catalog = Catalog::default();
    applied(&mut catalog, CatalogEdit::Bootstrap(bootstrap()));
    applied(&mut catalog, CatalogEdit::AddServer(registration("a:1")));
    let groups = vec![GroupPlan { leader: ServerId(1), servers: vec![ServerId(1)] }];
    applied(&mut catalog, CatalogEdit::AddGroups { expected: GroupId(1), groups });
    catalog
}

/// The map of table 1 as one line: `region@epoch[start,end)`.
fn map(catalog: &Catalog) -> String {
    let regions = catalog.regions().of_table(TableId(1)).map(|entry| &entry.descriptor);
    regions.map(|region| format!("r{}@{}{}", region.region, region.epoch, region.range)).collect::<Vec<_>>().join(" ")
}

fn report(catalog: &mut Catalog, regions: &[RegionDescriptor]) {
    applied(catalog, CatalogEdit::IndexRegions { regions: regions.to_vec() });
}

#[test]
fn a_cluster_is_bootstrapped_once() {
    let mut catalog = Catalog::default();
    applied(&mut catalog, CatalogEdit::Bootstrap(bootstrap()));
    applied(&mut catalog, CatalogEdit::Bootstrap(bootstrap()));
    let other = Bootstrap { peers: vec!["b:1".into()], ..bootstrap() };
    assert!(matches!(refused(&mut catalog, CatalogEdit::Bootstrap(other)), Refusal::AlreadyExists(_)));
}

#[test]
fn an_id_is_never_assigned_twice_even_if_its_server_is_removed() {
    let mut catalog = Catalog::default();
    applied(&mut catalog, CatalogEdit::Bootstrap(bootstrap()));
    let add = |catalog: &mut Catalog, address: &str| applied(catalog, CatalogEdit::AddServer(registration(address)));
    assert_eq!(add(&mut catalog, "a:1"), Outcome::Server(ServerId(1)));
    applied(&mut catalog, CatalogEdit::RemoveServer { server: ServerId(1) });
    assert_eq!(add(&mut catalog, "a:1"), Outcome::Server(ServerId(2)));
    assert_eq!(catalog.servers().iter().map(|(server, _)| server.0).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_server_with_replicas_is_not_replaced_by_a_fresh_one() {
    let mut catalog = small();
    applied(&mut catalog, CatalogEdit::AddServer(registration("a:1")));
    assert_eq!(catalog.servers().iter().len(), 2);
}

#[test]
fn region_ids_of_blocks_and_tables_are_distinct() {
    let mut catalog = small();
    assert_eq!(applied(&mut catalog, CatalogEdit::TakeRegionIds { count: 100 }), Outcome::RegionIds(RegionId(1)));
    applied(&mut catalog, create("t", &["m"]));
    assert_eq!(map(&catalog), "r101@1[,m) r102@1[m,)");
    assert_eq!(applied(&mut catalog, CatalogEdit::TakeRegionIds { count: 1 }), Outcome::RegionIds(RegionId(103)));
}

#[test]
fn a_plan_of_groups_from_an_older_catalog_is_refused() {
    let mut catalog = small();
    let groups = vec![GroupPlan { leader: ServerId(1), servers: vec![ServerId(1)] }];
    let late = CatalogEdit::AddGroups { expected: GroupId(1), groups };
    assert!(matches!(refused(&mut catalog, late), Refusal::Changed(_)));
}

#[test]
fn a_group_has_its_replicas_on_distinct_known_servers() {
    let mut catalog = small();
    let plan = |leader: u64, servers: &[u64]| CatalogEdit::AddGroups {
        expected: GroupId(2),
        groups: vec![GroupPlan {
            leader: ServerId(leader),
            servers: servers.iter().map(|server| ServerId(*server)).collect(),
        }],
    };
    assert!(matches!(refused(&mut catalog, plan(1, &[1, 1])), Refusal::Invalid(_)));
    assert!(matches!(refused(&mut catalog, plan(1, &[])), Refusal::Invalid(_)));
    assert!(matches!(refused(&mut catalog, plan(9, &[9])), Refusal::NotFound(_)));
}

#[test]
fn a_table_goes_from_creating_to_enabled_to_dropped_and_its_id_stays_used() {
    let mut catalog = small();
    assert_eq!(applied(&mut catalog, create("t", &[])), Outcome::Table(TableId(1)));
    assert_eq!(catalog.tables().named("t").unwrap().state, TableState::Creating);
    assert!(matches!(refused(&mut catalog, create("t", &[])), Refusal::AlreadyExists(_)));
    applied(&mut catalog, CatalogEdit::EnableTable { table: TableId(1) });
    assert!(matches!(refused(&mut catalog, CatalogEdit::RemoveTable { table: TableId(1) }), Refusal::Changed(_)));
    applied(&mut catalog, CatalogEdit::DropTable { table: TableId(1) });
    applied(&mut catalog, CatalogEdit::RemoveTable { table: TableId(1) });
    assert!(catalog.tables().was_dropped(TableId(1)) && catalog.tables().len() + catalog.regions().len() == 0);
    assert_eq!(applied(&mut catalog, create("t", &[])), Outcome::Table(TableId(2)));
}

/// A drop ends then: otherwise the truncated table, which is still there, would be shown by the name.
#[test]
fn a_name_is_free_when_the_tables_that_were_truncated_under_it_are_gone_too() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &[]));
    applied(&mut catalog, CatalogEdit::EnableTable { table: TableId(1) });
    let groups = vec![GroupId(1)];
    applied(&mut catalog, CatalogEdit::TruncateTable { table: TableId(1), split_at: Vec::new(), groups });
    applied(&mut catalog, CatalogEdit::EnableTable { table: TableId(2) });
    applied(&mut catalog, CatalogEdit::DropTable { table: TableId(2) });
    applied(&mut catalog, CatalogEdit::RemoveTable { table: TableId(2) });
    assert!(catalog.tables().has_up_to("t", TableId(2)));
    applied(&mut catalog, CatalogEdit::RemoveTable { table: TableId(1) });
    assert!(!catalog.tables().has_up_to("t", TableId(2)));
    // One that was created since does not count.
    applied(&mut catalog, create("t", &[]));
    assert!(!catalog.tables().has_up_to("t", TableId(2)) && catalog.tables().has_up_to("t", TableId(3)));
}

#[test]
fn an_alter_is_one_step_from_the_present_version() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &["m"]));
    applied(&mut catalog, CatalogEdit::EnableTable { table: TableId(1) });
    let altered = |version| TableSchema { table: TableId(1), version, region_size: 1 << 20, ..schema("t") };
    assert!(matches!(refused(&mut catalog, CatalogEdit::AlterTable { schema: altered(3) }), Refusal::Changed(_)));
    applied(&mut catalog, CatalogEdit::AlterTable { schema: altered(2) });
    assert!(matches!(refused(&mut catalog, CatalogEdit::AlterTable { schema: altered(3) }), Refusal::Changed(_)));
    let finish = |version| CatalogEdit::FinishAlter { table: TableId(1), version };
    assert!(matches!(refused(&mut catalog, finish(1)), Refusal::Changed(_)));
    applied(&mut catalog, finish(2));
    assert!(catalog.regions().of_table(TableId(1)).all(|region| region.descriptor.schema_version == 2));
}

fn names(catalog: &Catalog) -> Vec<String> {
    catalog.namespaces().list().iter().map(ToString::to_string).collect()
}

#[test]
fn a_namespace_exists_before_and_as_long_as_its_tables() {
    let mut catalog = small();
    assert_eq!(names(&catalog), ["default"]);
    let Refusal::Invalid(message) = refused(&mut catalog, create("ns:t", &[])) else { panic!() };
    assert!(message.contains("no namespace ns") && message.contains("terrane namespace create ns"), "{message}");
    let make = || CatalogEdit::CreateNamespace { name: namespace("ns"), properties: Properties::new() };
    applied(&mut catalog, make());
    assert!(matches!(refused(&mut catalog, make()), Refusal::AlreadyExists(_)));
    assert_eq!(names(&catalog), ["default", "ns"]);
    for name in ["ns:a", "ns:b", "ns:c", "ns:d", "other"] {
        applied(&mut catalog, create(name, &[]));
    }
    let away = || CatalogEdit::DropNamespace { name: namespace("ns") };
    let Refusal::Invalid(message) = refused(&mut catalog, away()) else { panic!() };
    assert_eq!(message, "namespace ns has tables: ns:a, ns:b, ns:c and 1 more; drop them first");
    for table in 1..=4 {
        applied(&mut catalog, CatalogEdit::DropTable { table: TableId(table) });
        assert!(matches!(refused(&mut catalog, away()), Refusal::Invalid(_)), "a table that is being dropped exists");
        applied(&mut catalog, CatalogEdit::RemoveTable { table: TableId(table) });
    }
    applied(&mut catalog, away());
    assert!(matches!(refused(&mut catalog, away()), Refusal::NotFound(_)));
    assert_eq!(names(&catalog), ["default"]);
}

#[test]
fn properties_are_kept_within_their_limits() {
    let mut catalog = small();
    let set = |name: &str, bytes: usize| {
        let properties = [("p".to_owned(), "v".repeat(bytes - 1))].into();
        CatalogEdit::SetProperties { name: namespace(name), properties }
    };
    assert!(matches!(refused(&mut catalog, set("ns", 2)), Refusal::NotFound(_)));
    let make = |properties| CatalogEdit::CreateNamespace { name: namespace("ns"), properties };
    applied(&mut catalog, make(Properties::new()));
    applied(&mut catalog, set("ns", NAMESPACE_PROPERTIES_BYTES_MAX));
    let Refusal::Invalid(why) = refused(&mut catalog, set("ns", NAMESPACE_PROPERTIES_BYTES_MAX + 1)) else { panic!() };
    assert!(why.contains("65537 bytes; the limit is 65536"), "{why}");
    let most = ALL_PROPERTIES_BYTES_MAX / NAMESPACE_PROPERTIES_BYTES_MAX;
    for number in 1..most {
        let name = namespace(&format!("n{number}"));
        applied(&mut catalog, CatalogEdit::CreateNamespace { name, properties: Properties::new() });
        applied(&mut catalog, set(&format!("n{number}"), NAMESPACE_PROPERTIES_BYTES_MAX));
    }
    let Refusal::Invalid(why) = refused(&mut catalog, set("default", 1)) else { panic!() };
    assert!(why.contains("all namespaces"), "{why}");
    // The room of the namespace itself counts once.
    applied(&mut catalog, set("ns", NAMESPACE_PROPERTIES_BYTES_MAX - 1));
    applied(&mut catalog, set("default", 1));
}

#[test]
fn the_default_namespace_cannot_be_created_or_dropped() {
    let mut catalog = small();
    let name = NamespaceName::default();
    let make = CatalogEdit::CreateNamespace { name: name.clone(), properties: Properties::new() };
    assert!(matches!(refused(&mut catalog, make), Refusal::AlreadyExists(_)));
    assert!(matches!(refused(&mut catalog, CatalogEdit::DropNamespace { name }), Refusal::Invalid(_)));
}

fn requested(id: u8, edit: CatalogEdit) -> CatalogEdit {
    CatalogEdit::Requested { id: RequestId([id; 16]), edit: Box::new(edit) }
}

#[test]
fn a_repeated_request_gets_the_first_outcome_and_changes_nothing() {
    let mut catalog = small();
    let first = applied(&mut catalog, requested(1, create("t", &["m"])));
    let before = catalog.clone();
    assert_eq!(applied(&mut catalog, requested(1, create("t", &["m"]))), first);
    assert_eq!(catalog, before);
    assert!(matches!(refused(&mut catalog, requested(2, create("t", &[]))), Refusal::AlreadyExists(_)));

    let Outcome::Table(table) = first else { panic!("{first:?}") };
    applied(&mut catalog, requested(3, CatalogEdit::DropTable { table }));
    applied(&mut catalog, CatalogEdit::RemoveTable { table });
    assert_eq!(applied(&mut catalog, requested(3, CatalogEdit::DropTable { table })), first);
    // A refused request had no effect and may succeed later.
    applied(&mut catalog, requested(2, create("t", &[])));
    assert_ne!(applied(&mut catalog, requested(2, create("t", &[]))), first);

    let name = namespace("ns");
    applied(
        &mut catalog,
        requested(4, CatalogEdit::CreateNamespace { name: name.clone(), properties: Properties::new() }),
    );
    applied(
        &mut catalog,
        requested(4, CatalogEdit::CreateNamespace { name: name.clone(), properties: Properties::new() }),
    );
    applied(&mut catalog, requested(5, CatalogEdit::DropNamespace { name: name.clone() }));
    applied(&mut catalog, requested(5, CatalogEdit::DropNamespace { name }));
}

#[test]
fn split_points_must_ascend() {
    let mut catalog = small();
    for points in [&["m", "a"][..], &["a", "a"], &[""]] {
        assert!(matches!(refused(&mut catalog, create("t", points)), Refusal::Invalid(_)), "{points:?}");
    }
}

#[test]
fn a_reported_split_takes_the_parents_place() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &[]));
    report(&mut catalog, &[descriptor(1, "", "m", 2), descriptor(9, "m", "", 2)]);
    assert_eq!(map(&catalog), "r1@2[,m) r9@2[m,)");
    // A daughter that has split again, reported together with its unchanged sibling.
    report(&mut catalog, &[descriptor(1, "", "m", 2), descriptor(9, "m", "t", 3), descriptor(10, "t", "", 3)]);
    assert_eq!(map(&catalog), "r1@2[,m) r9@3[m,t) r10@3[t,)");
}

#[test]
fn daughters_may_both_have_new_ids() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &["h"]));
    report(&mut catalog, &[descriptor(8, "h", "m", 2), descriptor(9, "m", "", 2)]);
    assert_eq!(map(&catalog), "r1@1[,h) r8@2[h,m) r9@2[m,)");
    assert!(catalog.regions().get(RegionId(2)).is_none());
}

#[test]
fn an_outdated_report_changes_nothing() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &[]));
    report(&mut catalog, &[descriptor(1, "", "m", 2), descriptor(9, "m", "", 2)]);
    let before = catalog.clone();
    report(&mut catalog, &[descriptor(1, "", "", 1)]);
    report(&mut catalog, &[descriptor(1, "", "m", 2), descriptor(9, "m", "", 2)]);
    assert_eq!(catalog, before);
}

#[test]
fn half_of_a_split_waits_for_the_other_half() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &["c"]));
    report(&mut catalog, &[descriptor(9, "m", "", 2)]);
    assert_eq!(map(&catalog), "r1@1[,c) r2@1[c,)");
    // Even if another claim in the report can be accepted.
    report(&mut catalog, &[descriptor(1, "", "b", 2), descriptor(8, "b", "c", 2), descriptor(9, "m", "", 2)]);
    assert_eq!(map(&catalog), "r1@2[,b) r8@2[b,c) r2@1[c,)");
}

#[test]
fn several_splits_between_two_reports_enter_at_once() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &[]));
    let regions = [descriptor(1, "", "c", 3), descriptor(5, "c", "m", 3), descriptor(4, "m", "", 2)];
    report(&mut catalog, &regions);
    assert_eq!(map(&catalog), "r1@3[,c) r5@3[c,m) r4@2[m,)");
}

#[test]
fn regions_of_unknown_tables_are_ignored() {
    let mut catalog = small();
    let before = catalog.clone();
    report(&mut catalog, &[descriptor(5, "", "", 9)]);
    assert_eq!(catalog, before);
}

#[test]
fn regions_of_unknown_groups_are_ignored() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &[]));
    let before = catalog.clone();
    report(&mut catalog, &[RegionDescriptor { group: GroupId(9), ..descriptor(1, "", "", 9) }]);
    assert_eq!(catalog, before);
}

#[test]
fn lookups_start_at_the_region_that_contains_the_key() {
    let mut catalog = small();
    applied(&mut catalog, create("t", &["h", "p"]));
    let up = |key: &str, limit| {
        let found = catalog.regions().up_from(TableId(1), key.as_bytes(), limit);
        found.iter().map(|entry| entry.descriptor.region.0).collect::<Vec<_>>()
    };
    assert_eq!((up("", 9), up("h", 9), up("z", 9), up("a", 2)), (vec![1, 2, 3], vec![2, 3], vec![3], vec![1, 2]));
    let down = |key: &str, limit| {
        let found = catalog.regions().down_from(TableId(1), key.as_bytes(), limit);
        found.iter().map(|entry| entry.descriptor.region.0).collect::<Vec<_>>()
    };
    assert_eq!((down("", 9), down("h", 9), down("a", 9), down("z", 1)), (vec![3, 2, 1], vec![2, 1], vec![1], vec![3]));
    assert!(catalog.regions().up_from(TableId(2), b"a", 9).is_empty());
}

/// A catalog with entries of every kind.
pub(crate) fn full() -> Catalog {
    let mut catalog = small();
    applied(&mut catalog, CatalogEdit::AddServer(registration("b:1")));
    applied(&mut catalog, create("t", &["c", "m"]));
    applied(&mut catalog, CatalogEdit::CreateNamespace { name: namespace("ns"), properties: Properties::new() });
    let properties = [("a.b".to_owned(), "c\0".to_owned())].into();
    applied(&mut catalog, CatalogEdit::SetProperties { name: namespace("ns"), properties });
    applied(&mut catalog, create("ns:u", &[]));
    applied(&mut catalog, CatalogEdit::EnableTable { table: TableId(1) });
    applied(&mut catalog, CatalogEdit::DropTable { table: TableId(2) });
    applied(&mut catalog, CatalogEdit::RemoveTable { table: TableId(2) });
    applied(&mut catalog, CatalogEdit::OpenGroup { group: GroupId(1) });
    report(&mut catalog, &[descriptor(1, "", "a\u{0}", 2), descriptor(70, "a\u{0}", "c", 2)]);
    catalog
}

#[test]
fn a_checkpoint_keeps_everything() {
    let checkpoint = Checkpoint { applied: 77, stamp: 1_234, catalog: full() };
    assert_eq!(Checkpoint::decode(&checkpoint.encode()).unwrap(), checkpoint);
}

#[test]
fn a_torn_or_flipped_checkpoint_is_refused() {
    let bytes = Checkpoint { applied: 77, stamp: 1_234, catalog: full() }.encode();
    for length in 0..bytes.len() {
        assert!(Checkpoint::decode(&bytes[..length]).is_err(), "cut to {length} bytes");
    }
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << (at % 8);
        assert!(Checkpoint::decode(&flipped).is_err(), "a bit of byte {at}");
    }
}

#[tokio::test]
async fn a_damaged_checkpoint_names_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = super::checkpoint::path_in(dir.path());
    assert_eq!(Checkpoint::load(dir.path()).await.unwrap(), Checkpoint::default());
    terrane_env::fs::write_durable(&path, b"TERRACAT and nothing else").await.unwrap();
    let refused = Checkpoint::load(dir.path()).await.unwrap_err().to_string();
    assert!(refused.contains("checkpoint is damaged") && refused.contains("checksum"), "{refused}");
}

fn add_page_key(id: u32) -> CatalogEdit {
    CatalogEdit::AddPageKey { id, secret: Secret([u8::try_from(id).unwrap(); 32]) }
}

#[test]
fn the_last_two_page_keys_are_valid() {
    let mut catalog = small();
    assert!(catalog.page_keys().is_due(0), "without a key, one is due at once");
    applied(&mut catalog, add_page_key(1));
    assert!(matches!(refused(&mut catalog, add_page_key(1)), Refusal::Changed(_)), "proposed twice at once");
    assert!(!catalog.page_keys().is_due(1_000 + ROTATE_AFTER_MS - 1));
    assert!(!catalog.page_keys().is_due(0), "not due if the clock went back");
    assert!(catalog.page_keys().is_due(1_000 + ROTATE_AFTER_MS));
    applied(&mut catalog, add_page_key(2));
    applied(&mut catalog, add_page_key(3));
    let keys: Vec<_> = catalog.page_keys().iter().map(|key| (key.id, key.secret.0[0])).collect();
    assert_eq!(keys, [(3, 3), (2, 2)]);
    assert!(!format!("{catalog:?}").contains("3, 3, 3"), "secrets are not printed");
}
