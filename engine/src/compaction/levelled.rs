//! Levels that grow tenfold, the default.
//!
//! Targets are computed from the largest level upwards, so that what lies above it is always about a tenth of it: a
//! store takes up 1.1 times its data, whatever its size. A level is inserted only where it pays: what level 0 brings at
//! once (`base_bytes`) may go straight to a level of four times as much, which writes each byte at most five times;
//! moving through a level between would cost as much from there on. A store of up to that size has level 0 and the
//! deepest level.
//!
//! The level with the highest score goes first. One that cannot because of running jobs reserves its levels: otherwise
//! less urgent work there would start just before it again and again.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;

use super::selection::{RunningJobs, Selection, free_oldest};
use super::tiering::similar_run;
use super::{FileSummary, LEVEL_MAX, PERMILLE, Plan, Policy, Reason, Tree};

/// Tidying up is less urgent than any level over its target: tombstones cost reads and hide data that takes up space; a
/// file shared with another region only keeps that region's part on disk.
const SCORE_DELETES: u64 = 500;
const SCORE_EXPIRED: u64 = 400;
const SCORE_STRADDLES: u64 = 250;

/// The most base levels' worth of level 0 that move down at once.
const LEVEL0_JOB_BASES: u64 = 4;
/// The most output files' worth of a level that move down at once, if more costs no further input below.
const LEVEL_JOB_FILES: u64 = 4;

/// The base level's target is up to this many times what level 0 brings at once.
const BASES_MAX: u64 = 4;

/// How large each level may be, and where level 0 goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Targets {
    pub(super) base: usize,
    /// 0 above the base: what is there must move down.
    pub(super) bytes: [u64; LEVEL_MAX + 1],
}

pub(super) fn targets(tree: &Tree, policy: &Policy) -> Targets {
    let multiplier = policy.multiplier.max(2);
    let mut bytes = [0; LEVEL_MAX + 1];
    bytes[LEVEL_MAX] = u64::MAX;
    let mut base = LEVEL_MAX;
    let mut size = (1..=LEVEL_MAX).map(|level| tree.level_bytes(level)).max().unwrap_or(0);
    while size > policy.base_bytes.saturating_mul(BASES_MAX) && base > 1 {
        base -= 1;
        size /= multiplier;
        bytes[base] = size.max(1);
    }
    Targets { base, bytes }
}

/// Where level 0 goes: never past a level that has files, and otherwise to the base.
pub(super) fn level0_target(tree: &Tree, targets: &Targets) -> usize {
    tree.first_filled_level().unwrap_or(targets.base).min(targets.base)
}

pub(super) fn pick(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> (Plan, u64) {
    let targets = targets(tree, policy);
    let mut scores = scores(tree, policy, busy, &targets);
    scores.sort_by_key(|&(level, score)| (Reverse(score), level));
    let mut kept = BlockedLevels::default();
    for &(level, score) in scores.iter().filter(|&&(_, score)| score >= PERMILLE) {
        let to_level = if level == 0 { level0_target(tree, &targets) } else { level + 1 };
        if kept.holds(level, to_level) {
            continue;
        }
        let plan = match level {
            0 => level0(tree, policy, busy, to_level),
            _ => level_down(tree, policy, busy, level, |_| true),
        };
        match plan {
            Some(plan) => return (plan, score),
            None => kept.keep(level, to_level),
        }
    }
    let highest = scores.first().map_or(0, |&(_, score)| score);
    match tidy(tree, policy, busy, &kept) {
        Some(found) => found,
        None if kept.is_empty() => (Plan::Idle, highest),
        None => (Plan::Wait, highest),
    }
}

/// Levels that wait for a running job.
#[derive(Default)]
struct BlockedLevels([bool; LEVEL_MAX + 1]);

impl BlockedLevels {
    fn keep(&mut self, level: usize, to_level: usize) {
        self.0[level..=to_level].fill(true);
    }

    fn holds(&self, level: usize, to_level: usize) -> bool {
        self.0[level..=to_level].contains(&true)
    }

    fn is_empty(&self) -> bool {
        !self.0.contains(&true)
    }
}

/// How far each level is over its target. Busy files are on their way down and do not count.
fn scores(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>, targets: &Targets) -> Vec<(usize, u64)> {
    let free = |level: usize| tree.level(level).iter().filter(|file| busy.is_free(file));
    let permille = |part: u64, whole: u64| part.saturating_mul(PERMILLE) / whole.max(1);
    // A file dense in tombstones counts twice: what it hides below is still there.
    let files: u64 = free(0).map(|file| if file.is_dense_in_deletes() { 2 } else { 1 }).sum();
    let bytes = free(0).map(|file| file.bytes).sum();
    let by_files = permille(files, policy.level0_files as u64);
    let mut scores = vec![(0, by_files.max(permille(bytes, policy.base_bytes)))];
    for level in 1..LEVEL_MAX {
        let bytes = free(level).map(|file| file.bytes).sum();
        let score = match targets.bytes[level] {
            // There should be nothing above the base; it does no harm for a while either.
            0 if bytes > 0 => PERMILLE,
            0 => 0,
            target => permille(bytes, target),
        };
        scores.push((level, score));
    }
    scores
}

fn level0(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>, to_level: usize) -> Option<Plan> {
    let places = free_oldest(tree, busy, policy.base_bytes.saturating_mul(LEVEL0_JOB_BASES));
    let join = || {
        let run = similar_run(&tree.level0, |file| busy.is_free(file), policy.level0_files, policy.base_bytes)?;
        Some(Selection::in_place(tree, busy, 0, run)?.rewrite(Reason::SmallFiles))
    };
    let Some(down) = Selection::down(tree, busy, 0, &places, to_level) else {
        return join();
    };
    let bytes = down.bytes_of_level(0);
    if down.bytes() - bytes > bytes.saturating_mul(policy.multiplier)
        && let Some(plan) = join()
    {
        // Many tiny flushes: what they overlap would be rewritten for almost nothing.
        return Some(plan);
    }
    if let Some(plan) = move_oldest(tree, policy, busy, &places, to_level) {
        return Some(plan);
    }
    Some(down.rewrite(Reason::Level0))
}

/// The oldest file of level 0 moves down unchanged when nothing overlaps it, here or there. Small ones are rewritten
/// instead, or rows that arrive in order would end up in many small files.
fn move_oldest(
    tree: &Tree,
    policy: &Policy,
    busy: &RunningJobs<'_>,
    places: &[usize],
    to_level: usize,
) -> Option<Plan> {
    let (&oldest, newer) = places.split_first()?;
    let file = &tree.level0[oldest];
    let large = file.bytes.saturating_mul(2) >= policy.file_bytes;
    let alone = !newer.iter().any(|&place| tree.level0[place].overlaps(&file.first_row, &file.last_row));
    if !(large && alone && is_movable(tree, file, to_level)) {
        return None;
    }
    Selection::down(tree, busy, 0, &[oldest], to_level)?;
    Some(Plan::Move { file: file.id, from_level: 0, to_level })
}

/// Nothing overlaps the file where it would go, and a rewrite would not shrink it.
fn is_movable(tree: &Tree, file: &FileSummary, to_level: usize) -> bool {
    let overlapped = |level| !tree.overlapping(level, &file.first_row, &file.last_row).is_empty();
    let older_below = (to_level + 1..=LEVEL_MAX).any(overlapped);
    !overlapped(to_level) && !file.straddles && (file.deletes == 0 || older_below)
}

/// Moves the cheapest admitted file of a level to the level below.
fn level_down(
    tree: &Tree,
    policy: &Policy,
    busy: &RunningJobs<'_>,
    level: usize,
    admits: impl Fn(&FileSummary) -> bool,
) -> Option<Plan> {
    let files = tree.level(level);
    let mut places: Vec<usize> =
        (0..files.len()).filter(|&place| busy.is_free(&files[place]) && admits(&files[place])).collect();
    places.sort_by(|&a, &b| by_worth(tree, level, &files[a], &files[b]));
    places.iter().find_map(|&place| {
        let file = &files[place];
        let down = Selection::down(tree, busy, level, &[place], level + 1)?;
        if is_movable(tree, file, level + 1) {
            return Some(Plan::Move { file: file.id, from_level: level, to_level: level + 1 });
        }
        let reason = match file {
            _ if file.is_dense_in_deletes() => Reason::Deletes,
            _ if file.straddles => Reason::Straddles,
            _ => Reason::LevelSize,
        };
        Some(widened(tree, policy, busy, level, place, down).rewrite(reason))
    })
}

/// Files whose rewrite gains more than space go first, then those with the least below them for their size; the sort
/// keeps row order among equals.
fn by_worth(tree: &Tree, level: usize, a: &FileSummary, b: &FileSummary) -> Ordering {
    let gain = |file: &FileSummary| (Reverse(file.is_dense_in_deletes()), Reverse(file.straddles));
    let below = |file: &FileSummary| -> u128 {
        let files = tree.overlapping(level + 1, &file.first_row, &file.last_row);
        files.iter().map(|file| u128::from(file.bytes)).sum()
    };
    let ratio = || (below(a) * u128::from(b.bytes.max(1))).cmp(&(below(b) * u128::from(a.bytes.max(1))));
    gain(a).cmp(&gain(b)).then_with(ratio)
}

/// Adds neighbours that overlap nothing more below: they cost only themselves.
fn widened<'a>(
    tree: &'a Tree,
    policy: &Policy,
    busy: &RunningJobs<'_>,
    level: usize,
    place: usize,
    narrow: Selection<'a>,
) -> Selection<'a> {
    let bytes_max = policy.file_bytes.saturating_mul(LEVEL_JOB_FILES);
    let below = narrow.files() - 1;
    let (mut best, mut run) = (narrow, place..place + 1);
    let fits = |run: &Range<usize>| {
        let places: Vec<usize> = run.clone().collect();
        let wider = Selection::down(tree, busy, level, &places, level + 1)?;
        let costs_no_more = wider.files() - run.len() == below && wider.bytes_of_level(level) <= bytes_max;
        costs_no_more.then_some(wider)
    };
    while run.end < tree.level(level).len() {
        let Some(wider) = fits(&(run.start..run.end + 1)) else { break };
        (best, run) = (wider, run.start..run.end + 1);
    }
    while run.start > 0 {
        let Some(wider) = fits(&(run.start - 1..run.end)) else { break };
        (best, run) = (wider, run.start - 1..run.end);
    }
    best
}

/// What pays although no level is over its target.
fn tidy(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>, kept: &BlockedLevels) -> Option<(Plan, u64)> {
    let dense = (1..LEVEL_MAX)
        .filter(|&level| !kept.holds(level, level + 1))
        .find_map(|level| level_down(tree, policy, busy, level, FileSummary::is_dense_in_deletes));
    if let Some(plan) = dense {
        return Some((plan, SCORE_DELETES));
    }
    if let Some(found) = rewrite_deepest(tree, policy, busy).filter(|_| !kept.holds(LEVEL_MAX, LEVEL_MAX)) {
        return Some(found);
    }
    let straddling = (0..=LEVEL_MAX)
        .filter(|&level| !kept.holds(level, level))
        .find_map(|level| in_place(tree, busy, level, Reason::Straddles, |file| file.straddles));
    straddling.map(|plan| (plan, SCORE_STRADDLES))
}

/// Nothing older lies below the deepest level, so a rewrite in place collects everything there is to collect.
pub(super) fn rewrite_deepest(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>) -> Option<(Plan, u64)> {
    let deletes = in_place(tree, busy, LEVEL_MAX, Reason::Deletes, |file| {
        // Once no snapshot is below the file's last cell, and then never again: tombstones that stay are there to stay.
        let is_collectable = file.max_sequence <= policy.oldest_snapshot && file.collected_sequence < file.max_sequence;
        is_collectable && file.is_dense_in_deletes()
    });
    let expired = || in_place(tree, busy, LEVEL_MAX, Reason::Expired, |file| is_half_expired(file, policy));
    deletes.map(|plan| (plan, SCORE_DELETES)).or_else(|| expired().map(|plan| (plan, SCORE_EXPIRED)))
}

/// Half of the file has expired since it was last collected, if its cells are spread evenly over its time.
fn is_half_expired(file: &FileSummary, policy: &Policy) -> bool {
    let Some(until) = policy.expired_until_ms().filter(|_| policy.rules_drop_expired) else {
        return false;
    };
    // What had expired when it was collected is gone, or is there to stay.
    let collected_until = file.collected_ms.saturating_sub(policy.log_time_ms.saturating_sub(until));
    let from = if file.collected_ms > 0 { file.min_timestamp.max(collected_until) } else { file.min_timestamp };
    until > from && i128::from(until) - i128::from(from) > i128::from(file.max_timestamp) - i128::from(until)
}

fn in_place(
    tree: &Tree,
    busy: &RunningJobs<'_>,
    level: usize,
    reason: Reason,
    wants: impl Fn(&FileSummary) -> bool,
) -> Option<Plan> {
    let wanted = tree.level(level).iter().enumerate().filter(|(_, file)| wants(file));
    let mut free = wanted.filter_map(|(place, _)| Selection::in_place(tree, busy, level, place..place + 1));
    Some(free.next()?.rewrite(reason))
}
