//! How many requests a group gets at a time: as many as its leader accepts.
//!
//! An overloaded server answers `Busy`. If ten thousand callers each come back later, the server spends its time on refusals.
//! So the first refusal opens a *lane* for the group: from then on its callers queue here, in order of arrival and until
//! their deadline, and only as many are in flight as the leader has shown to accept. The bound falls by a share with each
//! refusal, rises slowly with answers, and the lane closes when the bound reaches what a session may have in flight anyway.
//!
//! A lane belongs to a group, so that one overloaded group slows down no other, and to reads or writes, because what refuses
//! one need not refuse the other.

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

/// Requests in flight when a lane opens, and the fewest.
const BOUND_FIRST: usize = 512;
const BOUND_MIN: usize = 16;
/// A refusal leaves this many tenths of the bound.
const TENTHS_LEFT: usize = 7;
/// A server that asks for a shorter pause wants to keep an order; it is not overloaded.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Refusals within this time count once.
const CUT_PAUSE: Duration = Duration::from_millis(100);
/// The longest time that a refusal stops a lane.
const HOLD_MAX: Duration = Duration::from_millis(500);
/// Answers that raise the bound by one.
const ANSWERS_PER_STEP: u32 = 64;
/// Open lanes; with more, a refused call only waits.
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
    /// The number of open lanes: mostly none.
    open: AtomicUsize,
}

impl Lanes {
    /// Waits for the caller's turn, if there is a lane. `None`: there is none.
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

    /// The group's leader refused a request and asked for this pause.
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
    /// A permit per request that may enter now. A request consumes its permit; when it ends, the lane decides whether to add
    /// one.
    turns: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bound: usize,
    /// Requests in flight above the bound: when they end, no permit is added.
    surplus: usize,
    /// While the lane stands still: the permits taken from it.
    held: Option<usize>,
    /// Answers since the bound last rose.
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
    /// Lowers the bound and stops the lane; true if the caller must resume it after the pause.
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
        debug_assert!(bound >= BOUND_MIN, "a lane's bound fell to {bound}, below {BOUND_MIN}");
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

    /// A request has ended.
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

/// The right to have one request in flight.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Lane>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests;
