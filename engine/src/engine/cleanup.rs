//! Removing files that nothing needs any more.

use std::sync::Arc;

use terrane_env::task;

use super::Engine;
use crate::Error;
use crate::levels::FileRef;

impl Engine {
    /// A failed flush or compaction leaves files that nothing will ever name. On a full disk it is tried again and again, so
    /// they are removed at once.
    pub(super) async fn cleaned_up_after(&self, done: Result<(), Error>) -> Result<(), Error> {
        if done.is_err() {
            self.clean_up().await;
        }
        done
    }

    /// Removes what nothing names. A failure is only logged: what was recorded is recorded, and the files go with the next
    /// clean-up, at the latest when the engine is opened again.
    pub(super) async fn clean_up(&self) {
        if let Err(error) = self.remove_unnamed().await {
            tracing::warn!("unused files could not be removed: {error}");
        }
    }

    /// The manifest names these files now, or never will: from here on they go once nothing names them.
    pub(super) fn release(&self, made: &[FileRef]) {
        made.iter().for_each(|file| self.backend.release(file.record.id));
    }

    /// Removes files that neither the manifest nor a running flush or compaction knows.
    async fn remove_unnamed(&self) -> Result<(), Error> {
        {
            let manifest = self.manifest.lock().await;
            // What is in doubt now was so before this look: the whole manifest has been rewritten since.
            if !manifest.is_in_doubt() {
                self.backend.resolve_doubt();
            }
        }
        // In this order: what is no longer protected was released before the look at the manifest.
        let protected = self.backend.protected();
        let named = self.manifest.lock().await.contents().files();
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.retain(named, protected).await }).await?;
        self.checkpoints.clean_up(&self.disk).await
    }
}
