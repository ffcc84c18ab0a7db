//! The time up to which a replica is complete: the bounds that leaders announce, and what a replica concludes from them.
//! `staleness.rs` explains why a bound holds.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::types::LeaseInstant;

/// How far apart two members may see the median of their clocks.
pub(crate) const CLOCK_DIFFERENCE_MAX_MS: u64 = 500;

/// Everything acknowledged before `time_ms` is at or below `index`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) time_ms: u64,
    pub(crate) index: u64,
}

/// How far apart the moments are of which a leader keeps the time.
const MOMENTS_APART: Duration = Duration::from_millis(40);

/// How many it keeps: more than a lease lasts.
const MOMENTS_MAX: usize = 16;

/// The times at some moments of late, to tell the time of a moment that has passed.
///
/// A machine that was paused between that moment and now knows the time of now, which says nothing about the moment.
#[derive(Debug, Default)]
pub(crate) struct TimeSamples {
    known: Mutex<VecDeque<(LeaseInstant, u64)>>,
}

impl TimeSamples {
    /// Records a time that had been reached at a moment. 0: it is not known.
    pub(crate) fn note(&self, at: LeaseInstant, time_ms: u64) {
        let mut known = self.known.lock();
        if time_ms == 0 || known.back().is_some_and(|(last, _)| at < *last + MOMENTS_APART) {
            return;
        }
        if known.len() == MOMENTS_MAX {
            known.pop_front();
        }
        known.push_back((at, time_ms));
    }

    /// A time that had been reached at a moment: that of the last moment before it, and what has passed since by a clock that
    /// may run a fiftieth too fast.
    pub(crate) fn time_ms(&self, at: LeaseInstant) -> Option<u64> {
        let known = self.known.lock();
        let (before, time_ms) = known.iter().rev().find(|(before, _)| *before <= at)?;
        let since = (at - *before).mul_f64(0.98);
        Some(time_ms.saturating_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }
}

type BoundSource = Box<dyn Fn() -> Option<Bound> + Send + Sync>;

/// Gives a group's connections the bound that this replica may announce as a leader. Connections exist before the replica.
#[derive(Default)]
pub(crate) struct LeaderBound {
    source: OnceLock<BoundSource>,
}

impl LeaderBound {
    /// Connects the replica. Called once, when it is created.
    pub(crate) fn set(&self, source: impl Fn() -> Option<Bound> + Send + Sync + 'static) {
        assert!(self.source.set(Box::new(source)).is_ok(), "the connections of a group belong to one replica");
    }

    /// The bound to announce, while this replica leads under its lease.
    pub(crate) fn bound(&self) -> Option<Bound> {
        self.source.get()?()
    }
}

/// The bounds that a replica has received from leaders.
#[derive(Debug, Default)]
pub(crate) struct ReceivedBounds {
    state: Mutex<BoundState>,
}

#[derive(Debug, Default)]
struct BoundState {
    /// The highest time whose index is applied; 0: none yet.
    proven_ms: u64,
    /// The next bound, whose index is not known to be applied.
    waiting: Option<Bound>,
}

impl BoundState {
    fn prove(&mut self, applied: u64) {
        if let Some(bound) = self.waiting.filter(|bound| bound.index <= applied) {
            self.proven_ms = self.proven_ms.max(bound.time_ms);
            self.waiting = None;
        }
    }
}

impl ReceivedBounds {
    /// Records a leader's bound; `applied` is the index applied here.
    pub(crate) fn note(&self, bound: Bound, applied: u64) {
        let mut state = self.state.lock();
        state.prove(applied);
        // Leaders' clocks differ by the margin at most. A much earlier time means that a clock was corrected, and that its
        // earlier bounds named times that had not come yet.
        if state.proven_ms.saturating_sub(bound.time_ms) > 2 * CLOCK_DIFFERENCE_MAX_MS {
            *state = BoundState::default();
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

/// Up to which time a replica that does not lead is complete: `proven` by bounds, or because its last applied entry was
/// packed at `packed_at`. `None` if it knows neither: nothing has been applied since the start, or only entries without a
/// time, such as the blank one of a new leader.
pub(crate) fn complete_until(proven: Option<u64>, packed_at: u64, wall_ms: u64) -> Option<u64> {
    let known = proven.unwrap_or(0).max(packed_at);
    // No answer is complete up to a time that has not come here yet.
    (known > 0).then(|| known.min(wall_ms).saturating_sub(CLOCK_DIFFERENCE_MAX_MS))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use openraft_rt::Instant as _;

    use super::*;
    use crate::script::{Line, check, or_dash};

    /// `beat time=MS index=I applied=I`: a heartbeat with a bound comes in. `read applied=I [packed=MS] [wall=MS]`: a read
    /// of what is applied. `clock at=MS time=MS`, `time at=MS`: a leader notes the time of a moment, and is asked for one.
    fn start() -> impl FnMut(&str, &mut String) {
        let (heard, moments, begun) = (ReceivedBounds::default(), TimeSamples::default(), LeaseInstant::now());
        move |line, out| {
            let line = Line::new(line);
            let applied = line.get("applied").unwrap_or(0);
            let at = begun + line.ms("at").unwrap_or_default();
            match line.command() {
                "clock" => moments.note(at, line.need("time")),
                "time" => writeln!(out, "{}", or_dash(moments.time_ms(at))).unwrap(),
                "beat" => heard.note(Bound { time_ms: line.need("time"), index: line.need("index") }, applied),
                "read" => {
                    let (packed, wall) = (line.get("packed").unwrap_or(0), line.get("wall").unwrap_or(u64::MAX));
                    let proven = heard.proven_ms(applied);
                    let as_of = complete_until(proven, packed, wall);
                    writeln!(out, "proven {} complete as of {}", or_dash(proven), or_dash(as_of)).unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("reads/completeness", start);
    }
}
