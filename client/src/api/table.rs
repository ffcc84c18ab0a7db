//! An open table: what all calls on it share. The calls themselves are in `write/table_writes.rs`, `read/get_requests.rs`,
//! `read/scan_requests.rs`, `read/count.rs` and `read/page.rs`.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::{Projection, TableId, TableName, TableSchema};
use tokio::time::Instant;

use crate::api::core::Core;
use crate::error::Error;
use crate::route::router::Position;
use crate::route::target::Target;

/// How often the client follows a schema that servers say is newer, and how long one refresh may take.
const CATCH_UP_PAUSE: Duration = Duration::from_secs(1);
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(2);
/// The shortest time between two refreshes of a schema that lacks what a call names.
const REFRESH_PAUSE: Duration = Duration::from_millis(50);

/// An open table. Cheap to clone; clones share everything.
///
/// Every call has a deadline: the client's timeout unless [`Table::with_timeout`] sets another. Until then the client
/// follows redirects, waits out temporary conditions (a busy server, a moving region, an election) and tries again. When the
/// time is over, [`Error::Timeout`] contains the last obstacle.
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

    /// The same table with another timeout for each call made through this handle.
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

    /// The table's id. A table that was dropped and created again under the same name has another id.
    #[must_use]
    pub fn id(&self) -> TableId {
        self.target.table
    }

    /// The schema as this client knows it; refreshed when a server mentions a newer one.
    #[must_use]
    pub fn schema(&self) -> Arc<TableSchema> {
        self.target.schema()
    }

    /// Checks that the table has the families that a read names.
    pub(crate) async fn check_projection(&self, projection: &Projection) -> Result<(), Error> {
        let unknown = |schema: &TableSchema| {
            projection.families.iter().find_map(|(family, _)| schema.check_family(family.as_bytes()).err())
        };
        if self.target.is_outdated() {
            Box::pin(self.catch_up()).await;
        }
        let Some(invalid) = unknown(&self.target.schema()) else { return Ok(()) };
        if self.target.table == TableId::META {
            return Err(invalid.into());
        }
        self.refresh_for_call(self.timeout).await?;
        unknown(&self.target.schema()).map_or(Ok(()), |invalid| Err(invalid.into()))
    }

    /// Whether the location cache knows a server for a row. For the client's benchmark only.
    #[doc(hidden)]
    #[must_use]
    pub fn is_located(&self, row: &[u8]) -> bool {
        self.core.router.place(&self.target, Position::Row(row), &[]).is_ok()
    }

    /// Refreshes the schema if a server has mentioned a newer one. One caller does; the others continue, and so do all if no
    /// master answers: servers apply their own schema in any case.
    pub(crate) async fn catch_up(&self) {
        let Ok(mut refreshed) = self.target.refreshed.try_lock() else { return };
        if refreshed.is_some_and(|at| at.elapsed() < CATCH_UP_PAUSE) {
            return;
        }
        let began = Instant::now();
        if let Err(error) = self.refresh_schema(self.timeout.min(CATCH_UP_TIMEOUT)).await {
            tracing::debug!(table = %self.name(), %error, "the schema could not be refreshed");
        }
        *refreshed = Some(began);
    }

    /// Refreshes the schema because it lacks what a call names: an outdated schema is no reason to refuse a call. One caller
    /// refreshes for all that came before its refresh began: a master may have answered an earlier one before an alter that
    /// a later caller has seen.
    pub(crate) async fn refresh_for_call(&self, timeout: Duration) -> Result<(), Error> {
        let came = Instant::now();
        let mut refreshed = self.target.refreshed.lock().await;
        if let Some(began) = *refreshed {
            if began >= came {
                return Ok(());
            }
            tokio::time::sleep_until(began + REFRESH_PAUSE).await;
        }
        let began = Instant::now();
        let result = self.refresh_schema(timeout).await;
        *refreshed = Some(began);
        result
    }

    async fn refresh_schema(&self, timeout: Duration) -> Result<(), Error> {
        let schema = self.core.describe(&self.name().to_string(), timeout).await?;
        if schema.table != self.target.table {
            self.core.router.forget_table(&self.target);
            return Err(Error::NotFound {
                what: format!("table {} as it was opened (a new table has its name)", schema.name),
            });
        }
        self.target.learn_schema(schema);
        Ok(())
    }
}
