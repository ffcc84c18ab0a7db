//! `master` and `server`: run one role in this process until Ctrl-C or SIGTERM.

use std::path::PathBuf;

use terrane_env::task::shutdown_signal;
use terrane_master::MasterConfig;
use terrane_regionserver::ServerConfig;
use terrane_types::versions::Levels;

use super::dev::{stop, storage_settings, text};
use crate::args::roles::{Master, Role, Server};
use crate::args::values::{Time, address, addresses, duration};
use crate::config::list;
use crate::config::ports::{Named, check_connectable, check_distinct, check_exposure};
use crate::config::{Mistakes, Settings, Sources, Used, log_settings, scanner_lease, trace_settings};
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

fn role_settings(settings: &mut Settings, role: Role) -> RoleSettings {
    let data = settings.pick("data", role.data.map(|path| path.display().to_string()), text);
    let listen = settings.pick("listen", role.listen, address);
    let advertise = settings.pick_optional("advertise", role.advertise, address);
    let console = settings.pick("console", role.console, address);
    log_settings(settings, role.log);
    let insecure = settings.pick("insecure", role.insecure.then_some(true), str::parse);
    let ports = [("listen", listen.as_str()), ("console", console.as_str())];
    check_exposure(settings, &ports, ("advertise", advertise.as_deref()), insecure);
    let level = settings.pick_optional("feature-level", role.feature_level, str::parse::<u32>);
    let levels = level.map_or(Some(Levels::BUILD), Levels::as_of).unwrap_or_else(|| {
        let Levels { oldest, newest } = Levels::BUILD;
        settings.mistake(&["feature-level"], format!("must be {oldest} or {newest}"), None);
        Levels::BUILD
    });
    RoleSettings { data: PathBuf::from(data), listen, advertise, console, insecure, levels }
}

/// A process's settings, and its ports for HBase's clients.
pub type WithHbase<C> = (C, Option<HbasePorts>);

/// The ports for HBase's clients: no more exposed than the others, and none of theirs.
fn hbase_ports(
    settings: &mut Settings,
    (listen, advertise): (Option<String>, Option<String>),
    zookeeper: Option<String>,
    role: &RoleSettings,
) -> Option<HbasePorts> {
    let listen = settings.pick_optional("hbase", listen, address);
    let advertise = settings.pick_optional("hbase-advertise", advertise, address);
    let mut ports: Vec<Named<'_>> = vec![("listen", &role.listen), ("console", &role.console)];
    let own = ports.len();
    ports.extend(listen.as_ref().map(|listen| ("hbase", listen.as_str())));
    ports.extend(zookeeper.as_ref().map(|zookeeper| ("hbase-zookeeper", zookeeper.as_str())));
    check_distinct(settings, &ports);
    let Some(listen) = &listen else {
        for (key, given) in [("hbase-advertise", &advertise), ("hbase-zookeeper", &zookeeper)] {
            if given.is_some() {
                let why = "has no effect alone: HBase's clients are served only with --hbase HOST:PORT";
                settings.mistake(&[key], why, None);
            }
        }
        return None;
    };
    check_exposure(settings, &ports[own..], ("hbase-advertise", advertise.as_deref()), role.insecure);
    Some(HbasePorts { listen: listen.clone(), advertise, zookeeper, ..HbasePorts::default() })
}

/// The settings of a master, the address of its console, and what was used.
pub fn master_config(args: Master, sources: Sources) -> Result<(WithHbase<MasterConfig>, String, Used), Mistakes> {
    let mut settings = Settings::new(list::Role::Master, sources);
    let role = role_settings(&mut settings, args.role);
    let peers = settings.pick_optional("peers", args.peers, addresses).map(|peers| peers.0).unwrap_or_default();
    let join = settings.pick_optional("join", args.join, addresses).map(|join| join.0).unwrap_or_default();
    let replication = settings.pick("replication", args.replication, str::parse);
    let zookeeper = settings.pick_optional("hbase-zookeeper", args.hbase_zookeeper, address);
    let hbase = hbase_ports(&mut settings, (args.hbase, args.hbase_advertise), zookeeper, &role);
    let replace_after = settings.pick("replace-after", args.replace_after.map(Time), |text| duration(text).map(Time));
    let config = MasterConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        peers,
        join,
        replication,
        replace_after: replace_after.0,
        levels: role.levels,
        ..MasterConfig::default()
    };
    check_connectable(&mut settings, "peers", config.peers.iter().map(String::as_str));
    check_connectable(&mut settings, "join", config.join.iter().map(String::as_str));
    for (key, why) in config.mistakes() {
        settings.mistake(&[key], why, None);
    }
    check_own_place(&mut settings, &config);
    let used = settings.finish()?;
    Ok(((config, hbase), role.console, used))
}

/// Whether the list of masters names this one. Its address is known only once its port is bound, if that is port 0.
fn check_own_place(settings: &mut Settings, config: &MasterConfig) {
    let own = config.advertise.as_ref().unwrap_or(&config.listen);
    if own.ends_with(":0") {
        return;
    }
    if config.place_among(own).is_err() {
        let why = format!(
            "does not name this master, which others reach at {own}; name it in exactly this form, or set --advertise"
        );
        settings.mistake(&["peers", "advertise", "listen"], why, None);
    }
}

/// The settings of a server, and what was used.
pub fn server_config(args: Server, sources: Sources) -> Result<(WithHbase<ServerConfig>, Used), Mistakes> {
    let mut settings = Settings::new(list::Role::Server, sources);
    let role = role_settings(&mut settings, args.role);
    let masters = settings.pick("masters", args.masters, addresses);
    let zone = settings.pick_optional("zone", args.zone, text);
    let hbase = hbase_ports(&mut settings, (args.hbase, args.hbase_advertise), None, &role);
    let scanner_lease = scanner_lease(&mut settings, args.hbase_scanner_lease, hbase.is_some());
    let hbase = hbase.map(|ports| HbasePorts { scanner_lease, ..ports });
    let server = storage_settings(&mut settings, args.storage);
    trace_settings(&mut settings, args.traces);
    let config = ServerConfig {
        data_dir: role.data,
        listen: role.listen,
        advertise: role.advertise,
        console: Some(role.console),
        zone,
        masters: masters.0,
        levels: role.levels,
        ..server
    };
    check_connectable(&mut settings, "masters", config.masters.iter().map(String::as_str));
    for (key, why) in config.mistakes() {
        settings.mistake(&[key], why, None);
    }
    let used = settings.finish()?;
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

    #[tokio::test]
    async fn an_unknown_engine_is_rejected() {
        let failure = server_config(server_args("server --engine rocks"), Sources::default()).expect_err("unknown");
        assert!(failure.to_string().contains("rocks"), "{failure}");
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.toml");
        terrane_env::fs::write_durable(&path, b"[server]\nengine = 'rocks'").await.expect("written");
        let sources = Sources::open(list::Role::Server, Some(&path)).await.expect("a file");
        let failure = Failure::from(server_config(server_args("server"), sources).expect_err("unknown"));
        assert!(failure.to_string().contains("rocks"), "{failure}");
        assert_eq!(failure.exit, crate::failure::Exit::Usage);
    }

    #[test]
    fn settings_that_cannot_work_together_are_all_named() {
        let line = "server --listen 127.0.0.1:5 --console localhost:5 --hbase 127.0.0.1:5 --hbase-advertise h:0 \
                    --masters 127.0.0.1:0 --log-limit 1KiB --memtable-budget 0B --hbase-scanner-lease 2h";
        let mistakes = server_config(server_args(line), Sources::default()).expect_err("mistakes");
        let said = mistakes.to_string();
        for part in [
            "--console is localhost:5, and listen is 127.0.0.1:5",
            "--hbase is 127.0.0.1:5, and listen is",
            "--hbase is 127.0.0.1:5, and console is",
            "--hbase-advertise names h:0",
            "--masters names 127.0.0.1:0",
            "--log-limit is 1024 bytes",
            "--memtable-budget is 0 bytes",
            "--hbase-scanner-lease must be 1s to 1h, not 2h",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(mistakes.list.len(), 8, "{said}");
    }

    #[test]
    fn a_master_that_its_list_does_not_name_is_refused() {
        let refused = |line: &str| {
            let words = std::iter::once("terrane").chain(line.split_whitespace());
            let Command::Master(args) = Cli::try_parse_from(words).expect("a good line").command else {
                panic!("not a master")
            };
            master_config(args, Sources::default()).map(drop).map_err(|mistakes| mistakes.to_string())
        };
        let line = "master --peers 10.0.0.1:7600,10.0.0.2:7600,10.0.0.3:7600";
        assert!(refused(line).expect_err("not named").contains("reach at 127.0.0.1:7600"));
        assert_eq!(refused(&format!("{line} --advertise 10.0.0.2:7600")), Ok(()));
        assert_eq!(refused(&format!("{line} --listen 127.0.0.1:0")), Ok(()), "the start knows the port");
        let both = refused("master --replication 2 --replace-after 1s").expect_err("two mistakes");
        assert!(both.contains("--replication must be 1, 3 or 5") && both.contains("--replace-after is 1s"), "{both}");
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
