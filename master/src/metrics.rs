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
use terrane_env::budget::{Budgets, Usage};
use terrane_metrics::list::master as list;
use terrane_metrics::{IssueCounts, ResourceUse, Resources};
use terrane_proto::versions::BUILD;
use terrane_types::states::ServerState;
use terrane_types::versions::Levels;

use crate::context::MasterContext;
use crate::fleet::check;
use crate::health::{DiskSize, Seen};
use crate::issues::leaderless;
use crate::journal::GroupHost;
use crate::servers::observed::now;

type Level = Gauge<u64, AtomicU64>;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Call {
    call: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Finding {
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Copies {
    copies: &'static str,
}

/// The copies of a group that has too few, as they are told apart.
const COPIES: [&str; 3] = ["0", "1", "2 or more"];

/// The metrics of one master.
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
    resources: Resources,
    issues: IssueCounts,
    findings: Family<Finding, Level>,
    groups_short_of_copies: Family<Copies, Level>,
    disk_free: Level,
    disk_size: Level,
    /// The host of group 0, which has metrics of its own.
    host: Arc<GroupHost>,
    budgets: Arc<Budgets>,
}

impl Metrics {
    /// The metrics and their registry.
    pub fn new(host: Arc<GroupHost>, budgets: Arc<Budgets>) -> (Arc<Self>, Arc<Registry>) {
        let metrics = Self {
            servers: Family::default(),
            tables: Level::default(),
            regions: Level::default(),
            groups: Level::default(),
            groups_without_leader: Level::default(),
            catalog_index: Level::default(),
            leads: Level::default(),
            feature_level: Level::default(),
            calls: Family::default(),
            resources: Resources::default(),
            issues: IssueCounts::default(),
            findings: Family::default(),
            groups_short_of_copies: Family::default(),
            disk_free: Level::default(),
            disk_size: Level::default(),
            host,
            budgets,
        };
        let mut registry = Registry::default();
        list::SERVERS.register(&mut registry, metrics.servers.clone());
        list::CALLS.register(&mut registry, metrics.calls.clone());
        list::CHECK_FINDINGS.register(&mut registry, metrics.findings.clone());
        list::GROUPS_SHORT_OF_COPIES.register(&mut registry, metrics.groups_short_of_copies.clone());
        metrics.issues.register(&list::HEALTH_ISSUES, &mut registry);
        let levels = [
            (&list::TABLES, &metrics.tables),
            (&list::REGIONS, &metrics.regions),
            (&list::GROUPS, &metrics.groups),
            (&list::GROUPS_WITHOUT_LEADER, &metrics.groups_without_leader),
            (&list::CATALOG_INDEX, &metrics.catalog_index),
            (&list::LEADS, &metrics.leads),
            (&list::FEATURE_LEVEL, &metrics.feature_level),
            (&list::DISK_FREE, &metrics.disk_free),
            (&list::DISK_SIZE, &metrics.disk_size),
        ];
        levels.into_iter().for_each(|(described, level)| described.register(&mut registry, level.clone()));
        let resources = [&list::RESOURCE_USED, &list::RESOURCE_PEAK, &list::RESOURCE_LIMIT, &list::RESOURCE_REJECTIONS];
        metrics.resources.register(resources, &mut registry);
        metrics.host.metrics().register(&mut registry);
        terrane_metrics::register_build(&mut registry, BUILD, Levels::BUILD.newest);
        (Arc::new(metrics), Arc::new(registry))
    }

    /// Counts a call.
    pub fn call(&self, call: &'static str) {
        self.calls.get_or_create(&Call { call }).inc();
    }

    /// Sets the gauges.
    pub fn observe(&self, context: &MasterContext) {
        self.host.publish_metrics();
        self.resources.publish(self.budgets.usage().iter().map(resource_use));
        self.show(context.health.seen());
        self.leads.set(u64::from(context.leadership.holds()));
        self.catalog_index.set(context.journal.applied());
        context.journal.read(|catalog| {
            self.host.note_level(catalog.level());
            self.feature_level.set(u64::from(catalog.level()));
            context.observed.with(|observed| {
                for state in ServerState::ALL {
                    let in_state =
                        catalog.servers().iter().filter(|(server, _)| observed.liveness.state(*server) == *state);
                    self.servers.get_or_create(&State { state: state.name() }).set(in_state.count() as u64);
                }
                self.tables.set(catalog.tables().len() as u64);
                self.regions.set(catalog.regions().len() as u64);
                self.groups.set(catalog.groups().len() as u64);
                self.groups_without_leader.set(leaderless(catalog, observed, now()).len() as u64);
            });
        });
    }

    /// Shows what the last look at the health of this master and the cluster has seen.
    fn show(&self, Seen { kinds, findings, short, disk }: Seen) {
        self.issues.publish(kinds);
        for kind in check::KINDS {
            let count = findings.get(kind).copied().unwrap_or(0);
            self.findings.get_or_create(&Finding { kind }).set(count as u64);
        }
        for (at, copies) in COPIES.into_iter().enumerate() {
            let counted = |have: &usize| (*have).min(COPIES.len() - 1) == at;
            let groups: usize = short.iter().filter(|(have, _)| counted(have)).map(|(_, groups)| groups).sum();
            self.groups_short_of_copies.get_or_create(&Copies { copies }).set(groups as u64);
        }
        if let Some(DiskSize { free, size }) = disk {
            self.disk_free.set(free);
            self.disk_size.set(size);
        }
    }
}

/// The use of a resource, as metrics take it.
pub fn resource_use(usage: &Usage) -> ResourceUse {
    let Usage { name, used, peak, limit, refused, .. } = *usage;
    ResourceUse { name, used, peak, limit, refused }
}
