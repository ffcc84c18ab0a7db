//! What all handles of one client share.

use std::time::Duration;

use terrane_types::TableSchema;

use crate::error::Error;
use crate::route::router::Router;
use crate::wire::masters::Masters;

/// What all handles of one client share.
pub(crate) struct Core {
    pub(crate) router: Router,
    pub(crate) timeout: Duration,
}

impl Core {
    /// The masters, for one call that is not a look-up of regions.
    pub(crate) fn masters(&self) -> &Masters {
        self.router.counting.master_calls.add();
        &self.router.masters
    }

    /// A table's schema, from a master.
    pub(crate) async fn describe(&self, name: &str, timeout: Duration) -> Result<TableSchema, Error> {
        Ok(self.masters().describe_table(name, timeout).await?.schema)
    }
}
