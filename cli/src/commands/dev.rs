//! `dev`: runs a cluster in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_engine::BackendKind;
use terrane_env::task::shutdown_signal;
use terrane_regionserver::ServerConfig;

use crate::args::roles::{Dev, Storage};
use crate::args::values::{Size, Time, duration, duration_or_zero};
use crate::cluster::{Cluster, ClusterPlan, MASTERS, PORTS_SPAN, Ports, SERVERS_FOR_REPLICATION, SERVERS_MAX};
use crate::config::ports::check_distinct;
use crate::config::{
    Mistakes, Settings, Sources, Used, UsedSetting, list, log_settings, scanner_lease, trace_settings,
};
use crate::failure::Failure;
use crate::logging;
use crate::output::{Output, duration_text};

pub async fn run(args: Dev) -> Result<(), Failure> {
    let sources = Sources::open(list::Role::Dev, args.config.as_deref()).await?;
    let (mut plan, used) = plan(args, sources)?;
    used.print();
    used.apply()?;
    plan.server.tracer = used.tracer()?;
    if plan.replication() == 1 {
        logging::warn(&format!(
            "note: with fewer than {SERVERS_FOR_REPLICATION} servers data has a single copy and is lost with its disk"
        ));
    }
    let started = tokio::time::Instant::now();
    let cluster = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        cluster = Cluster::start(&plan) => cluster.map_err(other_ports)?,
    };
    let mut output = Output::new(false);
    let hbase = cluster.hbase().map(|hbase| format!(" {hbase}")).unwrap_or_default();
    let console = cluster.console().map(|console| format!(" console=http://{console}")).unwrap_or_default();
    output.line(&format!(
        "ready master={} servers={}{console}{hbase}",
        cluster.masters(),
        cluster.server_addresses().join(",")
    ))?;
    output.flush()?;
    logging::say(&format!("started in {}; press Ctrl-C to stop", duration_text(started.elapsed())));
    let ended = tokio::select! {
        biased;
        () = shutdown_signal() => Ok(()),
        refused = cluster.refused() => Err(refused),
    };
    stop("stopping: flushing memtables", cluster.shutdown()).await;
    ended
}

/// A port in use is one of many that follow from the first.
fn other_ports(failure: Failure) -> Failure {
    let is_port = failure.to_string().contains("the port is in use");
    if is_port {
        failure.advise("`terrane dev --listen-base N` takes other ports for the whole cluster")
    } else {
        failure
    }
}

/// Shuts down cleanly. A second signal ends the process at once, which loses no acknowledged write.
pub async fn stop(announcement: &str, shutdown: impl Future<Output = ()>) {
    let started = tokio::time::Instant::now();
    logging::say(announcement);
    tokio::select! {
        biased;
        () = shutdown => logging::say(&format!("stopped in {}", duration_text(started.elapsed()))),
        () = shutdown_signal() => logging::say("stopped without flushing; the next start replays the log"),
    }
}

/// The cluster to run, and the settings that were used.
pub fn plan(args: Dev, sources: Sources) -> Result<(ClusterPlan, Used), Mistakes> {
    let mut settings = Settings::new(list::Role::Dev, sources);
    let data = settings.pick("data", args.data.map(|path| path.display().to_string()), text);
    let servers = settings.pick("servers", args.servers, str::parse);
    // TERRANE_MASTERS names the masters for commands and servers.
    let masters = settings.pick("master-count", args.masters, str::parse);
    let base = settings.pick("listen-base", args.listen_base, str::parse);
    let server = storage_settings(&mut settings, args.storage);
    let hbase = settings.pick("hbase", args.hbase.then_some(true), str::parse);
    let scanner_lease = scanner_lease(&mut settings, args.hbase_scanner_lease, hbase);
    trace_settings(&mut settings, args.traces);
    log_settings(&mut settings, args.log);
    let mut plan = ClusterPlan {
        data: PathBuf::from(data),
        masters,
        servers,
        ports: Ports::From(base),
        server,
        settings: Vec::<UsedSetting>::new().into(),
        hbase,
        scanner_lease,
    };
    check(&mut settings, &plan, base);
    let used = settings.finish()?;
    plan.settings = used.settings.clone().into();
    Ok((plan, used))
}

/// What is wrong with the plan of a cluster.
fn check(settings: &mut Settings, plan: &ClusterPlan, base: u16) {
    let (servers, masters) = (plan.servers, plan.masters);
    let has_servers = (1..=SERVERS_MAX).contains(&servers);
    if !has_servers {
        settings.mistake(&["servers"], format!("must be 1 to {SERVERS_MAX}, not {servers}"), None);
    }
    let has_masters = MASTERS.contains(&masters);
    if !has_masters {
        let why = format!("must be 1, 3 or 5, not {masters}: a majority must be left when one fails");
        settings.mistake(&["master-count"], why, None);
    }
    let has_ports = base != 0 && base <= u16::MAX - PORTS_SPAN;
    if !has_ports {
        let why = format!("must be a port from 1 to {}, not {base}", u16::MAX - PORTS_SPAN);
        settings.mistake(&["listen-base"], why, None);
    }
    for (key, why) in plan.server.mistakes() {
        settings.mistake(&[key], why, None);
    }
    if has_servers && has_masters && has_ports {
        let (own, hbase) = (plan.addresses(), plan.hbase_addresses());
        // A clash of several ports has one cause.
        if let Some(address) = hbase.iter().find(|address| own.contains(address)) {
            check_distinct(settings, &[("hbase", address.as_str()), ("listen-base", address.as_str())]);
        }
    }
}

/// What `dev` and `server` share.
pub fn storage_settings(settings: &mut Settings, args: Storage) -> ServerConfig {
    let engine = engine_of(settings, args.engine);
    let size = str::parse::<Size>;
    let memtable_budget = settings.pick("memtable-budget", args.memtable_budget, size);
    let cache = settings.pick("cache-size", args.cache_size, size);
    let disk_reserve = settings.pick_optional("disk-reserve", args.disk_reserve, size);
    let log_limit = settings.pick("log-limit", args.log_limit, size);
    let bulk_rate = settings.pick("bulk-rate", args.bulk_rate, size);
    let time = |text: &str| duration(text).map(Time);
    let slow_request = settings.pick("slow-request", args.slow_request.map(Time), time);
    let time = |text: &str| duration_or_zero(text).map(Time);
    let compare_every = settings.pick("compare-every", args.compare_every.map(Time), time);
    ServerConfig {
        engine,
        memtable_budget: memtable_budget.0,
        cache_bytes: cache.0,
        disk_reserve: disk_reserve.map(|reserve| reserve.0),
        log_limit: log_limit.0,
        bulk_rate: bulk_rate.0,
        slow_request: slow_request.0,
        compare_every: compare_every.0,
        strict_reads: settings.pick("strict-reads", args.strict_reads.then_some(true), str::parse),
        ..ServerConfig::default()
    }
}

/// The engine, by its name.
fn engine_of(settings: &mut Settings, name: Option<String>) -> BackendKind {
    settings.pick("engine", name, text).parse().unwrap_or_else(|why| {
        settings.mistake(&["engine"], format!("has no such engine: {why}"), None);
        BackendKind::default()
    })
}

/// Parses a setting that may be any text.
pub fn text(value: &str) -> Result<String, std::convert::Infallible> {
    Ok(value.to_owned())
}
