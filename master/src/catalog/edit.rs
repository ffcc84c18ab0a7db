//! Edits: the only way to change the catalog. Each is an operation in group 0's log.
//!
//! An edit describes the change; ids are assigned when it is applied, in log order, so that two masters can never
//! assign one id twice. An edit that no longer fits the catalog when it is applied is refused as a whole. The layout is
//! documented in `docs/formats/catalog.md`.

use bytes::Bytes;
use terrane_types::{ClusterId, GroupId, NamespaceName, RegionDescriptor, ReplicaId, ServerId, TableId, TableSchema};

use super::changes::ChangePlan;
use super::codec::{self, ByteWriter as _, DecodeError, EDIT_VERSION, Reader, check_version};
use super::groups::GroupPlan;
use super::masters::MastersEdit;
use super::moves::{MoveEnd, MoveId, MovePlan};
use super::namespaces::{Properties, decode_name, decode_properties, encode_properties};
use super::page_keys::Secret;
use super::regions::{decode_descriptor, encode_descriptor};
use super::requests::RequestId;
use super::servers::Registration;
use super::tables::{decode_schema, encode_schema};
use super::tag;

/// One change of the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogEdit {
    /// The first entry of a cluster: its id, its masters and its replication.
    Bootstrap(Bootstrap),
    /// The first entry of a cluster whose catalog was lost and rebuilt: a checkpoint of the rebuilt catalog.
    Rebuild { checkpoint: Bytes },
    /// Assigns an id to a server with a fresh data directory. It is no proof that another one at its address is gone: that one
    /// may be cut off, or slow, or the address may be wrong. The others stay until they are known to be gone
    /// (`crate::fleet::successors`).
    AddServer(Registration),
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
    /// How long a server may be away before its replicas are replaced, in place of what masters were started with; 0: as they were
    /// started.
    SetReplaceAfter { after_ms: u64 },
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
    /// Encodes the edit as an operation of group 0's log.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.u8(EDIT_VERSION);
        self.encode_body(&mut out);
        out
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match self {
            Self::Bootstrap(bootstrap) => {
                out.u8(tag::BOOTSTRAP);
                bootstrap.encode(out);
            }
            Self::Rebuild { checkpoint } => {
                out.u8(tag::REBUILD);
                out.bytes(checkpoint);
            }
            Self::IndexRegions { regions } => {
                out.u8(tag::INDEX_REGIONS);
                out.list(regions.iter(), |out, region| encode_descriptor(region, out));
            }
            Self::AddPageKey { id, secret } => {
                out.u8(tag::ADD_PAGE_KEY);
                out.u32(*id);
                out.raw(&secret.0);
            }
            Self::RaiseLevel { level } => {
                out.u8(tag::RAISE_LEVEL);
                out.u32(*level);
            }
            Self::SetReplication { replication } => {
                out.u8(tag::SET_REPLICATION);
                out.u32(*replication);
            }
            Self::SetBalancing { on } => {
                out.u8(tag::SET_BALANCING);
                out.u8(u8::from(*on));
            }
            Self::SetReplaceAfter { after_ms } => out.tagged(tag::SET_REPLACE_AFTER, &[*after_ms]),
            Self::Requested { id, edit } => {
                out.u8(tag::REQUESTED);
                out.raw(&id.0);
                edit.encode_body(out);
            }
            Self::Masters(edit) => edit.encode(out),
            Self::BeginMove(plan) => {
                out.u8(tag::BEGIN_MOVE);
                plan.encode(out);
            }
            Self::CancelMove { id, why } => {
                out.tagged(tag::CANCEL_MOVE, &[id.0]);
                out.text(why);
            }
            Self::EndMove { id, end } => {
                out.tagged(tag::END_MOVE, &[id.0]);
                end.encode(out);
            }
            Self::CreateNamespace { .. }
            | Self::SetProperties { .. }
            | Self::DropNamespace { .. }
            | Self::CreateTable(_)
            | Self::EnableTable { .. }
            | Self::AlterTable { .. }
            | Self::FinishAlter { .. }
            | Self::DropTable { .. }
            | Self::TruncateTable { .. }
            | Self::RemoveTable { .. } => self.encode_tables(out),
            _ => self.encode_fleet(out),
        }
    }

    /// Encodes an edit of a table or a namespace.
    fn encode_tables(&self, out: &mut Vec<u8>) {
        match self {
            Self::CreateTable(new) => {
                out.u8(tag::CREATE_TABLE);
                new.encode(out);
            }
            Self::EnableTable { table } => out.tagged(tag::ENABLE_TABLE, &[table.0]),
            Self::AlterTable { schema } => {
                out.u8(tag::ALTER_TABLE);
                encode_schema(schema, out);
            }
            Self::FinishAlter { table, version } => out.tagged(tag::FINISH_ALTER, &[table.0, *version]),
            Self::DropTable { table } => out.tagged(tag::DROP_TABLE, &[table.0]),
            Self::TruncateTable { table, split_at, groups } => {
                out.tagged(tag::TRUNCATE_TABLE, &[table.0]);
                out.list(split_at.iter(), |out, key| out.bytes(key));
                out.list(groups.iter(), |out, group| out.u64(group.0));
            }
            Self::RemoveTable { table } => out.tagged(tag::REMOVE_TABLE, &[table.0]),
            Self::CreateNamespace { name, properties } => {
                out.u8(tag::CREATE_NAMESPACE);
                out.text(name.as_str());
                encode_properties(properties, out);
            }
            Self::SetProperties { name, properties } => {
                out.u8(tag::SET_PROPERTIES);
                out.text(name.as_str());
                encode_properties(properties, out);
            }
            Self::DropNamespace { name } => {
                out.u8(tag::DROP_NAMESPACE);
                out.text(name.as_str());
            }
            _ => unreachable!("only edits of tables and namespaces are passed"),
        }
    }

    /// Encodes an edit of servers, or of groups and their members.
    fn encode_fleet(&self, out: &mut Vec<u8>) {
        match self {
            Self::AddServer(registration) => {
                out.u8(tag::ADD_SERVER);
                registration.encode(out);
            }
            Self::UpdateServer { server, registration } => {
                out.tagged(tag::UPDATE_SERVER, &[server.0]);
                registration.encode(out);
            }
            Self::DrainServer { server, drain } => {
                out.tagged(tag::DRAIN_SERVER, &[server.0]);
                out.u8(u8::from(*drain));
            }
            Self::RemoveServer { server } => out.tagged(tag::REMOVE_SERVER, &[server.0]),
            Self::TakeRegionIds { count } => {
                out.u8(tag::TAKE_REGION_IDS);
                out.u32(*count);
            }
            Self::AddGroups { expected, groups } => {
                out.tagged(tag::ADD_GROUPS, &[expected.0]);
                out.list(groups.iter(), |out, group| group.encode(out));
            }
            Self::OpenGroup { group } => out.tagged(tag::OPEN_GROUP, &[group.0]),
            Self::ServeGroup { group } => out.tagged(tag::SERVE_GROUP, &[group.0]),
            Self::AbandonGroup { group } => out.tagged(tag::ABANDON_GROUP, &[group.0]),
            Self::RemoveGroup { group } => out.tagged(tag::REMOVE_GROUP, &[group.0]),
            Self::BeginMembers(plan) => {
                out.u8(tag::BEGIN_MEMBERS);
                plan.encode(out);
            }
            Self::PromoteMember { group, version } => out.tagged(tag::PROMOTE_MEMBER, &[group.0, *version]),
            Self::UndoMembers { group, version } => out.tagged(tag::UNDO_MEMBERS, &[group.0, *version]),
            Self::RecoverMembers { group, version, survivor } => {
                out.tagged(tag::RECOVER_MEMBERS, &[group.0, *version, survivor.0]);
            }
            Self::EndMembers { group, version, members } => {
                out.tagged(tag::END_MEMBERS, &[group.0, *version]);
                out.list(members.iter(), |out, replica| out.u64(replica.0));
            }
            _ => unreachable!("only edits of servers and groups are passed"),
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
        if tag == tag::REQUESTED {
            return Err(DecodeError::Rule("a requested edit contains another requested edit".to_owned()));
        }
        Ok(Self::Requested { id, edit: Box::new(Self::decode_fields(tag, from)?) })
    }

    fn decode_fields(tag: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match tag {
            tag::BOOTSTRAP => Self::Bootstrap(Bootstrap::decode(from)?),
            tag::REBUILD => Self::Rebuild { checkpoint: codec::owned(from)? },
            tag::ADD_SERVER => Self::AddServer(Registration::decode(from)?),
            tag::UPDATE_SERVER => {
                Self::UpdateServer { server: ServerId(from.u64()?), registration: Registration::decode(from)? }
            }
            tag::DRAIN_SERVER => Self::DrainServer { server: ServerId(from.u64()?), drain: codec::flag(from)? },
            tag::REMOVE_SERVER => Self::RemoveServer { server: ServerId(from.u64()?) },
            tag::TAKE_REGION_IDS => Self::TakeRegionIds { count: from.u32()? },
            tag::ADD_GROUPS => {
                Self::AddGroups { expected: GroupId(from.u64()?), groups: from.list(GroupPlan::decode)? }
            }
            tag::OPEN_GROUP => Self::OpenGroup { group: GroupId(from.u64()?) },
            tag::SERVE_GROUP => Self::ServeGroup { group: GroupId(from.u64()?) },
            tag::ABANDON_GROUP => Self::AbandonGroup { group: GroupId(from.u64()?) },
            tag::REMOVE_GROUP => Self::RemoveGroup { group: GroupId(from.u64()?) },
            tag::BEGIN_MEMBERS => Self::BeginMembers(ChangePlan::decode(from)?),
            tag::PROMOTE_MEMBER => Self::PromoteMember { group: GroupId(from.u64()?), version: from.u64()? },
            tag::UNDO_MEMBERS => Self::UndoMembers { group: GroupId(from.u64()?), version: from.u64()? },
            tag::RECOVER_MEMBERS => {
                let (group, version) = (GroupId(from.u64()?), from.u64()?);
                Self::RecoverMembers { group, version, survivor: ReplicaId(from.u64()?) }
            }
            tag::END_MEMBERS => {
                let (group, version) = (GroupId(from.u64()?), from.u64()?);
                Self::EndMembers { group, version, members: from.list(|from| from.u64().map(ReplicaId))? }
            }
            tag::BEGIN_MOVE => Self::BeginMove(MovePlan::decode(from)?),
            tag::CANCEL_MOVE => Self::CancelMove { id: MoveId(from.u64()?), why: from.text()? },
            tag::END_MOVE => Self::EndMove { id: MoveId(from.u64()?), end: MoveEnd::decode(from)? },
            tag::SET_REPLICATION => Self::SetReplication { replication: from.u32()? },
            tag::SET_BALANCING => Self::SetBalancing { on: codec::flag(from)? },
            tag::SET_REPLACE_AFTER => Self::SetReplaceAfter { after_ms: from.u64()? },
            tag::RAISE_LEVEL => Self::RaiseLevel { level: from.u32()? },
            tag::BEGIN_MASTERS | tag::UNDO_MASTERS | tag::END_MASTERS => Self::Masters(MastersEdit::decode(tag, from)?),
            tag::REQUESTED => Self::decode_requested(from)?,
            tag::INDEX_REGIONS => Self::IndexRegions { regions: from.list(decode_descriptor)? },
            tag::ADD_PAGE_KEY => Self::AddPageKey { id: from.u32()?, secret: Secret(from.array()?) },
            _ => Self::decode_tables(tag, from)?,
        })
    }

    fn decode_tables(tag: u8, from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match tag {
            tag::CREATE_TABLE => Self::CreateTable(NewTable::decode(from)?),
            tag::ENABLE_TABLE => Self::EnableTable { table: TableId(from.u64()?) },
            tag::ALTER_TABLE => Self::AlterTable { schema: decode_schema(from)? },
            tag::FINISH_ALTER => Self::FinishAlter { table: TableId(from.u64()?), version: from.u64()? },
            tag::DROP_TABLE => Self::DropTable { table: TableId(from.u64()?) },
            tag::TRUNCATE_TABLE => Self::TruncateTable {
                table: TableId(from.u64()?),
                split_at: from.list(codec::owned)?,
                groups: from.list(|from| from.u64().map(GroupId))?,
            },
            tag::REMOVE_TABLE => Self::RemoveTable { table: TableId(from.u64()?) },
            tag::CREATE_NAMESPACE => {
                Self::CreateNamespace { name: decode_name(from)?, properties: decode_properties(from)? }
            }
            tag::SET_PROPERTIES => {
                Self::SetProperties { name: decode_name(from)?, properties: decode_properties(from)? }
            }
            tag::DROP_NAMESPACE => Self::DropNamespace { name: decode_name(from)? },
            found => return Err(DecodeError::Tag { what: "catalog edit", found }),
        })
    }
}

impl NewTable {
    fn encode(&self, out: &mut Vec<u8>) {
        encode_schema(&self.schema, out);
        out.list(self.split_at.iter(), |out, key| out.bytes(key));
        out.list(self.groups.iter(), |out, group| out.u64(group.0));
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            schema: decode_schema(from)?,
            split_at: from.list(codec::owned)?,
            groups: from.list(|from| from.u64().map(GroupId))?,
        })
    }
}

impl Bootstrap {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.raw(&self.cluster.0);
        out.list(self.peers.iter(), |out, peer| out.text(peer));
        out.u32(self.replication);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { cluster: ClusterId(from.array()?), peers: from.list(Reader::text)?, replication: from.u32()? })
    }
}
