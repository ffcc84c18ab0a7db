//! Every setting of the roles: key, type, default and meaning.
//!
//! The roles take their defaults from this list, a file is checked against it, and `cargo xtask fix` renders the reference in
//! `docs/configuration.md` from it: `xtask` compiles this file, too, so it holds plain data and imports nothing.

/// A process that has settings; the section of a file has the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Master,
    Server,
    Dev,
}

/// What a setting's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Directory,
    Address,
    Addresses,
    Text,
    Engine,
    Count,
    Port,
    Size,
    Time,
    Share,
    Collector,
    Switch,
}

/// What happens if a setting is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unset {
    /// It has this value, written as after a flag.
    Value(&'static str),
    /// It has no value, which means this.
    Means(&'static str),
}

/// A setting of one or more roles.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in a file; with dashes in front, its flag.
    pub key: &'static str,
    pub kind: Kind,
    /// The roles that have it, each with its default.
    pub roles: &'static [(Role, Unset)],
    pub meaning: &'static str,
}

use Role::{Dev, Master, Server};
use Unset::{Means, Value};

impl Role {
    pub const ALL: [Role; 3] = [Role::Master, Role::Server, Role::Dev];

    /// The name of its command and of its section.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Master => "master",
            Role::Server => "server",
            Role::Dev => "dev",
        }
    }
}

impl Kind {
    /// The kind as a noun, with an example as a file spells it.
    pub const fn described(self) -> &'static str {
        match self {
            Kind::Directory => "a directory, such as \"/var/lib/terrane\"",
            Kind::Address => "an address, such as \"127.0.0.1:7600\"",
            Kind::Addresses => "a list of addresses, such as [\"10.0.0.1:7600\", \"10.0.0.2:7600\"]",
            Kind::Text => "text, such as \"rack-1\"",
            Kind::Engine => "the name of an engine: \"lsm\", \"sled\" or \"memory\"",
            Kind::Count => "a whole number, such as 3",
            Kind::Port => "a port, such as 7600",
            Kind::Size => "a size, such as \"4GiB\"",
            Kind::Time => "a time, such as \"5m\"",
            Kind::Share => "a share from 0 to 1, such as 0.01",
            Kind::Collector => "the address of a collector, such as \"http://127.0.0.1:4317\"",
            Kind::Switch => "true or false",
        }
    }

    /// The kind in a word or two.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Directory => "directory",
            Kind::Address => "address",
            Kind::Addresses => "addresses",
            Kind::Text => "text",
            Kind::Engine => "engine",
            Kind::Count => "number",
            Kind::Port => "port",
            Kind::Size => "size",
            Kind::Time => "time",
            Kind::Share => "share",
            Kind::Collector => "collector",
            Kind::Switch => "true or false",
        }
    }
}

impl Setting {
    /// Its default in a role; `None` if the role does not have it.
    pub fn unset(&self, role: Role) -> Option<Unset> {
        self.roles.iter().find(|(has, _)| *has == role).map(|(_, unset)| *unset)
    }
}

/// The settings of a role, in the order in which they are documented and printed.
pub fn of(role: Role) -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(move |setting| setting.unset(role).is_some())
}

/// The environment variable of a key.
pub fn variable(key: &str) -> String {
    format!("TERRANE_{}", key.to_ascii_uppercase().replace('-', "_"))
}

/// All settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        key: "data",
        kind: Kind::Directory,
        roles: &[(Master, Value("terrane-master")), (Server, Value("terrane-server")), (Dev, Value("terrane-data"))],
        meaning: "the data directory; `dev` makes a subdirectory per master and server",
    },
    Setting {
        key: "listen",
        kind: Kind::Address,
        roles: &[(Master, Value("127.0.0.1:7600")), (Server, Value("127.0.0.1:7700"))],
        meaning: "the address to listen on",
    },
    Setting {
        key: "advertise",
        kind: Kind::Address,
        roles: &[(Master, Means("the listen address")), (Server, Means("the listen address"))],
        meaning: "the address at which others connect",
    },
    Setting {
        key: "console",
        kind: Kind::Address,
        roles: &[(Master, Value("127.0.0.1:7610")), (Server, Value("127.0.0.1:7710"))],
        meaning: "the HTTP address of the web console, `/metrics`, `/healthz` and `/readyz`",
    },
    Setting {
        key: "log-format",
        kind: Kind::Text,
        roles: &[(Master, Value("text")), (Server, Value("text")), (Dev, Value("text"))],
        meaning: "the form of the log on standard error, `text` or `json`",
    },
    Setting {
        key: "audit-log",
        kind: Kind::Text,
        roles: &[(Master, Means("none")), (Server, Means("none")), (Dev, Means("none"))],
        meaning: "a file to which the audit stream is appended",
    },
    Setting {
        key: "insecure",
        kind: Kind::Switch,
        roles: &[(Master, Value("false")), (Server, Value("false"))],
        meaning: "allows addresses that other machines can reach: nothing is encrypted, and everyone who connects may read \
                  and write all data",
    },
    Setting {
        key: "peers",
        kind: Kind::Addresses,
        roles: &[(Master, Means("this master alone"))],
        meaning: "the addresses of all 1, 3 or 5 masters, when the cluster is created",
    },
    Setting {
        key: "join",
        kind: Kind::Addresses,
        roles: &[(Master, Means("none"))],
        meaning: "masters of a running cluster: wait to be added by `terrane admin set-masters`",
    },
    Setting {
        key: "replication",
        kind: Kind::Count,
        roles: &[(Master, Value("3"))],
        meaning: "replicas of every region, 1, 3 or 5, when the cluster is created",
    },
    Setting {
        key: "replace-after",
        kind: Kind::Time,
        roles: &[(Master, Value("5m"))],
        meaning: "how long a server may be away before its replicas are placed on others",
    },
    Setting {
        key: "masters",
        kind: Kind::Addresses,
        roles: &[(Server, Value("127.0.0.1:7600"))],
        meaning: "the addresses of the masters",
    },
    Setting {
        key: "zone",
        kind: Kind::Text,
        roles: &[(Server, Means("none"))],
        meaning: "the server's rack or data center; replicas go to distinct zones where possible",
    },
    Setting {
        key: "servers",
        kind: Kind::Count,
        roles: &[(Dev, Value("3"))],
        meaning: "region servers, 1 to 10; with fewer than three, data has one copy",
    },
    Setting {
        key: "master-count",
        kind: Kind::Count,
        roles: &[(Dev, Value("1"))],
        meaning: "masters, 1, 3 or 5, when the data directory is created; the flag is `--masters`",
    },
    Setting {
        key: "listen-base",
        kind: Kind::Port,
        roles: &[(Dev, Value("7600"))],
        meaning: "the first master's port; consoles use +10 and up, servers +100 and up, their consoles +110 and up",
    },
    Setting {
        key: "engine",
        kind: Kind::Engine,
        roles: &[(Server, Value("lsm")), (Dev, Value("lsm"))],
        meaning: "the storage engine, `lsm`, `sled` or `memory`; fixed when the data directory is created",
    },
    Setting {
        key: "memtable-budget",
        kind: Kind::Size,
        roles: &[(Server, Value("256MiB")), (Dev, Value("256MiB"))],
        meaning: "memory for the memtables of a server; above it, the largest are flushed",
    },
    Setting {
        key: "cache-size",
        kind: Kind::Size,
        roles: &[(Server, Value("256MiB")), (Dev, Value("256MiB"))],
        meaning: "the block cache of a server",
    },
    Setting {
        key: "disk-reserve",
        kind: Kind::Size,
        roles: &[
            (Server, Means("a tenth of the disk, at most 2GiB")),
            (Dev, Means("a tenth of the disk, at most 2GiB")),
        ],
        meaning: "disk space to keep free; with less, writes are rejected",
    },
    Setting {
        key: "log-limit",
        kind: Kind::Size,
        roles: &[(Server, Value("8GiB")), (Dev, Value("8GiB"))],
        meaning: "size of a server's log at which writes are rejected until it can be purged",
    },
    Setting {
        key: "bulk-rate",
        kind: Kind::Size,
        roles: &[(Server, Value("256MiB")), (Dev, Value("256MiB"))],
        meaning: "bytes per second that bulk loads may send to a server; `0B`: any number",
    },
    Setting {
        key: "slow-request",
        kind: Kind::Time,
        roles: &[(Server, Value("500ms")), (Dev, Value("500ms"))],
        meaning: "requests that take longer are kept for `terrane admin slow`, the latest 256",
    },
    Setting {
        key: "compare-every",
        kind: Kind::Time,
        roles: &[(Server, Value("24h")), (Dev, Value("24h"))],
        meaning: "the time in which a server compares the replicas of all regions that it leads, once; `0s`: never",
    },
    Setting {
        key: "strict-reads",
        kind: Kind::Switch,
        roles: &[(Server, Value("false")), (Dev, Value("false"))],
        meaning: "a server confirms all its reads with a quorum, as tables with `strict_reads` do; set it on every server",
    },
    Setting {
        key: "hbase",
        kind: Kind::Address,
        roles: &[(Master, Means("HBase's clients are not served")), (Server, Means("HBase's clients are not served"))],
        meaning: "the address at which HBase's clients are served",
    },
    Setting {
        key: "hbase",
        kind: Kind::Switch,
        roles: &[(Dev, Value("false"))],
        meaning: "serves HBase's clients, too: region servers from port 16020 on, masters from 16000 on, a ZooKeeper from 2181 on",
    },
    Setting {
        key: "hbase-advertise",
        kind: Kind::Address,
        roles: &[(Master, Means("the address of `hbase`")), (Server, Means("the address of `hbase`"))],
        meaning: "the address at which HBase's clients connect",
    },
    Setting {
        key: "hbase-scanner-lease",
        kind: Kind::Time,
        roles: &[(Server, Value("1m")), (Dev, Value("1m"))],
        meaning: "how long a scanner of HBase's clients waits for its next call, 1s to 1h; HBase calls it `hbase.client.scanner.timeout.period`",
    },
    Setting {
        key: "hbase-zookeeper",
        kind: Kind::Address,
        roles: &[(Master, Means("none"))],
        meaning: "the address that answers as a read-only ZooKeeper, by which HBase's clients find the cluster",
    },
    Setting {
        key: "otlp-endpoint",
        kind: Kind::Collector,
        roles: &[(Server, Means("no export")), (Dev, Means("no export"))],
        meaning: "OpenTelemetry collector that gets the spans of traced requests (OTLP over gRPC)",
    },
    Setting {
        key: "trace-share",
        kind: Kind::Share,
        roles: &[(Server, Value("0")), (Dev, Value("0"))],
        meaning: "share of the requests without a trace that begin one, if there is a collector",
    },
];

/// A setting for tests of upgrades, which no list shows.
pub const FEATURE_LEVEL: Setting = Setting {
    key: "feature-level",
    kind: Kind::Count,
    roles: &[(Master, Means("this build's")), (Server, Means("this build's"))],
    meaning: "behave as a build of this feature level",
};
