//! Reads from what a replica has applied, whoever leads, and the time up to which they are complete.
//!
//! Such a read waits for nobody. What it shows may be old, but the answer says how old at most: it shows everything that
//! was acknowledged before `as_of`. Time here is the median of the members' clocks (`clock.rs`), since the clock of one
//! leader may be wrong. Leaders give a time that this median had certainly reached. A replica has two ways to know:
//!
//! **When its last applied entry was packed.** Leaders pack only when they have applied everything of earlier terms, and one
//! entry after another. So an entry that is not applied here was packed after the last one that is, and acknowledged after
//! that. The header of an entry tells the time of packing (`entry.rs`). Its stamp does not: stamps never go back, so behind
//! a stamp that ran ahead come others that are acknowledged long before the clocks reach them.
//!
//! **What the leader says.** In an idle group no entry comes, and the last one grows old though nothing is missing. So each
//! heartbeat carries a [`Bound`]: a time, and the index the leader had applied when it looked *after* that, if it held its
//! lease at that moment. Nobody else acknowledged anything then, and it acknowledges only what it has applied: whatever had
//! been acknowledged at that time is at or below the index. A replica that has applied the index takes over the time. It
//! costs 16 bytes a heartbeat, and no entry.
//!
//! Both are taken over less [`CLOCK_DIFFERENCE_MAX_MS`]: the median moves when a member's clock is set, and members that do
//! not know all clocks see another one. The leader itself answers under its lease for the present moment.
//!
//! A replica that is behind by more than a heartbeat learns nothing from bounds until it has caught up with the first one
//! that it waits for, then with another one: meanwhile entries come, with their times.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use crate::ProposeError;
use crate::group::Replica;
use crate::status::StalePoint;

/// How far two members may see the median of their clocks apart.
pub(crate) const CLOCK_DIFFERENCE_MAX_MS: u64 = 500;

/// Everything acknowledged before `time_ms` is at or below `index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) time_ms: u64,
    pub(crate) index: u64,
}

/// Where a group's connections learn what this replica may say as a leader. They are made before the replica is.
#[derive(Default)]
pub(crate) struct Leading {
    replica: OnceLock<Weak<Replica>>,
}

impl Leading {
    pub(crate) fn set(&self, replica: &Arc<Replica>) {
        // Once per replica, where it is made.
        self.replica.set(Arc::downgrade(replica)).ok();
    }

    pub(crate) fn bound(&self) -> Option<Bound> {
        self.replica.get()?.upgrade()?.leading_bound()
    }
}

/// What a replica has heard from leaders.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    state: Mutex<HeardState>,
}

#[derive(Debug, Default)]
struct HeardState {
    /// The highest time whose index is applied; 0: none yet.
    proven_ms: u64,
    /// The next one, whose index is not applied yet or not known to be.
    waiting: Option<Bound>,
}

impl HeardState {
    fn settle(&mut self, applied: u64) {
        if let Some(bound) = self.waiting.filter(|bound| bound.index <= applied) {
            self.proven_ms = self.proven_ms.max(bound.time_ms);
            self.waiting = None;
        }
    }
}

impl Heard {
    /// A leader's bound came in; `applied` is what is applied here.
    pub(crate) fn note(&self, bound: Bound, applied: u64) {
        let mut state = self.state.lock();
        state.settle(applied);
        // Leaders' clocks differ by the margin at most. One that says much less than was heard before has been put right
        // since, and what it said then was of a time that had not come.
        if state.proven_ms.saturating_sub(bound.time_ms) > 2 * CLOCK_DIFFERENCE_MAX_MS {
            *state = HeardState::default();
        }
        state.waiting.get_or_insert(bound);
        state.settle(applied);
    }

    /// The time of the newest bound whose index is applied.
    fn proven_ms(&self, applied: u64) -> Option<u64> {
        let mut state = self.state.lock();
        state.settle(applied);
        (state.proven_ms > 0).then_some(state.proven_ms)
    }
}

impl Replica {
    /// What this replica may tell the others, if it leads under its lease.
    pub(crate) fn leading_bound(&self) -> Option<Bound> {
        // The time before the index: what was acknowledged by then is applied when the index is looked at.
        let time_ms = self.clocks.floor_ms(&self.servers);
        let point = self.read_under_lease()?;
        (time_ms > 0).then_some(Bound { time_ms, index: point.index })
    }

    /// A point to read at without waiting for anybody, and the time up to which it is complete.
    pub(crate) fn stale_point(&self) -> Result<StalePoint, ProposeError> {
        if let Some(bound) = self.leading_bound() {
            // It still holds, less the margin, when this replica has ceased to lead.
            self.heard.note(bound, bound.index);
            let stamp = self.standing.stamp();
            return Ok(StalePoint { index: bound.index, stamp, as_of_ms: bound.time_ms });
        }
        // All three before anything is read: the state that is read then is of this index or later.
        let packed_at = self.standing.packed_at();
        let stamp = self.standing.stamp();
        let index = self.standing.applied_index();
        let proven = self.heard.proven_ms(index);
        if proven.is_none() && !self.standing.has_applied() {
            return Err(ProposeError::NotReady);
        }
        // No answer is complete up to a time that has not come here.
        let complete = proven.unwrap_or(0).max(packed_at).min(self.clocks.wall_ms());
        Ok(StalePoint { index, stamp, as_of_ms: complete.saturating_sub(CLOCK_DIFFERENCE_MAX_MS) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(time_ms: u64, index: u64) -> Bound {
        Bound { time_ms, index }
    }

    #[test]
    fn a_bound_counts_once_its_index_is_applied() {
        let heard = Heard::default();
        heard.note(bound(1_000, 7), 6);
        assert_eq!(heard.proven_ms(6), None);
        assert_eq!(heard.proven_ms(7), Some(1_000));
    }

    #[test]
    fn who_is_always_a_little_behind_gets_on_all_the_same() {
        let heard = Heard::default();
        for beat in 1..=10 {
            // Each time the index before the last is applied.
            heard.note(bound(beat * 100, beat * 5), (beat - 1) * 5);
        }
        assert_eq!(heard.proven_ms(9 * 5), Some(900));
    }

    #[test]
    fn a_leaders_clock_that_was_put_right_is_believed() {
        let heard = Heard::default();
        heard.note(bound(9_000_000, 7), 7);
        heard.note(bound(5_000, 8), 8);
        assert_eq!(heard.proven_ms(8), Some(5_000));
    }

    #[test]
    fn times_never_go_back() {
        let heard = Heard::default();
        heard.note(bound(1_000, 7), 7);
        heard.note(bound(400, 8), 8);
        assert_eq!(heard.proven_ms(8), Some(1_000));
    }
}
