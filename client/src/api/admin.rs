//! Tables, servers, regions and groups as an administrator sees them.
//!
//! Everything in this file is asked of a master. Reads are tried at all of them until the deadline, and so are changes of tables
//! and namespaces, each under an id by which masters recognise it. A change whose answer is lost for good is
//! [`Error::Uncertain`]: look at what is there before repeating it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_proto::v1;
use terrane_types::{
    ClusterId, FamilyName, FamilySchema, GroupId, KeyDeclaration, NamespaceName, RegionDescriptor, RegionId, RowKey,
    ServerId, TableName, TableRow, TableSchema,
};

use crate::api::core::{Core, schema_of};
use crate::error::Error;
use crate::route::masters::{Kind, timed};

/// What is to be made by [`Admin::create_table`].
///
/// ```
/// use terrane_client::TableSpec;
/// # fn main() -> Result<(), terrane_client::Error> {
/// let spec = TableSpec::new("actions")?
///     .family("a", &[("versions", "3")])?
///     .key("user:u64, time:desc i64, action:u32")?
///     .split_at(&5_000u64.to_be_bytes());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The table as it shall be; its id and version are given by the master.
    pub schema: TableSchema,
    /// Rows at which the table is split from the start.
    pub split_at: Vec<Bytes>,
}

impl TableSpec {
    /// A table without families yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not a name.
    pub fn new(name: &str) -> Result<Self, Error> {
        Ok(Self { schema: TableSchema::new(TableName::new(name)?), split_at: Vec::new() })
    }

    /// A table for rows of this type: with the key of the type, and the families that it names, all attributes at their
    /// defaults.
    ///
    /// ```
    /// use terrane_client::{Desc, Row, RowKey, TableSpec};
    ///
    /// #[derive(Clone, RowKey)]
    /// struct ActionKey { user: u64, time: Desc<i64> }
    ///
    /// #[derive(Row)]
    /// #[row(key = ActionKey, family = "a")]
    /// struct Action {
    ///     #[row(part)]
    ///     user: u64,
    ///     #[row(part)]
    ///     time: Desc<i64>,
    ///     kind: String,
    /// }
    ///
    /// # fn main() -> Result<(), terrane_client::Error> {
    /// let spec = TableSpec::of_rows::<Action>("actions")?;
    /// let same = TableSpec::new("actions")?.family("a", &[])?.key("user:u64, time:desc i64")?;
    /// assert_eq!(spec.schema, same.schema);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not a name, or the type names a family that cannot be.
    pub fn of_rows<R: TableRow>(name: &str) -> Result<Self, Error> {
        let mut spec = Self::new(name)?.keyed_by::<R::Key>();
        for (family, _) in R::COLUMNS {
            if spec.schema.family(family.as_bytes()).is_none() {
                spec = spec.family(family, &[])?;
            }
        }
        Ok(spec)
    }

    /// Adds a family with attributes (`versions`, `min_versions`, `ttl`, `keep_deleted_cells`; `compression`, `bloom`,
    /// `block_size`, `in_memory`; `meta.NAME` for free metadata), each as [`FamilySchema::set_attribute`] takes it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name, a family named twice, an attribute that is unknown or out of bounds.
    pub fn family(mut self, name: &str, attributes: &[(&str, &str)]) -> Result<Self, Error> {
        let mut family = FamilySchema::new(FamilyName::new(name)?);
        for (attribute, value) in attributes {
            family.set_attribute(attribute, value)?;
        }
        self.schema.add_family(family)?;
        Ok(self)
    }

    /// Declares the parts of the table's keys, like `user:u64, time:desc i64, action:u32`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the parts cannot be read.
    pub fn key(mut self, parts: &str) -> Result<Self, Error> {
        self.schema.key = Some(KeyDeclaration::parse(parts)?);
        Ok(self)
    }

    /// Declares the parts of a key type, for a [`KeyedTable`](crate::KeyedTable).
    ///
    /// ```
    /// use terrane_client::{Desc, RowKey, TableSpec};
    ///
    /// #[derive(RowKey)]
    /// struct ActionKey { user: u64, time: Desc<i64> }
    ///
    /// # fn main() -> Result<(), terrane_client::Error> {
    /// let spec = TableSpec::new("actions")?.family("a", &[])?.keyed_by::<ActionKey>();
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn keyed_by<K: RowKey>(mut self) -> Self {
        self.schema.key = Some(K::declaration());
        self
    }

    /// Sets a table attribute by its name, like `region_size` to `16MiB` or `bloom_prefix` to `1`; see
    /// [`TableSchema::set_attribute`] for all of them.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is unknown, or its value is out of bounds.
    pub fn set(mut self, attribute: &str, value: &str) -> Result<Self, Error> {
        self.schema.set_attribute(attribute, value)?;
        Ok(self)
    }

    /// Sets the bytes at which a region splits.
    #[must_use]
    pub fn region_size(mut self, bytes: u64) -> Self {
        self.schema.region_size = bytes;
        self
    }

    /// Splits the table at this row from the start.
    #[must_use]
    pub fn split_at(mut self, row: &[u8]) -> Self {
        self.split_at.push(Bytes::copy_from_slice(row));
        self
    }
}

/// Changes to a table, for [`Admin::alter_table`]. All of them come into force together, in each region at one moment of
/// its log; the table serves meanwhile.
///
/// What a lower limit (`versions`, `ttl`) hid stays hidden when it is raised again. A key is declared once. A family that
/// is dropped takes its cells with it; one of the same name that is added later begins empty.
#[derive(Clone, Debug, Default)]
pub struct TableChange {
    set: BTreeMap<String, String>,
    families: Vec<v1::FamilyChange>,
    drop_families: Vec<String>,
}

impl TableChange {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a table attribute, as [`TableSpec::set`] does; `meta.NAME` with an empty value takes an entry away.
    #[must_use]
    pub fn set(mut self, attribute: &str, value: &str) -> Self {
        self.set.insert(attribute.to_owned(), value.to_owned());
        self
    }

    /// Sets attributes of a family that is there; those not named stay as they are.
    #[must_use]
    pub fn family(self, name: &str, attributes: &[(&str, &str)]) -> Self {
        self.change_family(name, false, attributes)
    }

    /// Adds a family, with the attributes that [`TableSpec::family`] takes.
    #[must_use]
    pub fn add_family(self, name: &str, attributes: &[(&str, &str)]) -> Self {
        self.change_family(name, true, attributes)
    }

    /// Drops a family and everything in it.
    #[must_use]
    pub fn drop_family(mut self, name: &str) -> Self {
        self.drop_families.push(name.to_owned());
        self
    }

    fn change_family(mut self, name: &str, add: bool, attributes: &[(&str, &str)]) -> Self {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.families.push(v1::FamilyChange { name: name.to_owned(), add, attributes });
        self
    }
}

/// A table as the master knows it.
#[derive(Clone, Debug)]
pub struct TableInfo {
    /// Its schema.
    pub schema: TableSchema,
    /// `enabled`, or what it is on the way to.
    pub state: String,
    /// How many regions it has.
    pub regions: u32,
    /// About how many bytes it has.
    pub bytes: u64,
}

/// A region server as the master knows it.
#[derive(Clone, Debug)]
pub struct ServerInfo {
    /// Its id.
    pub server: ServerId,
    /// Where clients and peers reach it.
    pub address: String,
    /// Where its console is.
    pub console: String,
    /// `live`, `silent` or `stopped`.
    pub state: String,
    /// Groups it leads.
    pub leaders: u32,
    /// Replicas it has.
    pub replicas: u32,
    /// Regions it hosts: those of the groups it leads.
    pub regions: u32,
    /// The engine of its directory.
    pub engine: String,
    /// Bytes in its log.
    pub log_bytes: u64,
    /// The limit of its log in bytes.
    pub log_limit: u64,
    /// What holds its log back; empty: nothing.
    pub log_held_by: String,
    /// Bytes in its memtables.
    pub memtable_bytes: u64,
    /// How long ago it last reported.
    pub since_report: Duration,
    /// What is wrong with it.
    pub troubles: Vec<String>,
    /// Its limited resources and how full they are.
    pub resources: Vec<ResourceUsage>,
}

/// A limited resource of a server: memory, streams, queues. `docs/design/bounds.md` says what each is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResourceUsage {
    /// Its name, as in the metric `terrane_server_resource_used`.
    pub name: String,
    /// Whether the numbers are bytes; otherwise they count things.
    pub is_bytes: bool,
    /// What is in use.
    pub used: u64,
    /// The most that was in use at a time since the server started.
    pub peak: u64,
    /// What may be in use.
    pub limit: u64,
    /// Requests that were refused for lack of it since the server started.
    pub refused: u64,
}

/// A log group as the master knows it.
#[derive(Clone, Debug)]
pub struct GroupInfo {
    /// Its id.
    pub group: GroupId,
    /// Who leads it, if anybody does.
    pub leader: Option<ServerId>,
    /// The term of that.
    pub term: u64,
    /// Its members' servers and addresses.
    pub members: Vec<(ServerId, String)>,
    /// The replica ids of its members.
    pub replicas: Vec<u64>,
    /// Regions it has.
    pub regions: u32,
    /// The log index it has applied.
    pub applied: u64,
    /// What state it is in.
    pub state: String,
}

/// A region as the master knows it.
#[derive(Clone, Debug)]
pub struct RegionInfo {
    /// What it is.
    pub descriptor: RegionDescriptor,
    /// The name of its table.
    pub table: String,
    /// The address of the server that hosts it; empty: not known.
    pub leader: String,
    /// About how many bytes it has.
    pub bytes: u64,
    /// `open`, or what it is on the way to.
    pub state: String,
    /// The addresses of all servers that have a replica of it.
    pub servers: Vec<String>,
}

/// The whole cluster at a glance.
#[derive(Clone, Debug)]
pub struct ClusterStatus {
    /// Its id.
    pub cluster: ClusterId,
    /// Replicas that each group has.
    pub replication: u32,
    /// Its servers.
    pub servers: Vec<ServerInfo>,
    /// How many tables there are.
    pub tables: u32,
    /// How many regions.
    pub regions: u32,
    /// How many groups.
    pub groups: u32,
    /// Groups that nobody leads at the moment: their regions cannot be read or written.
    pub groups_without_leader: u32,
    /// What is wrong, in sentences.
    pub troubles: Vec<String>,
    /// What the cluster waits for before tables can be made; empty: nothing.
    pub waiting_for: String,
    /// How far the catalog's log is applied.
    pub catalog_index: u64,
}

/// An administrator's calls. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    core: Arc<Core>,
    timeout: Duration,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin").field("cluster", &self.core.router.cluster).finish()
    }
}

macro_rules! ask_master {
    ($self:ident, $kind:expr, $method:ident, $request:expr) => {{
        let request = $request;
        $self.core.router.counting.master_calls.add();
        $self
            .core
            .router
            .masters
            .call($kind, $self.timeout, |mut master, left| {
                let request = timed(request.clone(), left);
                async move { master.$method(request).await }
            })
            .await
    }};
}

impl Admin {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { timeout: core.timeout, core }
    }

    pub(crate) fn hello(&self) -> Option<v1::Hello> {
        self.core.hello()
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same with another deadline for each call made through this handle.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Makes a table. It is usable when this returns; until the cluster has enough servers it waits. Its namespace is there
    /// already ([`Admin::create_namespace`]).
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::AlreadyExists`]; [`Error::Uncertain`] when the answer was lost: see whether it is there.
    pub async fn create_table(&self, spec: TableSpec) -> Result<TableInfo, Error> {
        spec.schema.check()?;
        let request = v1::CreateTableRequest {
            hello: self.core.hello(),
            schema: Some((&spec.schema).into()),
            split_at: spec.split_at,
            request_id: request_id(),
        };
        table_info(ask_master!(self, Kind::Once, create_table, request)?)
    }

    /// Changes attributes and families of a table; holds everywhere when this returns. When time runs out before that (a
    /// group has no leader, say), the master goes on with it, and the error says what it waits for.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost: describe the table.
    pub async fn alter_table(&self, name: &str, change: TableChange) -> Result<TableInfo, Error> {
        let request = v1::AlterTableRequest {
            hello: self.core.hello(),
            name: name.to_owned(),
            set: change.set.into_iter().collect(),
            families: change.families,
            drop_families: change.drop_families,
            request_id: request_id(),
        };
        table_info(ask_master!(self, Kind::Once, alter_table, request)?)
    }

    /// Drops a table and everything in it.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Uncertain`] when the answer was lost.
    pub async fn drop_table(&self, name: &str) -> Result<(), Error> {
        let (hello, name) = (self.core.hello(), name.to_owned());
        let request = v1::DropTableRequest { hello, name, request_id: request_id() };
        ask_master!(self, Kind::Once, drop_table, request).map(drop)
    }

    /// All tables.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.tables_in(String::new()).await
    }

    /// The tables of one namespace.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such namespace, [`Error::Invalid`] when it is not a name.
    pub async fn list_tables_in(&self, namespace: &str) -> Result<Vec<TableInfo>, Error> {
        self.tables_in(NamespaceName::new(namespace)?.to_string()).await
    }

    /// Makes a namespace. Tables can be made in it when this returns, as `namespace:table`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is not a name, [`Error::AlreadyExists`]; [`Error::Uncertain`] when the answer was lost:
    /// see whether it is there.
    pub async fn create_namespace(&self, name: &str) -> Result<(), Error> {
        let request = self.namespace_request(name)?;
        ask_master!(self, Kind::Once, create_namespace, request).map(drop)
    }

    /// Drops a namespace that has no tables.
    ///
    /// # Errors
    /// [`Error::Invalid`] when tables are left in it, some of which it names, and for `default`; [`Error::NotFound`];
    /// [`Error::Uncertain`] when the answer was lost.
    pub async fn drop_namespace(&self, name: &str) -> Result<(), Error> {
        let request = self.namespace_request(name)?;
        ask_master!(self, Kind::Once, drop_namespace, request).map(drop)
    }

    /// All namespaces, sorted; `default` is always among them.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list_namespaces(&self) -> Result<Vec<NamespaceName>, Error> {
        let request = v1::ClusterRequest { hello: self.core.hello() };
        let reply: v1::ListNamespacesReply = ask_master!(self, Kind::Read, list_namespaces, request)?;
        reply.names.iter().map(|name| Ok(NamespaceName::new(name)?)).collect()
    }

    fn namespace_request(&self, name: &str) -> Result<v1::NamespaceRequest, Error> {
        let (hello, name) = (self.core.hello(), NamespaceName::new(name)?.to_string());
        Ok(v1::NamespaceRequest { hello, name, request_id: request_id() })
    }

    async fn tables_in(&self, namespace: String) -> Result<Vec<TableInfo>, Error> {
        let request = v1::ListTablesRequest { hello: self.core.hello(), namespace };
        let reply: v1::ListTablesReply = ask_master!(self, Kind::Read, list_tables, request)?;
        reply.tables.into_iter().map(table_info).collect()
    }

    /// One table.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none of that name.
    pub async fn describe_table(&self, name: &str) -> Result<TableInfo, Error> {
        let request = v1::DescribeTableRequest { hello: self.core.hello(), name: name.to_owned() };
        table_info(ask_master!(self, Kind::Read, describe_table, request)?)
    }

    /// All region servers.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn servers(&self) -> Result<Vec<ServerInfo>, Error> {
        let request = v1::ClusterRequest { hello: self.core.hello() };
        let reply: v1::ListServersReply = ask_master!(self, Kind::Read, list_servers, request)?;
        Ok(reply.servers.into_iter().map(ServerInfo::from).collect())
    }

    /// All log groups.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn groups(&self) -> Result<Vec<GroupInfo>, Error> {
        let request = v1::ClusterRequest { hello: self.core.hello() };
        let reply: v1::ListGroupsReply = ask_master!(self, Kind::Read, list_groups, request)?;
        Ok(reply.groups.into_iter().map(GroupInfo::from).collect())
    }

    /// The regions of one table, or of all.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table.
    pub async fn regions(&self, table: Option<&str>) -> Result<Vec<RegionInfo>, Error> {
        let table = table.unwrap_or_default().to_owned();
        let request = v1::ListRegionsRequest { hello: self.core.hello(), table };
        let reply: v1::ListRegionsReply = ask_master!(self, Kind::Read, list_regions, request)?;
        reply.regions.into_iter().map(RegionInfo::try_from).collect()
    }

    /// The whole cluster at a glance.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<ClusterStatus, Error> {
        let request = v1::ClusterRequest { hello: self.core.hello() };
        let reply: v1::StatusReply = ask_master!(self, Kind::Read, status, request)?;
        let cluster = terrane_proto::hello::cluster_of(&reply.cluster_id)?.unwrap_or_default();
        Ok(ClusterStatus {
            cluster,
            replication: reply.replication,
            servers: reply.servers.into_iter().map(ServerInfo::from).collect(),
            tables: reply.tables,
            regions: reply.regions,
            groups: reply.groups,
            groups_without_leader: reply.groups_without_leader,
            troubles: reply.troubles,
            waiting_for: reply.waiting_for,
            catalog_index: reply.catalog_index,
        })
    }

    /// Splits a region, at a row or near its middle. Answers the two that it became.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Invalid`] when it cannot be split there; [`Error::Uncertain`] when the answer was
    /// lost.
    pub async fn split(&self, region: RegionId, at: Option<&[u8]>) -> Result<Vec<RegionDescriptor>, Error> {
        let at = at.map(Bytes::copy_from_slice).unwrap_or_default();
        let request = v1::SplitRegionRequest { hello: self.core.hello(), region: region.0, at };
        let reply: v1::SplitRegionReply = ask_master!(self, Kind::Change, split_region, request)?;
        reply.daughters.into_iter().map(|daughter| Ok(daughter.try_into()?)).collect()
    }
}

/// An id for one change: however often it is sent, masters make it once.
fn request_id() -> Bytes {
    let halves = [terrane_env::rand::u64(), terrane_env::rand::u64()];
    halves.iter().flat_map(|half| half.to_le_bytes()).collect()
}

fn table_info(mut reply: v1::TableReply) -> Result<TableInfo, Error> {
    let (state, regions, bytes) = (std::mem::take(&mut reply.state), reply.regions, reply.bytes);
    Ok(TableInfo { schema: schema_of(reply)?, state, regions, bytes })
}

impl From<v1::ServerInfo> for ServerInfo {
    fn from(info: v1::ServerInfo) -> Self {
        Self {
            server: ServerId(info.server),
            address: info.address,
            console: info.console,
            state: info.state,
            leaders: info.leaders,
            replicas: info.replicas,
            regions: info.regions,
            engine: info.engine,
            log_bytes: info.log_bytes,
            log_limit: info.log_limit,
            log_held_by: info.log_held_by,
            memtable_bytes: info.memtable_bytes,
            since_report: Duration::from_millis(info.since_report_ms),
            troubles: info.troubles,
            resources: info.resources.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::ResourceUsage> for ResourceUsage {
    fn from(usage: v1::ResourceUsage) -> Self {
        let v1::ResourceUsage { name, bytes, used, peak, limit, refused } = usage;
        Self { name, is_bytes: bytes, used, peak, limit, refused }
    }
}

impl From<v1::GroupInfo> for GroupInfo {
    fn from(info: v1::GroupInfo) -> Self {
        let location = terrane_proto::convert::GroupLocation::from(info.location.unwrap_or_default());
        Self {
            group: location.group,
            leader: location.leader,
            term: location.term,
            members: location.members,
            replicas: info.replicas,
            regions: info.regions,
            applied: info.applied,
            state: info.state,
        }
    }
}

impl TryFrom<v1::RegionInfo> for RegionInfo {
    type Error = Error;

    fn try_from(info: v1::RegionInfo) -> Result<Self, Error> {
        let descriptor =
            info.descriptor.ok_or_else(|| Error::internal("the master listed a region without saying which"))?;
        Ok(Self {
            descriptor: descriptor.try_into()?,
            table: info.table,
            leader: info.leader,
            bytes: info.bytes,
            state: info.state,
            servers: info.servers,
        })
    }
}
