//! Requests of a connection's session, and the answers that belong to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use terrane_env::net::{Answering, build_answer};
use terrane_regionserver::Endpoints;
use terrane_regionserver::edge::{
    Answer, Body, Consistency, Cursor, DEADLINE_DEFAULT, Edge, Mutated, Outgoing, Request, ScanRequest, Session,
    Snapshot,
};
use terrane_types::{Error, RegionEpoch, RegionId, TableName, escape};
use tokio::sync::{mpsc, oneshot};

use super::finish::Finish;
use super::nonces::Nonces;
use super::read_point::View;
use super::region::Region;
use crate::exception::{Context, Exception, NOT_SERVING_REGION};
use crate::proto;
use crate::region_name::parse;
use crate::regions::exception as redirect;
use crate::serve::{Client, Ticket};

/// What waits for the answer to a request.
pub(super) enum Waiter {
    /// A task.
    Task(oneshot::Sender<Counted>),
    /// A call without one.
    Call(Ticket, Finish),
}

/// The answer to a request, and what it occupies as long as it is in memory.
pub(super) type Counted = (Result<Answer, Error>, Option<Answering>);

/// The requests of a connection that have no answer yet.
#[derive(Default)]
struct Awaited {
    last: u64,
    waiters: HashMap<u64, Waiter>,
    /// Made, and not started: those of calls that arrive together are started together, so that they share read points.
    made: Vec<(u64, Result<Request, Error>)>,
    /// A task is about to start them.
    is_taken_care_of: bool,
    /// The connection has ended: nothing takes answers out of the session any more.
    is_closed: bool,
}

/// Answers taken out of a session before the lock of its receiver is released.
const ANSWERS_AT_ONCE: usize = 64;
/// Smaller answers are not counted on their way: the permits of their calls bound them.
const COUNTED_BYTES_MIN: usize = 1 << 10;
/// When a client whose answers have no room tries again.
const ROOM_RETRY: Duration = Duration::from_millis(100);

/// A connection's session.
pub(super) struct Requests {
    edge: Arc<Edge>,
    session: Session<u64>,
    answers: Mutex<mpsc::Receiver<Outgoing<u64>>>,
    awaited: Mutex<Awaited>,
    endpoints: Arc<Endpoints>,
    client: Client,
    /// Cells are returned with their times to live.
    with_ttl: bool,
}

/// A request that may be abandoned: then nothing waits for its answer any more.
struct Waiting<'a> {
    requests: &'a Requests,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.requests.awaited.lock().waiters.remove(&self.id);
    }
}

impl Awaited {
    fn make(&mut self, request: Request, waiter: Waiter) -> u64 {
        self.last += 1;
        self.waiters.insert(self.last, waiter);
        self.made.push((self.last, Ok(request)));
        self.last
    }
}

impl Requests {
    pub fn open(edge: Arc<Edge>, endpoints: Arc<Endpoints>, client: Client, with_ttl: bool) -> Self {
        let (session, answers) = Session::open(edge.clone());
        Self { edge, session, answers: Mutex::new(answers), awaited: Mutex::default(), endpoints, client, with_ttl }
    }

    /// Counts so many bytes of an answer that is being built.
    pub fn build(&self, bytes: usize) -> Answering {
        build_answer(&self.client.connection, bytes as u64)
    }

    /// Counts an answer that has come; one for which the connection has no room is given up, and read again later.
    fn counted(&self, answer: Result<Answer, Error>) -> Counted {
        let bytes = answer.as_ref().map_or(0, Answer::bytes);
        if bytes < COUNTED_BYTES_MIN {
            return (answer, None);
        }
        // What was written cannot be taken back.
        let is_read = !matches!(answer, Ok(Answer::Mutated { .. }));
        if is_read && !self.client.intake.may_answer(&self.client.connection, bytes as u64) {
            return (Err(Error::Busy { retry_after: ROOM_RETRY }), None);
        }
        (answer, Some(self.build(bytes)))
    }

    /// Adds the request of a call without a task. [`Requests::start_made`] starts it.
    pub fn add(&self, request: Request, ticket: Ticket, finish: Finish) {
        let mut awaited = self.awaited.lock();
        // A call that comes after the end is answered to no one.
        if !awaited.is_closed {
            awaited.make(request, Waiter::Call(ticket, finish));
        }
    }

    /// Takes answers: those of tasks go to them, the others to `finish`. The task that polls is woken when more are there.
    pub fn poll_answers(
        &self,
        context: &mut TaskContext<'_>,
        mut finish: impl FnMut(Ticket, Finish, Result<Answer, Error>),
    ) {
        let mut taken = Vec::new();
        loop {
            let polled = self.answers.lock().poll_recv_many(context, &mut taken, ANSWERS_AT_ONCE);
            let Poll::Ready(1..) = polled else { return };
            for outgoing in taken.drain(..) {
                let (id, answer, _schema_news) = outgoing.take();
                let waiter = self.awaited.lock().waiters.remove(&id);
                let (answer, held) = self.counted(answer);
                match waiter {
                    Some(Waiter::Call(ticket, call)) => finish(ticket, call, answer),
                    // A task that has gone needs no answer.
                    Some(Waiter::Task(waiting)) => drop(waiting.send((answer, held))),
                    None => {}
                }
            }
        }
    }

    /// Nothing takes answers any more: tasks that wait for some are told so, and those that come later.
    pub fn close(&self) {
        let mut awaited = self.awaited.lock();
        awaited.is_closed = true;
        let left = (std::mem::take(&mut awaited.waiters), std::mem::take(&mut awaited.made));
        drop(awaited);
        drop(left);
    }

    /// The nonces of a call of this group.
    pub fn nonces(&self, group: Option<u64>) -> Nonces {
        Nonces { group: group.unwrap_or(0) }
    }

    /// The region of a call.
    pub fn region(
        &self,
        named: Option<&proto::RegionSpecifier>,
        timeout: Option<Duration>,
    ) -> Result<Region, Exception> {
        let named = named.ok_or_else(|| Exception::bad_request("the request names no region"))?;
        let unknown =
            || Exception::new(NOT_SERVING_REGION, format!("region {} is not served here", escape(&named.value)));
        let parts = parse(&named.value).ok_or_else(unknown)?;
        let (descriptor, schema) = self.edge.region(parts.region).ok_or_else(unknown)?;
        if parts.start != &descriptor.range.start[..] || !is_named(&schema.name, parts.table) {
            return Err(unknown());
        }
        let deadline = timeout.unwrap_or(DEADLINE_DEFAULT);
        Ok(Region { descriptor, schema, deadline, with_ttl: self.with_ttl })
    }

    /// The view of a scanner of a region, which sees this snapshot.
    pub fn view(&self, region: &Region, held: Snapshot) -> View {
        View::new(self.edge.clone(), region.descriptor.region, held)
    }

    /// The regions whose sequence numbers mean the same in this one.
    pub fn numbered_as(&self, region: &Region) -> Vec<RegionId> {
        self.edge.numbered_as(region.descriptor.region)
    }

    /// Carries requests out; `take` gets the answers as they come, each with its request's place. Writes are made in their
    /// order.
    pub async fn carry_out(&self, requests: Vec<Request>, mut take: impl FnMut(usize, Counted)) {
        let mut under_way = FuturesUnordered::new();
        {
            let mut awaited = self.awaited.lock();
            if awaited.is_closed {
                let not_tried = || (Err(Error::Uncertain { not_tried: true }), None);
                return (0..requests.len()).for_each(|at| take(at, not_tried()));
            }
            for (at, request) in requests.into_iter().enumerate() {
                let (sender, receiver) = oneshot::channel();
                let id = awaited.make(request, Waiter::Task(sender));
                let waiting = Waiting { requests: self, id };
                under_way.push(async move {
                    let _waiting = waiting;
                    (at, receiver.await.unwrap_or_else(|_| (Err(Error::Uncertain { not_tried: false }), None)))
                });
            }
        }
        self.start().await;
        while let Some((at, answer)) = under_way.next().await {
            take(at, answer);
        }
    }

    /// Starts what was made, together with what the tasks make that run before this one does again.
    async fn start(&self) {
        if std::mem::replace(&mut self.awaited.lock().is_taken_care_of, true) {
            return;
        }
        // A call's task runs to its end, so what is made is always started.
        tokio::task::yield_now().await;
        self.awaited.lock().is_taken_care_of = false;
        self.start_made().await;
    }

    /// Starts what was made.
    pub async fn start_made(&self) {
        let made = std::mem::take(&mut self.awaited.lock().made);
        if !made.is_empty() {
            self.session.start(made).await;
        }
    }

    /// Carries one request out.
    pub async fn one(&self, request: Request) -> Counted {
        let mut answer = (Err(Error::Uncertain { not_tried: true }), None);
        self.carry_out(vec![request], |_, came| answer = came).await;
        answer
    }

    /// The packed rows of an answer to a read.
    pub fn rows(&self, epoch: RegionEpoch, answer: Result<Answer, Error>) -> Result<Bytes, Exception> {
        match answer {
            Ok(Answer::Rows { rows, .. }) => Ok(rows.into()),
            other => Err(self.unexpected(epoch, other, true)),
        }
    }

    /// What an answer to a write says.
    pub fn mutated(
        &self,
        epoch: RegionEpoch,
        answer: Result<Answer, Error>,
        repeatable: bool,
    ) -> Result<Mutated, Exception> {
        match answer {
            Ok(Answer::Mutated(mutated)) => Ok(mutated),
            other => Err(self.unexpected(epoch, other, repeatable)),
        }
    }

    /// A redirect names the place of the leader of the region, which the client has seen at this epoch.
    fn unexpected(&self, epoch: RegionEpoch, answer: Result<Answer, Error>, repeatable: bool) -> Exception {
        match answer {
            Err(error) => redirect(&error, repeatable, &self.endpoints, Some(epoch)),
            Ok(_) => Exception::bad_request("the server answered another kind of request"),
        }
    }

    /// The next block of a scan. One that holds its view needs nothing that was written since: any member of the region's group may
    /// answer, so that the scan goes on here when another one leads.
    pub async fn block(
        &self,
        region: &Region,
        scan: Arc<ScanRequest>,
        cursor: Cursor,
        holds_view: bool,
    ) -> Result<(Box<terrane_regionserver::edge::Block>, Option<Answering>), Exception> {
        let mut header = region.header();
        if holds_view {
            header.consistency = Consistency::Stale;
        }
        let request = Request { header, body: Body::Scan(Box::new((scan, cursor))) };
        match self.one(request).await {
            (Ok(Answer::Block { block, .. }), held) => Ok((block, held)),
            (other, _) => Err(self.unexpected(region.descriptor.epoch, other, true)),
        }
    }
}

/// The exception of an error of the data path that no redirect is.
pub(super) fn exception(error: &Error, repeatable: bool) -> Exception {
    Exception::of(error, &Context { repeatable, master: false, place: &|_| None })
}

/// Whether these are the bytes of a table's name, as HBase writes it.
fn is_named(table: &TableName, bytes: &[u8]) -> bool {
    if table.namespace() == TableName::DEFAULT_NAMESPACE {
        return bytes == table.table().as_bytes();
    }
    let rest = bytes.strip_prefix(table.namespace().as_bytes()).and_then(|rest| rest.strip_prefix(b":"));
    rest == Some(table.table().as_bytes())
}
