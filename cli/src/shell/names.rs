//! The names that completion offers: tables, their families and key parts, as of a moment ago.
//!
//! Completion must answer within a keystroke, so it never waits for the cluster: it takes the names of the last refresh, and
//! starts the next one if they are older than [`FRESH_FOR`]. The shell starts the first one with its prompt.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_client::TableInfo;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::args::client::Connection;
use crate::commands;
use crate::scope::{self, Scope};

/// How long names are offered without asking again.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// A table as completion knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownTable {
    pub name: String,
    pub families: Vec<String>,
    /// Columns with a declared type, `family:qualifier`.
    pub columns: Vec<String>,
    /// The names of the key's parts.
    pub parts: Vec<String>,
}

impl From<&TableInfo> for KnownTable {
    fn from(info: &TableInfo) -> KnownTable {
        let families = &info.schema.families;
        let columns = families.iter().flat_map(|family| {
            family.types.keys().map(|qualifier| crate::formats::column_text(family.name.as_str().as_bytes(), qualifier))
        });
        let parts = info.schema.key.as_ref().map(|key| key.text_parts().iter().map(|part| part.name.clone()).collect());
        KnownTable {
            name: info.schema.name.to_string(),
            families: families.iter().map(|family| family.name.to_string()).collect(),
            columns: columns.collect(),
            parts: parts.unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Known {
    tables: Arc<Vec<KnownTable>>,
    asked: Option<Instant>,
    asking: bool,
}

/// The shared cache of names.
#[derive(Clone)]
pub struct Names {
    known: Arc<Mutex<Known>>,
    connection: Connection,
    scope: Scope,
}

impl Names {
    pub fn new(connection: Connection, scope: Scope) -> Names {
        Names { known: Arc::default(), connection, scope }
    }

    /// Asks for the names in the background. Must be called within a runtime.
    pub fn refresh(&self) {
        {
            let mut known = self.known.lock();
            if known.asking {
                return;
            }
            (known.asking, known.asked) = (true, Some(Instant::now()));
        }
        let names = self.clone();
        Handle::current().spawn(async move {
            let listed = scope::within(names.scope.clone(), async {
                let client = commands::connect(&names.connection).await.ok()?;
                client.admin().list_tables().await.ok()
            });
            let tables = listed.await.map(|tables| tables.iter().map(KnownTable::from).collect::<Vec<_>>());
            let mut known = names.known.lock();
            known.asking = false;
            // A cluster that is away completes nothing; the next command says why.
            if let Some(tables) = tables {
                known.tables = Arc::new(tables);
            }
        });
    }

    /// The names as far as they are known. Must be called within a runtime.
    pub fn tables(&self) -> Arc<Vec<KnownTable>> {
        let old = self.known.lock().asked.is_none_or(|asked| asked.elapsed() >= FRESH_FOR);
        if old {
            self.refresh();
        }
        Arc::clone(&self.known.lock().tables)
    }
}
