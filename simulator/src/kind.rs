//! The scenarios by name. A file of its own, because the plan names one and every scenario reads the plan.

/// The scenarios by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Put, get and scan rows.
    Rows,
    /// Increment, append, and check and mutate, which shows writes that are applied twice.
    Counters,
    /// Scan, page, count and sum while rows come and go.
    Scans,
    /// Write and walk a big linked list.
    List,
    /// Read, write, and check and mutate a few hot registers, and search for an order that explains all results.
    Registers,
    /// Write rows and pairs of rows as a whole, and rows with several versions.
    Batches,
    /// Read from any member, and check as of when the answers are complete.
    Stale,
    /// Write cells that expire, and check when they can be seen.
    Ttl,
    /// Write and read rows of hundreds of KiB in many parts.
    Wide,
    /// Alter, create and drop tables while others use them.
    Schema,
    /// Load rows in bulk, and delete some of them.
    Loads,
    /// Increment, append, and check and mutate over the port for HBase's clients, and lose answers.
    Hbase,
    /// Write and read in every way over the port for HBase's clients, and compare with a model.
    HbaseModel,
    /// Misuse the cluster in every way, beside normal clients.
    Hostile,
}

impl Kind {
    /// All scenarios.
    pub const ALL: [Kind; 14] = [
        Kind::Rows,
        Kind::Counters,
        Kind::Scans,
        Kind::List,
        Kind::Registers,
        Kind::Batches,
        Kind::Stale,
        Kind::Ttl,
        Kind::Wide,
        Kind::Schema,
        Kind::Loads,
        Kind::Hbase,
        Kind::HbaseModel,
        Kind::Hostile,
    ];

    /// Whether servers serve HBase's clients.
    #[must_use]
    pub const fn serves_hbase(self) -> bool {
        matches!(self, Kind::Hbase | Kind::HbaseModel | Kind::Hostile)
    }

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Rows => "rows",
            Kind::Counters => "counters",
            Kind::Scans => "scans",
            Kind::List => "list",
            Kind::Registers => "registers",
            Kind::Batches => "batches",
            Kind::Stale => "stale",
            Kind::Ttl => "ttl",
            Kind::Wide => "wide",
            Kind::Schema => "schema",
            Kind::Loads => "loads",
            Kind::Hbase => "hbase",
            Kind::HbaseModel => "hbase-model",
            Kind::Hostile => "hostile",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = ();

    fn from_str(name: &str) -> Result<Kind, ()> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or(())
    }
}
