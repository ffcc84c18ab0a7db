//! Edits: the only way to change the catalog. Each is an operation in group 0's log.
//!
//! An edit describes the change; ids are assigned when it is applied, in log order, so that two masters can never
//! assign one id twice. An edit that no longer fits the catalog when it is applied is refused as a whole. The layout is
//! documented in `docs/formats/catalog.md`.

use bytes::Bytes;
use terrane_types::versions::{
    LEVEL_OF_MASTERS, LEVEL_OF_MOVES, LEVEL_OF_NAMESPACE_PROPERTIES, LEVEL_OF_RECOVERY, LEVEL_OF_SUCCESSORS,
    LEVEL_OF_TRUNCATION, LEVEL_UNRECORDED,
};
use terrane_types::{ClusterId, GroupId, NamespaceName, RegionDescriptor, ReplicaId, ServerId, TableId, TableSchema};

use super::changes::{ChangePlan, ChangeReason};
use super::codec::{self, DecodeError, EDIT_VERSION, Reader, Writer, check_version};
use super::groups::GroupPlan;
use super::masters::MastersEdit;
use super::moves::{MoveEnd, MoveId, MovePlan};
use super::namespaces::{Properties, decode_name, decode_properties, encode_properties};
use super::page_keys::Secret;
use super::regions::{decode_descriptor, encode_descriptor};
use super::requests::RequestId;
use super::servers::Registration;
use super::tables::{decode_schema, encode_schema};

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEdit {
    /// The first entry of a cluster: its id, its masters and its replication.
    Bootstrap(Bootstrap),
    /// The first entry of a cluster whose catalog was lost and rebuilt: a checkpoint of the rebuilt catalog.
    Rebuild { checkpoint: Bytes },
    /// Assigns an id to a server with a fresh data directory, and removes servers without replicas that have its address. Below
    /// level 4 only: see [`Self::JoinServer`].
    AddServer(Registration),
    /// Assigns an id to a server with a fresh data directory. Others that have its address stay.
    JoinServer(Registration),
    /// Replaces the registration of a known server.
    UpdateServer { server: ServerId, registration: Registration },
    /// Takes a block of region ids, for splits without a master.
    TakeRegionIds { count: u32 },
    /// The intent to create groups. `expected` is the id of the first one: a plan made from an older catalog is
    /// refused.
    AddGroups { expected: GroupId, groups: Vec<GroupPlan> },
    /// Every member of the group has created its replica.
    OpenGroup { group: GroupId },
    /// A majority of the group's members has created its replica, the planned leader among them: it serves.
    ServeGroup { group: GroupId },
    /// Removes a group that was never opened, because members of it do not return.
    AbandonGroup { group: GroupId },
    /// Removes an open group that has no regions.
    RemoveGroup { group: GroupId },
    /// The intent to change a group's members.
    BeginMembers(ChangePlan),
    /// The new replica has caught up: from now on the voters may change. `version` is that of the members, here and below.
    PromoteMember { group: GroupId, version: u64 },
    /// The intent to undo a change of members.
    UndoMembers { group: GroupId, version: u64 },
    /// The intent to recover a group, whose majority is lost, from this replica.
    RecoverMembers { group: GroupId, version: u64, survivor: ReplicaId },
    /// The change of members has ended, with the voters that the group's leader confirmed.
    EndMembers { group: GroupId, version: u64, members: Vec<ReplicaId> },
    /// The intent to move a region into another group.
    BeginMove(MovePlan),
    /// The intent to undo a move, if it still can be.
    CancelMove { id: MoveId, why: String },
    /// A move has ended, as the leader of the region's group says.
    EndMove { id: MoveId, end: MoveEnd },
    /// An edit of the set of masters.
    Masters(MastersEdit),
    /// The intent to drain a server, or its end.
    DrainServer { server: ServerId, drain: bool },
    /// Removes a server that has no replicas. Its id is not used again.
    RemoveServer { server: ServerId },
    /// The replicas that each group is to have.
    SetReplication { replication: u32 },
    /// Whether replicas and leaderships are spread without being asked.
    SetBalancing { on: bool },
    /// The intent to create a table.
    CreateTable(NewTable),
    /// Every group has created its regions of the table.
    EnableTable { table: TableId },
    /// The intent to alter a table: the complete new schema with the next version.
    AlterTable { schema: TableSchema },
    /// Every group with regions of the table has this schema version.
    FinishAlter { table: TableId, version: u64 },
    /// The intent to drop a table.
    DropTable { table: TableId },
    /// The intent to empty a table: another one of its name and schema is created, with regions between these keys in these
    /// groups, and the table is dropped.
    TruncateTable { table: TableId, split_at: Vec<Bytes>, groups: Vec<GroupId> },
    /// Every group has dropped the table.
    RemoveTable { table: TableId },
    /// Regions as reported by their leaders.
    IndexRegions { regions: Vec<RegionDescriptor> },
    /// A new key for page tokens. `id` must be the next id: of two keys proposed at once, one is refused.
    AddPageKey { id: u32, secret: Secret },
    /// Creates a namespace.
    CreateNamespace { name: NamespaceName, properties: Properties },
    /// Replaces the properties of a namespace.
    SetProperties { name: NamespaceName, properties: Properties },
    /// Drops a namespace without tables.
    DropNamespace { name: NamespaceName },
    /// Every process of the cluster can work at this feature level: from now on, what it brings may be used.
    RaiseLevel { level: u32 },
    /// An edit with the id of its request: applied unless an edit of that request has been applied.
    Requested { id: RequestId, edit: Box<CatalogEdit> },
}

/// A table to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTable {
    /// Its schema; the id and version in it are ignored.
    pub schema: TableSchema,
    /// The start of each region but the first.
    pub split_at: Vec<Bytes>,
    /// The group of each region, one more than split points.
    pub groups: Vec<GroupId>,
    /// Whether the edit also creates the table's namespace. Builds from before namespaces worked that way,
    /// and their entries must have the same effect when they are replayed.
    pub implies_namespace: bool,
}

/// What is fixed when a cluster is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bootstrap {
    /// The cluster's id.
    pub cluster: ClusterId,
    /// The masters as given by `--peers`, sorted; empty if the flag was not used.
    pub peers: Vec<String>,
    /// Replicas of each group.
    pub replication: u32,
}

impl CatalogEdit {
    /// The feature level of the masters that can read the edit. Moves that have begun end at any level.
    pub fn level(&self) -> u32 {
        match self {
            Self::CreateTable(new) => new.schema.level(),
            Self::AlterTable { schema } => schema.level(),
            Self::TruncateTable { .. } => LEVEL_OF_TRUNCATION,
            Self::CreateNamespace { properties, .. } if properties.is_empty() => LEVEL_UNRECORDED,
            Self::CreateNamespace { .. } | Self::SetProperties { .. } => LEVEL_OF_NAMESPACE_PROPERTIES,
            Self::Requested { edit, .. } => edit.level(),
            Self::BeginMove(_) => LEVEL_OF_MOVES,
            Self::JoinServer(_) | Self::RemoveGroup { .. } => LEVEL_OF_SUCCESSORS,
            Self::RecoverMembers { .. } => LEVEL_OF_RECOVERY,
            Self::BeginMembers(plan) if matches!(plan.reason, ChangeReason::Damaged) => LEVEL_OF_RECOVERY,
            Self::Masters(_) => LEVEL_OF_MASTERS,
            Self::RaiseLevel { level } => level.saturating_sub(1),
            _ => LEVEL_UNRECORDED,
        }
    }

    /// Encodes the edit as an operation of group 0's log.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u8(EDIT_VERSION);
        self.encode_body(&mut out);
        out.finish()
    }

    fn encode_body(&self, out: &mut Writer) {
        match self {
            Self::Bootstrap(bootstrap) => {
                out.u8(1);
                bootstrap.encode(out);
            }
            // Without a zone as by builds that know none, which means the same.
            Self::Rebuild { checkpoint } => {
                out.u8(71);
                out.bytes(checkpoint);
            }
            Self::AddServer(registration) if registration.zone.is_empty() => {
                out.u8(2);
                registration.encode(out);
            }
            Self::AddServer(registration) => {
                out.u8(40);
                registration.encode_with_zone(out);
            }
            Self::JoinServer(registration) => {
                out.u8(52);
                registration.encode_with_zone(out);
            }
            Self::RemoveGroup { group } => {
                out.u8(53);
                out.u64(group.0);
            }
            Self::UpdateServer { server, registration } if registration.zone.is_empty() => {
                out.u8(3);
                out.u64(server.0);
                registration.encode(out);
            }
            Self::UpdateServer { server, registration } => {
                out.u8(41);
                out.u64(server.0);
                registration.encode_with_zone(out);
            }
            Self::TakeRegionIds { count } => {
                out.u8(4);
                out.u32(*count);
            }
            Self::AddGroups { expected, groups } => {
                out.u8(5);
                out.u64(expected.0);
                out.list(groups.iter(), |out, group| group.encode(out));
            }
            Self::OpenGroup { group } => {
                out.u8(6);
                out.u64(group.0);
            }
            Self::CreateTable(new) => {
                out.u8(if new.implies_namespace { 7 } else { 16 });
                new.encode(out);
            }
            Self::EnableTable { table } => {
                out.u8(8);
                out.u64(table.0);
            }
            Self::AlterTable { schema } => {
                out.u8(9);
                encode_schema(schema, out);
            }
            Self::FinishAlter { table, version } => {
                out.u8(10);
                out.u64(table.0);
                out.u64(*version);
            }
            Self::DropTable { table } => {
                out.u8(11);
                out.u64(table.0);
            }
            Self::TruncateTable { table, split_at, groups } => {
                out.u8(90);
                out.u64(table.0);
                out.list(split_at.iter(), |out, key| out.bytes(key));
                out.list(groups.iter(), |out, group| out.u64(group.0));
            }
            Self::RemoveTable { table } => {
                out.u8(12);
                out.u64(table.0);
            }
            Self::IndexRegions { regions } => {
                out.u8(13);
                out.list(regions.iter(), |out, region| encode_descriptor(region, out));
            }
            Self::AddPageKey { id, secret } => {
                out.u8(20);
                out.u32(*id);
                out.raw(&secret.0);
            }
            // Without properties as by builds that know none.
            Self::CreateNamespace { name, properties } if properties.is_empty() => {
                out.u8(17);
                out.text(name.as_str());
            }
            Self::CreateNamespace { name, properties } => {
                out.u8(91);
                out.text(name.as_str());
                encode_properties(properties, out);
            }
            Self::SetProperties { name, properties } => {
                out.u8(92);
                out.text(name.as_str());
                encode_properties(properties, out);
            }
            Self::DropNamespace { name } => {
                out.u8(18);
                out.text(name.as_str());
            }
            Self::RaiseLevel { level } => {
                out.u8(72);
                out.u32(*level);
            }
            Self::Requested { id, edit } => {
                out.u8(21);
                out.raw(&id.0);
                edit.encode_body(out);
            }
            Self::AbandonGroup { .. }
            | Self::ServeGroup { .. }
            | Self::BeginMembers(_)
            | Self::PromoteMember { .. }
            | Self::UndoMembers { .. }
            | Self::RecoverMembers { .. }
            | Self::EndMembers { .. } => self.encode_members(out),
            Self::Masters(edit) => edit.encode(out),
            Self::BeginMove(plan) => {
                out.u8(60);
                plan.encode(out);
            }
            Self::CancelMove { id, why } => {
                out.u8(61);
                out.u64(id.0);
                out.text(why);
            }
            Self::EndMove { id, end } => {
                out.u8(62);
                out.u64(id.0);
                end.encode(out);
            }
            Self::DrainServer { server, drain } => {
                out.u8(47);
                out.u64(server.0);
                out.u8(u8::from(*drain));
            }
            Self::RemoveServer { server } => {
                out.u8(48);
                out.u64(server.0);
            }
            Self::SetReplication { replication } => {
                out.u8(49);
                out.u32(*replication);
            }
            Self::SetBalancing { on } => {
                out.u8(50);
                out.u8(u8::from(*on));
            }
        }
    }

    /// Encodes an edit of a group and its members.
    fn encode_members(&self, out: &mut Writer) {
        let mut versioned = |tag: u8, group: &GroupId, version: &u64| {
            out.u8(tag);
            out.u64(group.0);
            out.u64(*version);
        };
        match self {
            Self::PromoteMember { group, version } => versioned(44, group, version),
            Self::UndoMembers { group, version } => versioned(45, group, version),
            Self::EndMembers { group, version, members } => {
                versioned(46, group, version);
                out.list(members.iter(), |out, replica| out.u64(replica.0));
            }
            Self::RecoverMembers { group, version, survivor } => {
                versioned(70, group, version);
                out.u64(survivor.0);
            }
            Self::AbandonGroup { group } => {
                out.u8(42);
                out.u64(group.0);
            }
            Self::ServeGroup { group } => {
                out.u8(51);
                out.u64(group.0);
            }
            Self::BeginMembers(plan) => {
                out.u8(43);
                plan.encode(out);
            }
            _ => unreachable!("only edits of a group's members are passed"),
        }
    }

    /// Decodes an operation of group 0's log.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        check_version(from.u8()?)?;
        let edit = Self::decode_body(&mut from)?;
        from.finish()?;
        Ok(edit)
    }

    fn decode_body(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = from.u8()?;
        Self::decode_fields(tag, from)
    }

    fn decode_requested(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, tag) = (RequestId(from.array()?), from.u8()?);
        if tag == 21 {
            return Err(DecodeError::Rule("a requested edit contains another requested edit".to_owned()));
        }
        Ok(Self::Requested { id, edit: Box::new(Self::decode_fields(tag, from)?) })
    }

    fn decode_fields(tag: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match tag {
            1 => Self::Bootstrap(Bootstrap::decode(from)?),
            2 => Self::AddServer(Registration::decode(from)?),
            3 => Self::UpdateServer { server: ServerId(from.u64()?), registration: Registration::decode(from)? },
            4 => Self::TakeRegionIds { count: from.u32()? },
            5 => Self::AddGroups { expected: GroupId(from.u64()?), groups: from.list(GroupPlan::decode)? },
            6 => Self::OpenGroup { group: GroupId(from.u64()?) },
            7 => Self::CreateTable(NewTable::decode(from, true)?),
            8 => Self::EnableTable { table: TableId(from.u64()?) },
            9 => Self::AlterTable { schema: decode_schema(from)? },
            10 => Self::FinishAlter { table: TableId(from.u64()?), version: from.u64()? },
            11 => Self::DropTable { table: TableId(from.u64()?) },
            12 => Self::RemoveTable { table: TableId(from.u64()?) },
            13 => Self::IndexRegions { regions: from.list(decode_descriptor)? },
            20 => Self::AddPageKey { id: from.u32()?, secret: Secret(from.array()?) },
            16 => Self::CreateTable(NewTable::decode(from, false)?),
            17 => Self::CreateNamespace { name: decode_name(from)?, properties: Properties::new() },
            18 => Self::DropNamespace { name: decode_name(from)? },
            21 => Self::decode_requested(from)?,
            40 => Self::AddServer(Registration::decode_with_zone(from)?),
            41 => {
                let server = ServerId(from.u64()?);
                Self::UpdateServer { server, registration: Registration::decode_with_zone(from)? }
            }
            42 => Self::AbandonGroup { group: GroupId(from.u64()?) },
            43 => Self::BeginMembers(ChangePlan::decode(from)?),
            44 => Self::PromoteMember { group: GroupId(from.u64()?), version: from.u64()? },
            45 => Self::UndoMembers { group: GroupId(from.u64()?), version: from.u64()? },
            46 => {
                let (group, version) = (GroupId(from.u64()?), from.u64()?);
                Self::EndMembers { group, version, members: from.list(|from| from.u64().map(ReplicaId))? }
            }
            47 => Self::DrainServer { server: ServerId(from.u64()?), drain: codec::flag(from)? },
            48 => Self::RemoveServer { server: ServerId(from.u64()?) },
            49 => Self::SetReplication { replication: from.u32()? },
            50 => Self::SetBalancing { on: codec::flag(from)? },
            51 => Self::ServeGroup { group: GroupId(from.u64()?) },
            52 => Self::JoinServer(Registration::decode_with_zone(from)?),
            53 => Self::RemoveGroup { group: GroupId(from.u64()?) },
            60 => Self::BeginMove(MovePlan::decode(from)?),
            61 => Self::CancelMove { id: MoveId(from.u64()?), why: from.text()? },
            62 => Self::EndMove { id: MoveId(from.u64()?), end: MoveEnd::decode(from)? },
            72 => Self::RaiseLevel { level: from.u32()? },
            80..=82 => Self::Masters(MastersEdit::decode(tag, from)?),
            90 => Self::TruncateTable {
                table: TableId(from.u64()?),
                split_at: from.list(codec::owned)?,
                groups: from.list(|from| from.u64().map(GroupId))?,
            },
            91 => Self::CreateNamespace { name: decode_name(from)?, properties: decode_properties(from)? },
            92 => Self::SetProperties { name: decode_name(from)?, properties: decode_properties(from)? },
            71 => Self::Rebuild { checkpoint: codec::owned(from)? },
            70 => {
                let (group, version) = (GroupId(from.u64()?), from.u64()?);
                Self::RecoverMembers { group, version, survivor: ReplicaId(from.u64()?) }
            }
            found => return Err(DecodeError::Tag { what: "catalog edit", found }),
        })
    }
}

impl NewTable {
    fn encode(&self, out: &mut Writer) {
        encode_schema(&self.schema, out);
        out.list(self.split_at.iter(), |out, key| out.bytes(key));
        out.list(self.groups.iter(), |out, group| out.u64(group.0));
    }

    fn decode(from: &mut Reader<'_>, implies_namespace: bool) -> Result<Self, DecodeError> {
        Ok(Self {
            schema: decode_schema(from)?,
            split_at: from.list(codec::owned)?,
            groups: from.list(|from| from.u64().map(GroupId))?,
            implies_namespace,
        })
    }
}

impl Bootstrap {
    pub(super) fn encode(&self, out: &mut Writer) {
        out.raw(&self.cluster.0);
        out.list(self.peers.iter(), |out, peer| out.text(peer));
        out.u32(self.replication);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { cluster: ClusterId(from.array()?), peers: from.list(Reader::text)?, replication: from.u32()? })
    }
}
