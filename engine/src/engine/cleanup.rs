//! Removing files that nothing needs any more.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use terrane_env::task;

use super::{BoxFuture, Engine};
use crate::Error;
use crate::file_directory::Protected;
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
        let (named, protected) = self.named_and_protected().await;
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.retain(named, protected).await }).await?;
        self.checkpoints.clean_up(&self.disk).await
    }

    async fn named_and_protected(&self) -> (BTreeSet<u64>, Protected) {
        {
            let manifest = self.manifest.lock().await;
            // What is in doubt now was so before this look: the whole manifest has been rewritten since.
            if !manifest.is_in_doubt() {
                self.backend.resolve_doubt();
            }
        }
        // In this order: what is no longer protected was released before the look at the manifest.
        let protected = self.backend.protected();
        (self.manifest.lock().await.contents().files(), protected)
    }

    /// Removes the files that nothing names and no reader holds, for example because their last reader ended after the last
    /// clean-up. Returns those that are still there, with their lengths: they could not be removed, or are new.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory cannot be read.
    pub fn sweep(self: &Arc<Self>) -> BoxFuture<'_, Result<Vec<(PathBuf, u64)>, Error>> {
        let engine = Arc::clone(self);
        Box::pin(task::run_to_end(async move {
            if engine.unnamed().await?.is_empty() {
                return Ok(Vec::new());
            }
            engine.clean_up().await;
            engine.unnamed().await
        }))
    }

    async fn unnamed(&self) -> Result<Vec<(PathBuf, u64)>, Error> {
        let (named, protected) = self.named_and_protected().await;
        let backend = Arc::clone(&self.backend);
        task::run_io(async move { backend.unnamed(named, protected).await }).await
    }
}
