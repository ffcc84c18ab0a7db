//! The master's metrics: few, each for a question an operator has during an incident.
//!
//! Each master has its own registry, since several nodes may share a process. A periodic task sets the gauges, so a
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
use crate::observed::now;
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
    leads: Level,
    feature_level: Level,
    calls: Family<Call, Counter>,
}

impl Metrics {
    /// The metrics and their registry.
    pub fn new() -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("terrane_master");
        registry.register(
            "servers",
            "Registered region servers by state: live, silent or stopped",
            metrics.servers.clone(),
        );
        registry.register("tables", "Tables in the catalog", metrics.tables.clone());
        registry.register("regions", "Regions of all tables", metrics.regions.clone());
        registry.register("groups", "Log groups", metrics.groups.clone());
        registry.register(
            "groups_without_leader",
            "Open groups without a live leader; their regions are unavailable",
            metrics.groups_without_leader.clone(),
        );
        registry.register(
            "catalog_index",
            "Applied index of the catalog's log; only changes of tables, groups, regions and servers increase it",
            metrics.catalog_index.clone(),
        );
        registry.register("feature_level", "Feature level of the cluster", metrics.feature_level.clone());
        registry.register("leads", "Whether this master leads: 1 or 0", metrics.leads.clone());
        registry.register("calls", "Calls received, by name", metrics.calls.clone());
        (Arc::new(metrics), Arc::new(registry))
    }

    /// Counts a call.
    pub fn call(&self, call: &'static str) {
        self.calls.get_or_create(&Call { call }).inc();
    }

    /// Sets the gauges.
    pub fn observe(&self, context: &MasterContext) {
        self.leads.set(u64::from(context.leadership.holds()));
        self.catalog_index.set(context.journal.applied());
        context.journal.read(|catalog| {
            self.feature_level.set(u64::from(catalog.level()));
            context.observed.with(|observed| {
                for state in [ServerState::Live, ServerState::Silent, ServerState::Stopped] {
                    let in_state =
                        catalog.servers().iter().filter(|(server, _)| observed.liveness.state(*server) == state);
                    self.servers.get_or_create(&State { state: state.name() }).set(in_state.count() as u64);
                }
                self.tables.set(catalog.tables().len() as u64);
                self.regions.set(catalog.regions().len() as u64);
                self.groups.set(catalog.groups().len() as u64);
                self.groups_without_leader.set(leaderless(catalog, observed, now()).len() as u64);
            });
        });
    }
}
