//! How far compaction is behind, and what that costs writers.
//!
//! Writers notice nothing while compaction keeps up, then waits that grow with the square of the debt, and are refused
//! only at the hard limit: a store that falls behind slowly finds a balance in between, without a stall.

use std::time::Duration;

use super::levelled::{level0_target, targets};
use super::tiering::similar_run;
use super::{LEVEL_MAX, PERMILLE, Policy, Tree, time_window};

/// Twice the number of files that triggers a compaction: one may be running while as many arrive.
const LEVEL0_FILES_SOFT: u64 = 8;
/// Beyond this a read looks into so many files that it takes longer than a writer's longest wait.
const LEVEL0_FILES_HARD: u64 = 24;
/// On the way from level 0 to the bottom, a full region's worth of flushes is written about twice; a healthy store owes
/// that much just before each compaction.
const PENDING_REGIONS_SOFT: u64 = 2;
/// Four such rounds behind: more than one region grows until it splits, so the writers outrun the disk.
const PENDING_REGIONS_HARD: u64 = 8;
/// Memtables are flushed from half of the budget on; above three quarters, flushes are not keeping up.
const MEMORY_SOFT_PERMILLE: u64 = 750;

/// The longest wait of a writer before it is refused instead.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// The resolution of timers. A shorter wait would become this long, and make small debts expensive.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// When a refused writer should try again: a small compaction may have ended by then.
const BUSY_RETRY: Duration = Duration::from_millis(250);

/// What one store owes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Debt {
    /// Files of level 0 that a read of any row may have to look into; with time windows, those of one window that could
    /// be joined.
    pub(crate) level0_files: u64,
    /// What compactions must write until no level is over its target.
    pub(crate) pending_bytes: u64,
    /// What `pending_bytes` is measured by.
    pub(crate) region_bytes: u64,
}

/// Files of running jobs count: they cost reads until the job has ended.
pub(crate) fn debt(tree: &Tree, policy: &Policy) -> Debt {
    let region_bytes = policy.region_bytes.max(policy.base_bytes);
    match policy.ttl {
        Some(ttl) => {
            // One file per window is the goal, and a few of ever smaller size in an open one: only what could be joined
            // is owed, including running jobs.
            let groups = time_window::groups(tree, policy, ttl);
            let joined = groups.iter().filter_map(|group| {
                let files = &tree.level0[group.start..group.stop];
                let run = similar_run(files, |_| true, policy.level0_files, u64::MAX)?;
                Some((run.len(), files[run].iter().map(|file| file.bytes).sum::<u64>()))
            });
            let (within, pending_bytes) = joined.fold((0, 0), |(most, bytes): (usize, u64), (files, more)| {
                (most.max(files), bytes.saturating_add(more))
            });
            let beyond = groups.len().saturating_sub(2 * time_window::WINDOWS as usize);
            Debt { level0_files: (within + beyond) as u64, pending_bytes, region_bytes }
        }
        None => {
            let pending_bytes = pending_levelled(tree, policy);
            Debt { level0_files: tree.level0.len() as u64, pending_bytes, region_bytes }
        }
    }
}

/// Moves what is over a target down level by level, and adds up what is written on the way: itself and what it
/// overlaps, assuming an even spread over its level.
fn pending_levelled(tree: &Tree, policy: &Policy) -> u64 {
    let targets = targets(tree, policy);
    let level0 = tree.level_bytes(0);
    let mut pending = 0u64;
    let mut arriving = (0, 0u64);
    if tree.level0.len() >= policy.level0_files || level0 >= policy.base_bytes {
        let to_level = level0_target(tree, &targets);
        pending = level0.saturating_add(tree.level_bytes(to_level));
        arriving = (to_level, level0);
    }
    for level in 1..LEVEL_MAX {
        let here = tree.level_bytes(level);
        let bytes = here.saturating_add(if arriving.0 == level { arriving.1 } else { 0 });
        let over = bytes.saturating_sub(targets.bytes[level]);
        if over == 0 {
            continue;
        }
        let below = u128::from(tree.level_bytes(level + 1));
        // Each byte that moves down takes the level below along in proportion; never more than all of it.
        let along = below * u128::from(over) / u128::from(bytes.max(1));
        pending = pending.saturating_add(over).saturating_add(u64::try_from(along).unwrap_or(u64::MAX));
        arriving = (level + 1, over);
    }
    pending
}

/// How hard to hold writers back, in thousandths: 0 up to the soft limits, [`PERMILLE`] at a hard one. The worst of the
/// stores decides, together with the memory of all memtables against their budget.
pub(crate) fn pressure<'a>(debts: impl IntoIterator<Item = &'a Debt>, memtable_bytes: u64, budget_bytes: u64) -> u32 {
    let of_debt = |debt: &Debt| {
        let files = between(debt.level0_files, LEVEL0_FILES_SOFT, LEVEL0_FILES_HARD);
        let soft = debt.region_bytes.saturating_mul(PENDING_REGIONS_SOFT);
        files.max(between(debt.pending_bytes, soft, debt.region_bytes.saturating_mul(PENDING_REGIONS_HARD)))
    };
    let soft = budget_bytes / PERMILLE * MEMORY_SOFT_PERMILLE;
    let memory = between(memtable_bytes, soft, budget_bytes);
    debts.into_iter().map(of_debt).max().unwrap_or(0).max(memory)
}

/// The square of the way from the soft to the hard limit that a value has covered.
fn between(value: u64, soft: u64, hard: u64) -> u32 {
    if value <= soft {
        return 0;
    }
    let way = u128::from(value.min(hard) - soft.min(hard));
    let whole = u128::from(hard.saturating_sub(soft));
    if way >= whole {
        return PERMILLE as u32;
    }
    let permille = u128::from(PERMILLE) * way * way / (whole * whole);
    u32::try_from(permille).expect("less than a thousand, since the way is shorter than the whole")
}

/// What a writer must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write now.
    Go,
    /// Write after this time.
    Wait(Duration),
    /// Write nothing; try again after this time.
    RunningJobs(Duration),
}

/// What a writer must do at this pressure: waits grow smoothly with it, up to the hard limit.
#[must_use]
pub fn verdict(pressure: u32) -> Verdict {
    if u64::from(pressure) >= PERMILLE {
        return Verdict::RunningJobs(BUSY_RETRY);
    }
    match WAIT_MAX * pressure / PERMILLE as u32 {
        wait if wait < WAIT_MIN => Verdict::Go,
        wait => Verdict::Wait(wait),
    }
}

#[cfg(test)]
mod tests;
