//! `master` and `server`: run one role in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_engine::BackendKind;
use terrane_env::task::shutdown_signal;
use terrane_master::MasterConfig;
use terrane_regionserver::ServerConfig;
use terrane_types::versions::Levels;

use super::dev::{engine_of, stop, text};
use crate::args::roles::{Master, Role, Server};
use crate::args::values::{Addresses, Size, Time, address, addresses, duration};
use crate::config::{Settings, check_exposure};
use crate::failure::Failure;
use crate::node::{MasterNode, ServerNode};
use crate::output::Output;

const MASTER_CONSOLE_DEFAULT: &str = "127.0.0.1:7610";
const SERVER_CONSOLE_DEFAULT: &str = "127.0.0.1:7710";

pub async fn master(args: Master) -> Result<(), Failure> {
    let (config, console) = master_config(args).await?;
    let node = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        node = MasterNode::start(config, Some(&console)) => node?,
    };
    let console = node.console().unwrap_or_default();
    print_ready(&format!("ready master={} console=http://{console}", node.master.address()))?;
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
    let config = server_config(args).await?;
    let node = tokio::select! {
        biased;
        () = shutdown_signal() => return Ok(()),
        node = ServerNode::start(config) => node?,
    };
    let console = node.console().unwrap_or_default();
    let (id, address) = (node.id(), node.address());
    print_ready(&format!("ready server={address} id={id} console=http://{console}"))?;
    let ended = tokio::select! {
        biased;
        () = shutdown_signal() => Ok(()),
        refused = node.refused() => Err(refused),
    };
    stop("stopping: flushing memtables", node.shutdown()).await;
    ended
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
    levels: Levels,
}

fn role_settings(
    settings: &mut Settings,
    role: Role,
    data: PathBuf,
    listen: String,
    console: &str,
) -> Result<RoleSettings, Failure> {
    let data_flag = role.data.map(|path| path.display().to_string());
    let data = settings.pick("data", data_flag, text, data.display().to_string())?;
    let listen = settings.pick("listen", role.listen, address, listen)?;
    let advertise = settings.pick_optional("advertise", role.advertise, address)?;
    let console = settings.pick("console", role.console, address, console.to_owned())?;
    let insecure = settings.pick("insecure", role.insecure.then_some(true), str::parse, false)?;
    if let Some(warning) = check_exposure(&listen, &console, advertise.as_deref(), insecure)? {
        eprintln!("{warning}");
    }
    let levels = settings.pick_optional("feature-level", role.feature_level, str::parse::<u32>)?;
    let levels = levels.map_or(Ok(Levels::BUILD), levels_as_of)?;
    Ok(RoleSettings { data: PathBuf::from(data), listen, advertise, console, levels })
}

/// The levels of a build of this level.
fn levels_as_of(level: u32) -> Result<Levels, Failure> {
    Levels::as_of(level).ok_or_else(|| {
        let Levels { oldest, newest } = Levels::BUILD;
        Failure::usage(format!("--feature-level must be {oldest} or {newest}, not {level}"))
    })
}

async fn master_config(args: Master) -> Result<(MasterConfig, String), Failure> {
    let defaults = MasterConfig::default();
    let mut settings = Settings::open("master", args.role.config.as_deref()).await?;
    let (data, listen) = (defaults.data_dir.clone(), defaults.listen.clone());
    let role = role_settings(&mut settings, args.role, data, listen, MASTER_CONSOLE_DEFAULT)?;
    let peers = settings.pick_optional("peers", args.peers, addresses)?;
    let join = settings.pick_optional("join", args.join, addresses)?;
    let replication = settings.pick("replication", args.replication, str::parse, defaults.replication)?;
    let replace_after = settings.pick(
        "replace-after",
        args.replace_after.map(Time),
        |text| duration(text).map(Time),
        Time(defaults.replace_after),
    )?;
    settings.finish()?;
    let config = MasterConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        peers: peers.map(|peers| peers.0).unwrap_or_default(),
        join: join.map(|join| join.0).unwrap_or_default(),
        replication,
        replace_after: replace_after.0,
        levels: role.levels,
        ..defaults
    };
    Ok((config, role.console))
}

async fn server_config(args: Server) -> Result<ServerConfig, Failure> {
    let defaults = ServerConfig::default();
    let mut settings = Settings::open("server", args.role.config.as_deref()).await?;
    let (data, listen) = (defaults.data_dir.clone(), defaults.listen.clone());
    let role = role_settings(&mut settings, args.role, data, listen, SERVER_CONSOLE_DEFAULT)?;
    let masters = settings.pick("masters", args.masters, addresses, Addresses(defaults.masters.clone()))?;
    let zone = settings.pick_optional("zone", args.zone, text)?;
    let engine = settings.pick("engine", args.storage.engine, text, BackendKind::default().to_string())?;
    let size = str::parse::<Size>;
    let budget =
        settings.pick("memtable-budget", args.storage.memtable_budget, size, Size(defaults.memtable_budget))?;
    let cache = settings.pick("cache-size", args.storage.cache_size, size, Size(defaults.cache_bytes))?;
    let disk_reserve = settings.pick_optional("disk-reserve", args.storage.disk_reserve, size)?;
    let log_limit = settings.pick("log-limit", args.storage.log_limit, size, Size(defaults.log_limit))?;
    settings.finish()?;
    Ok(ServerConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        console: Some(role.console),
        zone,
        masters: masters.0,
        engine: engine_of(&engine)?,
        memtable_budget: budget.0,
        log_limit: log_limit.0,
        cache_bytes: cache.0,
        disk_reserve: disk_reserve.map(|reserve| reserve.0),
        levels: role.levels,
        ..defaults
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn server_args(line: &str) -> Server {
        let words = std::iter::once("terrane").chain(line.split_whitespace());
        match Cli::try_parse_from(words).expect("a good command line").command {
            Command::Server(server) => server,
            other => panic!("not a server: {other:?}"),
        }
    }

    #[tokio::test]
    async fn every_flag_of_a_server_reaches_it() {
        let line = "server --data d --listen 127.0.0.1:1 --advertise h:1 --console 127.0.0.1:2 --masters a:1,b:2 \
                    --engine memory --log-limit 64MiB --memtable-budget 1MiB";
        let config = server_config(server_args(line)).await.expect("settings");
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
        let line = format!("server --listen 127.0.0.1:6 --config {}", path.display());
        let config = server_config(server_args(&line)).await.expect("settings");
        assert_eq!((config.listen.as_str(), config.engine), ("127.0.0.1:6", BackendKind::Memory));
    }

    #[tokio::test]
    async fn an_unknown_engine_is_rejected() {
        let failure = server_config(server_args("server --engine rocks")).await.expect_err("unknown");
        assert!(failure.to_string().contains("rocks"), "{failure}");
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
    }
}
