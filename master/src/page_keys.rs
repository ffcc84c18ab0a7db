//! Creates keys for page tokens and passes them to servers.
//!
//! There is no timer: each registration and report checks whether a key is due and creates one if necessary. Two calls
//! that do so at once propose the same id, and the catalog accepts one of them.

use bytes::Bytes;
use terrane_proto::v1;

use crate::catalog::CatalogEdit;
use crate::catalog::page_keys::{PageKey, Secret};
use crate::journal::Journal;

/// The valid keys, newest first; creates a new one first if it is due.
pub async fn current(journal: &Journal) -> Vec<v1::PageKey> {
    let due = journal.read(|catalog| {
        let keys = catalog.page_keys();
        keys.is_due(terrane_env::time::wall_ms()).then(|| keys.next_id())
    });
    if let Some(id) = due {
        let edit = CatalogEdit::AddPageKey { id, secret: Secret(terrane_env::rand::bytes()) };
        match journal.record(&edit).await {
            Ok(_) => tracing::info!(id, "created a key for page tokens"),
            // Another call created it at once, or the catalog is not writable now. The next report tries again; until
            // then servers use the keys they have.
            Err(error) => tracing::debug!(%error, id, "cannot create a key for page tokens now"),
        }
    }
    let wire = |key: &PageKey| v1::PageKey { id: key.id, secret: Bytes::copy_from_slice(&key.secret.0) };
    journal.read(|catalog| catalog.page_keys().iter().map(wire).collect())
}
