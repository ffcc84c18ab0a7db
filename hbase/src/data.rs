//! A region server for HBase's clients: `ClientService` over the server's data path. Its other services are those of
//! `regions` and [`crate::discovery`].
//!
//! Calls become requests of one [`Session`](terrane_regionserver::edge::Session) per connection, so limits, admission, read
//! points and deadlines are those of the gRPC edge. A region is found by the id in its name; table, epoch and schema come from
//! what is hosted. What the model lacks is refused.

mod actions;
mod batch;
mod begun;
mod condition;
mod finish;
mod gets;
mod joined;
mod mutation;
mod nonces;
mod open_scanners;
mod outcome;
mod read_point;
mod reading;
mod region;
mod requests;
mod scanners;
mod write_order;

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use terrane_regionserver::edge::Edge;
use terrane_regionserver::{Endpoints, RegionOrders, RegionServer};
use terrane_types::ClusterId;

use self::begun::Finished;
use self::open_scanners::{AllScanners, Scanners};
use self::requests::Requests;
use crate::cell_block::Codec;
use crate::connection::{Opened, Service};
use crate::discovery::Discovery;
use crate::exception::{DO_NOT_RETRY, Exception, UNKNOWN_PROTOCOL, UNKNOWN_SERVICE};
use crate::frame::Call;
use crate::place::Place;
use crate::regions::{RegionCalls, discovery};
use crate::serve::{CallStart, Calls, Client, Front, Limits, Outcome, Outgoing, Ticket};

/// How long a scanner waits for its next call, unless another time is configured. HBase has the same default.
pub const SCANNER_LEASE_DEFAULT: Duration = Duration::from_secs(60);

/// The front of one region server.
pub struct DataFront {
    cluster: ClusterId,
    edge: Arc<Edge>,
    orders: Arc<RegionOrders>,
    endpoints: Arc<Endpoints>,
    scanners: Arc<AllScanners>,
    limits: Limits,
    own: Place,
}

impl DataFront {
    /// A front over a server that HBase's clients reach at this address. It closes scanners that are silent for longer than
    /// `lease`. It needs a runtime.
    #[must_use]
    pub fn new(server: &RegionServer, own: Place, lease: Duration) -> Self {
        let (edge, orders, endpoints) = (server.data_path(), server.region_orders(), server.endpoints());
        let scanners = Arc::new(AllScanners::new(lease));
        scanners.close_silent_ones();
        let limits = Limits::beside(edge.intake());
        limits.budgets().for_each(|budget| server.budgets().add(budget));
        Self { cluster: server.cluster_id(), edge, orders, endpoints, scanners, limits, own }
    }
}

impl Front for DataFront {
    /// What the masters have told this server.
    fn discovery(&self) -> Discovery {
        discovery(self.cluster, &self.endpoints)
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn open(&self, opened: Opened, client: &Client) -> Result<Arc<dyn Calls>, Exception> {
        match opened.service {
            Service::Client => {
                let with_ttl = opened.codec == Some(Codec::KeyValueWithTags);
                let requests = Requests::open(self.edge.clone(), self.endpoints.clone(), client.clone(), with_ttl);
                Ok(Arc::new(DataCalls { requests, scanners: Scanners::new(&self.scanners), opened }))
            }
            Service::Admin | Service::ClientMeta => Ok(Arc::new(RegionCalls {
                cluster: self.cluster,
                orders: self.orders.clone(),
                endpoints: self.endpoints.clone(),
                own: self.own.clone(),
                service: opened.service,
                peer: client.address.to_string(),
            })),
            Service::Master => {
                let why = "a region server serves no MasterService; ask a master";
                Err(Exception::new(UNKNOWN_SERVICE, why))
            }
        }
    }
}

/// The calls of one connection.
struct DataCalls {
    requests: Requests,
    scanners: Scanners,
    opened: Opened,
}

impl Calls for DataCalls {
    fn carry_out(self: Arc<Self>, call: Call) -> BoxFuture<'static, Outcome> {
        async move {
            match call.method.as_str() {
                "Get" | "Mutate" => self.one(&call).await,
                "Multi" => self.multi(call).await,
                "Scan" => self.scan(call).await,
                "ExecService" | "ExecRegionServerService" => {
                    Err(Exception::new(UNKNOWN_PROTOCOL, "this server has no coprocessors"))
                }
                other => Err(Exception::new(DO_NOT_RETRY, format!("ClientService has no method {other:?} here"))),
            }
        }
        .boxed()
    }

    fn begin(&self, call: Call, ticket: Ticket) -> CallStart {
        if !matches!(call.method.as_str(), "Get" | "Mutate") {
            return CallStart::NeedsTask(call, ticket);
        }
        match self.request(&call) {
            Ok((request, finish)) => {
                self.requests.add(request, ticket, finish);
                CallStart::Started
            }
            Err(refused) => CallStart::Answered(ticket.answer(Err(refused))),
        }
    }

    fn start(&self) -> BoxFuture<'_, ()> {
        self.requests.start_made().boxed()
    }

    fn poll_answers(self: Arc<Self>, context: &mut Context<'_>, ready: &mut Vec<Outgoing>) {
        self.requests.poll_answers(context, |ticket, finish, answer| {
            match self.finish(finish, answer) {
                Ok(Finished::Answer(answer)) => ready.push(ticket.answer(Ok(answer))),
                Err(refused) => ready.push(ticket.answer(Err(refused))),
                Ok(Finished::ReadBack(read_back)) => {
                    let calls = self.clone();
                    // A retry that was applied before is rare, and the answer needs a read.
                    terrane_env::task::spawn_named("hbase call", async move {
                        let outcome = calls.read_again(read_back).await;
                        ticket.send(outcome).await;
                    });
                }
            }
        });
    }

    fn close(&self) {
        self.requests.close();
    }
}
