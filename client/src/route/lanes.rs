//! How many requests a group is sent at a time: as many as its leader takes.
//!
//! A server that has too much in hand answers `Busy`. Ten thousand callers that each come back later keep it busy for ever,
//! with refusals instead of work. So the first refusal opens a *lane* for the group: from then on its callers queue here, in
//! the order they came and until their time is over, and only so many are under way as the leader was seen to take. The
//! bound falls by a share with refusals, rises slowly with answers, and the lane closes when it has risen to what a session
//! holds anyway.
//!
//! A lane belongs to a group, so that one that is stuck slows no other down, and to reads or writes: what refuses the ones
//! need not refuse the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use terrane_types::GroupId;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

use crate::wire::failure::Failure;
use crate::wire::in_flight::IN_FLIGHT_MAX;

/// Requests under way when a lane opens, and the fewest.
const BOUND_FIRST: usize = 512;
const BOUND_MIN: usize = 16;
/// A refusal leaves so many tenths of the bound.
const TENTHS_LEFT: usize = 7;
/// A shorter pause is asked for the sake of order, not for lack of room.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Refusals of one moment count once.
const CUT_PAUSE: Duration = Duration::from_millis(100);
/// The longest that a refusal stops a lane altogether.
const HOLD_MAX: Duration = Duration::from_millis(500);
/// Answers for which the bound rises by one.
const ANSWERS_PER_STEP: u32 = 64;
/// Lanes at once; what is refused beyond is only waited for.
const LANES_MAX: usize = 4096;

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Load {
    Reads,
    Writes,
}

/// The lanes that are open.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: RwLock<BTreeMap<(GroupId, Load), Arc<Lane>>>,
    /// How many there are: none, most of the time.
    open: AtomicUsize,
}

impl Lanes {
    /// Waits for the caller's turn, if there is a lane.
    pub(crate) async fn enter(&self, group: GroupId, load: Load, until: Instant) -> Result<Option<Turn>, Failure> {
        if self.open.load(Ordering::Relaxed) == 0 {
            return Ok(None);
        }
        let Some(lane) = self.lanes.read().get(&(group, load)).cloned() else { return Ok(None) };
        if lane.has_recovered() {
            self.close(group, load);
            return Ok(None);
        }
        match timeout_at(until, lane.turns.acquire()).await {
            Ok(Ok(ticket)) => ticket.forget(),
            Ok(Err(_closed)) => return Ok(None),
            Err(_) => return Err(Failure::Queued),
        }
        Ok(Some(Turn(lane)))
    }

    /// The group's leader refused a request and asked for so long a pause.
    pub(crate) fn refused(&self, group: GroupId, load: Load, pause: Duration) {
        if pause < PAUSE_MIN {
            return;
        }
        let lane = {
            let mut lanes = self.lanes.write();
            if lanes.len() >= LANES_MAX && !lanes.contains_key(&(group, load)) {
                return;
            }
            let lane = Arc::clone(lanes.entry((group, load)).or_default());
            self.open.store(lanes.len(), Ordering::Relaxed);
            lane
        };
        let pause = pause.min(HOLD_MAX);
        if lane.cut(Instant::now(), pause) {
            tokio::spawn(async move {
                sleep(pause).await;
                lane.resume();
            });
        }
    }

    fn close(&self, group: GroupId, load: Load) {
        let mut lanes = self.lanes.write();
        lanes.remove(&(group, load));
        self.open.store(lanes.len(), Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Lane {
    /// One per request that may be sent now. Those under way gave theirs up; what becomes of it is decided when they end.
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bound: usize,
    /// Tickets under way that are not given back, as the bound fell below them.
    surplus: usize,
    /// While the lane stands still: the turns kept from it.
    held: Option<usize>,
    /// Answers since the bound rose last.
    answers: u32,
    cut_at: Option<Instant>,
}

impl Default for Lane {
    fn default() -> Self {
        let state = State { bound: BOUND_FIRST, surplus: 0, held: None, answers: 0, cut_at: None };
        Self { turns: Semaphore::new(BOUND_FIRST), state: Mutex::new(state) }
    }
}

impl Lane {
    /// Lowers the bound and stops the lane; true if it is to go on after the pause.
    fn cut(&self, now: Instant, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if state.held.is_some() || state.cut_at.is_some_and(|at| now.duration_since(at) < CUT_PAUSE) {
            return false;
        }
        state.cut_at = Some(now);
        state.answers = 0;
        let bound = (state.bound * TENTHS_LEFT / 10).max(BOUND_MIN);
        let fewer = state.bound - bound;
        state.bound = bound;
        state.surplus += fewer - self.turns.forget_permits(fewer);
        state.held = Some(self.turns.forget_permits(IN_FLIGHT_MAX));
        drop(state);
        !pause.is_zero() || {
            self.resume();
            false
        }
    }

    /// The pause is over.
    fn resume(&self) {
        let held = self.state.lock().held.take();
        self.turns.add_permits(held.unwrap_or_default());
    }

    /// A request was answered, or given up.
    fn leave(&self) {
        let mut state = self.state.lock();
        let mut free = 1;
        if state.surplus > 0 {
            state.surplus -= 1;
            free = 0;
        }
        state.answers += 1;
        if state.answers >= ANSWERS_PER_STEP && state.bound < IN_FLIGHT_MAX {
            state.answers = 0;
            state.bound += 1;
            free += 1;
        }
        match &mut state.held {
            Some(held) => *held += free,
            None => self.turns.add_permits(free),
        }
    }

    fn has_recovered(&self) -> bool {
        self.state.lock().bound >= IN_FLIGHT_MAX
    }
}

/// The right to have one request under way.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Lane>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests;
