//! Moving all of a store into the deepest level and collecting everything that can be collected.
//!
//! A small store takes one rewrite. A large one takes several, each a range of rows: first level 0 into the levels,
//! then the highest level that has files, some at a time with everything below them. Finally, the files in the deepest
//! level that have something to drop are rewritten in place. Each step leaves less to do, so repeated picks end in
//! `Idle`, and a crash between two steps loses only the running one.

use super::levelled::{level0_target, targets};
use super::selection::{RunningJobs, Selection, free_oldest};
use super::{FileSummary, LEVEL_MAX, Plan, Policy, Reason, Tree};

/// The output files' worth of inputs that a step takes, if the files' row ranges allow it.
const STEP_FILES: u64 = 16;

pub(super) fn pick(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> Plan {
    let plan = match () {
        () if !tree.level0.is_empty() => level0_down(tree, policy, busy),
        () => match tree.first_filled_level() {
            Some(level) if level < LEVEL_MAX => level_down(tree, policy, busy, level),
            Some(_) => return collect_deepest(tree, policy, busy),
            None => return Plan::Idle,
        },
    };
    plan.unwrap_or(Plan::Wait)
}

fn level0_down(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> Option<Plan> {
    let step_bytes = policy.file_bytes.saturating_mul(STEP_FILES);
    let small = tree.bytes() <= step_bytes;
    let to_level = if small { LEVEL_MAX } else { level0_target(tree, &targets(tree, policy)) };
    let places = free_oldest(tree, busy, step_bytes);
    Some(Selection::down(tree, busy, 0, &places, to_level)?.rewrite(Reason::Major))
}

/// The first files in row order of a level, as many as a step holds, or one.
fn level_down(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>, level: usize) -> Option<Plan> {
    let step_bytes = policy.file_bytes.saturating_mul(STEP_FILES);
    let files = tree.level(level).len();
    let down = |start: usize, end: usize| {
        let places: Vec<usize> = (start..end).collect();
        Selection::down(tree, busy, level, &places, LEVEL_MAX)
    };
    let (start, mut step) = (0..files).find_map(|start| Some((start, down(start, start + 1)?)))?;
    for end in start + 2..=files {
        match down(start, end).filter(|wider| wider.bytes() <= step_bytes) {
            Some(wider) => step = wider,
            None => break,
        }
    }
    Some(step.rewrite(Reason::Major))
}

fn collect_deepest(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> Plan {
    let step_bytes = policy.file_bytes.saturating_mul(STEP_FILES);
    let files = tree.level(LEVEL_MAX);
    let wanted: Vec<usize> = (0..files.len()).filter(|&place| has_to_give(&files[place], policy)).collect();
    let step = wanted.iter().find_map(|&start| {
        let mut step = Selection::in_place(tree, busy, LEVEL_MAX, start..start + 1)?;
        for end in start + 2..=files.len() {
            let wider = Selection::in_place(tree, busy, LEVEL_MAX, start..end);
            match wider.filter(|wider| wanted.contains(&(end - 1)) && wider.bytes() <= step_bytes) {
                Some(wider) => step = wider,
                None => break,
            }
        }
        Some(step)
    });
    match step {
        Some(step) => step.rewrite(Reason::Major),
        None if wanted.is_empty() => Plan::Idle,
        None => Plan::Wait,
    }
}

/// Whether a rewrite could collect what the one that wrote the file could not: snapshots have ended since, rules have
/// changed, or cells have expired. Each of these reasons is gone after one rewrite, whatever that finds.
fn has_to_give(file: &FileSummary, policy: &Policy) -> bool {
    let asked_for = file.max_sequence.max(policy.rules_sequence).min(policy.oldest_snapshot);
    let expired = policy.expired_until_ms().filter(|_| policy.rules_drop_expired).is_some_and(|until| {
        let collected_until = file.collected_ms.saturating_sub(policy.log_time_ms.saturating_sub(until));
        file.min_timestamp <= until && (file.collected_ms == 0 || collected_until < file.min_timestamp)
    });
    file.straddles || file.collected_sequence < asked_for || expired
}
