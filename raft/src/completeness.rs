//! Up to which time a replica is known to be complete: the bounds that leaders announce, and what a replica makes of them.
//! `staleness.rs` explains why a bound holds.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// How far apart two members may see the median of their clocks.
pub(crate) const CLOCK_DIFFERENCE_MAX_MS: u64 = 500;

/// Everything acknowledged before `time_ms` is at or below `index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) time_ms: u64,
    pub(crate) index: u64,
}

type BoundSource = Box<dyn Fn() -> Option<Bound> + Send + Sync>;

/// Gives a group's connections the bound that this replica may announce as a leader. Connections exist before the replica.
#[derive(Default)]
pub(crate) struct Leading {
    source: OnceLock<BoundSource>,
}

impl Leading {
    /// Connects the replica. Called once, when it is created.
    pub(crate) fn set(&self, source: impl Fn() -> Option<Bound> + Send + Sync + 'static) {
        assert!(self.source.set(Box::new(source)).is_ok(), "the connections of a group belong to one replica");
    }

    /// The bound to announce, while this replica leads under its lease.
    pub(crate) fn bound(&self) -> Option<Bound> {
        self.source.get()?()
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
    fn prove(&mut self, applied: u64) {
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
        state.prove(applied);
        // Leaders' clocks differ by the margin at most. One that says much less than was heard before has been put right
        // since, and what it said then was of a time that had not come.
        if state.proven_ms.saturating_sub(bound.time_ms) > 2 * CLOCK_DIFFERENCE_MAX_MS {
            *state = HeardState::default();
        }
        state.waiting.get_or_insert(bound);
        state.prove(applied);
    }

    /// The time of the newest bound whose index is applied.
    pub(crate) fn proven_ms(&self, applied: u64) -> Option<u64> {
        let mut state = self.state.lock();
        state.prove(applied);
        (state.proven_ms > 0).then_some(state.proven_ms)
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
