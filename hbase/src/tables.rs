//! A master for HBase's clients: how they find the cluster, the system tables, and changes of tables.
//!
//! Only the leading master knows where things are. Another names the one that leads; while none does, it answers that it does
//! not know yet. A client's ZooKeeper session stays with one master, so it must hear of the leader there.

mod altering;
mod descriptors;
mod namespaces;
mod procedures;
mod refusals;
mod regions;
mod service;
mod status;
mod substitutes;
mod switches;
mod system;
mod system_reads;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use terrane_master::edge::{Edge, Map};
use terrane_types::{Error, KeyRange, MasterEndpoint, ServerId};
use tokio::sync::Mutex;
use tokio::time::Instant;

pub(crate) use self::descriptors::deletes_by_timestamp;
use self::procedures::Procedures;
use self::system_reads::SystemScanners;
use crate::connection::{Opened, Service};
use crate::discovery::Discovery;
use crate::exception::{Context, DO_NOT_RETRY, Exception, SERVER_NOT_RUNNING, UNKNOWN_SERVICE};
use crate::frame::Call;
use crate::meta::{RegionRow, State, StateRow, View, news_order};
use crate::place::Place;
use crate::region_name::{NAMESPACE_REGION, namespace_table};
use crate::serve::{Calls, Client, Front, Limits, Outcome};

/// How long a call waits if its client does not say.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// How long it holds what the masters said of each other, so that many sessions ask once.
const SEEN_FOR: Duration = Duration::from_millis(100);

/// The front of one master.
pub struct TablesFront {
    master: Arc<Master>,
    limits: Limits,
}

struct Master {
    edge: Edge,
    own: Place,
    procedures: Procedures,
    seen: Mutex<Option<(Instant, Vec<MasterEndpoint>)>>,
}

impl TablesFront {
    /// A front over a master that HBase's clients reach at this place.
    #[must_use]
    pub fn new(edge: Edge, own: Place) -> Self {
        let limits = Limits::beside(edge.intake());
        let budgets = limits.budgets().chain(limits.zookeeper.budgets());
        budgets.for_each(|budget| edge.budgets().add(budget));
        let master = Master { edge, own, procedures: Procedures::default(), seen: Mutex::default() };
        Self { master: Arc::new(master), limits }
    }
}

impl Front for TablesFront {
    fn discovery(&self) -> Discovery {
        self.master.discovery()
    }

    fn discover(&self) -> BoxFuture<'_, Discovery> {
        self.master.discover("GetActiveMaster").boxed()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Clients keep their connections for long, and would ask a master that has lost the lead for as long.
    fn connections_end(&self) -> BoxFuture<'_, ()> {
        self.master.edge.deposed().boxed()
    }

    fn open(&self, opened: Opened, client: &Client) -> Result<Arc<dyn Calls>, Exception> {
        if opened.service == Service::Admin {
            return Err(Exception::new(UNKNOWN_SERVICE, "AdminService is not served yet"));
        }
        let (master, scanners, peer) = (self.master.clone(), SystemScanners::default(), client.address.to_string());
        Ok(Arc::new(TableCalls { master, scanners, opened, peer }))
    }
}

impl Master {
    fn discovery(&self) -> Discovery {
        let cluster = Some(self.edge.cluster());
        if !self.edge.leads() {
            return Discovery { cluster, ..Discovery::default() };
        }
        let own = || Some(self.own.clone());
        let servers = self.edge.servers();
        let servers = servers.iter().filter_map(|server| Place::of(&server.endpoint)).collect();
        Discovery { cluster, active_master: own(), masters: vec![self.own.clone()], meta: own(), servers }
    }

    /// The same with the other masters, if the call needs them: each knows which one leads.
    async fn discover(&self, method: &str) -> Discovery {
        let mut known = self.discovery();
        if known.active_master.is_some() && method != "GetMasters" {
            return known;
        }
        let seen = self.masters().await;
        let place = |master: &MasterEndpoint| Place::of(&master.endpoint);
        known.masters.extend(seen.iter().filter_map(place).filter(|master| *master != self.own));
        if known.active_master.is_none() {
            known.active_master = seen.iter().find(|master| master.leads).and_then(place);
            known.meta = known.active_master.clone();
        }
        known
    }

    async fn masters(&self) -> Vec<MasterEndpoint> {
        let mut seen = self.seen.lock().await;
        match &*seen {
            Some((at, masters)) if at.elapsed() < SEEN_FOR => masters.clone(),
            _ => {
                let masters = self.edge.masters().await;
                *seen = Some((Instant::now(), masters.clone()));
                masters
            }
        }
    }

    async fn map(&self, deadline: Instant) -> Result<Map, Exception> {
        self.edge.map(deadline).await.map_err(|error| exception(&error))
    }

    /// The rows of `hbase:meta` now.
    async fn view(&self, deadline: Instant) -> Result<View, Exception> {
        let map = self.map(deadline).await?;
        let place = |server: ServerId| Place::of(&map.servers.iter().find(|known| known.server == server)?.endpoint);
        let tables = map.tables.iter().filter(|table| !table.is_changing).map(|table| &table.schema);
        let states = tables.map(|schema| StateRow { table: schema.name.clone(), disabled: schema.disabled });
        let regions = map.regions.iter().filter_map(|region| {
            let descriptor = &region.descriptor;
            let table = map.tables.iter().find(|table| table.schema.table == descriptor.table)?;
            let place = region.leader.and_then(place);
            let state = match &place {
                _ if table.schema.disabled => State::Closed,
                Some(_) => State::Open,
                None => State::Opening,
            };
            Some(RegionRow {
                table: table.schema.name.clone(),
                region: descriptor.region,
                range: descriptor.range.clone(),
                place,
                order: news_order(descriptor.epoch, region.term),
                state,
            })
        });
        // The table of namespaces is served where this one is.
        let of_namespaces = RegionRow {
            table: namespace_table(),
            region: NAMESPACE_REGION,
            range: KeyRange::all(),
            place: Some(self.own.clone()),
            order: 1,
            state: State::Open,
        };
        let namespaces = StateRow { table: namespace_table(), disabled: false };
        let (regions, states) = (regions.chain([of_namespaces]), states.chain([namespaces]));
        Ok(View::of_meta(regions.collect(), states.collect(), self.began()))
    }
}

/// The exception of an error of the master.
fn exception(error: &Error) -> Exception {
    // As a standby master of HBase: a client asks another one. PleaseHoldException would have gohbase ask this one permanently.
    if matches!(error, Error::NotLeader { .. }) {
        return Exception::new(SERVER_NOT_RUNNING, "this master does not lead; ask the others");
    }
    Exception::of(error, &Context { repeatable: true, master: true, place: &|_| None })
}

fn deadline(call: &Call) -> Instant {
    Instant::now() + call.timeout.unwrap_or(DEADLINE_DEFAULT)
}

/// The calls of one connection.
struct TableCalls {
    master: Arc<Master>,
    scanners: SystemScanners,
    opened: Opened,
    peer: String,
}

impl Calls for TableCalls {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        async move {
            match self.opened.service {
                Service::ClientMeta => self.master.discover(&call.method).await.answer(&call.method),
                Service::Client => self.read_system(call).await,
                Service::Master => self.administer(call).await,
                Service::Admin => Err(unknown_method("AdminService", &call.method)),
            }
        }
        .boxed()
    }
}

fn unknown_method(service: &str, method: &str) -> Exception {
    Exception::new(DO_NOT_RETRY, format!("{service} has no method {method:?} here"))
}

#[cfg(test)]
mod tests {
    use terrane_types::GroupId;

    use super::*;

    #[test]
    fn a_master_that_does_not_lead_sends_clients_to_the_others() {
        let error = Error::NotLeader { group: GroupId(0), term: 3, leader: None, address: None, members: Vec::new() };
        let refused = exception(&error);
        assert_eq!(refused.class, "org.apache.hadoop.hbase.ipc.ServerNotRunningYetException");
        assert!(!refused.do_not_retry && !refused.is_retried_here(), "gohbase gives up the connection");
    }
}
