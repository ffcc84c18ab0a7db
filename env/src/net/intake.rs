//! What a port accepts: connections, calls and bytes, each within one budget.
//!
//! The memory of a port open to strangers must grow only with what they have sent, not with what they announce, and only up
//! to its limits. The gRPC ports of a server share one [`Intake`]. A port of another protocol has one beside it
//! ([`Intake::beside`]): its own limits, so that its clients take nothing from others, and the same budget of answers.
//! - *connections*: one beyond the limit gets the place of the connection that has been idle the longest, which is closed;
//!   those that never had a call go first. One that does not begin to speak its protocol in [`PREFACE_MAX`] is closed.
//! - *calls*: one beyond the limit is refused before its body is read. Once half of the calls are taken, a connection with
//!   [`CROWDED_CALLS_MAX`] calls gets no more, so that a few connections cannot starve the others.
//! - *bodies*: bytes of messages that have not arrived in full (`unfinished`). The transport may buffer
//!   [`super::CALLS_WINDOW_BYTES`] more for each connection whose calls are not read.
//! - *requests*: bytes of calls that have arrived and are not answered, for ports that count them.
//! - *answers*: bytes of answers from when they are read until they are sent. When they use up their budget, connections
//!   that read nothing for [`STUCK_AFTER`] are closed. For ports that count the answers of each connection, the second half of
//!   the budget is for connections with less than [`CROWDED_ANSWERS_MAX`].

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::arriving::Arriving;
use super::connection::{Call, Connection};
use crate::budget::{Budget, Share, Unit};

/// How long a new connection may take to send the HTTP/2 preface.
pub(super) const PREFACE_MAX: Duration = Duration::from_secs(10);
/// A connection that read none of its answers for this long is closed when answers use up their budget.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// Calls of one connection while more than half of all calls are taken.
const CROWDED_CALLS_MAX: u64 = 64;
/// Bytes of answers of one connection while more than half of the budget is taken.
const CROWDED_ANSWERS_MAX: u64 = 256 << 10;
/// Bytes of answers that a connection may leave unread and get further calls.
const UNREAD_BYTES_MAX: u64 = 8 << 20;
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
    /// Bytes of calls that are not answered.
    pub request_bytes: u64,
    /// Bytes of answers that have not been sent.
    pub answer_bytes: u64,
    /// Longest message; a header that announces a longer one is refused at once.
    pub message_bytes: usize,
}

impl Default for IntakeLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            calls: 8192,
            body_bytes: 256 << 20,
            request_bytes: 256 << 20,
            answer_bytes: 512 << 20,
            message_bytes: 40 << 20,
        }
    }
}

/// The names of a port's budgets.
#[derive(Clone, Copy, Debug)]
pub struct BudgetNames {
    /// That of connections.
    pub connections: &'static str,
    /// That of calls; `None`, here and below: the protocol of the port is bounded without it.
    pub calls: Option<&'static str>,
    /// That of messages that have not arrived in full.
    pub bodies: Option<&'static str>,
    /// That of calls that have arrived and are not answered.
    pub requests: Option<&'static str>,
    /// That of answers; `None`: they are counted with those of another port, or not.
    pub answers: Option<&'static str>,
}

/// What the ports of one server have accepted.
#[derive(Debug)]
pub struct Intake {
    connections: Arc<Budget>,
    calls: Arc<Budget>,
    bodies: Arc<Budget>,
    requests: Arc<Budget>,
    answers: Arc<Answers>,
    /// What status and metrics show.
    shown: Vec<Arc<Budget>>,
    message_bytes: usize,
    /// Held by the one unfinished message that is still read when the budget of bodies is nearly used up.
    pass: Arc<Semaphore>,
    open_connections: Mutex<Vec<Weak<Connection>>>,
    arriving: Mutex<Arriving>,
}

/// The answers of all ports that count them together.
#[derive(Debug)]
struct Answers {
    budget: Arc<Budget>,
    readers: Mutex<Readers>,
}

#[derive(Debug, Default)]
struct Readers {
    open: Vec<Weak<Connection>>,
    relieved_at: Option<Instant>,
}

impl Intake {
    /// The intake of the gRPC ports, which has accepted nothing yet.
    pub fn new(limits: IntakeLimits) -> Arc<Intake> {
        // Requests are counted behind the port.
        let names = BudgetNames {
            connections: "connections",
            calls: Some("calls"),
            bodies: Some("bodies"),
            requests: None,
            answers: Some("answers"),
        };
        Self::named(names, limits)
    }

    /// The intake of a port with an own budget of answers.
    pub fn named(names: BudgetNames, limits: IntakeLimits) -> Arc<Intake> {
        let budget = Budget::new(names.answers.unwrap_or("answers"), Unit::Bytes, limits.answer_bytes);
        Self::counting(names, limits, &Arc::new(Answers { budget, readers: Mutex::default() }))
    }

    /// The intake of another port of the same server: limits of its own, and one budget of answers for both.
    pub fn beside(&self, names: BudgetNames, limits: IntakeLimits) -> Arc<Intake> {
        Self::counting(names, limits, &self.answers)
    }

    fn counting(names: BudgetNames, limits: IntakeLimits, answers: &Arc<Answers>) -> Arc<Intake> {
        let connections = Budget::new(names.connections, Unit::Count, limits.connections);
        let of = |name: Option<&'static str>, unit, limit| Budget::new(name.unwrap_or_default(), unit, limit);
        let calls = of(names.calls, Unit::Count, limits.calls);
        let bodies = of(names.bodies, Unit::Bytes, limits.body_bytes);
        let requests = of(names.requests, Unit::Bytes, limits.request_bytes);
        let named = [
            (Some(names.connections), &connections),
            (names.calls, &calls),
            (names.bodies, &bodies),
            (names.requests, &requests),
            (names.answers, &answers.budget),
        ];
        let shown = named.into_iter().filter(|(name, _)| name.is_some()).map(|(_, budget)| budget.clone()).collect();
        Arc::new(Intake {
            connections,
            calls,
            bodies,
            requests,
            answers: answers.clone(),
            shown,
            message_bytes: limits.message_bytes,
            pass: Arc::new(Semaphore::new(1)),
            open_connections: Mutex::default(),
            arriving: Mutex::default(),
        })
    }

    /// Its budgets, for metrics and status.
    pub fn budgets(&self) -> impl Iterator<Item = Arc<Budget>> {
        self.shown.iter().cloned()
    }

    /// Reserves `bytes` for an answer about to be built; `None` if too much waits to be sent. In that case it also closes
    /// connections that do not read their answers.
    #[must_use]
    pub fn answer(&self, bytes: u64) -> Option<Share> {
        let share = self.answers.budget.try_take(bytes);
        if share.is_none() {
            self.answers.close_unread();
        }
        share
    }

    /// Counts an answer that exists already.
    #[must_use]
    pub fn count_answer(&self, bytes: u64) -> Share {
        self.answers.budget.take(bytes)
    }

    /// Grows a share of answers; false if too much waits to be sent.
    #[must_use]
    pub fn grow_answer(&self, share: &mut Share, more: u64) -> bool {
        let grown = share.grow(more);
        if !grown {
            self.answers.close_unread();
        }
        grown
    }

    /// Whether answers have used up their budget.
    pub fn answers_are_full(&self) -> bool {
        let full = self.answers.budget.used() >= self.answers.budget.limit();
        if full {
            self.answers.close_unread();
        }
        full
    }

    /// Whether a connection may have so many more bytes of answers. Once half of the budget is taken, only connections that
    /// have few may, so that those that do not read theirs take nothing from the others; the former half is shared by no rule
    /// but that one connection gets no more than that.
    pub fn may_answer(&self, connection: &Connection, more: u64) -> bool {
        let (used, limit) = (self.answers.budget.used(), self.answers.budget.limit());
        let of_connection = connection.answers().saturating_add(more);
        let crowded = used.saturating_add(more) > limit / 2;
        let most = if crowded { CROWDED_ANSWERS_MAX.min(limit / 2) } else { limit / 2 };
        let may = of_connection <= most || (used == 0 && connection.answers() == 0);
        if !may {
            self.answers.budget.count_refusal();
            self.answers.close_unread();
        }
        may
    }

    /// Bytes of answers that a connection may leave unread and get further calls: less once half of the budget is taken.
    fn unread_max(&self) -> u64 {
        let answers = &self.answers.budget;
        if answers.used() > answers.limit() / 2 { CROWDED_ANSWERS_MAX } else { UNREAD_BYTES_MAX }
    }

    /// Whether a connection has read so much of its answers that it may have further calls.
    pub fn has_read(&self, connection: &Connection) -> bool {
        connection.unsent() <= self.unread_max()
    }

    /// Waits until it has.
    pub async fn until_read(&self, connection: &Connection) {
        connection.eased(self.unread_max()).await;
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

    pub(super) fn arriving(&self) -> &Mutex<Arriving> {
        &self.arriving
    }

    /// Lets unfinished messages that hardly move give way.
    pub(super) fn make_room(&self) {
        self.arriving.lock().make_room(&self.bodies);
    }

    /// The budget of answers.
    pub fn answer_budget(&self) -> &Arc<Budget> {
        &self.answers.budget
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
            connection.begins_call();
        }
        Some(Call { _share: share, request: None, connection: connection.cloned() })
    }

    /// Admits a call of so many bytes that has arrived, within the limits: those of calls, and those of requests.
    pub fn request(&self, connection: &Arc<Connection>, bytes: u64) -> Option<Call> {
        let request = self.requests.try_take(bytes)?;
        let mut call = self.call(Some(connection))?;
        call.request = Some(request);
        Some(call)
    }

    /// Admits a new connection, if there is one to give way at the limit.
    pub fn connect(&self) -> Option<Arc<Connection>> {
        let mut open_connections = self.open_connections.lock();
        let share = match self.connections.try_take(1) {
            Some(share) => share,
            None => close_idlest(&open_connections)?,
        };
        let connection = Arc::new(Connection::new(share, &self.answers.budget));
        let mut readers = self.answers.readers.lock();
        for open in [&mut *open_connections, &mut readers.open] {
            open.retain(|connection| connection.strong_count() > 0);
            open.push(Arc::downgrade(&connection));
        }
        Some(connection)
    }

    /// Closes connections that have had no call for this long.
    pub fn close_idle(&self, idle_max: Duration) {
        let now = Instant::now();
        for connection in self.open_connections.lock().iter().filter_map(Weak::upgrade) {
            if connection.dispensable(now).is_some_and(|(_, idle)| idle >= idle_max) {
                connection.close();
            }
        }
    }
}

impl Answers {
    /// Closes the connections that do not read their answers.
    fn close_unread(&self) {
        let mut readers = self.readers.lock();
        let now = Instant::now();
        if readers.relieved_at.is_some_and(|relieved_at| now.duration_since(relieved_at) < RELIEF_EVERY) {
            return;
        }
        readers.relieved_at = Some(now);
        for connection in readers.open.iter().filter_map(Weak::upgrade) {
            if connection.unsent() > 0 && connection.idle_for(now) >= STUCK_AFTER && !connection.is_closed() {
                tracing::warn!(
                    unsent = connection.unsent(),
                    "closing a connection: its client does not read its answers, and the budget for answers is used up"
                );
                connection.close();
            }
        }
    }
}

/// Closes the connection that is needed least; returns its place.
fn close_idlest(open: &[Weak<Connection>]) -> Option<Share> {
    let now = Instant::now();
    let idle = open.iter().filter_map(Weak::upgrade).filter_map(|connection| {
        let order = connection.dispensable(now)?;
        Some((order, connection))
    });
    let (_, connection) = idle.max_by_key(|(order, _)| *order)?;
    tracing::debug!("closing an idle connection: the server has as many connections as it accepts");
    connection.give_up_place()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::build_answer;

    const NAMES: BudgetNames = BudgetNames {
        connections: "connections of another port",
        calls: Some("its calls"),
        bodies: Some("its bodies"),
        requests: Some("its requests"),
        answers: None,
    };

    fn limits() -> IntakeLimits {
        IntakeLimits { connections: 2, calls: 1, answer_bytes: 100, ..IntakeLimits::default() }
    }

    #[tokio::test]
    async fn beyond_the_limit_the_connection_idle_longest_is_closed() {
        let intake = Intake::new(limits());
        let [busy, idle] = [(); 2].map(|()| intake.connect().unwrap());
        let call = intake.call(Some(&busy)).unwrap();
        assert!(intake.call(Some(&idle)).is_none(), "calls are bounded for the whole server");
        let next = intake.connect().unwrap();
        assert!(idle.is_closed() && !busy.is_closed(), "the next one has the place of the idle one at once");
        drop(call);
        let call = intake.call(Some(&next)).unwrap();
        drop(busy);
        let last = intake.connect().unwrap();
        drop(intake.connect().unwrap());
        assert!(last.is_closed() && !next.is_closed());
        drop((call, idle));
        assert_eq!(intake.budgets().map(|budget| budget.used()).collect::<Vec<_>>(), [1, 0, 0, 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_never_had_a_call_goes_before_one_that_had() {
        let intake = Intake::new(IntakeLimits { calls: 2, ..limits() });
        let client = intake.connect().unwrap();
        drop(intake.call(Some(&client)).unwrap());
        tokio::time::advance(Duration::from_secs(60)).await;
        let silent = intake.connect().unwrap();
        let _next = intake.connect().unwrap();
        assert!(silent.is_closed() && !client.is_closed());
    }

    #[tokio::test]
    async fn when_all_connections_have_calls_no_further_one_is_admitted() {
        let intake = Intake::new(IntakeLimits { calls: 2, ..limits() });
        let open = [(); 2].map(|()| intake.connect().unwrap());
        let _calls = open.each_ref().map(|connection| intake.call(Some(connection)).unwrap());
        assert!(intake.connect().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_are_closed_after_a_time_and_those_with_calls_are_not() {
        let intake = Intake::new(limits());
        let [busy, idle] = [(); 2].map(|()| intake.connect().unwrap());
        let _call = intake.call(Some(&busy)).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        intake.close_idle(Duration::from_secs(61));
        assert!(!idle.is_closed());
        intake.close_idle(Duration::from_secs(60));
        assert!(idle.is_closed() && !busy.is_closed());
    }

    #[tokio::test(start_paused = true)]
    async fn unread_answers_leave_half_of_the_budget_to_others_and_their_connections_are_closed() {
        let limits = IntakeLimits { answer_bytes: 8 << 20, ..limits() };
        let intake = Intake::new(limits);
        let other_port = intake.beside(NAMES, limits);
        let [stuck, other] = [(); 2].map(|()| other_port.connect().unwrap());
        assert!(other_port.may_answer(&stuck, 3 << 20));
        let answer = build_answer(&stuck, 3 << 20);
        assert_eq!(intake.answer_budget().used(), 3 << 20, "both ports count together");
        assert!(!other_port.may_answer(&stuck, 2 << 20), "one connection gets no more than half");
        let answer = answer.built();
        assert!(!other_port.may_answer(&other, 2 << 20), "the second half is for connections with few answers");
        assert!(other_port.may_answer(&other, CROWDED_ANSWERS_MAX));
        tokio::time::advance(STUCK_AFTER).await;
        assert!(!other_port.may_answer(&other, 2 << 20));
        assert!(stuck.is_closed() && !other.is_closed());
        drop(answer);
        assert_eq!((intake.answer_budget().used(), stuck.answers()), (0, 0));
    }

    #[tokio::test]
    async fn calls_that_are_not_answered_count_with_their_bytes() {
        let intake = Intake::new(limits()).beside(NAMES, IntakeLimits { calls: 3, request_bytes: 100, ..limits() });
        let connection = intake.connect().unwrap();
        let mut call = intake.request(&connection, 90).unwrap();
        assert!(intake.request(&connection, 11).is_none());
        call.is_answered();
        let second = intake.request(&connection, 100).unwrap();
        let used = || intake.budgets().map(|budget| budget.used()).collect::<Vec<_>>();
        assert_eq!(used(), [1, 2, 0, 100], "an answered call counts until its answer has left");
        drop((call, second));
        assert_eq!(used(), [1, 0, 0, 0]);
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
