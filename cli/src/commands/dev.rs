//! `dev`: runs a cluster in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_engine::BackendKind;
use terrane_env::task::shutdown_signal;

use crate::args::roles::Dev;
use crate::args::values::Size;
use crate::cluster::{Cluster, ClusterPlan, MASTERS, PORTS_SPAN, Ports, SERVERS_FOR_REPLICATION, SERVERS_MAX};
use crate::config::Settings;
use crate::failure::Failure;
use crate::output::{Output, duration_text};

/// The default data directory, in the current directory.
const DATA_DEFAULT: &str = "terrane-data";
const LISTEN_BASE_DEFAULT: u16 = 7600;

pub async fn run(args: Dev) -> Result<(), Failure> {
    let plan = plan(args).await?;
    if plan.replication() == 1 {
        eprintln!(
            "note: with fewer than {SERVERS_FOR_REPLICATION} servers data has a single copy and is lost with its disk"
        );
    }
    let started = tokio::time::Instant::now();
    let cluster = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        cluster = Cluster::start(&plan) => cluster?,
    };
    let mut output = Output::new(false);
    let console = cluster.console().map(|console| format!(" console=http://{console}")).unwrap_or_default();
    output.line(&format!(
        "ready master={} servers={}{console}",
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

async fn plan(args: Dev) -> Result<ClusterPlan, Failure> {
    let mut settings = Settings::open("dev", args.config.as_deref()).await?;
    let data =
        settings.pick("data", args.data.map(|path| path.display().to_string()), text, DATA_DEFAULT.to_owned())?;
    let servers = settings.pick("servers", args.servers, str::parse, SERVERS_FOR_REPLICATION)?;
    // TERRANE_MASTERS names the masters for commands and servers.
    let masters = settings.pick("master-count", args.masters, str::parse, 1)?;
    let base = settings.pick("listen-base", args.listen_base, str::parse, LISTEN_BASE_DEFAULT)?;
    let engine = settings.pick("engine", args.storage.engine, text, BackendKind::default().to_string())?;
    let memtable_budget =
        settings.pick_optional("memtable-budget", args.storage.memtable_budget, str::parse::<Size>)?;
    let cache_size = settings.pick_optional("cache-size", args.storage.cache_size, str::parse::<Size>)?;
    let disk_reserve = settings.pick_optional("disk-reserve", args.storage.disk_reserve, str::parse::<Size>)?;
    let log_limit = settings.pick_optional("log-limit", args.storage.log_limit, str::parse::<Size>)?;
    settings.finish()?;
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
    Ok(ClusterPlan {
        data: PathBuf::from(data),
        masters,
        servers,
        ports: Ports::From(base),
        engine: engine_of(&engine)?,
        memtable_budget: memtable_budget.map(|size| size.0),
        cache_size: cache_size.map(|size| size.0),
        disk_reserve: disk_reserve.map(|size| size.0),
        log_limit: log_limit.map(|size| size.0),
    })
}

/// Parses a setting that may be any text.
pub fn text(value: &str) -> Result<String, std::convert::Infallible> {
    Ok(value.to_owned())
}

/// Parses the name of an engine.
pub fn engine_of(name: &str) -> Result<BackendKind, Failure> {
    name.parse().map_err(|error| Failure::usage(format!("--engine: {error}")))
}
