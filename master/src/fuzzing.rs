//! Entry points of the fuzz driver: edits of the catalog, its checkpoint, and the `master` file.
//!
//! Only built with the feature `fuzzing`.

use bytes::Bytes;
use terrane_types::fuzzing::{Damage, Dice, Format, again, draw, no_limits, round_trip};
use terrane_types::limits::{NAME_CHARS_MAX, NAMESPACE_PROPERTIES_BYTES_MAX, ROW_BYTES_MAX, SPLIT_POINTS_BYTES_MAX};
use terrane_types::{ClusterId, GroupId, NamespaceName, RegionEpoch, RegionId, ReplicaId, ServerId, TableId};

use crate::catalog::changes::{ChangePlan, ChangeReason};
use crate::catalog::checkpoint::Checkpoint;
use crate::catalog::groups::GroupPlan;
use crate::catalog::masters::{MastersEdit, MastersPlan};
use crate::catalog::moves::{MoveEnd, MoveId, MovePlan, MoveReason};
use crate::catalog::namespaces::Properties;
use crate::catalog::page_keys::Secret;
use crate::catalog::requests::RequestId;
use crate::catalog::servers::Registration;
use crate::catalog::{Bootstrap, Catalog, CatalogEdit, NewTable};
use crate::masters::numbers::Peer;
use crate::server::identity::{Founder, Identity};

/// The formats of this crate.
pub const FORMATS: &[Format] = &[EDIT, CHECKPOINT, CHECKPOINT_BODY, FILE];

/// An edit, as an operation of group 0's log.
const EDIT: Format = Format {
    name: "catalog-edit",
    damage: Damage::Undetected,
    read: |bytes| again(CatalogEdit::decode(bytes), |edit| edit.encode()),
    draw: |dice| checked_edit(&draw_edit(dice)),
    limits: || {
        let key = |number: usize| {
            let mut key = vec![b'k'; ROW_BYTES_MAX];
            key[..8].copy_from_slice(&(number as u64).to_be_bytes());
            Bytes::from(key)
        };
        let split_at: Vec<Bytes> = (0..SPLIT_POINTS_BYTES_MAX / ROW_BYTES_MAX).map(key).collect();
        let groups = vec![GroupId(u64::MAX); split_at.len() + 1];
        let schema = draw::schema(&mut Dice::new(1));
        let name = NamespaceName::new(&"n".repeat(NAME_CHARS_MAX)).expect("a valid name");
        let address = format!("{}:65535", "a".repeat(506));
        let registration = Registration {
            address: address.clone(),
            console: address.clone(),
            engine: "lsm".to_owned(),
            zone: address,
        };
        let table = NewTable { schema, split_at, groups };
        [
            CatalogEdit::CreateTable(table),
            CatalogEdit::CreateNamespace { name: name.clone(), properties: Properties::new() },
            CatalogEdit::SetProperties {
                name,
                properties: [("p".repeat(NAMESPACE_PROPERTIES_BYTES_MAX), String::new())].into(),
            },
            CatalogEdit::UpdateServer { server: ServerId(u64::MAX), registration },
        ]
        .iter()
        .map(checked_edit)
        .collect()
    },
};

/// A checkpoint of a catalog that edits have changed.
const CHECKPOINT: Format = Format {
    name: "catalog-checkpoint",
    damage: Damage::Refused,
    read: |bytes| again(Checkpoint::decode(bytes), |checkpoint| checkpoint.encode()),
    draw: draw_checkpoint,
    limits: no_limits,
};

/// A checkpoint without its checksum.
const CHECKPOINT_BODY: Format = Format {
    name: "catalog-checkpoint-body",
    damage: Damage::Undetected,
    read: |body| {
        let sealed = [body, &crc32c::crc32c(body).to_le_bytes()].concat();
        again(Checkpoint::decode(&sealed), |checkpoint| unsealed(checkpoint.encode()))
    },
    draw: |dice| unsealed(draw_checkpoint(dice)),
    limits: no_limits,
};

/// The `master` file.
const FILE: Format = Format {
    name: "master-file",
    damage: Damage::Refused,
    read: |bytes| again(Identity::decode(bytes), |identity| identity.encode()),
    draw: |dice| {
        let peers = || vec!["a:1".into(), "b.example:2".into()];
        let founder = dice.flag().then(|| Founder { peers: peers(), nonces: vec![None, Some(dice.array())] });
        let number = dice.number() % 2 + 1;
        let met = if founder.is_none() { dice.list(3, peer) } else { Vec::new() };
        let identity = Identity { cluster: ClusterId(dice.array()), number, boot: dice.number(), founder, met };
        round_trip(&identity, identity.encode(), Identity::decode)
    },
    limits: no_limits,
};

fn unsealed(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.truncate(bytes.len() - 4);
    bytes
}

fn checked_edit(edit: &CatalogEdit) -> Vec<u8> {
    round_trip(edit, edit.encode(), CatalogEdit::decode)
}

fn draw_checkpoint(dice: &mut Dice) -> Vec<u8> {
    let mut catalog = Catalog::default();
    for _ in 0..dice.below(25) {
        let edit = draw_edit(dice);
        let before = catalog.clone();
        if let crate::catalog::Outcome::Refused(_) = catalog.apply(&edit, 1_000) {
            assert_eq!(catalog, before, "a refused edit changed the catalog: {edit:?}");
        }
    }
    let checkpoint = Checkpoint { applied: dice.number(), stamp: dice.number(), catalog };
    round_trip(&checkpoint, checkpoint.encode(), Checkpoint::decode)
}

fn registration(dice: &mut Dice) -> Registration {
    let address = format!("{}:{}", dice.pick(&["a", "b", "c"]), dice.below(3));
    Registration {
        address,
        console: dice.text(10),
        engine: dice.pick(&["lsm", "sled"]).to_owned(),
        zone: dice.pick(&["", "east"]).to_owned(),
    }
}

fn properties(dice: &mut Dice) -> Properties {
    dice.list(2, |dice| (dice.text(5), dice.text(9))).into_iter().collect()
}

fn namespace(dice: &mut Dice) -> NamespaceName {
    NamespaceName::new(dice.pick(&["default", "n", "m"])).expect("a valid name")
}

/// An edit about few servers, groups and tables, so that many of a sequence fit the catalog.
fn draw_edit(dice: &mut Dice) -> CatalogEdit {
    let small = |dice: &mut Dice| 1 + dice.below(4) as u64;
    match dice.below(32) {
        0 => CatalogEdit::Bootstrap(Bootstrap { cluster: ClusterId([7; 16]), peers: Vec::new(), replication: 1 }),
        31 => CatalogEdit::RemoveGroup { group: GroupId(small(dice)) },
        1 => CatalogEdit::AddServer(registration(dice)),
        2 => CatalogEdit::UpdateServer { server: ServerId(small(dice)), registration: registration(dice) },
        3 => CatalogEdit::TakeRegionIds { count: dice.below(100_000).try_into().expect("a small number") },
        4 | 5 => {
            let plan = |dice: &mut Dice| {
                let server = ServerId(small(dice));
                GroupPlan { leader: server, servers: vec![server] }
            };
            CatalogEdit::AddGroups { expected: GroupId(small(dice)), groups: dice.list(2, plan) }
        }
        6 => CatalogEdit::OpenGroup { group: GroupId(small(dice)) },
        7 | 8 => new_table(dice),
        9 => CatalogEdit::EnableTable { table: TableId(small(dice)) },
        10 => {
            let mut schema = draw::schema(dice);
            (schema.table, schema.version) = (TableId(small(dice)), 1 + small(dice));
            CatalogEdit::AlterTable { schema }
        }
        11 => CatalogEdit::FinishAlter { table: TableId(small(dice)), version: small(dice) },
        12 => CatalogEdit::DropTable { table: TableId(small(dice)) },
        13 => CatalogEdit::RemoveTable { table: TableId(small(dice)) },
        14 => {
            let region = |dice: &mut Dice| terrane_types::RegionDescriptor {
                region: RegionId(small(dice)),
                table: TableId(small(dice)),
                epoch: RegionEpoch(small(dice)),
                group: GroupId(small(dice)),
                ..draw::descriptor(dice)
            };
            CatalogEdit::IndexRegions { regions: dice.list(3, region) }
        }
        15 => CatalogEdit::AddPageKey {
            id: dice.below(4).try_into().expect("a small number"),
            secret: Secret(dice.array()),
        },
        16 => CatalogEdit::CreateNamespace { name: namespace(dice), properties: properties(dice) },
        17 if dice.flag() => CatalogEdit::SetProperties { name: namespace(dice), properties: properties(dice) },
        17 => CatalogEdit::DropNamespace { name: namespace(dice) },
        18..25 => draw_member_edit(dice),
        25..28 => draw_move_edit(dice),
        28 => CatalogEdit::RaiseLevel { level: 1 + u32::try_from(dice.below(3)).unwrap_or_default() },
        29 => draw_masters_edit(dice),
        _ => {
            let id = RequestId([dice.below(3).try_into().expect("a small number"); 16]);
            let edit = Box::new(new_table(dice));
            CatalogEdit::Requested { id, edit }
        }
    }
}

/// An edit about the members of groups, or about servers.
fn draw_member_edit(dice: &mut Dice) -> CatalogEdit {
    let small = |dice: &mut Dice| 1 + dice.below(4) as u64;
    let (group, version) = (GroupId(small(dice)), dice.below(3) as u64);
    let replica = |dice: &mut Dice| ReplicaId(8 + dice.below(4) as u64);
    match dice.below(11) {
        0 => CatalogEdit::AbandonGroup { group },
        9 => CatalogEdit::RecoverMembers { group, version, survivor: replica(dice) },
        1 => CatalogEdit::ServeGroup { group },
        2 => CatalogEdit::PromoteMember { group, version },
        3 => CatalogEdit::UndoMembers { group, version },
        4 => CatalogEdit::EndMembers { group, version, members: dice.list(3, replica) },
        5 => CatalogEdit::DrainServer { server: ServerId(small(dice)), drain: dice.flag() },
        6 => CatalogEdit::SetReplication { replication: dice.below(6).try_into().expect("a small number") },
        7 => CatalogEdit::SetBalancing { on: dice.flag() },
        10 => CatalogEdit::SetReplaceAfter { after_ms: dice.below(3) as u64 * 60_000 },
        _ => {
            let add = dice.flag().then(|| ServerId(small(dice)));
            let remove = dice.flag().then(|| replica(dice));
            CatalogEdit::BeginMembers(ChangePlan { group, version, add, remove, reason: ChangeReason::Lost })
        }
    }
}

fn peer(dice: &mut Dice) -> Peer {
    Peer { number: 1 + dice.below(20) as u64, address: dice.pick(&["a:1", "b.example:2"]).to_owned() }
}

fn draw_masters_edit(dice: &mut Dice) -> CatalogEdit {
    let version = dice.below(2) as u64;
    CatalogEdit::Masters(match dice.below(3) {
        0 => MastersEdit::Undo { version },
        1 => MastersEdit::End { version, undone: dice.flag() },
        _ => {
            let (present, add) = (dice.list(3, peer), dice.list(3, peer));
            MastersEdit::Begin(MastersPlan { version, present, add, remove: dice.list(2, |dice| peer(dice).address) })
        }
    })
}

fn draw_move_edit(dice: &mut Dice) -> CatalogEdit {
    let small = |dice: &mut Dice| 1 + dice.below(4) as u64;
    let id = MoveId(small(dice));
    match dice.below(4) {
        0 => CatalogEdit::CancelMove { id, why: dice.text(10) },
        1 if dice.flag() => {
            let region = RegionId(small(dice));
            CatalogEdit::EndMove {
                id,
                end: MoveEnd::Moved(terrane_types::RegionDescriptor { region, ..draw::descriptor(dice) }),
            }
        }
        1 => CatalogEdit::EndMove { id, end: MoveEnd::Undone(dice.text(10)) },
        _ => CatalogEdit::BeginMove(MovePlan {
            region: RegionId(small(dice)),
            epoch: RegionEpoch(1),
            to: GroupId(small(dice)),
            lead: dice.flag().then(|| ServerId(small(dice))),
            reason: dice.pick(&[MoveReason::Operator, MoveReason::Balance, MoveReason::Merge]),
            why: dice.text(10),
            merge_with: dice.flag().then(|| RegionId(small(dice))),
        }),
    }
}

fn new_table(dice: &mut Dice) -> CatalogEdit {
    let mut split_at: Vec<Bytes> = dice.list(3, |dice| draw::row(dice).into());
    split_at.sort_unstable();
    split_at.dedup();
    let groups = vec![GroupId(1); split_at.len() + 1];
    CatalogEdit::CreateTable(NewTable { schema: draw::schema(dice), split_at, groups })
}
