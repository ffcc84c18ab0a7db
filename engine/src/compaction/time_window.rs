//! Families whose cells expire: files are kept apart by time, so that whole files expire and are dropped unread.
//!
//! All files stay in level 0, which is ordered by age: rows that are written once and expire need not be sorted again
//! level by level. A file belongs to the window of its highest timestamp. Only neighbours in the order of the log can
//! be joined; where timestamps follow that order, as they do unless a client sets them, a window's files are
//! neighbours.
//!
//! - While a window is open, neighbours of about equal size are joined, as in `tiering`.
//! - Once it is over, all its files are joined.
//! - Files that have expired and may not be dropped yet count as one window, joined by size alone: it may grow without
//!   bound.
//! - If timestamps are out of order, neighbours are joined across windows. Too many files cost more than late dropping.
//!
//! What an earlier policy or a major compaction has moved into deeper levels stays there until it expires.

use std::time::Duration;

use super::levelled::rewrite_deepest;
use super::selection::{RunningJobs, Selection};
use super::tiering::similar_run;
use super::{FileSummary, PERMILLE, Plan, Policy, Reason, Tree};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// Lengths of a window that divide an hour, a day or a month.
const SPANS: [i64; 17] = [
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    5 * DAY,
    7 * DAY,
    14 * DAY,
    30 * DAY,
];
/// The most windows in a time to live: data outlives its time by a thirtieth of it, and a read without a time range
/// looks into about thirty files.
pub(super) const WINDOWS: i64 = 30;
/// With more files than this the windows do not follow the order of the log.
const FILES_MAX: usize = 2 * WINDOWS as usize;

/// Joining what is closed makes reads cheaper, but nothing waits for it.
const SCORE_CLOSED: u64 = 600;

/// The length of a window: a thirtieth of the time to live, rounded up.
pub(super) fn span_ms(ttl: Duration) -> i64 {
    let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
    let least = ttl / WINDOWS + i64::from(ttl % WINDOWS > 0);
    let months = || (least / (30 * DAY)).saturating_add(1).saturating_mul(30 * DAY);
    SPANS.into_iter().find(|&span| span >= least).unwrap_or_else(months)
}

/// Neighbours in level 0 of the same window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) start: usize,
    pub(super) stop: usize,
    window: Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Window {
    Expired,
    Nth(i64),
}

impl Group {
    pub(super) fn len(&self) -> usize {
        self.stop - self.start
    }
}

pub(super) fn groups(tree: &Tree, policy: &Policy, ttl: Duration) -> Vec<Group> {
    let span = span_ms(ttl);
    let window_of = |file: &FileSummary| match policy.is_expired(file) {
        true => Window::Expired,
        false => Window::Nth(file.max_timestamp.div_euclid(span)),
    };
    let mut groups: Vec<Group> = Vec::new();
    for (place, file) in tree.level0.iter().enumerate() {
        let window = window_of(file);
        match groups.last_mut() {
            Some(group) if group.window == window => group.stop = place + 1,
            _ => groups.push(Group { start: place, stop: place + 1, window }),
        }
    }
    groups
}

pub(super) fn pick(tree: &Tree, policy: &Policy, busy: &RunningJobs<'_>, ttl: Duration) -> (Plan, u64) {
    let groups = groups(tree, policy, ttl);
    let score = |files: usize| (files as u64).saturating_mul(PERMILLE) / (policy.level0_files.max(1) as u64);
    for group in &groups {
        if let Some(plan) = join_similar(tree, policy, busy, group.start, group.stop, Reason::Window) {
            return (plan, score(group.len()));
        }
    }
    if tree.level0.len() > FILES_MAX
        && let Some(plan) = join_similar(tree, policy, busy, 0, tree.level0.len(), Reason::SmallFiles)
    {
        return (plan, score(tree.level0.len() - FILES_MAX).max(PERMILLE));
    }
    let closed = groups.iter().filter(|group| group.len() > 1 && is_closed(group, tree, policy, ttl));
    let mut selections = closed.filter_map(|group| Selection::in_place(tree, busy, 0, group.start..group.stop));
    if let Some(selection) = selections.next() {
        return (selection.rewrite(Reason::WindowClosed), SCORE_CLOSED);
    }
    let highest = groups.iter().map(Group::len).max().map_or(0, score);
    rewrite_deepest(tree, policy, busy).unwrap_or((Plan::Idle, highest.min(PERMILLE - 1)))
}

fn join_similar(
    tree: &Tree,
    policy: &Policy,
    busy: &RunningJobs<'_>,
    start: usize,
    stop: usize,
    reason: Reason,
) -> Option<Plan> {
    let files = &tree.level0[start..stop];
    let run = similar_run(files, |file| busy.is_free(file), policy.level0_files, u64::MAX)?;
    Some(Selection::in_place(tree, busy, 0, start + run.start..start + run.end)?.rewrite(reason))
}

/// No later flush will add to the group: newer files have been flushed after it, or a whole window's time has passed
/// since its end, longer than anything stays in memory.
fn is_closed(group: &Group, tree: &Tree, policy: &Policy, ttl: Duration) -> bool {
    let Window::Nth(window) = group.window else {
        return false;
    };
    let span = span_ms(ttl);
    let end = window.saturating_add(1).saturating_mul(span);
    let closed_ms = if group.stop < tree.level0.len() { end } else { end.saturating_add(span) };
    policy.log_time_ms >= closed_ms
}
