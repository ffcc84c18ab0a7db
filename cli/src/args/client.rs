//! The arguments of administration and tables, and those that all client commands share.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use terrane_types::{NamespaceName, TableName};

use crate::failure::MASTERS_DEFAULT;

use super::values::{
    Addresses, ColumnType, FamilySpec, Size, TableAttribute, TableWord, Traceparent, address, addresses, collector,
    duration, share,
};

/// The flags of every client command.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Addresses of the masters.
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        env = "TERRANE_MASTERS",
        default_value = MASTERS_DEFAULT,
        value_parser = addresses,
        hide_env_values = true
    )]
    pub masters: Addresses,
    /// Print one JSON object per line on standard output, and nothing else.
    #[arg(long)]
    pub json: bool,
    /// Timeout of one call, including retries, such as 500ms, 30s or 2m.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
    #[command(flatten)]
    pub tracing: Tracing,
}

/// Whether the calls of a command are traced.
#[derive(Clone, Debug, Default, Args)]
pub struct Tracing {
    /// Make the command's calls part of this trace, in the form of the W3C's header `traceparent`; the variable TRACEPARENT does
    /// the same.
    #[arg(long, value_name = "CONTEXT", hide_short_help = true)]
    pub traceparent: Option<Traceparent>,
    /// Export the spans of the command's calls to this OpenTelemetry collector (OTLP over gRPC), such as
    /// http://127.0.0.1:4317. The command is one trace, whose id is printed on standard error.
    #[arg(long, value_name = "URL", env = "TERRANE_OTLP_ENDPOINT", hide_env_values = true, hide_short_help = true, value_parser = collector)]
    pub otlp_endpoint: Option<String>,
    /// Trace only this share of the calls, from 0 to 1, each for itself.
    #[arg(long, value_name = "SHARE", requires = "otlp_endpoint", value_parser = share, hide_short_help = true)]
    pub trace_share: Option<f64>,
}

/// Whether keys and values are bytes, whatever the table declares.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Raw {
    /// Take and print keys and values as bytes with `\xHH`, even if the table declares key parts and column types.
    #[arg(long)]
    pub raw: bool,
}

/// How times are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TimeForm {
    /// Dates at a terminal, milliseconds elsewhere.
    #[default]
    Auto,
    /// RFC 3339 in UTC.
    Date,
    /// Milliseconds since 1970.
    Raw,
}

impl TimeForm {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TimeForm::Auto => "auto",
            TimeForm::Date => "date",
            TimeForm::Raw => "raw",
        }
    }

    /// Whether output is to have dates; `at_terminal` says whether a terminal shows it.
    pub fn is_date(self, at_terminal: bool) -> bool {
        self == TimeForm::Date || (self == TimeForm::Auto && at_terminal)
    }
}

/// How a command shows times.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Times {
    /// Show times as dates, which are in UTC, or raw, as milliseconds since 1970; auto shows dates at a terminal. JSON always
    /// has milliseconds.
    #[arg(long, value_name = "FORM", default_value = "auto")]
    pub time: TimeForm,
}

/// A range of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct RangeFlags {
    /// Only rows whose keys start with these parts, as in `user=7,time=2026-01-31`; bytes if the table declares no key.
    /// A part that is a time also takes `-1h`, which counts from now.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "stop"], allow_hyphen_values = true)]
    pub prefix: Option<TableWord>,
    /// First row of the range, inclusive; leading key parts are enough.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub start: Option<TableWord>,
    /// End of the range, exclusive; leading key parts are enough.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub stop: Option<TableWord>,
}

#[derive(Debug, Args)]
pub struct Status {
    /// Show every limited resource of every server, not only those over half full or that rejected a request.
    #[arg(long)]
    pub resources: bool,
    /// Exit with status 1 if the cluster has a health issue.
    #[arg(long)]
    pub check: bool,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Subcommand)]
pub enum Admin {
    /// List the region servers.
    Servers {
        #[command(flatten)]
        connection: Connection,
    },
    /// List the regions of one table or of all tables.
    Regions {
        /// Only the regions of this table.
        table: Option<TableName>,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the log groups.
    Groups {
        #[command(flatten)]
        connection: Connection,
    },
    /// Flush the memtables of all replicas of a table to disk.
    Flush {
        /// The table's name, or `namespace:name`.
        table: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Run a major compaction on all replicas of a table; cells that are no longer visible are removed.
    Compact {
        /// The table's name, or `namespace:name`.
        table: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// List unfinished changes of tables, groups and servers, and what they wait for.
    Procedures {
        /// List those that have ended instead, newest first, and how.
        #[arg(long)]
        ended: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Undo an unfinished change, if that is possible.
    Cancel {
        /// Its id, as `admin procedures` shows it.
        procedure: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Move all leaderships and replicas off a server, and wait until it has none.
    Drain {
        /// The server's number or address.
        server: String,
        /// Return at once; the drain continues.
        #[arg(long)]
        no_wait: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// End a drain: the server gets replicas again.
    Undrain {
        /// The server's number or address.
        server: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a drained server from the cluster.
    Decommission {
        /// The server's number or address.
        server: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say whether stopping a server now is safe; exits with status 1 if it is not.
    RestartCheck {
        /// The server's number or address (default: each server by itself). `self` is the one that TERRANE_ADVERTISE or
        /// TERRANE_LISTEN names, for stop hooks.
        server: Option<String>,
        /// Wait until it is safe, at most this long.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        wait: Option<Duration>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Spread replicas, leaderships and regions now, show the plan, or switch automatic balancing on or off.
    Balance {
        /// `now` (the default), `on` or `off`.
        #[arg(value_name = "on|off|now", conflicts_with = "dry_run")]
        mode: Option<BalanceWord>,
        /// Only show the plan, with what each server has before and after.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change how many replicas everything has.
    Replication {
        /// 1, 3 or 5.
        replicas: u32,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the masters.
    Masters {
        #[command(flatten)]
        connection: Connection,
    },
    /// Print the hbase-site.xml with which HBase's clients find the cluster.
    HbaseSite {
        #[command(flatten)]
        connection: Connection,
    },
    /// Change which masters the cluster has: add, remove or replace some; shows what changes, and asks.
    SetMasters {
        /// The addresses of all 1, 3 or 5 masters that the cluster is to have. New ones run with --join and wait.
        #[arg(value_name = "HOST:PORT,...", value_parser = addresses)]
        list: Addresses,
        /// Change them without asking. Otherwise nothing is changed unless a person confirms it at a terminal.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Bring back a group whose majority is lost for good, from the survivor with the longest log; shows what may be lost, and
    /// asks.
    RecoverGroup {
        /// The group's number, as `admin groups` shows it.
        #[arg(required_unless_present = "all_lost")]
        group: Option<u64>,
        /// Every group that `admin groups` shows with the state `no majority`: one plan, one question.
        #[arg(long, conflicts_with = "group")]
        all_lost: bool,
        /// Recover it without asking. Otherwise nothing is changed unless a person confirms it at a terminal.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Compare catalog, groups and servers; exits with status 1 if something is wrong.
    Check {
        #[command(flatten)]
        connection: Connection,
    },
    /// List the latest requests that took longer than the servers' setting `slow-request`, with what made them slow.
    Slow {
        /// The most requests to list, the newest first.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the rows of a table that are read and written most, and where to split the regions that hold them.
    Hot {
        /// The table's name, or `namespace:name`.
        table: TableName,
        /// The most rows to list, the hottest first.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: usize,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the settings that change while the cluster runs, or change one.
    Set {
        /// The setting: `replace-after`, `replication` and `balancing` of the cluster, `slow-request` of each server,
        /// `log-filter` of each process (default: show all).
        name: Option<RunningSetting>,
        /// Its value; `default` takes a change back (default: only show it).
        value: Option<String>,
        /// Only the process at this address, for settings that each process has (default: all of them).
        #[arg(long, value_name = "HOST:PORT", value_parser = address)]
        server: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show how far the repair of groups that lack copies is; exits with status 1 if some still do.
    Repair {
        /// Wait until every group has all its copies, at most this long, and show the progress.
        #[arg(long, value_name = "TIME", value_parser = duration)]
        wait: Option<Duration>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show what masters and servers log, or change it until they end.
    Log {
        /// A filter as in TERRANE_LOG, such as `info` or `warn,terrane_raft=debug` (default: only show).
        filter: Option<String>,
        /// Only the process at this address (default: all masters and live servers).
        #[arg(long, value_name = "HOST:PORT", value_parser = address)]
        server: Option<String>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Split a region in two.
    Split {
        /// The region's number, as `admin regions` shows it.
        region: u64,
        /// First row of the second daughter (default: near the middle of the region).
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        at: Option<TableWord>,
        #[command(flatten)]
        raw: Raw,
        #[command(flatten)]
        connection: Connection,
    },
    /// Move a region to a server, and wait until it is there.
    Move {
        /// The region's number, as `admin regions` shows it.
        region: u64,
        /// The server's number or address.
        #[arg(long, value_name = "SERVER")]
        to: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Merge two neighbouring regions; of two groups, the smaller region moves first.
    Merge {
        /// The number of one region, as `admin regions` shows it.
        region: u64,
        /// The number of the other.
        other: u64,
        #[command(flatten)]
        connection: Connection,
    },
}

/// A setting that changes while the cluster runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RunningSetting {
    /// How long a server may be away before its replicas are replaced.
    ReplaceAfter,
    /// How many copies everything has.
    Replication,
    /// Whether replicas, leaderships and regions are spread without being asked.
    Balancing,
    /// Requests that take longer are kept for `admin slow`.
    SlowRequest,
    /// What a process logs.
    LogFilter,
}

/// What `admin balance` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BalanceWord {
    /// Spread without being asked.
    On,
    /// Only repair and drain.
    Off,
    /// Spread now.
    Now,
}

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Create a table and wait until it accepts reads and writes.
    Create(CreateTable),
    /// Change the attributes and families of a table.
    Alter(AlterTable),
    /// List the tables.
    List {
        /// Only tables of this namespace.
        #[arg(long, value_name = "NAMESPACE")]
        namespace: Option<NamespaceName>,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show a table's attributes and families.
    Describe {
        /// The table's name, or `namespace:name`.
        name: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Refuse reads and writes of a table until it is enabled again.
    Disable {
        /// The table's name, or `namespace:name`.
        name: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// End `table disable`.
    Enable {
        /// The table's name, or `namespace:name`.
        name: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove all rows of a table and keep its schema and splits; asks at a terminal.
    Truncate {
        /// The table's name, or `namespace:name`.
        name: TableName,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Drop a table and all its data; asks at a terminal.
    Drop {
        /// The table's name, or `namespace:name`.
        name: TableName,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Create a namespace; its tables are named `namespace:name`.
    Create {
        /// The namespace's name.
        name: NamespaceName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Drop a namespace that has no tables.
    Drop {
        /// The namespace's name.
        name: NamespaceName,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the namespaces and the number of tables in each.
    List {
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub struct CreateTable {
    /// The table's name, or `namespace:name`; a missing namespace is created.
    pub name: TableName,
    /// A column family, with attributes after a colon; can be repeated.
    #[arg(long, value_name = "F[:attribute=value,...]", num_args = 1.., required = true)]
    pub family: Vec<FamilySpec>,
    /// Start with regions split at these keys; can be repeated.
    #[arg(long, value_name = "KEY", num_args = 1..)]
    pub split_at: Vec<TableWord>,
    #[command(flatten)]
    pub raw: Raw,
    /// The type of a column's values: i32, i64, u32, u64, f64, time, text or bytes; can be repeated.
    #[arg(long, value_name = "F:Q=TYPE", num_args = 1..)]
    pub column: Vec<ColumnType>,
    /// Size at which a region splits, with a unit: B, KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE")]
    pub region_size: Option<Size>,
    /// The typed parts of row keys, such as 'user:u64, time:desc time, action:u32'.
    #[arg(long, value_name = "PARTS")]
    pub key: Option<String>,
    /// Set an attribute of the table; can be repeated.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = TableAttribute, hide_possible_values = true)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct AlterTable {
    /// The table's name, or `namespace:name`.
    pub name: TableName,
    /// Set an attribute of the table; can be repeated.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = TableAttribute, hide_possible_values = true)]
    pub set: Vec<(String, String)>,
    /// Set attributes of a family; can be repeated.
    #[arg(long, value_name = "F:attribute=value,...", num_args = 1..)]
    pub family: Vec<FamilySpec>,
    /// The type of a column's values, or `none`; can be repeated.
    #[arg(long, value_name = "F:Q=TYPE", num_args = 1..)]
    pub column: Vec<ColumnType>,
    /// Add a family; can be repeated.
    #[arg(long, value_name = "F[:attribute=value,...]", num_args = 1..)]
    pub add_family: Vec<FamilySpec>,
    /// Drop a family and its data; can be repeated.
    #[arg(long, value_name = "F", num_args = 1..)]
    pub drop_family: Vec<terrane_types::FamilyName>,
    #[command(flatten)]
    pub connection: Connection,
}
