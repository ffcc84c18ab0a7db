//! Sends the orders of a table's rollout and records its completion.

use futures::future::join_all;
use terrane_types::{Error, TableId};

use super::rollout::Rollout;
use super::{RETRY_FIRST, RETRY_MAX};
use crate::backoff::Backoff;
use crate::context::{MasterContext, Subject};

/// Drives a table's journaled change to completion, in rounds: each sends the groups that are left their orders.
pub async fn perform(context: &MasterContext, table: TableId) -> Result<(), Error> {
    let Some(mut rollout) = context.journal.read(|catalog| Rollout::resume(catalog, table)) else { return Ok(()) };
    let groups = rollout.pending().len();
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    while context.journal.read(|catalog| rollout.is_current(catalog)) {
        if let Some(edit) = rollout.completion() {
            return context.journal.record(&edit).await.map(|_| ());
        }
        terrane_env::buggify_pause!("a change of a table waits between two rounds").await;
        context.leadership.confirm().await?;
        let answered = round(context, &mut rollout).await;
        context.note_steps(Subject::Table(table), rollout.pending().len(), groups);
        match answered {
            Ok(None) => {}
            Ok(Some(waiting)) => {
                context.begin_wait(Subject::Table(table), waiting);
                tokio::time::sleep(backoff.next_wait()).await;
            }
            Err(error) => {
                let Some(undo) = rollout.undo() else { return Err(error) };
                tracing::warn!(%table, %error, "a group refuses to create the table; the create is undone");
                context.keep_failure(table, error);
                return context.journal.record(&undo).await.map(|_| ());
            }
        }
    }
    Ok(())
}

/// Orders every group that is left; returns one of those that have to be ordered again, and why.
async fn round(context: &MasterContext, rollout: &mut Rollout) -> Result<Option<String>, Error> {
    let orders = rollout.pending().iter();
    let answers =
        join_all(orders.map(|(group, order)| async { (*group, context.orders.change_tables(*group, order).await) }));
    let mut waiting = None;
    for (group, answer) in answers.await {
        waiting = rollout.answered(group, answer)?.or(waiting);
    }
    Ok(waiting)
}
