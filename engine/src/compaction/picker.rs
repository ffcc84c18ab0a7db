//! What to do next in one store: in the background ([`pick`]), and when a full compaction was requested
//! ([`pick_major`]).

use super::selection::RunningJobs;
use super::{LEVEL_MAX, PERMILLE, Plan, Policy, Tree, levelled, major, time_window};

/// The next thing to do, and its urgency in thousandths: from 1000 on a level is over its target; below that it only
/// tidies up, and may wait until no other store of the server needs more.
pub(crate) fn pick(tree: &Tree, policy: &Policy) -> (Plan, u64) {
    let busy = RunningJobs::of(tree);
    if let Some(plan) = drop_expired(tree, policy, &busy) {
        // Frees space and costs one record.
        return (plan, PERMILLE);
    }
    match policy.ttl {
        Some(ttl) => time_window::pick(tree, policy, &busy, ttl),
        None => levelled::pick(tree, policy, &busy),
    }
}

/// The next step of moving everything into the deepest level and collecting all that can be collected. `Idle` when that
/// is done.
pub(crate) fn pick_major(tree: &Tree, policy: &Policy) -> Plan {
    let busy = RunningJobs::of(tree);
    drop_expired(tree, policy, &busy).unwrap_or_else(|| major::pick(tree, policy, &busy))
}

/// An expired cell is never visible again, nor are those it hid: their timestamps are not higher. So a file can be
/// dropped from anywhere in the log once its highest timestamp has expired.
fn drop_expired(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> Option<Plan> {
    if !policy.rules_drop_expired {
        return None;
    }
    let expired = (0..=LEVEL_MAX).flat_map(|level| tree.level(level)).filter(|file| policy.is_expired(file));
    let files: Vec<u64> = expired.filter(|file| busy.is_free(file)).map(|file| file.id).collect();
    (!files.is_empty()).then_some(Plan::Drop { files })
}
