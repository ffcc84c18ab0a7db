//! Procedures: journaled intents, driven to completion.
//!
//! An intent is a state in the catalog: a table that is `creating`, `altering` or `dropping`, a group that is `creating` or
//! whose members change, a region that moves, or a set of masters that changes. It is recorded before any server receives an order. The driver looks at the catalog after each change
//! and starts a procedure for every intent that has none. It needs nothing else, so a restarted master continues on the
//! same path, and the caller of a change only waits until the catalog shows its completion.
//!
//! What a procedure does next is decided without I/O in `rollout` (tables), `group_creation` (groups), `member_change`
//! (their members), `region_move` and `masters_change`; `change_table`, `create_groups`, `change_members`, `move_region` and `change_masters` send the orders and
//! record the edits; `turns` bounds how many procedures run.
//!
//! Invariants: one procedure at a time per table and per group, so a drop sends no order before an unfinished create
//! has ended; every order is idempotent; a procedure ends with an edit, or with this master's leadership, and a round of
//! orders is sent only while a majority confirms that leadership.

mod change_masters;
mod change_members;
mod change_table;
mod create_groups;
mod group_creation;
pub mod masters_change;
pub mod member_change;
mod move_region;
pub mod region_move;
mod rollout;
pub(crate) mod subject;
mod turns;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use terrane_types::Error;
use tokio::task::JoinSet;

use crate::catalog::Catalog;
use crate::catalog::groups::GroupState;
use crate::catalog::tables::TableState;
use crate::context::{MasterContext, Subject};

const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Intents that are not completed yet: groups first, then tables, then changes of members, then moves of regions, then the masters.
pub fn intents(catalog: &Catalog) -> Vec<Subject> {
    let groups = catalog.groups().iter().filter(|(_, group)| group.state != GroupState::Open);
    let tables = catalog.tables().iter().filter(|table| table.state != TableState::Enabled);
    let changing = catalog.groups().iter().filter(|(_, group)| group.change.is_some());
    groups
        .map(|(group, _)| Subject::Group(group))
        .chain(tables.map(|table| Subject::Table(table.schema.table)))
        .chain(changing.map(|(group, _)| Subject::Members(group)))
        .chain(catalog.moves().iter().map(|(id, _)| Subject::Move(id)))
        .chain(catalog.masters().change.iter().map(|_| Subject::Masters))
        .collect()
}

/// Starts a procedure for every intent that has none, and calls `noticed` before it does. Never returns; when it is dropped,
/// the procedures that run are aborted: the journal has their intents.
pub async fn drive(context: Arc<MasterContext>, noticed: impl Fn(&MasterContext)) {
    let mut running = RunningProcedures::default();
    let mut changes = context.journal.changes();
    loop {
        changes.borrow_and_update();
        create_groups::plan(&context).await;
        let unfinished = context.journal.read(intents);
        context.note_procedures(&unfinished);
        noticed(&context);
        unfinished.into_iter().for_each(|subject| running.start(&context, subject));
        tokio::select! {
            biased;
            () = running.one_ended() => {}
            () = context.another_waits() => {}
            _ = changes.changed() => {}
        }
    }
}

async fn perform(context: &MasterContext, subject: Subject) -> Result<(), Error> {
    match subject {
        Subject::Group(group) => create_groups::perform(context, group).await,
        Subject::Table(table) => change_table::perform(context, table).await,
        Subject::Members(group) => change_members::perform(context, group).await,
        Subject::Move(id) => move_region::perform(context, id).await,
        Subject::Masters => change_masters::perform(context).await,
    }
}

/// Runs one procedure. If it fails, the next try starts a while after this returns, since the cause may persist.
async fn attempt(context: &MasterContext, subject: Subject) {
    if let Err(error) = perform(context, subject).await {
        tracing::warn!(?subject, %error, "a procedure failed and will be retried");
        context.begin_wait(subject, error.to_string());
        tokio::time::sleep(RETRY_MAX).await;
    }
    context.end_wait(subject);
}

/// The procedures that run.
#[derive(Default)]
struct RunningProcedures {
    tasks: JoinSet<()>,
    /// What each task works on. Only looked up, so its order does not matter.
    subjects: HashMap<tokio::task::Id, Subject>,
}

impl RunningProcedures {
    fn start(&mut self, context: &Arc<MasterContext>, subject: Subject) {
        if turns::may_start(subject, self.subjects.values(), &context.waiting()) {
            let context = Arc::clone(context);
            let task = self.tasks.spawn(async move { attempt(&context, subject).await });
            self.subjects.insert(task.id(), subject);
        }
    }

    /// Waits until a procedure has ended, even by a panic: its intent is then tried again. Never returns while none
    /// runs.
    async fn one_ended(&mut self) {
        let id = match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => id,
            Some(Err(error)) => {
                tracing::error!(%error, "a procedure panicked and will be retried");
                error.id()
            }
            None => std::future::pending().await,
        };
        self.subjects.remove(&id);
    }
}
