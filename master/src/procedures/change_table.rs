//! Sends the orders of a table's rollout and records its completion.

use futures::future::join_all;
use terrane_types::{Error, TableId};

use super::rollout::Rollout;
use super::{RETRY_FIRST, RETRY_MAX};
use crate::backoff::Backoff;
use crate::catalog::CatalogEdit;
use crate::catalog::tables::TableState;
use crate::context::{MasterContext, Subject};

/// Drives a table's journaled change to completion, in rounds: each sends the groups that are left their orders.
pub async fn perform(context: &MasterContext, table: TableId) -> Result<(), Error> {
    await_moves(context, table).await?;
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
                tracing::debug!(%table, waiting, "a change of a table waits");
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

/// Waits until no region of the table moves, so that the groups that get orders are those that have its regions. None
/// begins to move meanwhile. A drop undoes the moves.
async fn await_moves(context: &MasterContext, table: TableId) -> Result<(), Error> {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_MAX);
    let moving = || {
        context.journal.read(|catalog| {
            let is_dropping = catalog.tables().get(table)?.state == TableState::Dropping;
            let (id, known) = catalog.moves().of_table(table).next()?;
            let undo = is_dropping && catalog.moves().of_table(table).all(|(_, known)| known.cancelled.is_none());
            Some((id, known.region.region, undo))
        })
    };
    while let Some((id, region, undo)) = moving() {
        context.begin_wait(Subject::Table(table), format!("the move of region {region} (move-{id})"));
        if undo {
            let ids =
                context.journal.read(|catalog| catalog.moves().of_table(table).map(|(id, _)| id).collect::<Vec<_>>());
            for id in ids {
                let why = "the table is being dropped".to_owned();
                context.journal.record(&CatalogEdit::CancelMove { id, why }).await?;
            }
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
    context.end_wait(Subject::Table(table));
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
