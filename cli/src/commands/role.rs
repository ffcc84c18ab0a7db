//! `master` and `server`: run one role in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_env::task::shutdown_signal;
use terrane_master::MasterConfig;
use terrane_regionserver::ServerConfig;
use terrane_types::versions::Levels;

use super::dev::{engine_of, stop, text};
use crate::args::roles::{Master, Role, Server};
use crate::args::values::{Size, Time, address, addresses, duration};
use crate::config::list;
use crate::config::{Settings, Sources, Used, check_exposure, log_settings, scanner_lease, trace_settings};
use crate::failure::Failure;
use crate::hbase_ports::{HbasePorts, ServedPorts};
use crate::node::{MasterNode, ServerNode};
use crate::output::Output;

pub async fn master(args: Master) -> Result<(), Failure> {
    let sources = Sources::open(list::Role::Master, args.role.config.as_deref()).await?;
    let ((config, hbase), console, used) = master_config(args, sources)?;
    used.print();
    used.apply()?;
    let node = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        node = MasterNode::start(config, Some(&console), used.settings.into(), hbase.as_ref()) => node?,
    };
    let console = node.console().unwrap_or_default();
    let hbase = shown(node.hbase());
    print_ready(&format!("ready master={} console=http://{console}{hbase}", node.master.address()))?;
    tokio::select! {
        biased;
        () = shutdown_signal() => {}
        // It has said why. What an administrator has asked for is no failure.
        () = node.master.removed() => {}
    }
    stop("stopping", node.shutdown()).await;
    Ok(())
}

pub async fn server(args: Server) -> Result<(), Failure> {
    let sources = Sources::open(list::Role::Server, args.role.config.as_deref()).await?;
    let ((mut config, hbase), used) = server_config(args, sources)?;
    used.print();
    used.apply()?;
    config.tracer = used.tracer()?;
    let node = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        node = ServerNode::start(config, used.settings.into(), hbase) => node?,
    };
    let console = node.console().unwrap_or_default();
    let (id, address) = (node.id(), node.address());
    let hbase = shown(node.hbase());
    print_ready(&format!("ready server={address} id={id} console=http://{console}{hbase}"))?;
    let ended = tokio::select! {
        biased;
        () = shutdown_signal() => Ok(()),
        refused = node.refused() => Err(refused),
    };
    stop("stopping: flushing memtables", node.shutdown()).await;
    ended
}

/// The part of the ready line about HBase's clients.
fn shown(hbase: Option<&ServedPorts>) -> String {
    let Some(ports) = hbase else { return String::new() };
    let zookeeper = ports.zookeeper().map(|address| format!(" zookeeper={address}")).unwrap_or_default();
    format!(" hbase={}{zookeeper}", ports.advertised())
}

fn print_ready(line: &str) -> Result<(), Failure> {
    let mut output = Output::new(false);
    output.line(line)?;
    output.flush()
}

/// The settings of both roles.
struct RoleSettings {
    data: PathBuf,
    listen: String,
    advertise: Option<String>,
    console: String,
    insecure: bool,
    levels: Levels,
}

fn role_settings(settings: &mut Settings, role: Role) -> Result<RoleSettings, Failure> {
    let data = settings.pick("data", role.data.map(|path| path.display().to_string()), text)?;
    let listen = settings.pick("listen", role.listen, address)?;
    let advertise = settings.pick_optional("advertise", role.advertise, address)?;
    let console = settings.pick("console", role.console, address)?;
    log_settings(settings, role.log)?;
    let insecure = settings.pick("insecure", role.insecure.then_some(true), str::parse)?;
    if let Some(warning) = check_exposure(&listen, &console, advertise.as_deref(), insecure)? {
        settings.warn(warning);
    }
    let levels = settings.pick_optional("feature-level", role.feature_level, str::parse::<u32>)?;
    let levels = levels.map_or(Ok(Levels::BUILD), levels_as_of)?;
    Ok(RoleSettings { data: PathBuf::from(data), listen, advertise, console, insecure, levels })
}

/// The levels of a build of this level.
fn levels_as_of(level: u32) -> Result<Levels, Failure> {
    Levels::as_of(level).ok_or_else(|| {
        let Levels { oldest, newest } = Levels::BUILD;
        Failure::usage(format!("--feature-level must be {oldest} or {newest}, not {level}"))
    })
}

/// A process's settings, and its ports for HBase's clients.
pub type WithHbase<C> = (C, Option<HbasePorts>);

/// The ports for HBase's clients: no more exposed than the others.
fn hbase_ports(
    settings: &mut Settings,
    (listen, advertise): (Option<String>, Option<String>),
    zookeeper: Option<String>,
    insecure: bool,
) -> Result<Option<HbasePorts>, Failure> {
    let listen = settings.pick_optional("hbase", listen, address)?;
    let advertise = settings.pick_optional("hbase-advertise", advertise, address)?;
    let Some(listen) = listen else {
        if advertise.is_some() || zookeeper.is_some() {
            return Err(Failure::usage("HBase's clients are served only with --hbase HOST:PORT"));
        }
        return Ok(None);
    };
    let other = zookeeper.as_deref().unwrap_or(&listen);
    if let Some(warning) = check_exposure(&listen, other, advertise.as_deref(), insecure)? {
        settings.warn(warning);
    }
    Ok(Some(HbasePorts { listen, advertise, zookeeper, ..HbasePorts::default() }))
}

/// The settings of a master, the address of its console, and what was used.
pub fn master_config(args: Master, sources: Sources) -> Result<(WithHbase<MasterConfig>, String, Used), Failure> {
    let mut settings = Settings::new(list::Role::Master, sources);
    let role = role_settings(&mut settings, args.role)?;
    let peers = settings.pick_optional("peers", args.peers, addresses)?;
    let join = settings.pick_optional("join", args.join, addresses)?;
    let replication = settings.pick("replication", args.replication, str::parse)?;
    let zookeeper = settings.pick_optional("hbase-zookeeper", args.hbase_zookeeper, address)?;
    let hbase = hbase_ports(&mut settings, (args.hbase, args.hbase_advertise), zookeeper, role.insecure)?;
    let replace_after =
        settings.pick("replace-after", args.replace_after.map(Time), |text| duration(text).map(Time))?;
    let used = settings.finish()?;
    let config = MasterConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        peers: peers.map(|peers| peers.0).unwrap_or_default(),
        join: join.map(|join| join.0).unwrap_or_default(),
        replication,
        replace_after: replace_after.0,
        levels: role.levels,
        ..MasterConfig::default()
    };
    Ok(((config, hbase), role.console, used))
}

/// The settings of a server, and what was used.
pub fn server_config(args: Server, sources: Sources) -> Result<(WithHbase<ServerConfig>, Used), Failure> {
    let mut settings = Settings::new(list::Role::Server, sources);
    let role = role_settings(&mut settings, args.role)?;
    let masters = settings.pick("masters", args.masters, addresses)?;
    let zone = settings.pick_optional("zone", args.zone, text)?;
    let hbase = hbase_ports(&mut settings, (args.hbase, args.hbase_advertise), None, role.insecure)?;
    let scanner_lease = scanner_lease(&mut settings, args.hbase_scanner_lease, hbase.is_some())?;
    let hbase = hbase.map(|ports| HbasePorts { scanner_lease, ..ports });
    let engine = settings.pick("engine", args.storage.engine, text)?;
    let size = str::parse::<Size>;
    let budget = settings.pick("memtable-budget", args.storage.memtable_budget, size)?;
    let cache = settings.pick("cache-size", args.storage.cache_size, size)?;
    let disk_reserve = settings.pick_optional("disk-reserve", args.storage.disk_reserve, size)?;
    let log_limit = settings.pick("log-limit", args.storage.log_limit, size)?;
    let bulk_rate = settings.pick("bulk-rate", args.storage.bulk_rate, size)?;
    let time = |text: &str| duration(text).map(Time);
    let slow_request = settings.pick("slow-request", args.storage.slow_request.map(Time), time)?;
    trace_settings(&mut settings, args.traces)?;
    let used = settings.finish()?;
    let config = ServerConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        console: Some(role.console),
        zone,
        masters: masters.0,
        engine: engine_of(&engine)?,
        memtable_budget: budget.0,
        log_limit: log_limit.0,
        bulk_rate: bulk_rate.0,
        slow_request: slow_request.0,
        cache_bytes: cache.0,
        disk_reserve: disk_reserve.map(|reserve| reserve.0),
        levels: role.levels,
        ..ServerConfig::default()
    };
    Ok(((config, hbase), used))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use terrane_engine::BackendKind;

    use super::*;
    use crate::args::{Cli, Command};

    fn server_args(line: &str) -> Server {
        let words = std::iter::once("terrane").chain(line.split_whitespace());
        match Cli::try_parse_from(words).expect("a good command line").command {
            Command::Server(server) => server,
            other => panic!("not a server: {other:?}"),
        }
    }

    #[test]
    fn every_flag_of_a_server_reaches_it() {
        let line = "server --data d --listen 127.0.0.1:1 --advertise h:1 --console 127.0.0.1:2 --masters a:1,b:2 \
                    --engine memory --log-limit 64MiB --memtable-budget 1MiB";
        let ((config, _), _) = server_config(server_args(line), Sources::default()).expect("settings");
        assert_eq!(config.data_dir, PathBuf::from("d"));
        assert_eq!((config.listen.as_str(), config.advertise.as_deref()), ("127.0.0.1:1", Some("h:1")));
        assert_eq!(config.console.as_deref(), Some("127.0.0.1:2"));
        assert_eq!(config.masters, ["a:1", "b:2"]);
        assert_eq!(config.engine, BackendKind::Memory);
        assert_eq!((config.log_limit, config.memtable_budget), (64 << 20, 1 << 20));
    }

    #[tokio::test]
    async fn a_file_sets_what_flags_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.toml");
        let toml = b"[server]\nengine = 'memory'\nlisten = '127.0.0.1:5'\n[master]\npeers = ['a:1']";
        terrane_env::fs::write_durable(&path, toml).await.expect("written");
        let sources = Sources::open(list::Role::Server, Some(&path)).await.expect("a file");
        let args = server_args(&format!("server --listen 127.0.0.1:6 --config {}", path.display()));
        let ((config, _), _) = server_config(args, sources).expect("settings");
        assert_eq!((config.listen.as_str(), config.engine), ("127.0.0.1:6", BackendKind::Memory));
    }

    #[test]
    fn an_unknown_engine_is_rejected() {
        let failure = server_config(server_args("server --engine rocks"), Sources::default()).expect_err("unknown");
        assert!(failure.to_string().contains("rocks"), "{failure}");
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
    }

    /// A process that embeds a role, such as a test, gets what `terrane` gets.
    #[test]
    fn the_defaults_of_the_list_are_those_of_the_roles() {
        let ((server, _), _) = server_config(server_args("server"), Sources::default()).expect("settings");
        let defaults = ServerConfig { console: server.console.clone(), ..ServerConfig::default() };
        assert_eq!(format!("{server:?}"), format!("{defaults:?}"));
        let Command::Master(args) = Cli::try_parse_from(["terrane", "master"]).expect("a good line").command else {
            panic!("not a master")
        };
        let ((master, _), ..) = master_config(args, Sources::default()).expect("settings");
        assert_eq!(format!("{master:?}"), format!("{:?}", MasterConfig::default()));
    }

    #[test]
    fn the_list_has_every_flag_and_each_is_used() {
        use clap::CommandFactory;
        let root = Cli::command();
        for role in list::Role::ALL {
            let command = root.find_subcommand(role.name()).expect("a role");
            let flags = command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(clap::Arg::get_long);
            let keys =
                flags.filter(|flag| !["config", "help", "version"].contains(flag)).map(|flag| match (role, flag) {
                    (list::Role::Dev, "masters") => "master-count",
                    _ => flag,
                });
            let mut keys: Vec<&str> = keys.collect();
            let mut listed: Vec<&str> = list::of(role).map(|setting| setting.key).collect();
            keys.sort_unstable();
            listed.sort_unstable();
            assert_eq!(keys, listed, "{role:?}");
        }
    }

    /// What a process prints at its start.
    #[test]
    fn every_setting_is_printed_with_its_origin() {
        let parse = |line: [&str; 2]| Cli::try_parse_from(line).expect("a good line").command;
        for role in list::Role::ALL {
            let used = match parse(["terrane", role.name()]) {
                Command::Master(args) => master_config(args, Sources::default()).expect("settings").2,
                Command::Server(args) => server_config(args, Sources::default()).expect("settings").1,
                Command::Dev(args) => super::super::dev::plan(args, Sources::default()).expect("settings").1,
                other => panic!("not a role: {other:?}"),
            };
            let printed: Vec<&str> = used.settings.iter().map(|setting| setting.key).collect();
            assert_eq!(printed, list::of(role).map(|setting| setting.key).collect::<Vec<_>>());
            assert!(used.settings.iter().all(|setting| setting.origin == "default"), "{:?}", used.settings);
            assert!(used.settings.iter().all(|setting| setting.default == Some(&setting.value)), "{:?}", used.settings);
        }
    }
}
