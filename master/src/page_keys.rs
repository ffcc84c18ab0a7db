//! Seeing to it that there is a key for page tokens, and telling it to the servers.
//!
//! There is no clock behind it: a key is looked for whenever a server registers or reports, and made when there is none or
//! the newest is old. Two calls that notice it together propose the same id, and the catalog takes one of them.

use bytes::Bytes;
use terrane_proto::v1;

use crate::catalog::CatalogEdit;
use crate::catalog::page_keys::{PageKey, Secret};
use crate::journal::Journal;

/// The keys that servers are told, the newest first; a new one is made before when it is due.
pub async fn current(journal: &Journal) -> Vec<v1::PageKey> {
    let due = journal.read(|catalog| {
        let keys = catalog.page_keys();
        keys.is_due(terrane_env::time::wall_ms()).then(|| keys.next_id())
    });
    if let Some(id) = due {
        let edit = CatalogEdit::AddPageKey { id, secret: Secret(terrane_env::rand::bytes()) };
        match journal.record(&edit).await {
            Ok(_) => tracing::info!(id, "a new key for page tokens"),
            // Another call made it at the same moment, or the catalog takes nothing now: the next report tries again,
            // and the servers go on with what they have.
            Err(error) => tracing::debug!(%error, id, "no new key for page tokens now"),
        }
    }
    let wire = |key: &PageKey| v1::PageKey { id: key.id, secret: Bytes::copy_from_slice(&key.secret.0) };
    journal.read(|catalog| catalog.page_keys().iter().map(wire).collect())
}
