//! The table that a call goes to, as far as the client knows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use terrane_types::{TableId, TableSchema};
use tokio::time::Instant;

use crate::error::Error;

/// A table, as far as the client knows it.
pub(crate) struct Target {
    pub(crate) table: TableId,
    schema: RwLock<Arc<TableSchema>>,
    /// The newest schema version that a server or master has mentioned.
    newest: AtomicU64,
    /// When the last refresh of the schema began. Held during a refresh, so that many callers refresh once.
    pub(crate) refreshed: tokio::sync::Mutex<Option<Instant>>,
}

impl Target {
    pub(crate) fn new(schema: TableSchema) -> Self {
        Self {
            table: schema.table,
            newest: AtomicU64::new(schema.version),
            schema: RwLock::new(Arc::new(schema)),
            refreshed: tokio::sync::Mutex::new(None),
        }
    }

    pub(crate) fn schema(&self) -> Arc<TableSchema> {
        Arc::clone(&self.schema.read())
    }

    pub(crate) fn schema_version(&self) -> u64 {
        self.schema.read().version
    }

    /// Takes a schema over, unless a newer one is known.
    pub(crate) fn learn_schema(&self, schema: TableSchema) {
        self.saw_schema_version(schema.version);
        let mut known = self.schema.write();
        if schema.version >= known.version {
            *known = Arc::new(schema);
        }
    }

    pub(crate) fn saw_schema_version(&self, version: u64) {
        self.newest.fetch_max(version, Ordering::Relaxed);
    }

    /// Makes "no such table" name the table: its id says nothing to a user.
    pub(crate) fn is_gone(&self, error: Error) -> Error {
        match error {
            Error::NotFound { .. } => Error::NotFound {
                what: format!(
                    "table {} as it was opened (it was dropped; open it again if it was created again)",
                    self.schema().name
                ),
            },
            other => other,
        }
    }

    /// Whether a server has mentioned a newer schema.
    pub(crate) fn is_outdated(&self) -> bool {
        self.newest.load(Ordering::Relaxed) > self.schema_version()
    }
}
