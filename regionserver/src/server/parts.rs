//! The parts that most tasks of a server share, and how each of its tasks is made of them.

use std::sync::Arc;
use std::time::Duration;

use terrane_engine::Engine;
use terrane_env::budget::Budgets;
use terrane_env::net::Intake;
use terrane_proto::hello::Identity as HelloIdentity;
use terrane_raft::LogConfig;
use terrane_types::Endpoint;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::Background;
use crate::background::disk_free::DiskFree;
use crate::background::maintenance::Maintenance;
use crate::background::signals::Signals;
use crate::edge::Edge;
use crate::edge::admission::Admission;
use crate::edge::page_token::PageSeal;
use crate::edge::slow::SlowRequests;
use crate::evaluate::prefetch::Prefetch;
use crate::group::proposal::GroupHost;
use crate::health::HealthIssues;
use crate::issues::Lasting;
use crate::loads::commit::{Loads, UnderWay};
use crate::loads::runs::Runs;
use crate::masters::addresses::Addresses;
use crate::masters::endpoints::Endpoints;
use crate::masters::joining::Joining;
use crate::masters::leadership::NewestLeadership;
use crate::masters::region_ids::RegionIdStock;
use crate::masters::report::Reporter;
use crate::masters::{Masters, REPORT_INTERVAL, Registered};
use crate::metrics::Metrics;
use crate::moves::departures::{Departures, Moves};
use crate::moves::peers::Peers;
use crate::replicas::Replicas;
use crate::replicas::comparing::Comparer;
use crate::replicas::comparing::digesting::Digesting;
use crate::replicas::mending::Mending;
use crate::replicas::orphans::Orphans;
use crate::server::config::ServerConfig;
use crate::staging::Staging;
use crate::versions::ClusterLevel;

/// The parts that most tasks of a server share.
pub(super) struct Parts {
    pub(super) replicas: Arc<Replicas>,
    pub(super) signals: Arc<Signals>,
    pub(super) region_ids: Arc<RegionIdStock>,
    pub(super) addresses: Arc<Addresses>,
    pub(super) admission: Arc<Admission>,
    pub(super) leadership: Arc<NewestLeadership>,
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) mending: Arc<Mending>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<HealthIssues>,
    pub(super) disk_free: Arc<DiskFree>,
    pub(super) page_seal: Arc<PageSeal>,
    /// Every limited resource of this server.
    pub(super) budgets: Arc<Budgets>,
    pub(super) intake: Arc<Intake>,
}

impl Parts {
    pub(super) fn edge(
        &self,
        identity: HelloIdentity,
        host: &Arc<GroupHost>,
        config: &ServerConfig,
        loads: Arc<Loads>,
    ) -> Arc<Edge> {
        Arc::new(Edge {
            server: identity.server,
            replicas: self.replicas.clone(),
            host: host.clone(),
            addresses: self.addresses.clone(),
            admission: self.admission.clone(),
            metrics: self.metrics.clone(),
            slow: SlowRequests::new(config.slow_request),
            tracer: config.tracer.at("terrane.server", identity.server.0),
            prefetch: Prefetch::default(),
            intake: self.intake.clone(),
            scan_idle: config.scan_idle,
            strict_reads: config.strict_reads,
            page_seal: self.page_seal.clone(),
            closing: CancellationToken::new(),
            tasks: TaskTracker::new(),
            ended: CancellationToken::new(),
            sessions: TaskTracker::new(),
            loads,
        })
    }

    pub(super) fn loads(
        &self,
        peers: &Arc<Peers>,
        staging: &Arc<Staging>,
        (host, engine): (&Arc<GroupHost>, &Arc<Engine>),
        stop: &CancellationToken,
        bytes_per_second: u64,
    ) -> Arc<Loads> {
        let runs = Runs::new(staging.clone(), self.admission.clone(), self.metrics.clone(), bytes_per_second);
        self.budgets.add(runs.budget().clone());
        Arc::new(Loads {
            runs,
            staging: staging.clone(),
            engine: engine.clone(),
            host: host.clone(),
            replicas: self.replicas.clone(),
            addresses: self.addresses.clone(),
            peers: peers.clone(),
            stop: stop.clone(),
            under_way: UnderWay::default(),
        })
    }

    pub(super) fn departures(
        &self,
        peers: Arc<Peers>,
        host: &Arc<GroupHost>,
        engine: &Arc<Engine>,
        staging: &Arc<Staging>,
        stop: &CancellationToken,
    ) -> Arc<Departures> {
        Arc::new(Departures {
            engine: engine.clone(),
            host: host.clone(),
            replicas: self.replicas.clone(),
            addresses: self.addresses.clone(),
            peers,
            staging: staging.clone(),
            stop: stop.clone(),
            moves: Moves::default(),
        })
    }

    pub(super) fn comparer(
        &self,
        peers: &Arc<Peers>,
        host: &Arc<GroupHost>,
        digesting: &Arc<Digesting>,
        stop: &CancellationToken,
        every: Duration,
    ) -> Comparer {
        Comparer {
            host: host.clone(),
            replicas: self.replicas.clone(),
            peers: peers.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            digesting: digesting.clone(),
            every,
            stop: stop.clone(),
        }
    }

    pub(super) fn maintenance(&self, edge: &Edge, engine: &Arc<Engine>) -> Maintenance {
        Maintenance {
            replicas: self.replicas.clone(),
            engine: engine.clone(),
            signals: self.signals.clone(),
            health: self.health.clone(),
            closing: edge.closing.clone(),
        }
    }

    pub(super) fn background(&self, host: &Arc<GroupHost>, engine: &Arc<Engine>, config: &ServerConfig) -> Background {
        Background {
            replicas: self.replicas.clone(),
            host: host.clone(),
            signals: self.signals.clone(),
            region_ids: self.region_ids.clone(),
            addresses: self.addresses.clone(),
            admission: self.admission.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            disk_free: self.disk_free.clone(),
            memtable_budget: config.memtable_budget,
            engine: engine.clone(),
            data_dir: config.data_dir.clone(),
            disk_reserve: config.disk_reserve,
            disk_reserve_min: segment_bytes(config) + config.memtable_budget,
            shape: config.shape.clone(),
        }
    }

    pub(super) fn reporter(
        &self,
        host: &Arc<GroupHost>,
        engine: &Arc<Engine>,
        masters: Masters,
        (identity, own_endpoints): (HelloIdentity, &[Endpoint]),
        level: Arc<ClusterLevel>,
        (registered, joining): (Option<Registered>, Joining),
    ) -> Reporter {
        let booted = |endpoint: &Endpoint| Endpoint { start_code: identity.boot, ..endpoint.clone() };
        let reporter = Reporter {
            masters,
            identity,
            every: registered.as_ref().map_or(REPORT_INTERVAL, |registered| registered.report_every),
            joining: registered.is_none().then_some(joining),
            replicas: self.replicas.clone(),
            host: host.clone(),
            addresses: self.addresses.clone(),
            region_ids: self.region_ids.clone(),
            admission: self.admission.clone(),
            metrics: self.metrics.clone(),
            health: self.health.clone(),
            lasting: Lasting::default(),
            disk_free: self.disk_free.clone(),
            budgets: self.budgets.clone(),
            engine: engine.clone(),
            leadership: self.leadership.clone(),
            endpoints: self.endpoints.clone(),
            mending: self.mending.clone(),
            orphans: Arc::new(Orphans::new(engine.clone(), host.clone())),
            page_seal: self.page_seal.clone(),
            level,
            own_endpoints: own_endpoints.iter().map(booted).collect(),
        };
        if let Some(registered) = registered {
            reporter.take_over(registered);
        }
        reporter
    }
}

/// The maximal size of a segment of the shared log.
fn segment_bytes(config: &ServerConfig) -> u64 {
    config.segment_bytes.min(config.log_limit / LogConfig::SEGMENTS_PER_LIMIT)
}
