//! Whether the local replica gets on with applying ([`crate::members::applying`]), and what it says of itself.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::groups::group_view::GroupView;
use crate::leadership::abstention::{Abstention, Weight};
use crate::members::applying::{ApplyStall, Applying, CAUGHT_UP_ENTRIES, LAG_MAX, Watch};
use crate::proposals::erased::Machine;

/// Watches how the local replica applies.
pub(crate) struct ApplyWatch {
    view: Arc<GroupView>,
    machine: Arc<dyn Machine>,
    watch: Mutex<Watch>,
    /// The last entry that the log had when the replica started.
    found_to: u64,
}

impl ApplyWatch {
    pub(crate) fn new(view: Arc<GroupView>, machine: Arc<dyn Machine>, watch: Watch, found_to: u64) -> ApplyWatch {
        ApplyWatch { view, machine, watch: Mutex::new(watch), found_to }
    }

    /// Looks whether this replica gets on.
    pub(crate) fn look(&self) {
        let committed = self.view.committed();
        let (applied, progress) = (self.view.applied_state().applied_index(), self.machine.progress());
        let mut watch = self.watch.lock();
        if !watch.look(applied, committed, progress, Instant::now()) {
            return;
        }
        let (group, replica) = (self.view.group(), self.view.replica());
        match watch.stuck() {
            Some(stuck) => tracing::warn!(%group, %replica, "a replica does not get on: {}", stuck.reason()),
            None => tracing::info!(%group, %replica, "a replica gets on with applying again"),
        }
    }

    /// Why this replica applies nothing, if so.
    pub(crate) fn stuck(&self) -> Option<ApplyStall> {
        self.watch.lock().stuck().cloned()
    }

    /// Why this replica should not lead because it does not get on.
    pub(crate) fn abstention(&self) -> Option<Abstention> {
        Some(Abstention { reason: self.stuck()?.reason(), weight: Weight::Soft })
    }

    /// Whether much of what is committed is not applied here: many entries, one that waits for files, or one that takes long.
    pub(crate) fn lags(&self) -> bool {
        if self.machine.progress().waits || self.watch.lock().lag(Instant::now()) > LAG_MAX {
            return true;
        }
        self.view.committed().saturating_sub(self.view.applied_state().applied_index()) > CAUGHT_UP_ENTRIES
    }

    /// What this replica says of itself with its answers to appends.
    pub(crate) fn report(&self) -> Applying {
        let lacks_for = self.machine.progress().lacks.map_or(0, |(entry, _)| entry);
        let asks = lacks_for > 0 && self.stuck().is_some_and(|stuck| stuck.lacks.is_some());
        let asks = asks && !terrane_env::planted!("files go with the holder's log");
        Applying { applied: self.view.applied_state().applied_index(), lacks_for, asks }
    }

    /// Whether everything is applied that may have been applied before the last restart: what the log had then, or all that
    /// was left of it.
    pub(crate) fn has_replayed(&self) -> bool {
        let last = self.view.metrics().last_log_index.unwrap_or(0);
        self.view.applied_state().applied_index() >= self.found_to.min(last)
    }
}
