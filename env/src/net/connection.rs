//! One accepted connection, as its port, its calls and its socket see it: what it occupies, when it last moved, and whether
//! the server wants it to end.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::{Budget, Share};

/// One connection, shared by its calls and its socket.
#[derive(Debug)]
pub struct Connection {
    /// Its place among the connections of the port, until another one gets it.
    share: Mutex<Option<Share>>,
    /// The budget of its answers.
    budget: Arc<Budget>,
    pub(super) calls: AtomicU64,
    /// It has had a call: a connection that has not is the first to go when there are too many.
    has_called: AtomicBool,
    /// Bytes of its answers that are being built.
    building: AtomicU64,
    /// Bytes of its answers that have not been sent.
    unsent: AtomicU64,
    /// Some of its answers were sent.
    eased: Notify,
    /// When it last ended a call, read an answer, or became busy again.
    moved: Mutex<Instant>,
    closed: AtomicBool,
    /// Wakes the task that reads the socket.
    reader: AtomicWaker,
}

impl Connection {
    pub(super) fn new(share: Share, answers: &Arc<Budget>) -> Connection {
        let zero = || AtomicU64::new(0);
        Connection {
            share: Mutex::new(Some(share)),
            budget: answers.clone(),
            calls: zero(),
            has_called: AtomicBool::new(false),
            building: zero(),
            unsent: zero(),
            eased: Notify::new(),
            moved: Mutex::new(Instant::now()),
            closed: AtomicBool::new(false),
            reader: AtomicWaker::new(),
        }
    }

    /// Whether the server wants it to end.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns when the server wants the connection to end. Only the task that reads the connection may wait for it.
    pub async fn closed(&self) {
        poll_fn(|cx| {
            self.watch(cx.waker());
            if self.is_closed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Registers the task to wake when the connection has to end.
    pub(super) fn watch(&self, reader: &Waker) {
        self.reader.register(reader);
    }

    /// Ends the connection: its socket fails from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.reader.wake();
    }

    /// Ends the connection; returns its place, which the next one gets at once.
    pub(super) fn give_up_place(&self) -> Option<Share> {
        self.close();
        self.share.lock().take()
    }

    pub(super) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(*self.moved.lock())
    }

    /// It did something: it is not the idlest connection, and not stuck.
    pub fn has_moved(&self) {
        *self.moved.lock() = Instant::now();
    }

    pub(super) fn begins_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.has_called.store(true, Ordering::Relaxed);
    }

    /// Notes that it speaks its port's protocol, where that has no calls.
    pub fn is_known(&self) {
        self.has_called.store(true, Ordering::Relaxed);
        self.has_moved();
    }

    /// How readily it gives up its place: the one with the greatest order goes first. `None`: it has calls.
    pub(super) fn dispensable(&self, now: Instant) -> Option<(bool, Duration)> {
        let is_idle = self.calls.load(Ordering::Relaxed) == 0 && !self.is_closed();
        is_idle.then(|| (!self.has_called.load(Ordering::Relaxed), self.idle_for(now)))
    }

    /// Bytes of its answers, from when they are built until they are sent.
    pub(super) fn answers(&self) -> u64 {
        self.building.load(Ordering::Relaxed) + self.unsent.load(Ordering::Relaxed)
    }

    pub(super) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Waits until at most so many bytes of its answers have not been sent.
    pub async fn eased(&self, bytes: u64) {
        while self.unsent() > bytes {
            // Created before looking again: what is sent in between wakes it.
            let eased = self.eased.notified();
            if self.unsent() > bytes {
                eased.await;
            }
        }
    }

    pub(super) fn will_send(&self, bytes: u64) {
        if self.unsent.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.has_moved();
        }
    }

    pub(super) fn has_sent(&self, bytes: u64) {
        self.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.has_moved();
        self.eased.notify_waiters();
    }
}

/// Counts an answer of so many bytes that is being built for a connection.
#[must_use]
pub fn build_answer(connection: &Arc<Connection>, bytes: u64) -> Answering {
    connection.building.fetch_add(bytes, Ordering::Relaxed);
    Answering { share: connection.budget.take(bytes), connection: connection.clone(), is_built: false }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if crate::planted!("a dead connection keeps its permit") {
            std::mem::forget(self.share.lock().take());
        }
    }
}

/// The bytes of an answer, counted from when it is built until it is sent.
#[derive(Debug)]
pub struct Answering {
    share: Share,
    connection: Arc<Connection>,
    is_built: bool,
}

impl Answering {
    /// The answer is built: it waits to be sent.
    #[must_use]
    pub fn built(mut self) -> Answering {
        self.connection.building.fetch_sub(self.share.amount(), Ordering::Relaxed);
        self.connection.will_send(self.share.amount());
        crate::tally!("bytes of answers that were counted", self.share.amount());
        self.is_built = true;
        self
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let bytes = self.share.amount();
        if self.is_built {
            self.connection.has_sent(bytes);
        } else {
            self.connection.building.fetch_sub(bytes, Ordering::Relaxed);
        }
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
pub struct Call {
    pub(super) _share: Share,
    /// Its bytes, until it is answered.
    pub(super) request: Option<Share>,
    pub(super) connection: Option<Arc<Connection>>,
}

impl Call {
    /// The call is answered: what it asked for is in memory no more.
    pub fn is_answered(&mut self) {
        self.request = None;
    }

    /// Counts its answer of so many bytes, which is built and waits to be sent.
    #[must_use]
    pub fn leaves(&self, bytes: u64) -> Option<Answering> {
        self.connection.as_ref().map(|connection| build_answer(connection, bytes).built())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.calls.fetch_sub(1, Ordering::Relaxed);
            connection.has_moved();
        }
    }
}
