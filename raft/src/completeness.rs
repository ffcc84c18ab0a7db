//! The time up to which a replica is complete: the bounds that leaders announce, and what a replica concludes from them.
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

/// The bounds that a replica has received from leaders.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    state: Mutex<HeardState>,
}

#[derive(Debug, Default)]
struct HeardState {
    /// The highest time whose index is applied; 0: none yet.
    proven_ms: u64,
    /// The next bound, whose index is not known to be applied.
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
    /// Records a leader's bound; `applied` is the index applied here.
    pub(crate) fn note(&self, bound: Bound, applied: u64) {
        let mut state = self.state.lock();
        state.prove(applied);
        // Leaders' clocks differ by the margin at most. A much earlier time means that a clock was corrected, and that its
        // earlier bounds named times that had not come yet.
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

    use super::*;
    use crate::script::{Line, check, or_dash};

    /// `beat time=MS index=I applied=I`: a heartbeat with a bound comes in. `read applied=I [packed=MS] [wall=MS]`: a read
    /// of what is applied.
    fn start() -> impl FnMut(&str, &mut String) {
        let heard = Heard::default();
        move |line, out| {
            let line = Line::new(line);
            let applied = line.need("applied");
            match line.command() {
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
        check("completeness", start);
    }
}
