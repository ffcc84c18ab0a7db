//! The arguments of what serves: `demo`, `dev`, `master`, `server`.
//!
//! Every setting is optional here, as it may also come from the environment or a file; `config` decides and knows the
//! defaults.

use std::path::PathBuf;

use clap::Args;

use super::values::{Addresses, Size, address, addresses};

/// Where the demo's weather begins unless told otherwise; any number will do.
const DEMO_SEED: u64 = 1901;

#[derive(Debug, Args)]
pub struct Demo {
    /// How many weather records to generate and import.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub records: u64,
    /// How many stations report them.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub stations: u32,
    /// The seed of the weather: the same number, the same records.
    #[arg(long, value_name = "N", default_value_t = DEMO_SEED)]
    pub seed: u64,
    /// The storage engine, `lsm`, `sled` or `memory` (default: memory).
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
}

/// Settings that `dev` and `server` share.
#[derive(Debug, Default, Args)]
pub struct Storage {
    /// The storage engine, `lsm`, `sled` or `memory` (default: lsm); a directory keeps the one it was made with.
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Bytes of memtables of one server above which its largest are flushed.
    #[arg(long, value_name = "SIZE")]
    pub memtable_budget: Option<Size>,
    /// Bytes of one server's memory for blocks read from files (default: 256MiB).
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// Bytes of the disk to be left free; writes are refused below it (default: a tenth of the disk, at most 2GiB).
    #[arg(long, value_name = "SIZE")]
    pub disk_reserve: Option<Size>,
    /// Bytes of one server's log at which writes are refused until what holds it back is done.
    #[arg(long, value_name = "SIZE")]
    pub log_limit: Option<Size>,
}

#[derive(Debug, Default, Args)]
pub struct Dev {
    /// Where all data goes, a directory per process (default: terrane-data).
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Region servers to run, 1 to 10; fewer than three keep one copy only (default: 3).
    #[arg(long, value_name = "N")]
    pub servers: Option<u32>,
    /// First port: the master takes it, its console 10 more, the servers 100 more, their consoles 110 more (default: 7600).
    #[arg(long, value_name = "PORT")]
    pub listen_base: Option<u16>,
    #[command(flatten)]
    pub storage: Storage,
    /// A TOML file with a section `[dev]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Settings that both server roles share.
#[derive(Debug, Default, Args)]
pub struct Role {
    /// The directory of this process's data.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Where to listen; another than a loopback address needs --insecure.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: Option<String>,
    /// The address that others are told (default: the listen address).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    /// Where the web console listens: /metrics, /healthz and /readyz.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub console: Option<String>,
    /// Listen on addresses that other machines reach, although nothing is encrypted and nobody is asked who they are.
    #[arg(long)]
    pub insecure: bool,
    /// A TOML file with a section `[master]` or `[server]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
pub struct Master {
    #[command(flatten)]
    pub role: Role,
    /// All masters of the cluster, this one included; every one of a new cluster must name the same.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub peers: Option<Addresses>,
    /// Copies of every region, 1, 3 or 5; fixed when the cluster is made (default: 3).
    #[arg(long, value_name = "N")]
    pub replication: Option<u32>,
}

#[derive(Debug, Default, Args)]
pub struct Server {
    #[command(flatten)]
    pub role: Role,
    /// Where the masters are (default: 127.0.0.1:7600).
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub masters: Option<Addresses>,
    #[command(flatten)]
    pub storage: Storage,
}
