//! What a port takes in: connections, calls and bytes, each within one budget of the whole server.
//!
//! A port that serves strangers must not grow with what they promise, only with what they sent, and not beyond its limits.
//! One [`Intake`] stands behind every port of a server:
//! - *connections*: one beyond the limit is closed at once, and the connection that has been without a call for longest is
//!   closed too, so that the next attempt finds room. One that sends no HTTP/2 preface is closed after [`PREFACE_MAX`].
//! - *calls*: one beyond the limit is refused before its body is read. Once half of them are taken, a connection with
//!   [`CROWDED_CALLS_MAX`] gets no more, so that a few connections leave room for the others.
//! - *bodies*: bytes of messages that have not arrived in full (`gate`). The transport may hold [`super::CALLS_WINDOW_BYTES`]
//!   more for each connection whose calls are not read.
//! - *answers*: bytes of answers from the moment they are read until they have left. When they use up their budget,
//!   connections that took nothing for [`STUCK_AFTER`] are closed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::budget::{Budget, Share, Unit};

/// How long a new connection may take to send the preface of HTTP/2.
pub(super) const PREFACE_MAX: Duration = Duration::from_secs(10);
/// A connection that took none of its answers for so long is closed when answers need room.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Calls of one connection while more than half of all calls are taken.
const CROWDED_CALLS_MAX: u64 = 64;
/// How often connections are looked through for one to close.
const RELIEF_EVERY: Duration = Duration::from_secs(1);

/// What a port takes in at a time.
#[derive(Clone, Copy, Debug)]
pub struct IntakeLimits {
    /// Connections.
    pub connections: u64,
    /// Calls under way on all connections.
    pub calls: u64,
    /// Bytes of messages that have not arrived in full.
    pub body_bytes: u64,
    /// Bytes of answers that have not left.
    pub answer_bytes: u64,
    /// Longest message; what a header announces beyond it is not waited for.
    pub message_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self { connections: 1024, calls: 8192, body_bytes: 256 << 20, answer_bytes: 512 << 20, message_bytes: 40 << 20 }
    }
}

/// What the ports of one server take in.
#[derive(Debug)]
pub struct Intake {
    connections: Arc<Budget>,
    calls: Arc<Budget>,
    bodies: Arc<Budget>,
    answers: Arc<Budget>,
    message_bytes: usize,
    /// For the one unfinished message that goes on when bodies are too full for all.
    pass: Arc<Semaphore>,
    lines: Mutex<Lines>,
}

#[derive(Debug, Default)]
struct Lines {
    open: Vec<Weak<Line>>,
    relieved: Option<Instant>,
}

impl Intake {
    /// Takes nothing yet.
    pub fn new(limits: IntakeLimits) -> Arc<Intake> {
        Arc::new(Intake {
            connections: Budget::new("connections", Unit::Count, limits.connections),
            calls: Budget::new("calls", Unit::Count, limits.calls),
            bodies: Budget::new("bodies", Unit::Bytes, limits.body_bytes),
            answers: Budget::new("answers", Unit::Bytes, limits.answer_bytes),
            message_bytes: limits.message_bytes,
            pass: Arc::new(Semaphore::new(1)),
            lines: Mutex::default(),
        })
    }

    /// What it counts, for metrics and status.
    pub fn budgets(&self) -> [Arc<Budget>; 4] {
        [&self.connections, &self.calls, &self.bodies, &self.answers].map(Arc::clone)
    }

    /// Room for `bytes` of an answer that is about to be made; `None` when too much waits to be sent. Then connections that
    /// do not take theirs are closed.
    #[must_use]
    pub fn answer(&self, bytes: u64) -> Option<Share> {
        let share = self.answers.try_take(bytes);
        if share.is_none() {
            self.relieve();
        }
        share
    }

    /// Counts an answer that exists.
    #[must_use]
    pub fn count_answer(&self, bytes: u64) -> Share {
        self.answers.take(bytes)
    }

    /// Lets a share of answers grow; false when too much waits to be sent.
    #[must_use]
    pub fn grow_answer(&self, share: &mut Share, more: u64) -> bool {
        let grown = share.grow(more);
        if !grown {
            self.relieve();
        }
        grown
    }

    /// Whether answers have used up their budget.
    pub fn answers_are_full(&self) -> bool {
        let full = self.answers.used() >= self.answers.limit();
        if full {
            self.relieve();
        }
        full
    }

    pub(super) fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    pub(super) fn bodies(&self) -> &Arc<Budget> {
        &self.bodies
    }

    pub(super) fn pass(&self) -> Option<OwnedSemaphorePermit> {
        self.pass.clone().try_acquire_owned().ok()
    }

    pub(super) fn answers(&self) -> &Arc<Budget> {
        &self.answers
    }

    /// A call on a connection, if there is room for it.
    pub(super) fn call(&self, line: Option<&Arc<Line>>) -> Option<Call> {
        let has_its_part = line.is_some_and(|line| line.calls.load(Ordering::Relaxed) >= CROWDED_CALLS_MAX);
        if has_its_part && self.calls.used() > self.calls.limit() / 2 {
            self.calls.count_refusal();
            return None;
        }
        let share = self.calls.try_take(1)?;
        if let Some(line) = line {
            line.calls.fetch_add(1, Ordering::Relaxed);
        }
        Some(Call { _share: share, line: line.cloned() })
    }

    /// A new connection, if there is room for it.
    pub(super) fn connect(&self) -> Option<Arc<Line>> {
        let mut lines = self.lines.lock();
        let Some(share) = self.connections.try_take(1) else {
            lines.close_idlest();
            return None;
        };
        let line = Arc::new(Line::new(share));
        lines.open.retain(|line| line.strong_count() > 0);
        lines.open.push(Arc::downgrade(&line));
        Some(line)
    }

    /// Closes the connections that do not take their answers.
    fn relieve(&self) {
        let mut lines = self.lines.lock();
        let now = Instant::now();
        if lines.relieved.is_some_and(|relieved| now.duration_since(relieved) < RELIEF_EVERY) {
            return;
        }
        lines.relieved = Some(now);
        for line in lines.open.iter().filter_map(Weak::upgrade) {
            if line.unsent.load(Ordering::Relaxed) > 0 && line.still_for(now) >= STUCK_AFTER {
                tracing::warn!(
                    unsent = line.unsent.load(Ordering::Relaxed),
                    "closing a connection: its client does not read its answers, and answers need room"
                );
                line.close();
            }
        }
    }
}

impl Lines {
    fn close_idlest(&self) {
        let now = Instant::now();
        let open = self.open.iter().filter_map(Weak::upgrade);
        let idle = open.filter(|line| line.calls.load(Ordering::Relaxed) == 0 && !line.is_closed());
        if let Some(line) = idle.max_by_key(|line| line.still_for(now)) {
            tracing::debug!("closing an idle connection: there are as many as the server takes");
            line.close();
        }
    }
}

/// One connection, as its calls and its socket both see it.
#[derive(Debug)]
pub(super) struct Line {
    _share: Share,
    calls: AtomicU64,
    /// Bytes of answers that have not left.
    unsent: AtomicU64,
    /// When it last ended a call, took an answer, or was idle.
    moved: Mutex<Instant>,
    closed: AtomicBool,
    /// Of the task that reads the socket.
    reader: AtomicWaker,
}

impl Line {
    fn new(share: Share) -> Line {
        Line {
            _share: share,
            calls: AtomicU64::new(0),
            unsent: AtomicU64::new(0),
            moved: Mutex::new(Instant::now()),
            closed: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Remembers whom to wake when the connection is to end.
    pub(super) fn watch(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// Ends the connection: its socket fails from now on.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn still_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.moved.lock())
    }

    fn has_moved(&self) {
        *self.moved.lock() = Instant::now();
    }

    pub(super) fn will_send(&self, bytes: u64) {
        if self.unsent.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.has_moved();
        }
    }

    pub(super) fn has_sent(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.has_moved();
    }
}

/// One call under way.
#[derive(Debug)]
pub(super) struct Call {
    _share: Share,
    line: Option<Arc<Line>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.calls.fetch_sub(1, Ordering::Relaxed);
            line.has_moved();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> IntakeLimits {
        IntakeLimits { connections: 2, calls: 1, answer_bytes: 100, ..IntakeLimits::default() }
    }

    #[tokio::test]
    async fn beyond_the_limit_the_idlest_connection_makes_room() {
        let intake = Intake::new(limits());
        let [busy, idle] = [(); 2].map(|()| intake.connect().unwrap());
        let call = intake.call(Some(&busy)).unwrap();
        assert!(intake.call(Some(&idle)).is_none(), "calls are bounded for the whole server");
        assert!(intake.connect().is_none());
        assert!(idle.is_closed() && !busy.is_closed());
        drop(idle);
        assert!(intake.connect().is_some());
        drop(call);
        assert_eq!(intake.budgets().map(|budget| budget.used()), [1, 0, 0, 0]);
    }

    #[tokio::test]
    async fn a_connection_with_many_calls_leaves_room_for_those_of_others() {
        let intake = Intake::new(IntakeLimits { calls: 1_000, ..limits() });
        let [greedy, modest] = [(); 2].map(|()| intake.connect().unwrap());
        let many: Vec<Call> = std::iter::from_fn(|| intake.call(Some(&greedy))).collect();
        assert_eq!(many.len(), 501, "it may take half of all and no more");
        let few: Vec<Call> = (0..CROWDED_CALLS_MAX).map_while(|_| intake.call(Some(&modest))).collect();
        assert_eq!(few.len() as u64, CROWDED_CALLS_MAX);
        drop(many);
        assert!(intake.call(Some(&modest)).is_some(), "with room for all, a connection takes what it wants");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_take_no_answers_are_closed_when_answers_need_room() {
        let intake = Intake::new(limits());
        let [stuck, moving] = [(); 2].map(|()| intake.connect().unwrap());
        for line in [&stuck, &moving] {
            line.will_send(50);
        }
        let _unsent = intake.answer(100).unwrap();
        assert!(intake.answer(1).is_none());
        assert!(!stuck.is_closed(), "it may yet take them");
        tokio::time::advance(STUCK_AFTER).await;
        moving.has_sent(1);
        assert!(intake.answer(1).is_none());
        assert!(stuck.is_closed() && !moving.is_closed());
    }
}
