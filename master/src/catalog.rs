//! The catalog: tables, the map of regions, groups and servers, as plain ordered maps.
//!
//! It is the state machine of group 0. Only [`CatalogEdit`] values change it, applied in log order. Applying is a pure
//! function of catalog, edit and stamp, so that every master has the same catalog. State that changes by the second
//! (load, liveness, leaders, sizes) is not part of it and never enters the log.
//!
//! Invariants: an edit is applied as a whole or refused as a whole; ids are never reused; the regions of a table cover
//! all keys.

pub mod changes;
pub mod checkpoint;
pub mod codec;
pub mod edit;
pub mod groups;
pub mod masters;
mod members;
pub mod moves;
mod moving;
pub mod namespaces;
pub mod outcome;
pub mod page_keys;
pub mod rebuilt;
pub mod regions;
pub mod requests;
pub mod servers;
pub mod tables;
mod tag;

#[cfg(test)]
pub(crate) mod scripts;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::states::DrainState;
use terrane_types::versions::FEATURE_LEVEL_OLDEST;
use terrane_types::{
    ClusterId, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, ReplicaId, ServerId, TableId, TableSchema,
};

use self::changes::ChangeState;
use self::codec::{ByteWriter as _, DecodeError, Reader, flag};
pub use self::edit::{Bootstrap, CatalogEdit, NewTable};
use self::groups::{GroupEntry, GroupPlan, GroupState, Groups};
use self::masters::MasterSet;
use self::moves::Moves;
use self::namespaces::Namespaces;
pub use self::outcome::{Outcome, Refusal};
use self::page_keys::{PageKeys, Secret};
use self::regions::Regions;
use self::requests::{RequestId, Requests};
use self::servers::{Drain, Registration, Servers};
use self::tables::{TableEntry, TableState, Tables};
use crate::ids::Ids;

/// The epoch of a region that has never split, merged or moved.
const EPOCH_FIRST: RegionEpoch = RegionEpoch(1);
/// The version of a schema that has never been altered.
const SCHEMA_VERSION_FIRST: u64 = 1;
/// The numbers of replicas that a group can have.
pub const REPLICATIONS: [u32; 3] = [1, 3, 5];

/// The durable state of the master.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    bootstrap: Option<Bootstrap>,
    ids: Ids,
    servers: Servers,
    groups: Groups,
    namespaces: Namespaces,
    tables: Tables,
    regions: Regions,
    page_keys: PageKeys,
    requests: Requests,
    /// Whether an administrator has switched off that replicas and leaderships are spread.
    balancing_off: bool,
    /// How long a server may be away before its replicas are replaced, if an administrator has said so.
    replace_after: Option<Duration>,
    moves: Moves,
    /// The feature level of the cluster, once it has risen above the lowest of this build.
    level: Option<u32>,
    masters: MasterSet,
}

impl Catalog {
    /// What was fixed when the cluster was created; `None` before the first entry.
    pub fn bootstrap(&self) -> Option<&Bootstrap> {
        self.bootstrap.as_ref()
    }

    /// The cluster's id; nil before the first entry.
    pub fn cluster(&self) -> ClusterId {
        self.bootstrap.as_ref().map_or(ClusterId::nil(), |bootstrap| bootstrap.cluster)
    }

    /// Replicas of each group; 0 before the first entry.
    pub fn replication(&self) -> u32 {
        self.bootstrap.as_ref().map_or(0, |bootstrap| bootstrap.replication)
    }

    /// The registered servers.
    pub const fn servers(&self) -> &Servers {
        &self.servers
    }

    /// The groups.
    pub const fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The namespaces.
    pub const fn namespaces(&self) -> &Namespaces {
        &self.namespaces
    }

    /// The tables.
    pub const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The map of regions.
    pub const fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The keys that seal page tokens.
    pub const fn page_keys(&self) -> &PageKeys {
        &self.page_keys
    }

    /// The recorded requests.
    pub const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The moves of regions.
    pub const fn moves(&self) -> &Moves {
        &self.moves
    }

    /// The feature level of the cluster.
    pub fn level(&self) -> u32 {
        self.level.unwrap_or(FEATURE_LEVEL_OLDEST)
    }

    /// Whether replicas and leaderships are spread without being asked.
    pub const fn is_balancing(&self) -> bool {
        !self.balancing_off
    }

    /// How long a server may be away before its replicas are replaced; `None`: as masters were started.
    pub const fn replace_after(&self) -> Option<Duration> {
        self.replace_after
    }

    /// The number of the leadership in a term: higher than those of the terms before, and of the lost catalog's.
    pub fn leadership(&self, term: u64) -> u64 {
        self.ids.leadership(term)
    }

    /// How far the drain of a server is; `None` if it is not drained.
    pub fn drain_state(&self, server: ServerId) -> Option<DrainState> {
        self.servers.drain(server)?;
        Some(if self.groups.replicas_on(server) == 0 { DrainState::Drained } else { DrainState::Draining })
    }

    /// Whether a replica's id was handed out by this catalog.
    pub fn has_assigned(&self, replica: ReplicaId) -> bool {
        self.ids.has_assigned(replica)
    }

    /// Whether a replica's id was handed out by this catalog, or may have been by a lost one before it.
    pub fn may_have_assigned(&self, replica: ReplicaId) -> bool {
        self.ids.may_have_assigned(replica)
    }

    /// Whether a group's id was handed out by this catalog.
    pub fn has_assigned_group(&self, group: GroupId) -> bool {
        self.ids.has_assigned_group(group)
    }

    /// Whether a server's id was handed out by this catalog: a server that it does not have was removed.
    pub fn has_assigned_server(&self, server: ServerId) -> bool {
        self.ids.has_assigned_server(server)
    }

    /// The id of the next group.
    pub fn next_group(&self) -> GroupId {
        self.ids.next_group()
    }

    /// Applies one edit of an entry that has this stamp.
    pub fn apply(&mut self, edit: &CatalogEdit, stamp: u64) -> Outcome {
        let applied = match edit {
            CatalogEdit::Bootstrap(bootstrap) => self.bootstrap_cluster(bootstrap),
            CatalogEdit::Rebuild { checkpoint } => self.begin_rebuilt(checkpoint),
            CatalogEdit::AddServer(registration) => Ok(self.add_server(registration)),
            CatalogEdit::UpdateServer { server, registration } => self.update_server(*server, registration),
            CatalogEdit::TakeRegionIds { count } => {
                let keeps = terrane_env::planted!("region ids are given out twice");
                let ids = if keeps { &mut self.ids.clone() } else { &mut self.ids };
                Ok(Outcome::RegionIds(ids.regions(*count)))
            }
            CatalogEdit::AddGroups { expected, groups } => self.add_groups(*expected, groups),
            CatalogEdit::OpenGroup { group } => self.groups.enter(*group, GroupState::Open).map(|()| Outcome::Done),
            CatalogEdit::ServeGroup { group } => self.groups.enter(*group, GroupState::Partial).map(|()| Outcome::Done),
            CatalogEdit::AbandonGroup { group } => self.abandon_group(*group),
            CatalogEdit::RemoveGroup { group } => self.remove_group(*group),
            CatalogEdit::BeginMembers(plan) => self.begin_change(plan, stamp),
            CatalogEdit::PromoteMember { group, version } => self.step_change(*group, *version, ChangeState::Promoting),
            CatalogEdit::UndoMembers { group, version } => self.step_change(*group, *version, ChangeState::Undoing),
            CatalogEdit::RecoverMembers { group, version, survivor } => {
                self.recover_members(*group, *version, *survivor, stamp)
            }
            CatalogEdit::EndMembers { group, version, members } => self.end_change(*group, *version, members),
            CatalogEdit::Masters(edit) => self.edit_masters(edit, stamp),
            CatalogEdit::BeginMove(plan) => self.begin_move(plan, stamp),
            CatalogEdit::CancelMove { id, why } => self.cancel_move(*id, why),
            CatalogEdit::EndMove { id, end } => self.end_move(*id, end, stamp),
            CatalogEdit::DrainServer { server, drain } => self.drain_server(*server, *drain, stamp),
            CatalogEdit::RemoveServer { server } => self.remove_server(*server),
            CatalogEdit::SetReplication { replication } => self.set_replication(*replication),
            CatalogEdit::SetBalancing { on } => {
                self.balancing_off = !on;
                Ok(Outcome::Done)
            }
            CatalogEdit::SetReplaceAfter { after_ms } => {
                self.replace_after = Some(Duration::from_millis(*after_ms)).filter(|after| !after.is_zero());
                Ok(Outcome::Done)
            }
            CatalogEdit::CreateTable(new) => self.create_table(new, stamp),
            CatalogEdit::CreateNamespace { name, properties } => {
                self.namespaces.create(name, properties).map(|()| Outcome::Done)
            }
            CatalogEdit::SetProperties { name, properties } => {
                self.namespaces.set_properties(name, properties).map(|()| Outcome::Done)
            }
            CatalogEdit::DropNamespace { name } => self.namespaces.drop(name, &self.tables).map(|()| Outcome::Done),
            CatalogEdit::EnableTable { table } => self.advance(*table, TableState::Creating, TableState::Enabled),
            CatalogEdit::AlterTable { schema } => self.alter_table(schema),
            CatalogEdit::FinishAlter { table, version } => self.finish_alter(*table, *version),
            CatalogEdit::DropTable { table } => self.drop_table(*table),
            CatalogEdit::TruncateTable { table, split_at, groups } => {
                self.truncate_table(*table, split_at, groups, stamp)
            }
            CatalogEdit::RemoveTable { table } => self.remove_table(*table),
            CatalogEdit::IndexRegions { regions } => Ok(self.index_regions(regions, stamp)),
            CatalogEdit::AddPageKey { id, secret } => self.add_page_key(*id, *secret, stamp),
            CatalogEdit::RaiseLevel { level } => self.raise_level(*level),
            CatalogEdit::Requested { id, edit } => Ok(self.requested(*id, edit, stamp)),
        };
        applied.unwrap_or_else(Outcome::Refused)
    }

    /// Applies an edit unless its request is recorded; the outcome is the changed table in either case.
    fn requested(&mut self, id: RequestId, edit: &CatalogEdit, stamp: u64) -> Outcome {
        if let Some(table) = self.requests.get(id) {
            return Outcome::Table(table);
        }
        let outcome = self.apply(edit, stamp);
        let table = match (&outcome, edit) {
            (Outcome::Refused(_), _) => return outcome,
            (Outcome::Table(table), _) | (_, CatalogEdit::DropTable { table }) => *table,
            (_, CatalogEdit::AlterTable { schema }) => schema.table,
            _ => TableId(0),
        };
        if !terrane_env::planted!("a request to the master is not recorded") {
            self.requests.record(id, table);
        }
        Outcome::Table(table)
    }

    fn bootstrap_cluster(&mut self, bootstrap: &Bootstrap) -> Result<Outcome, Refusal> {
        match &self.bootstrap {
            None => self.bootstrap = Some(bootstrap.clone()),
            Some(known) if known == bootstrap => {}
            Some(known) => return Err(Refusal::AlreadyExists(format!("cluster {}", known.cluster))),
        }
        Ok(Outcome::Done)
    }

    fn add_server(&mut self, registration: &Registration) -> Outcome {
        if terrane_env::planted!("a newcomer expels the server that has its address") {
            let there = self.servers.iter().filter(|(_, known)| known.address == registration.address);
            let empty = there.map(|(server, _)| server).filter(|server| self.groups.replicas_on(*server) == 0);
            empty.collect::<Vec<_>>().into_iter().for_each(|server| self.servers.remove(server));
        }
        let server = self.ids.server();
        self.servers.add(server, registration.clone());
        Outcome::Server(server)
    }

    fn update_server(&mut self, server: ServerId, registration: &Registration) -> Result<Outcome, Refusal> {
        if self.servers.update(server, registration.clone()) {
            Ok(Outcome::Done)
        } else {
            Err(Refusal::NotFound(format!("server {server}")))
        }
    }

    fn drain_server(&mut self, server: ServerId, drain: bool, stamp: u64) -> Result<Outcome, Refusal> {
        if self.servers.get(server).is_none() {
            return Err(Refusal::NotFound(format!("server {server}")));
        }
        if drain {
            let replicas = u32::try_from(self.groups.replicas_on(server)).unwrap_or(u32::MAX);
            self.servers.begin_drain(server, Drain { since_ms: stamp, replicas });
        } else {
            self.servers.end_drain(server);
        }
        Ok(Outcome::Done)
    }

    fn remove_server(&mut self, server: ServerId) -> Result<Outcome, Refusal> {
        if self.servers.get(server).is_none() {
            return Err(Refusal::NotFound(format!("server {server}")));
        }
        match self.groups.replicas_on(server) {
            0 => self.servers.remove(server),
            replicas => return Err(Refusal::Changed(format!("server {server} still has {replicas} replicas"))),
        }
        Ok(Outcome::Done)
    }

    fn raise_level(&mut self, level: u32) -> Result<Outcome, Refusal> {
        match self.level() {
            known if level <= known => {}
            known if level == known + 1 => self.level = Some(level),
            known => return Err(Refusal::Changed(format!("the cluster is at feature level {known}"))),
        }
        Ok(Outcome::Done)
    }

    fn set_replication(&mut self, replication: u32) -> Result<Outcome, Refusal> {
        if !REPLICATIONS.contains(&replication) {
            return Err(Refusal::Invalid(format!("replication must be 1, 3 or 5, not {replication}")));
        }
        let Some(bootstrap) = &mut self.bootstrap else {
            return Err(Refusal::Changed("the cluster is not bootstrapped".into()));
        };
        bootstrap.replication = replication;
        Ok(Outcome::Done)
    }

    fn add_groups(&mut self, expected: GroupId, plans: &[GroupPlan]) -> Result<Outcome, Refusal> {
        if self.ids.next_group() != expected {
            return Err(Refusal::Changed(format!("the next group is {}, not {expected}", self.ids.next_group())));
        }
        for plan in plans {
            self.check_plan(plan)?;
        }
        for plan in plans {
            let members = plan.servers.iter().map(|server| (self.ids.replica(), *server)).collect();
            self.groups.add(self.ids.group(), GroupEntry::creating(plan.leader, members));
        }
        Ok(Outcome::Done)
    }

    fn check_plan(&self, plan: &GroupPlan) -> Result<(), Refusal> {
        if !plan.is_sound() || plan.servers.len() != usize::try_from(self.replication()).unwrap_or(usize::MAX) {
            return Err(Refusal::Invalid(
                "a group needs its leader among as many distinct servers as the cluster has replicas".into(),
            ));
        }
        match plan.servers.iter().find(|server| self.servers.get(**server).is_none()) {
            Some(server) => Err(Refusal::NotFound(format!("server {server}"))),
            None => Ok(()),
        }
    }

    fn create_table(&mut self, new: &NewTable, stamp: u64) -> Result<Outcome, Refusal> {
        let name = new.schema.name.to_string();
        if self.tables.named(&name).is_some() {
            return Err(Refusal::AlreadyExists(format!("table {name}")));
        }
        let namespace = new.schema.name.namespace_name();
        if !self.namespaces.contains(&namespace) {
            return Err(Refusal::Invalid(namespaces::missing(&namespace)));
        }
        let table = self.add_table(&new.schema, &new.split_at, &new.groups, stamp)?;
        Ok(Outcome::Table(table))
    }

    /// The next table of the name takes the place of this one, which is dropped.
    fn truncate_table(
        &mut self,
        table: TableId,
        split_at: &[Bytes],
        groups: &[GroupId],
        stamp: u64,
    ) -> Result<Outcome, Refusal> {
        let entry = self.table_mut(table)?;
        if entry.state != TableState::Enabled {
            return Err(changed(entry));
        }
        let schema = entry.schema.clone();
        let next = self.add_table(&schema, split_at, groups, stamp)?;
        self.table_mut(table)?.enter(TableState::Dropping);
        Ok(Outcome::Table(next))
    }

    fn add_table(
        &mut self,
        schema: &TableSchema,
        split_at: &[Bytes],
        groups: &[GroupId],
        stamp: u64,
    ) -> Result<TableId, Refusal> {
        if groups.len() != split_at.len() + 1 {
            return Err(Refusal::Invalid("a table has one more region than split points".into()));
        }
        if let Some(group) = groups.iter().find(|group| self.groups.get(**group).is_none()) {
            return Err(Refusal::Changed(format!("group {group} does not exist")));
        }
        let ranges = ranges_between(split_at)?;
        let table = self.ids.table();
        let schema = TableSchema { table, version: SCHEMA_VERSION_FIRST, ..schema.clone() };
        let first = self.ids.regions(u32::try_from(ranges.len()).map_err(|_| too_many_regions())?);
        for (number, (range, group)) in ranges.into_iter().zip(groups).enumerate() {
            let region = RegionId(first.0 + number as u64);
            let (group, schema_version) = (*group, schema.version);
            let descriptor = RegionDescriptor { region, table, range, epoch: EPOCH_FIRST, group, schema_version };
            self.regions.insert(descriptor, stamp);
        }
        self.tables.add(TableEntry { schema, state: TableState::Creating });
        Ok(table)
    }

    fn table_mut(&mut self, table: TableId) -> Result<&mut TableEntry, Refusal> {
        self.tables.get_mut(table).ok_or_else(|| Refusal::NotFound(format!("table {table}")))
    }

    fn advance(&mut self, table: TableId, from: TableState, to: TableState) -> Result<Outcome, Refusal> {
        let entry = self.table_mut(table)?;
        if entry.state != from && entry.state != to {
            return Err(changed(entry));
        }
        entry.enter(to);
        Ok(Outcome::Done)
    }

    fn alter_table(&mut self, schema: &TableSchema) -> Result<Outcome, Refusal> {
        let entry = self.table_mut(schema.table)?;
        let fits = entry.state == TableState::Enabled
            && entry.schema.version + 1 == schema.version
            && entry.schema.name == schema.name;
        if !fits {
            return Err(changed(entry));
        }
        entry.begin_alter(schema.clone());
        Ok(Outcome::Done)
    }

    fn finish_alter(&mut self, table: TableId, version: u64) -> Result<Outcome, Refusal> {
        let entry = self.table_mut(table)?;
        if entry.schema.version != version {
            return Err(changed(entry));
        }
        let outcome = self.advance(table, TableState::Altering, TableState::Enabled)?;
        self.regions.raise_schema(table, version);
        Ok(outcome)
    }

    fn drop_table(&mut self, table: TableId) -> Result<Outcome, Refusal> {
        self.table_mut(table)?.enter(TableState::Dropping);
        Ok(Outcome::Done)
    }

    fn remove_table(&mut self, table: TableId) -> Result<Outcome, Refusal> {
        let entry = self.table_mut(table)?;
        if entry.state != TableState::Dropping {
            return Err(changed(entry));
        }
        if let Some((id, _)) = self.moves.of_table(table).next() {
            return Err(Refusal::Changed(format!("a region of table {table} is moving (move-{id})")));
        }
        self.tables.remove(table);
        self.regions.remove_table(table);
        Ok(Outcome::Done)
    }

    fn add_page_key(&mut self, id: u32, secret: Secret, stamp: u64) -> Result<Outcome, Refusal> {
        if id != self.page_keys.next_id() {
            return Err(Refusal::Changed(format!("the next page key is {}, not {id}", self.page_keys.next_id())));
        }
        self.page_keys.add(secret, stamp);
        Ok(Outcome::Done)
    }

    fn index_regions(&mut self, regions: &[RegionDescriptor], stamp: u64) -> Outcome {
        self.regions.absorb(&self.of_known_groups(regions), stamp);
        Outcome::Done
    }

    /// The reported regions that would change the map, so that a report without news records nothing.
    pub fn news(&self, regions: &[RegionDescriptor]) -> Vec<RegionDescriptor> {
        self.regions.news(&self.of_known_groups(regions))
    }

    /// Drops regions of unknown groups: clients could not find their servers.
    fn of_known_groups(&self, regions: &[RegionDescriptor]) -> Vec<RegionDescriptor> {
        regions.iter().filter(|region| self.groups.get(region.group).is_some()).cloned().collect()
    }

    /// Encodes the catalog of a checkpoint.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.option(self.bootstrap.as_ref(), |out, bootstrap| bootstrap.encode(out));
        self.ids.encode(out);
        self.servers.encode(out);
        self.groups.encode(out);
        members::encode_changes(&self.groups, out);
        self.namespaces.encode(out);
        self.tables.encode(out);
        self.regions.encode(out);
        self.page_keys.encode(out);
        self.requests.encode(out);
        out.flag(self.balancing_off);
        self.moves.encode(out);
        // A level that has risen is never 0.
        out.u32(self.level.unwrap_or(0));
        self.masters.encode(out);
        // Nothing follows where it was never set: catalogs had no such field at first.
        if let Some(after) = self.replace_after {
            out.u64(u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// Decodes the catalog of a checkpoint.
    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let bootstrap = if flag(from)? { Some(Bootstrap::decode(from)?) } else { None };
        let (ids, servers, mut groups) = (Ids::decode(from)?, Servers::decode(from)?, Groups::decode(from)?);
        members::decode_changes(&mut groups, from)?;
        let mut catalog = Self {
            bootstrap,
            ids,
            servers,
            groups,
            namespaces: Namespaces::decode(from)?,
            tables: Tables::decode(from)?,
            regions: Regions::decode(from)?,
            page_keys: PageKeys::decode(from)?,
            requests: Requests::decode(from)?,
            balancing_off: flag(from)?,
            moves: Moves::decode(from)?,
            level: Some(from.u32()?).filter(|level| *level > 0),
            masters: MasterSet::decode(from)?,
            replace_after: None,
        };
        if from.remaining() > 0 {
            catalog.replace_after = Some(Duration::from_millis(from.u64()?)).filter(|after| !after.is_zero());
        }
        Ok(catalog)
    }

    /// How many regions each group has, including groups without regions.
    pub fn regions_per_group(&self) -> BTreeMap<GroupId, u64> {
        let mut counts: BTreeMap<GroupId, u64> = self.groups.iter().map(|(group, _)| (group, 0)).collect();
        counts.extend(self.regions.per_group());
        counts
    }
}

fn changed(entry: &TableEntry) -> Refusal {
    let (name, version, state) = (&entry.schema.name, entry.schema.version, entry.state.name());
    Refusal::Changed(format!("table {name} is {state} at schema version {version}"))
}

fn too_many_regions() -> Refusal {
    Refusal::Invalid("a table must have fewer than 2^32 regions".into())
}

/// The ranges between ascending split points.
fn ranges_between(split_at: &[Bytes]) -> Result<Vec<KeyRange>, Refusal> {
    let starts = std::iter::once(Bytes::new()).chain(split_at.iter().cloned());
    let ends = split_at.iter().cloned().chain(std::iter::once(Bytes::new()));
    let ranges = starts.zip(ends).map(|(start, end)| KeyRange::new(start, end));
    let ranges = ranges.collect::<Result<Vec<_>, _>>().map_err(|invalid| Refusal::Invalid(invalid.what))?;
    let ascending = split_at.windows(2).all(|pair| pair[0] < pair[1]) && split_at.iter().all(|key| !key.is_empty());
    if ascending { Ok(ranges) } else { Err(Refusal::Invalid("split points must ascend, and none may be empty".into())) }
}
