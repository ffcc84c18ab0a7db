//! What another protocol in front of the master may ask and order, as values.
//!
//! The gRPC service is one translator of calls; this is the master's face for another that keeps its own messages. Only the
//! leading master answers: any other refuses with a redirect, as the gRPC service does. Everything is as of the call's arrival.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_types::{ClusterId, Error, RegionDescriptor, ServerId, TableName, TableSchema};
use tokio::time::Instant;

use crate::catalog::requests::RequestId;
use crate::catalog::tables::TableState;
use crate::context::MasterContext;
use crate::schemas::TableChange;
use crate::tables::TableCalls;

/// How long a caller waits before it repeats a change that another master continues.
const REPEAT_AFTER: Duration = Duration::from_millis(50);

/// The master's calls for another protocol.
pub struct Edge {
    cluster: ClusterId,
    context: Arc<MasterContext>,
    tables: TableCalls,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its newest schema.
    pub schema: TableSchema,
    /// Whether its regions are still being created or are being removed.
    pub is_changing: bool,
}

/// A region, and where it is served.
#[derive(Clone, Debug)]
pub struct Region {
    /// The region.
    pub descriptor: RegionDescriptor,
    /// The leader of its group, if one is known and live.
    pub leader: Option<ServerId>,
    /// The term of that leader.
    pub term: u64,
}

/// A live server that serves HBase's clients.
#[derive(Clone, Debug)]
pub struct HbaseServer {
    /// The server.
    pub server: ServerId,
    /// `host:port`.
    pub address: String,
    /// The number of its present life.
    pub boot: u64,
}

/// All tables, regions and servers at one time.
#[derive(Clone, Debug)]
pub struct Map {
    /// By name; tables that are being removed are left out.
    pub tables: Vec<Table>,
    /// The regions of these tables.
    pub regions: Vec<Region>,
    /// The live servers that serve HBase's clients.
    pub servers: Vec<HbaseServer>,
}

/// A change of tables: who asks, until when, and the number that makes a repetition harmless.
#[derive(Clone, Debug)]
pub struct Order {
    /// The same in every attempt; `None`: the change is made once per attempt.
    pub id: Option<[u8; 16]>,
    /// When the caller gives up. The master continues with what it has accepted.
    pub deadline: Instant,
    /// The caller, for the audit stream.
    pub peer: String,
}

impl Edge {
    pub(crate) fn new(cluster: ClusterId, context: Arc<MasterContext>) -> Self {
        Self { cluster, tables: TableCalls::new(Arc::clone(&context)), context }
    }

    /// The cluster.
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Whether this master leads.
    pub fn leads(&self) -> bool {
        self.context.leadership.holds()
    }

    /// The live servers that serve HBase's clients, as far as this master knows.
    pub fn servers(&self) -> Vec<HbaseServer> {
        self.context.journal.read(|catalog| {
            let known = catalog.servers().iter().map(|(server, _)| server);
            self.context.observed.with(|observed| {
                let live = known.filter(|server| observed.liveness.is_live(*server));
                let serving = live.filter_map(|server| {
                    let load = observed.inventory.load(server).filter(|load| !load.hbase.is_empty())?;
                    Some(HbaseServer { server, address: load.hbase.clone(), boot: load.boot })
                });
                serving.collect()
            })
        })
    }

    /// All tables, regions and servers.
    ///
    /// # Errors
    /// A redirect if this master does not lead.
    pub async fn map(&self, deadline: Instant) -> Result<Map, Error> {
        self.context.leadership.admit(deadline).await?;
        self.context.journal.barrier().await?;
        let servers = self.servers();
        Ok(self.context.journal.read(|catalog| {
            let kept = |state: TableState| state != TableState::Dropping;
            let tables = catalog.tables().iter().filter(|entry| kept(entry.state));
            let tables: Vec<Table> = tables
                .map(|entry| Table {
                    schema: entry.schema.clone(),
                    is_changing: matches!(entry.state, TableState::Creating | TableState::Dropping),
                })
                .collect();
            let regions = self.context.observed.with(|observed| {
                let known = |table| catalog.tables().get(table).is_some_and(|entry| kept(entry.state));
                let regions = catalog.regions().iter().filter(|region| known(region.descriptor.table));
                let place = |region: &RegionDescriptor| Region {
                    leader: observed.leader(region.group),
                    term: observed.inventory.group(region.group).map_or(0, |view| view.term),
                    descriptor: region.clone(),
                };
                regions.map(|region| place(&region.descriptor)).collect()
            });
            Map { tables, regions, servers }
        }))
    }

    /// Creates a table; its regions are usable when this returns.
    ///
    /// # Errors
    /// Why it was not created, or that the master continues with it.
    pub async fn create_table(&self, schema: TableSchema, split_at: Vec<Bytes>, order: &Order) -> Result<(), Error> {
        let name = schema.name.clone();
        let created = self.tables.create(schema, split_at, order.id.map(RequestId), order.deadline);
        self.lead("create table", &name, order, async { created.await.map(drop) }).await
    }

    /// Drops a table; all groups have removed it when this returns.
    ///
    /// # Errors
    /// Why it was not dropped, or that the master continues with it.
    pub async fn drop_table(&self, name: &TableName, order: &Order) -> Result<(), Error> {
        let dropped = self.tables.drop(name, order.id.map(RequestId), order.deadline);
        self.lead("drop table", name, order, dropped).await
    }

    /// Disables a table, so that it takes neither reads nor writes, or enables it again.
    ///
    /// # Errors
    /// Why it was not changed, or that the master continues with it.
    pub async fn set_disabled(&self, name: &TableName, disabled: bool, order: &Order) -> Result<(), Error> {
        let set = [("disabled".to_owned(), disabled.to_string())].into();
        let change = TableChange { set, ..TableChange::default() };
        let altered = self.tables.alter(name, &change, order.id.map(RequestId), order.deadline);
        self.lead(if disabled { "disable table" } else { "enable table" }, name, order, altered).await
    }

    /// A change that only the leader makes, with its line in the audit stream. If this master loses the leadership meanwhile,
    /// the next one continues.
    async fn lead(
        &self,
        action: &'static str,
        subject: &TableName,
        order: &Order,
        change: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        self.context.leadership.admit(order.deadline).await?;
        let result = tokio::select! {
            biased;
            result = change => result,
            () = self.context.leadership.lost() => {
                let message = "another master leads now; it continues with what was accepted".to_owned();
                Err(Error::InProgress { message, retry_after: REPEAT_AFTER })
            }
        };
        let outcome = result.as_ref().map_or_else(ToString::to_string, |()| "done".to_owned());
        tracing::info!(target: "audit", action, %subject, peer = order.peer, outcome);
        result
    }
}
