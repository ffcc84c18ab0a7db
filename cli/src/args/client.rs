//! The arguments of what talks to a cluster: administration, tables, import and export, and what all of them share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use terrane_types::{KeyRange, NamespaceName, TableName};

use super::values::{Addresses, Escaped, FamilySpec, Size, addresses, attribute, duration};
use crate::formats::Format;

/// What every client command takes.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Where the masters are.
    #[arg(
        long,
        value_name = "HOST:PORT,...",
        env = "TERRANE_MASTERS",
        default_value = "127.0.0.1:7600",
        value_parser = addresses,
        hide_env_values = true
    )]
    pub masters: Addresses,
    /// Print one JSON object per line on standard output, and nothing else there.
    #[arg(long)]
    pub json: bool,
    /// How long one call may take, retries included: 500ms, 30s, 2m.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub timeout: Duration,
}

/// A range of rows.
#[derive(Clone, Debug, Default, Args)]
pub struct RangeFlags {
    /// Only rows that begin with these bytes.
    #[arg(long, value_name = "KEY", conflicts_with_all = ["start", "stop"], allow_hyphen_values = true)]
    pub prefix: Option<Escaped>,
    /// Only rows from this one on.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub start: Option<Escaped>,
    /// Only rows before this one.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub stop: Option<Escaped>,
}

impl RangeFlags {
    /// The range meant.
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
    /// Show every limited resource of every server, not only those that are more than half full or refused a request.
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
    /// List the regions, of one table or of all.
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
    /// Have all replicas of a table write out what they have in memory.
    Flush {
        /// The table's name, or `namespace:name`.
        table: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Have all replicas of a table rewrite their files, without what nobody can see any more.
    Compact {
        /// The table's name, or `namespace:name`.
        table: TableName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Split a region in two.
    Split {
        /// The region's number, as `admin regions` shows it.
        region: u64,
        /// The first row of the second half (default: near the middle).
        #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
        at: Option<Escaped>,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Create a table; it takes reads and writes when this returns.
    Create(CreateTable),
    /// Change attributes of a table, and its families.
    Alter(AlterTable),
    /// List the tables.
    List {
        /// Only those of this namespace.
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
    /// Remove a table and all its data.
    Drop {
        /// The table's name, or `namespace:name`.
        name: TableName,
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Subcommand)]
pub enum NamespaceCommand {
    /// Make a namespace; tables are then created in it as `namespace:name`.
    Create {
        /// The namespace's name.
        name: NamespaceName,
        #[command(flatten)]
        connection: Connection,
    },
    /// Remove a namespace that has no tables.
    Drop {
        /// The namespace's name.
        name: NamespaceName,
        #[command(flatten)]
        connection: Connection,
    },
    /// List the namespaces, with how many tables each has.
    List {
        #[command(flatten)]
        connection: Connection,
    },
}

#[derive(Debug, Args)]
pub struct CreateTable {
    /// The table's name, or `namespace:name`; a namespace that is not there yet is made.
    pub name: TableName,
    /// A column family, with attributes after a colon; may be given several times.
    #[arg(long, value_name = "F[:attribute=value,...]", num_args = 1.., required = true)]
    pub family: Vec<FamilySpec>,
    /// Begin with regions that are split at these keys; may be given several times.
    #[arg(long, value_name = "KEY", num_args = 1..)]
    pub split_at: Vec<Escaped>,
    /// Bytes at which a region splits, with a unit: B, KiB, MiB, GiB.
    #[arg(long, value_name = "SIZE")]
    pub region_size: Option<Size>,
    /// The typed parts of the keys: 'user:u64, time:desc i64, action:u32'.
    #[arg(long, value_name = "PARTS")]
    pub key: Option<String>,
    /// Set an attribute of the table; may be given several times.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = attribute)]
    pub set: Vec<(String, String)>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct AlterTable {
    /// The table's name, or `namespace:name`.
    pub name: TableName,
    /// Set an attribute of the table; may be given several times.
    #[arg(long, value_name = "ATTRIBUTE=VALUE", num_args = 1.., value_parser = attribute)]
    pub set: Vec<(String, String)>,
    /// Set attributes of a family; may be given several times.
    #[arg(long, value_name = "F:attribute=value,...", num_args = 1..)]
    pub family: Vec<FamilySpec>,
    /// Add a family; may be given several times.
    #[arg(long, value_name = "F[:attribute=value,...]", num_args = 1..)]
    pub add_family: Vec<FamilySpec>,
    /// Drop a family with its data; may be given several times.
    #[arg(long, value_name = "F", num_args = 1..)]
    pub drop_family: Vec<terrane_types::FamilyName>,
    #[command(flatten)]
    pub connection: Connection,
}

#[derive(Debug, Args)]
pub struct Import {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The form of the files' lines.
    #[arg(long, value_name = "FORMAT")]
    pub format: Format,
    /// Stop at the first malformed line, with exit status 1, instead of counting it.
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
    /// One row a line, as JSON.
    Jsonl,
    /// One cell a line, tab-separated.
    Tsv,
}

#[derive(Debug, Args)]
pub struct Export {
    /// The table's name, or `namespace:name`.
    pub table: TableName,
    /// The form of the lines.
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub format: ExportFormat,
    #[command(flatten)]
    pub range: RangeFlags,
    /// How many versions of each column to write (default: all that the table keeps).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub versions: Option<u32>,
    #[command(flatten)]
    pub connection: Connection,
}
