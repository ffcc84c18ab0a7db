//! The master's metrics: few, and each for a question somebody asks at night.
//!
//! One registry per master, never a static, since several nodes may share a process. Gauges are set by the tick, so a
//! scrape costs nothing.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::context::MasterContext;
use crate::liveness::ServerState;
use crate::views::leaderless;

type Level = Gauge<u64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    call: &'static str,
}

/// The metrics of one master.
#[derive(Default)]
pub struct Metrics {
    servers: Family<State, Level>,
    tables: Level,
    regions: Level,
    groups: Level,
    groups_without_leader: Level,
    catalog_index: Level,
    calls: Family<Call, Counter>,
}

impl Metrics {
    /// The metrics and the registry that shows them.
    pub fn new() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("terrane_master");
        registry.register(
            "servers",
            "Registered region servers by state: live, silent or stopped",
            metrics.servers.clone(),
        );
        registry.register("tables", "Tables in the catalog", metrics.tables.clone());
        registry.register("regions", "Regions in the map", metrics.regions.clone());
        registry.register("groups", "Log groups", metrics.groups.clone());
        registry.register(
            "groups_without_leader",
            "Open groups that no live server leads; their regions cannot be used",
            metrics.groups_without_leader.clone(),
        );
        registry.register(
            "catalog_index",
            "Index of the catalog's log that is applied; it rises with changes of tables, groups and regions only",
            metrics.catalog_index.clone(),
        );
        registry.register("calls", "Calls answered, by name", metrics.calls.clone());
        (Arc::new(metrics), Arc::new(registry))
    }

    /// Counts a call.
    pub fn call(&self, call: &'static str) {
        self.calls.get_or_create(&Call { call }).inc();
    }

    /// Sets the gauges.
    pub fn observe(&self, context: &MasterContext) {
        self.catalog_index.set(context.journal.applied());
        context.journal.read(|catalog| {
            context.observed.with(|observed| {
                for state in [ServerState::Live, ServerState::Silent, ServerState::Stopped] {
                    let alike =
                        catalog.servers().iter().filter(|(server, _)| observed.liveness.state(*server) == state);
                    self.servers.get_or_create(&State { state: state.name() }).set(alike.count() as u64);
                }
                self.tables.set(catalog.tables().len() as u64);
                self.regions.set(catalog.regions().len() as u64);
                self.groups.set(catalog.groups().len() as u64);
                self.groups_without_leader.set(leaderless(catalog, observed).len() as u64);
            });
        });
    }
}
