//! The arguments of administration, tables, import and export, and those that all client commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use terrane_types::{KeyRange, NamespaceName, TableName};

use super::values::{Addresses, Escaped, FamilySpec, Size, addresses, attribute, duration};
use crate::formats::Format;

/// The flags of every client command.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Addresses of the masters.
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        env = "TERRANE_MASTERS",
        default_value = "127.0.0.1:7600",
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
}

/// A range of rows.
#[derive(Clone, Debug, Default, Args)]
pub struct RangeFlags {
    /// Only rows whose keys start with these bytes.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "stop"], allow_hyphen_values = true)]
    pub prefix: Option<Escaped>,
    /// First row of the range, inclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub start: Option<Escaped>,
    /// End of the range, exclusive.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub stop: Option<Escaped>,
}

impl RangeFlags {
    /// The range that the flags select.
    pub fn range(&self) -> Result<KeyRange, terrane_types::Invalid> {
        if let Some(prefix) = &self.prefix {
            return Ok(KeyRange::prefix(&prefix.0));
        }
        let bound = |flag: &Option<Escaped>| flag.as_ref().map(|key| key.0.clone()).unwrap_or_default();
        KeyRange::new(bound(&self.start), bound(&self.stop))
    }
}

#[derive(Debug, Args)]
pub struct Status {
    /// Show every limited resource of every server, not only those over half full or that rejected a request.
    #[arg(long)]
    pub resources: bool,
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
        /// The server's number or address (default: each server by itself).
        server: Option<String>,
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
        group: u64,
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
    /// Split a region in two.
    Split {
        /// The region's number, as `admin regions` shows it.
        region: u64,
        /// First row of the second daughter (default: near the middle of the region).
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        at: Option<Escaped>,
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
    /// Drop a table and all its data.
    Drop {
        /// The table's name, or `namespace:name`.
        name: TableName,
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
    pub split_at: Vec<Escaped>,
    /// Size at which a region splits, with a unit: B, KiB, MiB or GiB.
    #[arg(long, value_name = "SIZE")]
    pub region_size: Option<Size>,
    /// The typed parts of row keys, such as 'user:u64, time:desc i64, action:u32'.
    #[arg(long, value_name = "PARTS")]
    pub key: Option<String>,
    /// Set an attribute of the table; can be repeated.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = attribute)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct AlterTable {
    /// The table's name, or `namespace:name`.
    pub name: TableName,
    /// Set an attribute of the table; can be repeated.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = attribute)]
    pub set: Vec<(String, String)>,
    /// Set attributes of a family; can be repeated.
    #[arg(long, value_name = "F:attribute=value,...", num_args = 1..)]
    pub family: Vec<FamilySpec>,
    /// Add a family; can be repeated.
    #[arg(long, value_name = "F[:attribute=value,...]", num_args = 1..)]
    pub add_family: Vec<FamilySpec>,
    /// Drop a family and its data; can be repeated.
    #[arg(long, value_name = "F", num_args = 1..)]
    pub drop_family: Vec<terrane_types::FamilyName>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The format of the files.
    #[arg(long, value_name = "FORMAT")]
    pub format: Format,
    /// Stop at the first malformed line with exit status 1 instead of skipping and counting it.
    #[arg(long)]
    pub strict: bool,
    /// The files, plain or gzipped; `-` is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// One row per line, as JSON.
    Jsonl,
    /// One cell per line, tab-separated.
    Tsv,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The output format.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub format: ExportFormat,
    #[command(flatten)]
    pub range: RangeFlags,
    /// Maximum number of versions per column (default: all that the table keeps).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: Option<u32>,
    #[command(flatten)]
    pub connection: Connection,
}
