//! Any edits of the catalog: encoding keeps everything, foreign bytes are refused, a checkpoint keeps what any sequence of edits
//! left, and the map covers all keys whatever is reported.

use bytes::Bytes;
use proptest::prelude::*;
use terrane_types::{ClusterId, GroupId, RegionDescriptor, ReplicaId, ServerId, TableId, TableSchema};

use super::super::changes::{ChangePlan, ChangeReason};
use super::super::checkpoint::Checkpoint;
use super::super::groups::GroupPlan;
use super::super::namespaces::Properties;
use super::super::page_keys::Secret;
use super::super::requests::RequestId;
use super::super::servers::Registration;
use super::super::{Bootstrap, CatalogEdit, NewTable};
use super::{applied, descriptor, map, namespace, report, schema, small};

fn properties() -> impl Strategy<Value = Properties> {
    proptest::collection::btree_map(".{0,3}", ".{0,3}", 0..3)
}

fn any_id() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_u64, any::<u64>()]
}

fn any_descriptor() -> impl Strategy<Value = RegionDescriptor> {
    (any_id(), any_id(), "[a-c]{0,3}", "[d-f]{0,3}", any_id(), any_id()).prop_map(
        |(region, table, start, end, epoch, group)| RegionDescriptor {
            table: TableId(table),
            group: GroupId(group),
            ..descriptor(region, &start, &end, epoch)
        },
    )
}

fn any_edit() -> impl Strategy<Value = CatalogEdit> {
    let text = || ".{0,12}";
    let registration = || {
        (text(), text(), text(), text()).prop_map(|(address, console, engine, zone)| Registration {
            address,
            console,
            engine,
            zone,
        })
    };
    let plan = (any_id(), prop::collection::vec(any_id(), 0..4)).prop_map(|(leader, servers)| GroupPlan {
        leader: ServerId(leader),
        servers: servers.into_iter().map(ServerId).collect(),
    });
    let key = || prop::collection::vec(any::<u8>(), 0..6).prop_map(Bytes::from);
    prop_oneof![
        (any::<[u8; 16]>(), prop::collection::vec(text(), 0..3), any::<u32>()).prop_map(|(id, peers, replication)| {
            CatalogEdit::Bootstrap(Bootstrap { cluster: ClusterId(id), peers, replication })
        }),
        registration().prop_map(CatalogEdit::AddServer),
        any_id().prop_map(|group| CatalogEdit::RemoveGroup { group: GroupId(group) }),
        (any_id(), registration())
            .prop_map(|(server, registration)| CatalogEdit::UpdateServer { server: ServerId(server), registration }),
        any::<u32>().prop_map(|count| CatalogEdit::TakeRegionIds { count }),
        (any_id(), prop::collection::vec(plan, 0..3))
            .prop_map(|(expected, groups)| CatalogEdit::AddGroups { expected: GroupId(expected), groups }),
        any_id().prop_map(|group| CatalogEdit::OpenGroup { group: GroupId(group) }),
        (prop::collection::vec(key(), 0..3), prop::collection::vec(any_id(), 0..4), "(n[1-3]:)?t").prop_map(
            |(split_at, groups, name)| {
                let groups = groups.into_iter().map(GroupId).collect();
                CatalogEdit::CreateTable(NewTable { schema: schema(&name), split_at, groups })
            }
        ),
        (any::<[u8; 16]>(), any_id()).prop_map(|(id, table)| CatalogEdit::Requested {
            id: RequestId(id),
            edit: Box::new(CatalogEdit::DropTable { table: TableId(table) }),
        }),
        ("n[1-3]|default", properties())
            .prop_map(|(name, properties)| CatalogEdit::CreateNamespace { name: namespace(&name), properties }),
        ("n[1-3]|default", properties())
            .prop_map(|(name, properties)| CatalogEdit::SetProperties { name: namespace(&name), properties }),
        "n[1-3]|default".prop_map(|name| CatalogEdit::DropNamespace { name: namespace(&name) }),
        any_id().prop_map(|table| CatalogEdit::EnableTable { table: TableId(table) }),
        any_id().prop_map(|version| CatalogEdit::AlterTable { schema: TableSchema { version, ..schema("t") } }),
        (any_id(), any_id()).prop_map(|(table, version)| CatalogEdit::FinishAlter { table: TableId(table), version }),
        any_id().prop_map(|table| CatalogEdit::DropTable { table: TableId(table) }),
        any_id().prop_map(|table| CatalogEdit::RemoveTable { table: TableId(table) }),
        prop::collection::vec(any_descriptor(), 0..4).prop_map(|regions| CatalogEdit::IndexRegions { regions }),
        (any::<u32>(), any::<[u8; 32]>())
            .prop_map(|(id, secret)| CatalogEdit::AddPageKey { id, secret: Secret(secret) }),
        any_member_edit(),
    ]
}

/// Edits of the members of small groups on few servers, so that many of a sequence fit the catalog.
fn any_member_edit() -> impl Strategy<Value = CatalogEdit> {
    let group = || (1..3_u64).prop_map(GroupId);
    let server = || (1..4_u64).prop_map(ServerId);
    let replicas = || prop::collection::vec((8..14_u64).prop_map(ReplicaId), 0..4);
    let plan = (group(), 0..3_u64, prop::option::of(server()), prop::option::of((8..14_u64).prop_map(ReplicaId)));
    prop_oneof![
        group().prop_map(|group| CatalogEdit::AbandonGroup { group }),
        group().prop_map(|group| CatalogEdit::ServeGroup { group }),
        plan.prop_map(|(group, version, add, remove)| {
            CatalogEdit::BeginMembers(ChangePlan { group, version, add, remove, reason: ChangeReason::Drain })
        }),
        (group(), 0..3_u64).prop_map(|(group, version)| CatalogEdit::PromoteMember { group, version }),
        (group(), 0..3_u64).prop_map(|(group, version)| CatalogEdit::UndoMembers { group, version }),
        (group(), 0..3_u64, 8..14_u64).prop_map(|(group, version, survivor)| {
            CatalogEdit::RecoverMembers { group, version, survivor: ReplicaId(survivor) }
        }),
        (group(), 0..3_u64, replicas()).prop_map(|(group, version, members)| CatalogEdit::EndMembers {
            group,
            version,
            members
        }),
        (server(), any::<bool>()).prop_map(|(server, drain)| CatalogEdit::DrainServer { server, drain }),
        server().prop_map(|server| CatalogEdit::RemoveServer { server }),
        (0..6_u32).prop_map(|replication| CatalogEdit::SetReplication { replication }),
        any::<bool>().prop_map(|on| CatalogEdit::SetBalancing { on }),
        (0..3_u64).prop_map(|minutes| CatalogEdit::SetReplaceAfter { after_ms: minutes * 60_000 }),
    ]
}

proptest! {
    #[test]
    fn edits_decode_to_what_was_encoded(edit in any_edit()) {
        prop_assert_eq!(CatalogEdit::decode(&edit.encode()).unwrap(), edit);
    }

    #[test]
    fn truncated_edits_are_refused(edit in any_edit(), cut in any::<prop::sample::Index>()) {
        let bytes = edit.encode();
        prop_assert!(CatalogEdit::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }

    #[test]
    fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = CatalogEdit::decode(&bytes);
        let _ = Checkpoint::decode(&bytes);
    }

    #[test]
    fn the_map_covers_all_keys_whatever_is_reported(
        splits in prop::collection::btree_set("[a-f]{1,2}", 0..4),
        reports in prop::collection::vec(prop::collection::vec(
            (1..12_u64, "[a-g]{0,2}", "[a-g]{0,2}", 1..5_u64), 1..5), 1..12),
    ) {
        let mut catalog = small();
        let split_at: Vec<Bytes> = splits.into_iter().map(Bytes::from).collect();
        let groups = vec![GroupId(1); split_at.len() + 1];
        let new = NewTable { schema: schema("t"), split_at, groups };
        applied(&mut catalog, CatalogEdit::CreateTable(new));
        for claims in reports {
            let regions: Vec<RegionDescriptor> = claims
                .into_iter()
                .filter(|(_, start, end, _)| end.is_empty() || start < end)
                .map(|(region, start, end, epoch)| descriptor(region, &start, &end, epoch))
                .collect();
            report(&mut catalog, &regions);
            prop_assert!(catalog.regions().covers_all_keys(TableId(1)), "{}", map(&catalog));
            let ids = catalog.regions().of_table(TableId(1)).count();
            prop_assert_eq!(catalog.regions().len(), ids, "one id per region");
        }
    }

    #[test]
    fn any_sequence_of_edits_survives_the_checkpoint(edits in prop::collection::vec(any_edit(), 0..12)) {
        let mut catalog = small();
        for edit in &edits {
            catalog.apply(edit, 5);
        }
        let checkpoint = Checkpoint { applied: 9, stamp: 5, catalog };
        prop_assert_eq!(Checkpoint::decode(&checkpoint.encode()).unwrap(), checkpoint);
    }
}
