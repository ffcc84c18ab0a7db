//! The arguments of the commands that run servers: `demo`, `dev`, `master` and `server`.
//!
//! Every setting is optional here, since it may also come from the environment or a file; `config` merges the three and
//! knows the defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::values::{Addresses, Size, address, addresses, collector, duration, duration_or_zero, share};
use crate::logging::LogFormat;

/// The default seed of the demo's weather; any number will do.
const DEMO_SEED: u64 = 1901;

#[derive(Debug, Args)]
pub struct Demo {
    /// Number of weather records to generate and import.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub records: u64,
    /// Number of weather stations.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub stations: u32,
    /// Seed of the generated weather; the same seed gives the same records.
    #[arg(long, value_name = "N", default_value_t = DEMO_SEED)]
    pub seed: u64,
    /// The storage engine: `lsm`, `sled` or `memory` (default: lsm).
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
}

/// Settings of the log, of all roles and `dev`.
#[derive(Debug, Default, Args)]
pub struct Log {
    /// Form of the log on standard error: text or json (default: text).
    #[arg(long, value_name = "FORM")]
    pub log_format: Option<LogFormat>,
    /// File to which the audit stream is appended: what administrators do (default: only the log).
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}

/// Settings of traces, of `dev` and `server`.
#[derive(Debug, Default, Args)]
pub struct Traces {
    /// Export the spans of traced requests to this OpenTelemetry collector (OTLP over gRPC), such as http://127.0.0.1:4317
    /// (default: no export).
    #[arg(long, value_name = "URL", value_parser = collector)]
    pub otlp_endpoint: Option<String>,
    /// Share of the requests without a trace that begin one here, from 0 to 1 (default: 0).
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub trace_share: Option<f64>,
}

/// Settings that `dev` and `server` share.
#[derive(Debug, Default, Args)]
pub struct Storage {
    /// The storage engine: `lsm`, `sled` or `memory` (default: lsm). Fixed when the data directory is created.
    #[arg(long, value_name = "NAME")]
    pub engine: Option<String>,
    /// Memory for the memtables of one server; above it, the largest are flushed.
    #[arg(long, value_name = "SIZE")]
    pub memtable_budget: Option<Size>,
    /// Size of one server's block cache (default: 256MiB).
    #[arg(long, value_name = "SIZE")]
    pub cache_size: Option<Size>,
    /// Disk space to keep free; with less, writes are rejected (default: a tenth of the disk, at most 2GiB).
    #[arg(long, value_name = "SIZE")]
    pub disk_reserve: Option<Size>,
    /// Size of one server's log at which writes are rejected until it can be purged.
    #[arg(long, value_name = "SIZE")]
    pub log_limit: Option<Size>,
    /// Bytes per second that bulk loads may send to one server, so that requests have room; 0B: any number (default:
    /// 256MiB).
    #[arg(long, value_name = "SIZE")]
    pub bulk_rate: Option<Size>,
    /// Requests that take longer are kept for `terrane admin slow` (default: 500ms).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub slow_request: Option<Duration>,
    /// The time in which a server compares the replicas of all regions that it leads, once; 0s: never (default: 24h).
    #[arg(long, value_name = "TIME", value_parser = duration_or_zero)]
    pub compare_every: Option<Duration>,
    /// Confirm all reads with a quorum instead of relying on a lease; set it on every server.
    #[arg(long)]
    pub strict_reads: bool,
}

#[derive(Debug, Default, Args)]
pub struct Dev {
    /// Directory for all data, with a subdirectory per process (default: terrane-data).
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Number of region servers, 1 to 10; with fewer than three, data has a single copy (default: 3).
    #[arg(long, value_name = "N")]
    pub servers: Option<u32>,
    /// Number of masters: 1, 3 or 5; fixed when the data directory is created (default: 1).
    #[arg(long, alias = "master-count", value_name = "N")]
    pub masters: Option<u32>,
    /// Port of the first master; consoles use +10 and up, the servers +100 and up, their consoles +110 and up
    /// (default: 7600).
    #[arg(long, value_name = "PORT")]
    pub listen_base: Option<u16>,
    /// Serve HBase's clients, too: region servers from port 16020 on, masters from 16000 on, a ZooKeeper from 2181 on.
    #[arg(long)]
    pub hbase: bool,
    /// How long a scanner of HBase's clients waits for its next call, 1s to 1h (default: 1m).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub hbase_scanner_lease: Option<Duration>,
    #[command(flatten)]
    pub storage: Storage,
    #[command(flatten)]
    pub traces: Traces,
    #[command(flatten)]
    pub log: Log,
    /// TOML file with a section `[dev]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Settings of both server roles.
#[derive(Debug, Default, Args)]
pub struct Role {
    /// Data directory of this process.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Address to listen on; anything but a loopback address requires --insecure.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub listen: Option<String>,
    /// Address that others use to connect (default: the listen address).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub advertise: Option<String>,
    /// Address of the HTTP endpoint for /metrics, /healthz and /readyz.
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub console: Option<String>,
    #[command(flatten)]
    pub log: Log,
    /// Allow listening on non-loopback addresses, without encryption or authentication.
    #[arg(long)]
    pub insecure: bool,
    /// For tests of upgrades: behave as a build of this feature level, the one before this build's.
    #[arg(long, value_name = "LEVEL", hide = true)]
    pub feature_level: Option<u32>,
    /// TOML file with a section `[master]` or `[server]`.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

#[derive(Debug, Default, Args)]
pub struct Master {
    #[command(flatten)]
    pub role: Role,
    /// Addresses of all 1, 3 or 5 masters of the cluster, including this one; all must name the same when the cluster is
    /// created, and run once.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub peers: Option<Addresses>,
    /// Masters of a running cluster: with an empty data directory, wait to be added to it by `terrane admin set-masters`.
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses, conflicts_with = "peers")]
    pub join: Option<Addresses>,
    /// Replicas of every region: 1, 3 or 5; fixed when the cluster is created (default: 3).
    #[arg(long, value_name = "N")]
    pub replication: Option<u32>,
    /// How long a server may be away before its replicas are replaced on others (default: 5m).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub replace_after: Option<Duration>,
    /// Serve HBase's clients at this address (default: not).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub hbase: Option<String>,
    /// Address at which HBase's clients connect (default: that of --hbase).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub hbase_advertise: Option<String>,
    /// Answer at this address as a read-only ZooKeeper, by which HBase's clients find the cluster (default: not).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub hbase_zookeeper: Option<String>,
}

#[derive(Debug, Default, Args)]
pub struct Server {
    #[command(flatten)]
    pub role: Role,
    /// Addresses of the masters (default: 127.0.0.1:7600).
    #[arg(long, value_name = "HOST:PORT,...", value_parser = addresses)]
    pub masters: Option<Addresses>,
    /// Label of the zone (rack, data center) that this server is in; replicas go to distinct zones where possible.
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
    /// Serve HBase's clients at this address (default: not).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub hbase: Option<String>,
    /// Address at which HBase's clients connect (default: that of --hbase).
    #[arg(long, value_name = "HOST:PORT", value_parser = address)]
    pub hbase_advertise: Option<String>,
    /// How long a scanner of HBase's clients waits for its next call, 1s to 1h (default: 1m).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub hbase_scanner_lease: Option<Duration>,
    #[command(flatten)]
    pub storage: Storage,
    #[command(flatten)]
    pub traces: Traces,
}
