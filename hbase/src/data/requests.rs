//! Requests of a connection's session, and the answers that belong to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_regionserver::HbasePlaces;
use terrane_regionserver::edge::{
    Answer, Body, ClientId, Consistency, Cursor, DEADLINE_DEFAULT, Edge, GetRequest, Header, Mutated, Mutation,
    NONCE_CLIENT, Request, ScanRequest, Session,
};
use terrane_types::{Error, RegionDescriptor, RegionEpoch, TableSchema, escape};
use tokio::sync::oneshot;

use super::nonces::Nonces;
use crate::exception::{Context, Exception, NO_SUCH_FAMILY, NOT_SERVING_REGION, WRONG_REGION};
use crate::proto;
use crate::region_name::parse;
use crate::regions::exception as redirect;

/// A region that a call names, as it is here.
#[derive(Clone)]
pub(super) struct Region {
    pub descriptor: RegionDescriptor,
    pub schema: Arc<TableSchema>,
    pub deadline: Duration,
}

impl Region {
    /// A write of this region. `exact` makes it depend on the schema that it was made for.
    pub fn write(&self, mutation: Mutation, exact: bool) -> Request {
        let is_numbered = mutation.rows.iter().any(|row| row.operation != 0);
        let client = if is_numbered { NONCE_CLIENT } else { ClientId::default() };
        let header = Header { exact_schema: exact, client, ..self.header() };
        Request { header, body: Body::Mutate(mutation), messages: false }
    }

    /// A read of rows of this region by key.
    pub fn read(&self, get: GetRequest) -> Request {
        Request { header: self.header(), body: Body::Get(get), messages: false }
    }

    fn header(&self) -> Header {
        Header {
            table: self.descriptor.table,
            region: self.descriptor.region,
            epoch: self.descriptor.epoch,
            schema_version: self.schema.version,
            exact_schema: false,
            deadline: self.deadline,
            client: Default::default(),
            lowest_unsettled: 0,
            consistency: Consistency::Linearizable,
            trace: None,
        }
    }

    /// The client looks for the row's region again.
    pub fn check_row(&self, row: &[u8]) -> Result<(), Exception> {
        if self.descriptor.range.contains(row) {
            return Ok(());
        }
        let text = format!("row {} is not in region {}", escape(row), self.descriptor.region);
        Err(Exception::new(WRONG_REGION, text))
    }

    pub fn check_family(&self, family: &[u8]) -> Result<(), Exception> {
        match self.schema.known_family(family) {
            Ok(_) => Ok(()),
            Err(unknown) => Err(Exception::new(NO_SUCH_FAMILY, unknown.what)),
        }
    }
}

/// The requests whose answers are awaited, by their numbers.
type Awaited = Mutex<HashMap<u64, oneshot::Sender<Result<Answer, Error>>>>;

/// A connection's session.
pub(super) struct Requests {
    edge: Arc<Edge>,
    session: Session,
    next: AtomicU64,
    waiting: Arc<Awaited>,
    pending: Mutex<Pending>,
    places: Arc<HbasePlaces>,
}

/// Requests of calls that have arrived together. The first of these calls starts them all, so that they share read points.
#[derive(Default)]
struct Pending {
    batch: Vec<(u64, Result<Request, Error>)>,
    /// A call is about to start them.
    is_taken_care_of: bool,
}

/// A request that may be abandoned: then nothing waits for its answer any more.
struct Waiting<'a> {
    requests: &'a Requests,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.requests.waiting.lock().remove(&self.id);
    }
}

impl Requests {
    pub fn open(edge: Arc<Edge>, places: Arc<HbasePlaces>) -> Self {
        let (session, mut answers) = Session::open(edge.clone());
        let waiting: Arc<Awaited> = Arc::default();
        let theirs = waiting.clone();
        // Ends with the session.
        terrane_env::task::spawn_named("hbase answers", async move {
            while let Some(outgoing) = answers.recv().await {
                let (id, answer, _schema_news) = outgoing.take();
                let waiting = theirs.lock().remove(&id);
                // A call that has gone needs no answer.
                waiting.map(|waiting| waiting.send(answer));
            }
        });
        Self { edge, session, next: AtomicU64::new(1), waiting, pending: Mutex::default(), places }
    }

    /// How the nonces of a call of this group are recorded.
    pub fn nonces(&self, group: Option<u64>) -> Nonces {
        Nonces { group: self.edge.keeps_nonces().then(|| group.unwrap_or(0)) }
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
        if parts.start != &descriptor.range.start[..] || parts.table != schema.name.to_string().as_bytes() {
            return Err(unknown());
        }
        Ok(Region { descriptor, schema, deadline: timeout.unwrap_or(DEADLINE_DEFAULT) })
    }

    /// Carries requests out; the answers come in the same order. Writes are made in their order.
    pub async fn carry_out(&self, requests: Vec<Request>) -> Vec<Result<Answer, Error>> {
        let (mut batch, mut receivers) = (Vec::with_capacity(requests.len()), Vec::with_capacity(requests.len()));
        {
            let mut waiting = self.waiting.lock();
            for request in requests {
                let id = self.next.fetch_add(1, Ordering::Relaxed);
                let (sender, receiver) = oneshot::channel();
                waiting.insert(id, sender);
                batch.push((id, Ok(request)));
                receivers.push((Waiting { requests: self, id }, receiver));
            }
        }
        self.start(batch).await;
        let mut answers = Vec::with_capacity(receivers.len());
        for (_waiting, receiver) in receivers {
            let lost = || Err(Error::Uncertain { not_tried: false });
            answers.push(receiver.await.unwrap_or_else(|_| lost()));
        }
        answers
    }

    /// Starts requests together with those of the calls that run before this one does again.
    async fn start(&self, batch: Vec<(u64, Result<Request, Error>)>) {
        {
            let mut pending = self.pending.lock();
            pending.batch.extend(batch);
            if std::mem::replace(&mut pending.is_taken_care_of, true) {
                return;
            }
        }
        // A call's task runs to its end, so what is pending is always started.
        tokio::task::yield_now().await;
        let batch = {
            let mut pending = self.pending.lock();
            pending.is_taken_care_of = false;
            std::mem::take(&mut pending.batch)
        };
        self.session.start(batch).await;
    }

    /// Carries one request out.
    pub async fn one(&self, request: Request) -> Result<Answer, Error> {
        self.carry_out(vec![request]).await.pop().unwrap_or(Err(Error::Uncertain { not_tried: true }))
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
            Ok(Answer::Mutated { mutated, .. }) => Ok(mutated),
            other => Err(self.unexpected(epoch, other, repeatable)),
        }
    }

    /// A redirect names the place of the leader of the region, which the client has seen at this epoch.
    fn unexpected(&self, epoch: RegionEpoch, answer: Result<Answer, Error>, repeatable: bool) -> Exception {
        match answer {
            Err(error) => redirect(&error, repeatable, &self.places, Some(epoch)),
            Ok(_) => Exception::bad_request("the server answered another kind of request"),
        }
    }

    /// The next block of a scan.
    pub async fn block(
        &self,
        region: &Region,
        scan: Arc<ScanRequest>,
        cursor: Cursor,
    ) -> Result<Box<terrane_regionserver::edge::Block>, Exception> {
        let request = Request { header: region.header(), body: Body::Scan(Box::new((scan, cursor))), messages: false };
        match self.one(request).await {
            Ok(Answer::Block { block, .. }) => Ok(block),
            other => Err(self.unexpected(region.descriptor.epoch, other, true)),
        }
    }
}

/// The exception of an error of the data path that no redirect is.
pub(super) fn exception(error: &Error, repeatable: bool) -> Exception {
    Exception::of(error, &Context { repeatable, master: false, place: &|_| None })
}
