//! What the pages and the API share: the source, once there is one, and how long to wait for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::source::{Answer, Failure, Source};

/// How long a person waits for a page. A source that takes longer waits for something that is gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of what is shown.
#[derive(Default)]
pub(crate) struct Shown {
    source: OnceLock<Arc<dyn Source>>,
}

impl Shown {
    /// Shows this source from now on. A second one is ignored.
    pub(crate) fn attach(&self, source: Arc<dyn Source>) {
        self.source.get_or_init(|| source);
    }

    /// Asks the source; fails while there is none, and after [`PATIENCE`].
    pub(crate) async fn ask<'a, T>(
        &'a self,
        question: impl FnOnce(&'a dyn Source) -> Answer<'a, T>,
    ) -> Result<T, Failure> {
        let Some(source) = self.source.get() else {
            return Err(Failure::unavailable(
                "This process is still starting and shows nothing yet.",
                "The page tries again by itself; /readyz says what the process waits for.",
            ));
        };
        match tokio::time::timeout(PATIENCE, question(source.as_ref())).await {
            Ok(answer) => answer,
            Err(_) => Err(Failure::unavailable(
                format!("The cluster did not answer within {} s.", PATIENCE.as_secs()),
                "`terrane status` shows whether a master leads and which servers are live.",
            )),
        }
    }
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shown").field("source", &self.source.get().is_some()).finish()
    }
}
