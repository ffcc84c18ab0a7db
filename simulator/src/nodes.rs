//! The nodes of the simulated cluster: what each host runs, also after a crash.
//!
//! Like a process, a node starts from its files only. A supervisor restarts it if it finds no master in time, and its
//! metrics and log files are recorded.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use terrane_env::trace::{Span, SpanSink, TraceId, Tracer};
use terrane_hbase::data::{DataFront, SCANNER_LEASE_DEFAULT};
use terrane_hbase::place::Place;
use terrane_hbase::serve::serve;
use terrane_master::{Master, MasterConfig, Rebuild, StartError};
use terrane_oracle::numbers;
use terrane_oracle::traced::Traces;
use terrane_regionserver::{BackendKind, RegionServer, ServerConfig, StartError as ServerStartError};
use terrane_types::versions::{FEATURE_LEVEL as THIS_LEVEL, LEVEL_NEXT, Levels};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::kind::Kind;
use crate::plan::{Plan, master_address};
use crate::run_state::CatalogState;
use crate::trace::{self, chain};
use crate::verdict::Failure;

/// The data directory of nodes; every simulated host has its own disk.
const DATA: &str = "/data";
/// Where the operator has a catalog rebuilt.
const REBUILT: &str = "/rebuilt";
/// How often a node's metrics and log files are recorded.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a server looks for a master before it exits and the supervisor restarts it.
const REGISTER_TIMEOUT: Duration = Duration::from_secs(3);
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// The start of a server at which the former build is started by mistake. By then the new one may have written files.
const FALLS_BACK: u32 = 3;
const FEATURE_LEVEL: &str = "terrane_server_feature_level";
/// Comparisons that found a replica different from the others.
const DIFFERING: &str = "terrane_server_comparisons_differing_total";
const DAMAGED: &str = "terrane_server_damaged_replicas_total";
/// How often servers report to the master.
pub const REPORT_EVERY: Duration = Duration::from_millis(250);

/// The address of a region server.
pub fn address(host: &str) -> String {
    format!("{host}:7700")
}

/// The address at which a region server serves HBase's clients.
pub fn hbase_address(host: &str) -> String {
    format!("{host}:16020")
}

/// Adds the masters and the region servers to the simulation.
pub fn add(sim: &mut turmoil::Sim<'static>, context: &Context) {
    for master in context.plan.master_hosts() {
        add_node(sim, master, context, move |context, boot| run_master(master, boot, context));
    }
    for server in context.plan.server_hosts() {
        add_node(sim, server, context, move |context, boot| run_server(server, boot, context));
    }
}

fn add_node<F>(
    sim: &mut turmoil::Sim<'static>,
    host: &'static str,
    context: &Context,
    run: impl Fn(Context, u32) -> F + 'static,
) where
    F: Future<Output = turmoil::Result> + 'static,
{
    let (context, boots) = (context.clone(), Rc::new(Cell::new(0)));
    sim.host(host, move || {
        boots.set(boots.get() + 1);
        let boot = boots.get();
        trace::note(format_args!("{host} starts, boot {boot}"));
        context.watch.started(host);
        // Each start of each node has its own seed for the randomness of consensus (election timeouts).
        let software = terrane_env::sim::process(host, run(context.clone(), boot));
        terrane_raft::scope(terrane_env::rand::u64(), software)
    });
}

async fn run_master(host: &'static str, boot: u32, context: Context) -> turmoil::Result {
    loop {
        let master = match Master::start(master_config(host, boot, &context).await?).await {
            Ok(master) => master,
            Err(StartError::Replaced { .. }) => {
                leave_masters(host, &context).await?;
                continue;
            }
            Err(error) => return exit(host, &context, &error).await,
        };
        context.state.becomes_master(host);
        let serves = async {
            loop {
                context.state.leads(host, master.leads());
                if master.leads() && context.state.catalog() == CatalogState::Lost {
                    context.state.set_catalog(CatalogState::Rebuilt);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        };
        tokio::select! {
            biased;
            () = master.removed() => {}
            () = serves => {}
        }
        context.state.leads(host, false);
        master.shutdown().await;
        leave_masters(host, &context).await?;
    }
}

async fn master_config(host: &'static str, boot: u32, context: &Context) -> std::io::Result<MasterConfig> {
    let data_dir = match context.state.catalog() {
        CatalogState::Whole => PathBuf::from(DATA),
        CatalogState::Lost | CatalogState::Rebuilt => rebuilt(host, context).await?,
    };
    let masters = context.plan.masters();
    let waits = !context.plan.founds(host) || context.state.was_removed(host);
    let all = context.plan.master_hosts().iter().map(|other| master_address(other));
    Ok(MasterConfig {
        data_dir,
        listen: master_address(host),
        advertise: Some(master_address(host)),
        join: if waits { all.collect() } else { Vec::new() },
        peers: if masters.len() > 1 && !waits { masters } else { Vec::new() },
        groups_per_server: context.plan.groups_per_server,
        report_every: REPORT_EVERY,
        replace_after: context.plan.replace_after,
        // Servers alone start the former build by mistake.
        levels: levels(boot.min(FALLS_BACK - 1), &context.plan),
        ..MasterConfig::default()
    })
}

/// What an operator does with a master that was removed: empties its directory, and has it wait to be added again.
async fn leave_masters(host: &'static str, context: &Context) -> std::io::Result<()> {
    trace::note(format_args!("{host} is no master any more"));
    context.state.leaves_masters(host);
    terrane_env::fs::remove_dir_all(Path::new(DATA)).await
}

/// The directory of a rebuilt catalog. The operator rebuilds it, if that is not done yet, once all servers answer.
async fn rebuilt(host: &'static str, context: &Context) -> std::io::Result<PathBuf> {
    let out = PathBuf::from(REBUILT);
    if context.state.catalog() == CatalogState::Rebuilt
        && let Some(directory) = terrane_env::fs::list(&out).await?.pop()
    {
        return Ok(out.join(directory));
    }
    let servers = context.plan.server_hosts().iter().map(|server| address(server)).collect();
    let order = Rebuild { servers, peers: vec![master_address(host)], drop: BTreeSet::new(), out };
    loop {
        match terrane_master::rebuild(&order).await {
            Ok(mut rebuilt) => {
                trace::note(format_args!("the catalog is rebuilt: {rebuilt:?}"));
                return Ok(rebuilt.directories.remove(0).1);
            }
            Err(why) => trace::note(format_args!("the catalog is not rebuilt yet: {why:?}")),
        }
        tokio::time::sleep(RESTART_PAUSE).await;
    }
}

/// The feature levels of a process at this start.
fn levels(boot: u32, plan: &Plan) -> Levels {
    let is_before = boot == 1 || falls_back(boot, plan);
    if plan.rolls_out && !is_before { Levels::NEXT } else { Levels::BUILD }
}

/// Whether a server is started with the former build by mistake.
const fn falls_back(boot: u32, plan: &Plan) -> bool {
    plan.falls_back && boot == FALLS_BACK
}

async fn run_server(host: &'static str, boot: u32, context: Context) -> turmoil::Result {
    let has_lost_its_disk = context.state.degraded() == Some(host);
    let known = if has_lost_its_disk { 0.0 } else { context.state.most(host, FEATURE_LEVEL) };
    let is_outdated = falls_back(boot, &context.plan) && known >= f64::from(LEVEL_NEXT);
    let server = match start_server(host, boot, &context).await {
        Err(error @ (ServerStartError::Register(_) | ServerStartError::Identity(_)))
            if falls_back(boot, &context.plan) =>
        {
            if is_outdated && matches!(error, ServerStartError::Register(_)) {
                let what = format!("{host} does not know that its build is too old until a master says so: {error}");
                context.state.fail(Failure { what, about: vec![host.to_owned()] });
            }
            context.state.may_exit(host);
            return exit(host, &context, &error).await;
        }
        Ok(_) if is_outdated => {
            let what = format!("{host} starts a build of level {THIS_LEVEL} at level {known}");
            context.state.fail(Failure { what, about: vec![host.to_owned()] });
            return Ok(());
        }
        Ok(server) => server,
        Err(error) => return exit(host, &context, &error).await,
    };
    if context.plan.scenario.serves_hbase() {
        serve_hbase(host, &server).await?;
    }
    let is_former = context.plan.rolls_out && levels(boot, &context.plan) == Levels::BUILD;
    trace::note(format_args!("{host} serves as server {}", server.server_id()));
    context.state.serves(host);
    let refused = server.refused();
    loop {
        // It started while no master answered, and learned only then that its build is too old: the process ends.
        let why = refused.borrow().clone();
        if let Some(why) = why.filter(|_| falls_back(boot, &context.plan)) {
            drop(server);
            context.state.may_exit(host);
            context.state.exit(host, format!("is refused: {why}"));
            return std::future::pending().await;
        }
        let numbers = numbers::read(&server.registry());
        context.watch.check_resources(host, &numbers, &context.state);
        let is_unreadable = numbers.get(DAMAGED).is_some_and(|damaged| *damaged > 0.0);
        if is_former && is_unreadable && !context.plan.damages_a_disk() {
            let what = format!("an entry came to {host} that its build of level {THIS_LEVEL} does not read");
            context.state.fail(Failure { what, about: vec![host.to_owned()] });
        }
        // Replicas differ where a disk returned other bytes, or where a cell was changed on purpose.
        let may_differ = context.plan.damages_a_disk() || context.plan.changes_a_cell;
        if !may_differ && numbers.get(DIFFERING).is_some_and(|differing| *differing > 0.0) {
            context.state.fail(Failure::new(format!("{host} finds that replicas differ")));
        }
        context.state.show(host, boot, numbers);
        if context.watch.wants_digests() {
            context.watch.compare(host, &server.digests().await, &context.state);
        }
        context.state.show_segments(host, boot, terrane_env::fs::list(&Path::new(DATA).join("log")).await?);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Serves HBase's clients until the host crashes.
async fn serve_hbase(host: &str, server: &RegionServer) -> std::io::Result<()> {
    let address = hbase_address(host);
    let place = Place::at(&address, server.boot()).ok_or_else(|| std::io::Error::other("not HOST:PORT"))?;
    let listener = terrane_env::net::listen(&address).await?;
    let front = Arc::new(DataFront::new(server, place, SCANNER_LEASE_DEFAULT));
    terrane_env::task::spawn_named("hbase", serve(listener, front, CancellationToken::new()));
    Ok(())
}

/// A process that does not start exits with the reason; the nemesis decides whether it may, and restarts it.
async fn exit(host: &'static str, context: &Context, error: &dyn std::error::Error) -> turmoil::Result {
    context.state.exit(host, format!("does not start: {}", chain(error)));
    std::future::pending().await
}

/// Takes the spans of servers, which only the scenario `rows` begins traces for.
struct SpanRecorder(Arc<Mutex<Traces<TraceId>>>);

impl SpanSink for SpanRecorder {
    fn take(&self, span: Span) {
        let mut traces = self.0.lock().expect("checks do not panic");
        traces.recorded(span.context.trace, span.name, span.parent.is_some());
    }
}

async fn start_server(host: &str, boot: u32, context: &Context) -> Result<RegionServer, ServerStartError> {
    let plan = &context.plan;
    let tracer = if plan.scenario == Kind::Rows {
        Tracer::new(SpanRecorder(Arc::clone(&context.traces)), 0.0)
    } else {
        Tracer::default()
    };
    let config = ServerConfig {
        data_dir: PathBuf::from(DATA),
        listen: address(host),
        masters: plan.masters(),
        engine: BackendKind::Lsm,
        cache_bytes: plan.block_cache_bytes,
        memtable_budget: plan.memtable_budget,
        log_limit: plan.log_limit,
        log_purge_budget: plan.purge_budget,
        log_cache_bytes: plan.log_cache_bytes,
        segment_bytes: plan.segment_bytes,
        register_timeout: REGISTER_TIMEOUT,
        levels: levels(boot, plan),
        strict_reads: plan.strict_reads,
        compare_every: plan.compare_every,
        tracer,
        ..ServerConfig::default()
    };
    loop {
        match RegionServer::start(config.clone()).await {
            Err(ServerStartError::Register(error)) if !falls_back(boot, plan) => {
                trace::note(format_args!("{host} does not start: {error}"));
                tokio::time::sleep(RESTART_PAUSE).await;
            }
            started => return started,
        }
    }
}
