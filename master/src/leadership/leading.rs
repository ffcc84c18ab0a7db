//! What a master does while it leads: it drives procedures and plans, and takes administration, registrations and reports.
//!
//! A master begins when it leads group 0, has applied everything before its term and finds the cluster bootstrapped.
//!
//! Invariants: procedures run only while it leads, and are aborted at the end: the next leader resumes them from the
//! catalog.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join3;
use terrane_types::Error;

use crate::catalog::{Bootstrap, Catalog, CatalogEdit};
use crate::context::MasterContext;
use crate::fleet;
use crate::history::chronicle;
use crate::procedures;
use crate::servers::observed::now;

/// How long one wait for an election lasts before it begins again.
const WATCH_MAX: Duration = Duration::from_secs(3_600);
/// The pause before an elected master that cannot lead yet tries again.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Leads whenever this master is elected. Never returns.
pub async fn run(context: Arc<MasterContext>, bootstrap: Bootstrap, rebuilt: Option<Bytes>) {
    loop {
        let Some(term) = context.journal.until_elected(WATCH_MAX).await else { continue };
        if let Err(error) = begin(&context, &bootstrap, rebuilt.as_ref()).await {
            tracing::warn!(%error, term, "this master was elected but cannot lead yet");
            tokio::time::sleep(RETRY_AFTER).await;
            continue;
        }
        context.orders.lead(context.journal.read(|catalog| catalog.leadership(term)));
        chronicle::begin(&context, term);
        context.leadership.set(Some(term));
        tracing::info!(term, "this master leads");
        tokio::select! {
            biased;
            () = context.leadership.until_deposed(term) => {}
            // Dropped at the end, with the procedures that run.
            ((), (), ()) = join3(
                procedures::drive(Arc::clone(&context), note_changes),
                fleet::drive(&context),
                chronicle::watch(&context),
            ) => {}
        }
        context.leadership.set(None);
        context.forget_procedures();
        tracing::info!(term, "this master no longer leads");
    }
}

/// The procedures that run now, and the tables, are known to the history of this leadership.
fn note_changes(context: &MasterContext) {
    chronicle::catalog_changed(context, procedures::intents, fleet::listing::describe);
}

/// Applies what earlier leaders recorded, bootstraps the cluster if none of them did, and gives servers the time to report here.
async fn begin(context: &MasterContext, bootstrap: &Bootstrap, rebuilt: Option<&Bytes>) -> Result<(), Error> {
    context.journal.leader_barrier().await?;
    if context.journal.read(|catalog| catalog.bootstrap().is_none()) {
        let first = match rebuilt {
            Some(checkpoint) => CatalogEdit::Rebuild { checkpoint: checkpoint.clone() },
            None => CatalogEdit::Bootstrap(bootstrap.clone()),
        };
        context.journal.record(&first).await?;
    }
    let replication = context.journal.read(Catalog::replication);
    if replication != bootstrap.replication {
        let given = bootstrap.replication;
        tracing::warn!(replication, given, "ignoring another replication than the cluster was created with");
    }
    context.observed.with(|observed| observed.liveness.lead(now()));
    context.versions.lead();
    // A new cluster begins at the level of its masters: no server has registered yet.
    fleet::levels::raise(context).await;
    Ok(())
}
