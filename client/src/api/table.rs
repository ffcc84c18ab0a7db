//! One table, open: what all calls on it share. They are in [`crate::write::table_writes`], [`crate::read::get_requests`] and [`crate::read::scan_requests`].

use std::sync::Arc;
use std::time::Duration;

use terrane_proto::v1;
use terrane_types::{TableId, TableName, TableSchema};
use tokio::time::Instant;

use crate::api::core::Core;
use crate::error::Error;
use crate::route::router::Position;
use crate::route::target::Target;

/// How often, and how long, it is tried to follow a schema that servers know to be newer.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(2);
/// A schema that lacks what a call names is asked for again at most this often.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);

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
            projection.families.iter().find_map(|asked| schema.check_family(asked.family.as_bytes()).err())
        };
        if self.target.is_outdated() {
            Box::pin(self.catch_up()).await;
        }
        let Some(invalid) = unknown(&self.target.schema()) else { return Ok(()) };
        if self.target.table == TableId::META {
            return Err(invalid.into());
        }
        self.look_again(self.timeout).await?;
        unknown(&self.target.schema()).map_or(Ok(()), |invalid| Err(invalid.into()))
    }

    /// Whether the location cache knows a server for a row. What `benches/client` measures; of no use to anybody else.
    #[doc(hidden)]
    #[must_use]
    pub fn is_located(&self, row: &[u8]) -> bool {
        self.core.router.place(&self.target, Position::Row(row), &[]).is_ok()
    }

    /// Looks at the schema again if servers spoke of a newer one. One caller does; others go on, and so do all where no master
    /// answers: servers judge by their own rules in any case.
    pub(crate) async fn catch_up(&self) {
        let Ok(mut looked) = self.target.looked_again.try_lock() else { return };
        if looked.is_some_and(|at| at.elapsed() < CATCH_UP_PAUSE) {
            return;
        }
        if let Err(error) = self.refresh_schema(self.timeout.min(CATCH_UP_PATIENCE)).await {
            tracing::debug!(table = %self.name(), %error, "the schema could not be looked at again");
        }
        *looked = Some(Instant::now());
    }

    /// Looks at the schema again since it lacks what a call names: what was true a moment ago is no reason to refuse anything.
    /// One caller asks for all that wait.
    pub(crate) async fn look_again(&self, timeout: Duration) -> Result<(), Error> {
        let came = Instant::now();
        let mut looked = self.target.looked_again.lock().await;
        if let Some(at) = *looked {
            if at >= came {
                return Ok(());
            }
            tokio::time::sleep_until(at + REFRESH_PAUSE).await;
        }
        let refreshed = self.refresh_schema(timeout).await;
        *looked = Some(Instant::now());
        refreshed
    }

    pub(crate) async fn refresh_schema(&self, timeout: Duration) -> Result<(), Error> {
        let schema = self.core.describe(&self.name().to_string(), timeout).await?;
        if schema.table != self.target.table {
            self.core.router.forget_table(&self.target);
            return Err(Error::NotFound {
                what: format!("the table {} that was opened (there is a new one)", schema.name),
            });
        }
        self.target.learn_schema(schema);
        Ok(())
    }
}
