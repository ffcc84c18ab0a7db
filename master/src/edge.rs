//! What another protocol in front of the master may ask and order, as values.
//!
//! The gRPC service is one translator of calls; this is the master's face for another that keeps its own messages. Only the
//! leading master answers: any other refuses with a redirect, as the gRPC service does. Everything is as of the call's arrival.
//!
//! `changes` are the orders, each of which leaves its line in the audit stream; `status` says which servers and masters serve and how they are.

mod changes;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;

use terrane_env::budget::Budgets;
use terrane_env::net::Intake;
use terrane_types::{
    ClusterId, Error, NamespaceName, RegionCounts, RegionDescriptor, ServerEndpoint, ServerId, TableSchema,
};
use tokio::time::Instant;

pub use self::changes::Order;
pub use self::status::{Balance, Server};
pub use crate::catalog::namespaces::Properties;
use crate::catalog::tables::TableState;
use crate::context::MasterContext;
use crate::servers::membership::Membership;
use crate::tables::TableCalls;
use crate::tables::regions::RegionCalls;

/// The master's calls for another protocol.
pub struct Edge {
    /// The other protocol, as in the endpoints of servers and masters.
    protocol: &'static str,
    cluster: ClusterId,
    context: Arc<MasterContext>,
    tables: TableCalls,
    regions: RegionCalls,
    intake: Arc<Intake>,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its newest schema.
    pub schema: TableSchema,
    /// Whether its regions are still being created or are being removed.
    pub is_changing: bool,
    /// Whether some of its regions may not have its newest schema yet.
    pub is_altering: bool,
}

/// A region, and where it is served.
#[derive(Clone, Debug)]
pub struct Region {
    /// The region.
    pub descriptor: RegionDescriptor,
    /// The leader of its group, if one is known and live, and serves it.
    pub leader: Option<ServerId>,
    /// The term of that leader.
    pub term: u64,
    /// What its leader has counted.
    pub counts: RegionCounts,
    /// Rows read and written per second, lately.
    pub requests_per_second: u64,
}

/// All tables, regions and servers at one time.
#[derive(Clone, Debug)]
pub struct Map {
    /// By name; tables that are being removed are left out.
    pub tables: Vec<Table>,
    /// The regions of these tables.
    pub regions: Vec<Region>,
    /// The live servers that serve the protocol.
    pub servers: Vec<ServerEndpoint>,
    /// All namespaces, sorted.
    pub namespaces: Vec<NamespaceName>,
}

impl Edge {
    pub(crate) fn new(
        protocol: &'static str,
        cluster: ClusterId,
        context: Arc<MasterContext>,
        membership: Arc<Membership>,
        intake: Arc<Intake>,
    ) -> Self {
        let regions = RegionCalls::new(Arc::clone(&context), membership);
        Self { protocol, cluster, tables: TableCalls::new(Arc::clone(&context)), regions, context, intake }
    }

    /// What the master's gRPC port has accepted.
    pub const fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// The master's limited resources. Other ports of the process add theirs.
    pub fn budgets(&self) -> &Budgets {
        &self.context.budgets
    }

    /// The cluster.
    pub const fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Whether this master leads.
    pub fn leads(&self) -> bool {
        self.context.leadership.holds()
    }

    /// Returns when this master leads no more; of one that does not lead, once it has.
    pub async fn deposed(&self) {
        self.context.leadership.gained().await;
        self.context.leadership.lost().await;
    }

    /// The live servers that serve the protocol, as far as this master knows.
    pub fn servers(&self) -> Vec<ServerEndpoint> {
        let endpoints = self.context.server_endpoints().into_iter();
        endpoints.filter(|known| known.endpoint.protocol == self.protocol).collect()
    }

    /// The properties of those namespaces that have any.
    ///
    /// # Errors
    /// A redirect if this master does not lead.
    pub async fn properties(&self, deadline: Instant) -> Result<BTreeMap<NamespaceName, Properties>, Error> {
        self.context.leadership.admit(deadline).await?;
        self.context.journal.barrier().await?;
        Ok(self.context.journal.read(|catalog| catalog.namespaces().properties().clone()))
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
                    is_altering: entry.state == TableState::Altering,
                })
                .collect();
            let regions = self.context.observed.with(|observed| {
                let known = |table| catalog.tables().get(table).is_some_and(|entry| kept(entry.state));
                let regions = catalog.regions().iter().filter(|region| known(region.descriptor.table));
                let place = |region: &RegionDescriptor| {
                    let seen = observed.inventory.region(region.group, region.region);
                    Region {
                        leader: observed.serving_leader(region.group),
                        term: observed.inventory.group(region.group).map_or(0, |view| view.term),
                        counts: seen.map_or_else(RegionCounts::default, |view| (&view.counts).into()),
                        requests_per_second: seen.map_or(0, |view| view.load.rows_read + view.load.rows_written),
                        descriptor: region.clone(),
                    }
                };
                regions.map(|region| place(&region.descriptor)).collect()
            });
            Map { tables, regions, servers, namespaces: catalog.namespaces().list() }
        }))
    }
}
