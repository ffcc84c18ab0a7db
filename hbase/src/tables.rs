//! A master for HBase's clients: how they find the cluster, `hbase:meta`, and changes of tables.
//!
//! Only the leading master knows where things are; another answers that it does not know yet, and clients ask the next one.

mod descriptors;
mod meta_reads;
mod procedures;
mod service;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use terrane_master::edge::{Edge, Map};
use terrane_types::{Error, ServerId};
use tokio::time::Instant;

use self::meta_reads::MetaScanners;
use self::procedures::Procedures;
use crate::connection::{Opened, Service};
use crate::discovery::Discovery;
use crate::exception::{Context, DO_NOT_RETRY, Exception, UNKNOWN_SERVICE};
use crate::frame::Call;
use crate::meta::{RegionRow, State, StateRow, View};
use crate::place::Place;
use crate::serve::{Answer, Calls, Front, Outcome};

/// How long a call waits if its client does not say.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

/// The front of one master.
pub struct TablesFront {
    master: Arc<Master>,
}

struct Master {
    edge: Edge,
    own: Place,
    procedures: Procedures,
}

impl TablesFront {
    /// A front over a master that HBase's clients reach at this place.
    #[must_use]
    pub fn new(edge: Edge, own: Place) -> Self {
        Self { master: Arc::new(Master { edge, own, procedures: Procedures::default() }) }
    }
}

impl Front for TablesFront {
    fn discovery(&self) -> Discovery {
        self.master.discovery()
    }

    fn open(&self, opened: Opened, peer: SocketAddr) -> Result<Arc<dyn Calls>, Exception> {
        if opened.service == Service::Admin {
            return Err(Exception::new(UNKNOWN_SERVICE, "AdminService is not served yet"));
        }
        let (master, scanners, peer) = (self.master.clone(), MetaScanners::default(), peer.to_string());
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
        // Region servers know only their own regions, so clients ask this process again.
        let nodes = vec![self.own.clone()];
        Discovery { cluster, active_master: own(), masters: nodes.clone(), meta: own(), servers: nodes }
    }

    async fn map(&self, deadline: Instant) -> Result<Map, Exception> {
        self.edge.map(deadline).await.map_err(|error| exception(&error))
    }

    /// The rows of `hbase:meta` now.
    async fn view(&self, deadline: Instant) -> Result<View, Exception> {
        let map = self.map(deadline).await?;
        let place = |server: ServerId| {
            let known = map.servers.iter().find(|known| known.server == server)?;
            let (host, port) = known.address.rsplit_once(':')?;
            Some(Place { host: host.to_owned(), port: port.parse().ok()?, start_code: known.boot })
        };
        let tables = map.tables.iter().filter(|table| !table.is_changing).map(|table| &table.schema);
        let states = tables.map(|schema| StateRow { table: schema.name.clone(), disabled: schema.disabled }).collect();
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
                order: (descriptor.epoch.0 << 32) | (region.term & u64::from(u32::MAX)),
                state,
            })
        });
        // Some clients read up to now, without now itself.
        let began = i64::try_from(self.own.start_code).unwrap_or(0);
        Ok(View::new(regions.collect(), states, began))
    }
}

/// The exception of an error of the master.
fn exception(error: &Error) -> Exception {
    // A client asks another master when this one does not lead.
    if matches!(error, Error::NotLeader { .. }) {
        return Exception::new(crate::exception::PLEASE_HOLD, "this master does not lead; ask the others");
    }
    Exception::of(error, &Context { repeatable: true, master: true, place: &|_| None })
}

fn deadline(call: &Call) -> Instant {
    Instant::now() + call.timeout.unwrap_or(DEADLINE_DEFAULT)
}

/// The calls of one connection.
struct TableCalls {
    master: Arc<Master>,
    scanners: MetaScanners,
    opened: Opened,
    peer: String,
}

impl Calls for TableCalls {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        async move {
            match self.opened.service {
                Service::ClientMeta => self.find(&call),
                Service::Client => self.read_meta(call).await,
                Service::Master => self.administer(call).await,
                Service::Admin => Err(unknown_method("AdminService", &call.method)),
            }
        }
        .boxed()
    }
}

impl TableCalls {
    fn find(&self, call: &Call) -> Outcome {
        let known = self.master.discovery();
        Ok(match call.method.as_str() {
            "GetClusterId" => Answer::of(&known.cluster_id()?),
            "GetActiveMaster" => Answer::of(&known.active_master()?),
            "GetMasters" => Answer::of(&known.masters()?),
            "GetMetaRegionLocations" => Answer::of(&known.meta_locations()?),
            "GetBootstrapNodes" => Answer::of(&known.bootstrap_nodes()?),
            other => return Err(unknown_method("ClientMetaService", other)),
        })
    }
}

fn unknown_method(service: &str, method: &str) -> Exception {
    Exception::new(DO_NOT_RETRY, format!("{service} has no method {method:?} here"))
}
