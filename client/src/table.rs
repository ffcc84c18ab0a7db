//! One table, open: what all calls on it share. They are in [`crate::writes`], [`crate::gets`] and [`crate::scans`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use terrane_proto::v1;
use terrane_types::{Invalid, TableId, TableName, TableSchema, escape};
use tokio::time::Instant;

use crate::client::Core;
use crate::error::Error;
use crate::retry::Failure;
use crate::route::Position;

/// A schema is asked for again at most this often: when it does not know a family, or when all families matter.
const REFRESH_PAUSE: Duration = Duration::from_secs(1);

/// A table that is open. Cheap to clone; clones share everything.
///
/// Every call has a deadline, the client's unless [`Table::with_timeout`] set another. Within it the client follows
/// redirects, waits out what passes (a busy server, a region on the move, an election) and tries again. When the time is
/// over, the last obstacle is found inside [`Error::Timeout`].
#[derive(Clone)]
pub struct Table {
    pub(crate) core: Arc<Core>,
    pub(crate) target: Arc<Target>,
    pub(crate) timeout: Duration,
}

/// What a table is, as far as the client knows.
pub(crate) struct Target {
    pub(crate) table: TableId,
    schema: RwLock<Arc<TableSchema>>,
    /// The newest version of the schema that was heard of.
    newest: AtomicU64,
    /// When the schema was last asked for, successfully or not.
    asked: Mutex<Asked>,
}

struct Asked {
    at: Instant,
    /// Only since the table was opened: what was fetched then may be asked for again at once.
    again: bool,
}

impl Target {
    pub(crate) fn new(schema: TableSchema) -> Self {
        Self {
            table: schema.table,
            newest: AtomicU64::new(schema.version),
            schema: RwLock::new(Arc::new(schema)),
            asked: Mutex::new(Asked { at: Instant::now(), again: false }),
        }
    }

    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema.read())
    }

    pub(crate) fn schema_version(&self) -> u64 {
        self.schema.read().version
    }

    pub(crate) fn saw_schema_version(&self, version: u64) {
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    fn is_outdated(&self) -> bool {
        self.newest.load(Ordering::Relaxed) > self.schema_version()
    }

    /// Whether it is worth asking again: not more than once in a while, unless a newer one was heard of.
    pub(crate) fn may_refresh(&self) -> bool {
        let mut asked = self.asked.lock();
        let due = !asked.again || asked.at.elapsed() >= REFRESH_PAUSE || self.is_outdated();
        if due {
            *asked = Asked { at: Instant::now(), again: true };
        }
        due
    }
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("name", &self.name().to_string()).field("id", &self.target.table).finish()
    }
}

impl Table {
    pub(crate) fn new(core: Arc<Core>, schema: TableSchema) -> Self {
        let timeout = core.timeout;
        Self { core, target: Arc::new(Target::new(schema)), timeout }
    }

    /// The same table with another deadline for each call made through this handle.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The table's name.
    #[must_use]
    pub fn name(&self) -> TableName {
        self.target.schema().name.clone()
    }

    /// The table's id. A table that was dropped and made again under its name has another.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.target.table
    }

    /// The schema as this client knows it; refreshed when servers speak of a newer one.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        self.target.schema()
    }

    /// Checks that the table has the families that a read names.
    pub(crate) async fn check_projection(&self, projection: &v1::Projection) -> Result<(), Error> {
        let unknown = |schema: &TableSchema| {
            let missing = projection.families.iter().find(|asked| schema.family(asked.family.as_bytes()).is_none());
            missing.map(|asked| unknown_family(schema, asked.family.as_bytes()))
        };
        let Some(invalid) = unknown(&self.target.schema()) else { return Ok(()) };
        if self.target.table == TableId::META || !self.target.may_refresh() {
            return Err(invalid.into());
        }
        self.refresh_schema(self.timeout).await?;
        unknown(&self.target.schema()).map_or(Ok(()), |invalid| Err(invalid.into()))
    }

    /// Whether the location cache knows a server for a row. What `benches/client` measures; of no use to anybody else.
    #[doc(hidden)]
    #[must_use]
    pub fn is_located(&self, row: &[u8]) -> bool {
        self.core.router.place(&self.target, Position::Row(row), &[]).is_ok()
    }

    pub(crate) async fn refresh_schema(&self, timeout: Duration) -> Result<(), Error> {
        let schema = self.core.describe(&self.name().to_string(), timeout).await?;
        if schema.table != self.target.table {
            self.core.router.forget_table(&self.target);
            return Err(Error::NotFound {
                what: format!("the table {} that was opened (there is a new one)", schema.name),
            });
        }
        self.target.saw_schema_version(schema.version);
        let mut known = self.target.schema.write();
        if schema.version >= known.version {
            *known = Arc::new(schema);
        }
        Ok(())
    }
}

pub(crate) fn unknown_family(schema: &TableSchema, family: &[u8]) -> Invalid {
    let known: Vec<String> = schema.families.iter().map(|family| family.name.to_string()).collect();
    Invalid::new(format!("table {} has no family {}; it has {}", schema.name, escape(family), known.join(", ")))
}

pub(crate) fn broken_reply(message: impl Into<String>) -> Failure {
    Failure::Refused(terrane_types::Error::Internal { message: message.into() })
}
