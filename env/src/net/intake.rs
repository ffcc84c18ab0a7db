//! What a port accepts: connections, calls and bytes, each within one budget for the whole server.
//!
//! The memory of a port open to strangers must grow only with what they have sent, not with what they announce, and only up
//! to its limits. All ports of a server share one [`Intake`]:
//! - *connections*: one beyond the limit is closed at once, together with the connection that has been idle the longest, so
//!   that the next attempt succeeds. A connection that sends no HTTP/2 preface is closed after [`PREFACE_MAX`].
//! - *calls*: one beyond the limit is refused before its body is read. Once half of the calls are taken, a connection with
//!   [`CROWDED_CALLS_MAX`] calls gets no more, so that a few connections cannot starve the others.
//! - *bodies*: bytes of messages that have not arrived in full (`gate`). The transport may buffer
//!   [`super::CALLS_WINDOW_BYTES`] more for each connection whose calls are not read.
//! - *answers*: bytes of answers from when they are read until they are sent. When they use up their budget, connections
//!   that read nothing for [`STUCK_AFTER`] are closed.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::budget::{Budget, Share, Unit};

/// How long a new connection may take to send the HTTP/2 preface.
pub(super) const PREFACE_MAX: Duration = Duration::from_secs(10);
/// A connection that read none of its answers for this long is closed when answers use up their budget.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Calls of one connection while more than half of all calls are taken.
const CROWDED_CALLS_MAX: u64 = 64;
/// The shortest time between two searches for stuck connections.
const RELIEF_EVERY: Duration = Duration::from_secs(1);

/// The limits of a server's ports.
#[derive(Clone, Copy, Debug)]
pub struct IntakeLimits {
    /// Connections.
    pub connections: u64,
    /// Concurrent calls on all connections.
    pub calls: u64,
    /// Bytes of messages that have not arrived in full.
    pub body_bytes: u64,
    /// Bytes of answers that have not been sent.
    pub answer_bytes: u64,
    /// Longest message; a header that announces a longer one is refused at once.
    pub message_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self { connections: 1024, calls: 8192, body_bytes: 256 << 20, answer_bytes: 512 << 20, message_bytes: 40 << 20 }
    }
}

/// What the ports of one server have accepted.
#[derive(Debug)]
pub struct Intake {
    connections: Arc<Budget>,
    calls: Arc<Budget>,
    bodies: Arc<Budget>,
    answers: Arc<Budget>,
    message_bytes: usize,
    /// Held by the one unfinished message that is still read when the budget of bodies is nearly used up.
    pass: Arc<Semaphore>,
    open_connections: Mutex<Connections>,
}

#[derive(Debug, Default)]
struct Connections {
    open: Vec<Weak<Connection>>,
    relieved_at: Option<Instant>,
}

impl Intake {
    /// An intake that has accepted nothing yet.
    pub fn new(limits: IntakeLimits) -> Arc<Intake> {
        Arc::new(Intake {
            connections: Budget::new("connections", Unit::Count, limits.connections),
            calls: Budget::new("calls", Unit::Count, limits.calls),
            bodies: Budget::new("bodies", Unit::Bytes, limits.body_bytes),
            answers: Budget::new("answers", Unit::Bytes, limits.answer_bytes),
            message_bytes: limits.message_bytes,
            pass: Arc::new(Semaphore::new(1)),
            open_connections: Mutex::default(),
        })
    }

    /// Its budgets, for metrics and status.
    pub fn budgets(&self) -> [Arc<Budget>; 4] {
        [&self.connections, &self.calls, &self.bodies, &self.answers].map(Arc::clone)
    }

    /// Reserves `bytes` for an answer about to be built; `None` if too much waits to be sent. In that case it also closes
    /// connections that do not read their answers.
    #[must_use]
    pub fn answer(&self, bytes: u64) -> Option<Share> {
        let share = self.answers.try_take(bytes);
        if share.is_none() {
            self.relieve();
        }
        share
    }

    /// Counts an answer that exists already.
    #[must_use]
    pub fn count_answer(&self, bytes: u64) -> Share {
        self.answers.take(bytes)
    }

    /// Grows a share of answers; false if too much waits to be sent.
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

    /// Admits a call on a connection, within the limits.
    pub(super) fn call(&self, connection: Option<&Arc<Connection>>) -> Option<Call> {
        let has_its_part =
            connection.is_some_and(|connection| connection.calls.load(Ordering::Relaxed) >= CROWDED_CALLS_MAX);
        if has_its_part && self.calls.used() > self.calls.limit() / 2 {
            self.calls.count_refusal();
            return None;
        }
        let share = self.calls.try_take(1)?;
        if let Some(connection) = connection {
            connection.calls.fetch_add(1, Ordering::Relaxed);
        }
        Some(Call { _share: share, connection: connection.cloned() })
    }

    /// Admits a new connection, within the limit.
    pub(super) fn connect(&self) -> Option<Arc<Connection>> {
        let mut open_connections = self.open_connections.lock();
        let Some(share) = self.connections.try_take(1) else {
            open_connections.close_idlest();
            return None;
        };
        let connection = Arc::new(Connection::new(share));
        open_connections.open.retain(|connection| connection.strong_count() > 0);
        open_connections.open.push(Arc::downgrade(&connection));
        Some(connection)
    }

    /// Closes the connections that do not read their answers.
    fn relieve(&self) {
        let mut open_connections = self.open_connections.lock();
        let now = Instant::now();
        if open_connections.relieved_at.is_some_and(|relieved_at| now.duration_since(relieved_at) < RELIEF_EVERY) {
            return;
        }
        open_connections.relieved_at = Some(now);
        for connection in open_connections.open.iter().filter_map(Weak::upgrade) {
            if connection.unsent.load(Ordering::Relaxed) > 0 && connection.idle_for(now) >= STUCK_AFTER {
                tracing::warn!(
                    unsent = connection.unsent.load(Ordering::Relaxed),
                    "closing a connection: its client does not read its answers, and the budget for answers is used up"
                );
                connection.close();
            }
        }
    }
}

impl Connections {
    fn close_idlest(&self) {
        let now = Instant::now();
        let open = self.open.iter().filter_map(Weak::upgrade);
        let idle = open.filter(|connection| connection.calls.load(Ordering::Relaxed) == 0 && !connection.is_closed());
        if let Some(connection) = idle.max_by_key(|connection| connection.idle_for(now)) {
            tracing::debug!("closing an idle connection: the server has as many connections as it accepts");
            connection.close();
        }
    }
}

/// One connection, shared by its calls and its socket.
#[derive(Debug)]
pub(super) struct Connection {
    _share: Share,
    calls: AtomicU64,
    /// Bytes of answers that have not been sent.
    unsent: AtomicU64,
    /// When it last ended a call, read an answer, or became busy again.
    moved: Mutex<Instant>,
    closed: AtomicBool,
    /// Wakes the task that reads the socket.
    reader: AtomicWaker,
}

impl Connection {
    fn new(share: Share) -> Connection {
        Connection {
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

    /// Registers the task to wake when the connection has to end.
    pub(super) fn watch(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// Ends the connection: its socket fails from now on.
    fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
    }

    fn idle_for(&self, now: Instant) -> Duration {
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

/// What the calls of a connection know about it.
#[derive(Clone)]
pub struct ConnectInfo {
    pub(super) connection: Option<Arc<Connection>>,
    pub(super) peer: Option<SocketAddr>,
}

/// The other end of the connection that a call came on, by the extensions of its request; empty: it did not come on one.
pub fn peer_of(extensions: &http::Extensions) -> String {
    let info = extensions.get::<ConnectInfo>();
    info.and_then(|info| info.peer).map(|peer| peer.to_string()).unwrap_or_default()
}

/// One call in progress.
#[derive(Debug)]
pub(super) struct Call {
    _share: Share,
    connection: Option<Arc<Connection>>,
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.calls.fetch_sub(1, Ordering::Relaxed);
            connection.has_moved();
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
    async fn beyond_the_limit_the_connection_idle_longest_is_closed() {
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
    async fn a_connection_with_many_calls_does_not_starve_the_others() {
        let intake = Intake::new(IntakeLimits { calls: 1_000, ..limits() });
        let [greedy, modest] = [(); 2].map(|()| intake.connect().unwrap());
        let many: Vec<Call> = std::iter::from_fn(|| intake.call(Some(&greedy))).collect();
        assert_eq!(many.len(), 501, "one connection gets half of all calls and no more");
        let few: Vec<Call> = (0..CROWDED_CALLS_MAX).map_while(|_| intake.call(Some(&modest))).collect();
        assert_eq!(few.len() as u64, CROWDED_CALLS_MAX);
        drop(many);
        assert!(intake.call(Some(&modest)).is_some(), "below half of the limit a connection has no limit of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_read_no_answers_are_closed_when_the_budget_is_used_up() {
        let intake = Intake::new(limits());
        let [stuck, moving] = [(); 2].map(|()| intake.connect().unwrap());
        for connection in [&stuck, &moving] {
            connection.will_send(50);
        }
        let _unsent = intake.answer(100).unwrap();
        assert!(intake.answer(1).is_none());
        assert!(!stuck.is_closed(), "it may still read them");
        tokio::time::advance(STUCK_AFTER).await;
        moving.has_sent(1);
        assert!(intake.answer(1).is_none());
        assert!(stuck.is_closed() && !moving.is_closed());
    }
}
