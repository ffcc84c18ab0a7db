//! `dev`: runs a cluster in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_engine::BackendKind;
use terrane_env::task::shutdown_signal;
use terrane_env::trace::Tracer;

use crate::args::roles::Dev;
use crate::args::values::{Size, Time, duration};
use crate::cluster::{Cluster, ClusterPlan, MASTERS, PORTS_SPAN, Ports, SERVERS_FOR_REPLICATION, SERVERS_MAX};
use crate::config::{Settings, Sources, Used, list, log_settings, scanner_lease, trace_settings};
use crate::failure::Failure;
use crate::output::{Output, duration_text};

pub async fn run(args: Dev) -> Result<(), Failure> {
    let sources = Sources::open(list::Role::Dev, args.config.as_deref()).await?;
    let (mut plan, used) = plan(args, sources)?;
    used.print();
    used.apply()?;
    plan.tracer = used.tracer()?;
    if plan.replication() == 1 {
        eprintln!(
            "note: with fewer than {SERVERS_FOR_REPLICATION} servers data has a single copy and is lost with its disk"
        );
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
    eprintln!("started in {}; press Ctrl-C to stop", duration_text(started.elapsed()));
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
    eprintln!("{announcement}");
    tokio::select! {
        biased;
        () = shutdown => eprintln!("stopped in {}", duration_text(started.elapsed())),
        () = shutdown_signal() => eprintln!("stopped without flushing; the next start replays the log"),
    }
}

/// The cluster to run, and the settings that were used.
pub fn plan(args: Dev, sources: Sources) -> Result<(ClusterPlan, Used), Failure> {
    let mut settings = Settings::new(list::Role::Dev, sources);
    let data = settings.pick("data", args.data.map(|path| path.display().to_string()), text)?;
    let servers = settings.pick("servers", args.servers, str::parse)?;
    // TERRANE_MASTERS names the masters for commands and servers.
    let masters = settings.pick("master-count", args.masters, str::parse)?;
    let base = settings.pick("listen-base", args.listen_base, str::parse)?;
    let engine = settings.pick("engine", args.storage.engine, text)?;
    let size = str::parse::<Size>;
    let memtable_budget = settings.pick("memtable-budget", args.storage.memtable_budget, size)?;
    let cache_size = settings.pick("cache-size", args.storage.cache_size, size)?;
    let disk_reserve = settings.pick_optional("disk-reserve", args.storage.disk_reserve, size)?;
    let log_limit = settings.pick("log-limit", args.storage.log_limit, size)?;
    let bulk_rate = settings.pick("bulk-rate", args.storage.bulk_rate, size)?;
    let time = |text: &str| duration(text).map(Time);
    let slow_request = settings.pick("slow-request", args.storage.slow_request.map(Time), time)?;
    let hbase = settings.pick("hbase", args.hbase.then_some(true), str::parse)?;
    let scanner_lease = scanner_lease(&mut settings, args.hbase_scanner_lease, hbase)?;
    trace_settings(&mut settings, args.traces)?;
    log_settings(&mut settings, args.log)?;
    let used = settings.finish()?;
    if !(1..=SERVERS_MAX).contains(&servers) {
        return Err(Failure::usage(format!("--servers must be 1 to {SERVERS_MAX}, not {servers}")));
    }
    if !MASTERS.contains(&masters) {
        return Err(Failure::usage(format!(
            "--masters must be 1, 3 or 5, not {masters}: a majority must be left when one fails"
        )));
    }
    if base == 0 || base > u16::MAX - PORTS_SPAN {
        return Err(Failure::usage(format!(
            "--listen-base must be a port from 1 to {}, not {base}",
            u16::MAX - PORTS_SPAN
        )));
    }
    let plan = ClusterPlan {
        data: PathBuf::from(data),
        masters,
        servers,
        ports: Ports::From(base),
        engine: engine_of(&engine)?,
        memtable_budget: Some(memtable_budget.0),
        cache_size: Some(cache_size.0),
        disk_reserve: disk_reserve.map(|size| size.0),
        log_limit: Some(log_limit.0),
        bulk_rate: Some(bulk_rate.0),
        slow_request: Some(slow_request.0),
        tracer: Tracer::default(),
        settings: used.settings.clone().into(),
        hbase,
        scanner_lease,
    };
    Ok((plan, used))
}

/// Parses a setting that may be any text.
pub fn text(value: &str) -> Result<String, std::convert::Infallible> {
    Ok(value.to_owned())
}

/// Parses the name of an engine.
pub fn engine_of(name: &str) -> Result<BackendKind, Failure> {
    name.parse().map_err(|error| Failure::usage(format!("--engine: {error}")))
}
