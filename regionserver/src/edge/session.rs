//! The long-lived stream of one client: batches of requests in, answers out in whatever order they are ready.
//!
//! Requests of one batch never wait for each other. Writes go to their logs one after another without an await, or, while
//! the server slows writes down, through a queue of their own. Reads of a batch are grouped by log group and consistency:
//! one task and one read point for all of a group. Answers meet in one bounded queue, from which the translator takes as
//! many as are ready for its next message, so answers form batches under load.
//!
//! What a client may have in flight is counted in units (a scan weighs as much as the block it may return). A unit is
//! returned when its answer has left, so a client that does not read its answers is soon not read from either, and the
//! queue of answers never exceeds its bound. An answer may be far larger than its request suggested; so while answers of
//! more than [`WAITING_BYTES_MAX`] wait to leave, no further read begins. All answers of the server share one budget
//! (`env::net::Intake`); while it is used up, reads are answered `Busy`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt};
use terrane_env::budget::Share;
use terrane_env::time::now_ns;
use terrane_types::{Error, GroupId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

use super::{Answer, Body, Bulk, Edge, Header, Mutation, Request, Watch};
use crate::edge::consistency::{Consistency, ReadTime};
use crate::group::proposal::Group;
use crate::region::read::{DiskGet, Got, ROOM_RETRY};
use crate::region::scan;

/// Units in flight on one stream, and so the bound of its queue of answers.
pub const UNITS_MAX: u32 = 8192;
/// Bytes of a scan's block that weigh one unit; writes and gets weigh one.
const BYTES_PER_UNIT: usize = 16 << 10;
/// Bytes of answers that wait to leave, above which no read begins. What is being read then comes on top.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How long a caller waits whose write found the queue full.
const QUEUE_RETRY: Duration = Duration::from_millis(10);
/// Scans, and gets that wait for the disk, that run concurrently for one batch and group.
const READS_AT_ONCE: usize = 16;
/// Gets answered from memory between two yields to other tasks, and how many gets a scan that begins there counts for: its
/// first slice takes about as long.
const GETS_PER_YIELD: u32 = 64;
const GETS_PER_SCAN: u32 = 16;
/// Reads of a batch that are run where the batch is started, as far as that goes without waiting: most find a lease and their
/// rows in memory, and take less time than a task and the wake-up of its thread.
const READS_BEGUN_MAX: usize = 32;

/// An answer on its way out; its units are returned when it is dropped.
pub struct Outgoing<K> {
    pub key: K,
    pub answer: Result<Answer, Error>,
    slot: Slot,
}

/// What a request occupies until its answer has left: units of its stream and shares of budgets.
struct Slot {
    _units: OwnedSemaphorePermit,
    /// The bytes of its answer, counted among those that wait.
    waiting: Option<(Arc<Waiting>, usize)>,
    /// Its share of the server's budget of answers.
    share: Option<Share>,
    /// A version of the table's schema that is news to the client; 0: no news.
    schema_news: u64,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some((waiting, bytes)) = self.waiting.take() {
            waiting.left(bytes);
        }
    }
}

/// Answers of one stream that have not left yet.
#[derive(Default)]
struct Waiting {
    bytes: AtomicUsize,
    eased: Notify,
}

impl Waiting {
    fn left(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if before > WAITING_BYTES_MAX {
            self.eased.notify_waiters();
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Acquire) > WAITING_BYTES_MAX
    }

    /// Waits until few enough bytes wait. A client that has gone counts no more: its answers are dropped.
    async fn ease(&self) {
        while self.is_full() {
            // Created before looking again: what leaves in between wakes it.
            let eased = self.eased.notified();
            if self.is_full() {
                eased.await;
            }
        }
    }
}

impl<K> Outgoing<K> {
    /// Returns the units; yields the answer and the schema version that is news to the client.
    pub fn take(self) -> (K, Result<Answer, Error>, u64) {
        let schema_news = self.slot.schema_news;
        // From here on the transport counts it, as soon as it is encoded.
        drop(self.slot);
        (self.key, self.answer, schema_news)
    }
}

/// One client's stream. Its translator knows each request by a key, which comes back with the answer.
pub struct Session<K> {
    edge: Arc<Edge>,
    waiting: Arc<Waiting>,
    answers: mpsc::Sender<Outgoing<K>>,
    units: Arc<Semaphore>,
    writes: Writes<K>,
}

/// The writes of one stream, in the order they came. Under pressure they wait a little before they are proposed; later ones
/// queue up after them, so that no write passes an earlier one of its stream.
struct Writes<K> {
    edge: Arc<Edge>,
    answers: mpsc::Sender<Outgoing<K>>,
    queue: mpsc::Sender<Queued<K>>,
    /// Writes in the queue, not proposed yet. Only this stream adds to it.
    queued: Arc<AtomicUsize>,
}

/// A write that waits.
struct Queued<K> {
    arrived: Instant,
    due: Instant,
    write: Write<K>,
    /// Its share of the bytes that may wait.
    _share: Share,
}

struct Write<K> {
    key: K,
    header: Header,
    mutation: Mutation,
    slot: Slot,
    arrived_ns: u64,
}

impl<K: Send + 'static> Writes<K> {
    /// Each write holds a unit, so a queue of `units` is never full.
    fn open(edge: Arc<Edge>, answers: mpsc::Sender<Outgoing<K>>, units: usize) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Queued<K>>(units);
        let queued = Arc::new(AtomicUsize::new(0));
        let writes = Self { edge, answers, queue, queued };
        let (edge, answers, queued) = (writes.edge.clone(), writes.answers.clone(), writes.queued.clone());
        writes.edge.sessions.spawn(async move {
            // Ends when the stream has ended and everything queued is proposed.
            while let Some(Queued { arrived, due, write, _share }) = waiting.recv().await {
                tokio::time::sleep_until(due).await;
                let deadline = write.header.deadline;
                edge.admission.wait(arrived, deadline).await;
                if arrived.elapsed() < deadline {
                    propose(&edge, &answers, write);
                } else {
                    // Its caller has given up: working on it would take time from those that wait after it.
                    send(&answers, write.key, Err(Error::DeadlineExceeded), write.slot);
                }
                // Only now: a write that finds none queued is proposed at once.
                queued.fetch_sub(1, Ordering::Release);
            }
        });
        writes
    }

    fn take(&self, write: Write<K>) {
        let delay = self.edge.admission.delay();
        let admission = &self.edge.admission;
        let waits = delay.is_some() || terrane_env::buggify!("a write waits for no reason");
        if !waits && !admission.is_full() && self.queued.load(Ordering::Acquire) == 0 {
            propose(&self.edge, &self.answers, write);
            return;
        }
        let share = match admission.queue(write.mutation.bytes()) {
            Ok(share) => share,
            Err(busy) => return send(&self.answers, write.key, Err(busy), write.slot),
        };
        self.queued.fetch_add(1, Ordering::Relaxed);
        let arrived = Instant::now();
        let queued = Queued { arrived, due: arrived + delay.unwrap_or_default(), write, _share: share };
        if let Err(refused) = self.queue.try_send(queued) {
            let Write { key, slot, .. } = refused.into_inner().write;
            self.queued.fetch_sub(1, Ordering::Relaxed);
            tracing::error!("a session's queue of writes is full, which its units should prevent");
            send(&self.answers, key, Err(Error::Busy { retry_after: QUEUE_RETRY }), slot);
        }
    }
}

fn propose<K: Send + 'static>(edge: &Arc<Edge>, answers: &mpsc::Sender<Outgoing<K>>, write: Write<K>) {
    let Write { key, header, mutation, slot, arrived_ns } = write;
    let answers = answers.clone();
    edge.mutate(&header, mutation, arrived_ns, move |outcome| {
        send(&answers, key, outcome.map(Answer::Mutated), slot);
    });
}

/// A read that waits for its group's read point.
struct Read<K> {
    key: K,
    request: Request,
    slot: Slot,
}

/// The reads of a batch, by what they can share a read point with.
type Reads<K> = BTreeMap<(GroupId, Consistency), (Group, Vec<Read<K>>)>;

impl<K: Send + 'static> Session<K> {
    /// Opens a session; its answers come out of the receiver.
    pub fn open(edge: Arc<Edge>) -> (Self, mpsc::Receiver<Outgoing<K>>) {
        let units = usize::try_from(UNITS_MAX).expect("a small number");
        let (answers, receiver) = mpsc::channel(units);
        let writes = Writes::open(edge.clone(), answers.clone(), units);
        let (units, waiting) = (Arc::new(Semaphore::new(units)), Arc::default());
        (Self { edge, waiting, answers, units, writes }, receiver)
    }

    /// Starts every request of a batch. Waits only when the client has too much in flight.
    pub async fn start(&self, batch: Vec<(K, Result<Request, Error>)>) {
        let (arrived, arrived_ns) = (Instant::now(), now_ns());
        let mut reads = Reads::new();
        // A batch of many requests names few tables: news of one are given once.
        let mut told = None;
        for (key, request) in batch {
            let units = self.acquire_units(request.as_ref().ok(), &mut reads, (arrived, arrived_ns)).await;
            let header = request.as_ref().ok().map(|request| request.header);
            let header = header.filter(|header| told.replace(header.table) != Some(header.table));
            let schema_news = header.map_or(0, |header| self.edge.schema_news(&header));
            let slot = Slot { _units: units, waiting: Some((self.waiting.clone(), 0)), share: None, schema_news };
            match request {
                Err(error) => self.answer(key, Err(error), slot),
                Ok(request) if arrived.elapsed() > request.header.deadline => {
                    self.answer(key, Err(Error::DeadlineExceeded), slot);
                }
                Ok(Request { header, body: Body::Mutate(mutation) }) => {
                    self.writes.take(Write { key, header, mutation, slot, arrived_ns })
                }
                Ok(Request { header, body: Body::Bulk(bulk) }) => self.start_bulk(key, header, *bulk, slot),
                Ok(Request { body: Body::SealPage(page), .. }) => {
                    let (binding, positions) = *page;
                    self.answer(key, self.edge.page_seal.seal(&binding, &positions).map(Answer::Sealed), slot);
                }
                Ok(Request { body: Body::OpenPage(page), .. }) => {
                    let (binding, token) = *page;
                    self.answer(key, self.edge.page_seal.open(&binding, token).map(Answer::Opened), slot);
                }
                Ok(request) => self.collect(Read { key, request, slot }, &mut reads),
            }
        }
        self.start_reads(&mut reads, (arrived, arrived_ns));
        // The next batch may read as much as this one.
        self.waiting.ease().await;
    }

    /// Units for a request. Before waiting for some, the reads collected so far are started: they hold units themselves.
    async fn acquire_units(
        &self,
        request: Option<&Request>,
        reads: &mut Reads<K>,
        arrived: (Instant, u64),
    ) -> OwnedSemaphorePermit {
        let units = weight(request);
        if let Ok(slot) = self.units.clone().try_acquire_many_owned(units) {
            return slot;
        }
        self.start_reads(reads, arrived);
        self.units.clone().acquire_many_owned(units).await.expect("the semaphore is never closed")
    }

    fn collect(&self, read: Read<K>, reads: &mut Reads<K>) {
        match self.edge.find(&read.request.header) {
            Ok((hosted, group)) => {
                let key = (hosted.group, self.edge.consistency(&hosted, read.request.header.consistency));
                reads.entry(key).or_insert_with(|| (group, Vec::new())).1.push(read);
            }
            Err(error) => {
                self.edge.metrics.refused.inc();
                self.answer(read.key, Err(error), read.slot);
            }
        }
    }

    fn start_reads(&self, reads: &mut Reads<K>, arrived: (Instant, u64)) {
        let count: usize = reads.values().map(|(_, reads)| reads.len()).sum();
        for ((_, consistency), (group, reads)) in std::mem::take(reads) {
            let (edge, answers, waiting) = (self.edge.clone(), self.answers.clone(), self.waiting.clone());
            let run = async move {
                run_reads(&edge, &group, consistency, reads, (&answers, &waiting), arrived).await;
            };
            let run = self.edge.tasks.track_future(run);
            if count > terrane_env::limit!("reads begun without a task", READS_BEGUN_MAX, 0..=2) {
                tokio::spawn(run);
                continue;
            }
            let mut run = Box::pin(run);
            if run.as_mut().now_or_never().is_none() {
                tokio::spawn(run);
            }
        }
    }

    /// Parts of bulk loads wait for their pace, and commits for other servers. They hold up nothing else.
    fn start_bulk(&self, key: K, header: Header, bulk: Bulk, slot: Slot) {
        let (edge, answers) = (self.edge.clone(), self.answers.clone());
        self.edge.tasks.spawn(async move {
            let mut watch = Watch::bulk(&edge, &header, now_ns());
            watch.begins(&edge, 0);
            let answer = edge.bulk(&header, bulk).await;
            watch.ended(&edge, answer.as_ref().err());
            finish(&edge, &answers, key, answer, slot);
        });
    }

    fn answer(&self, key: K, answer: Result<Answer, Error>, slot: Slot) {
        send(&self.answers, key, answer, slot);
    }
}

fn weight(request: Option<&Request>) -> u32 {
    match request {
        Some(Request { body: Body::Scan(scan), .. }) => {
            let units = (scan.0.block_bytes / BYTES_PER_UNIT).max(1);
            u32::try_from(units).unwrap_or(UNITS_MAX).min(UNITS_MAX)
        }
        _ => 1,
    }
}

/// Takes one read point for all reads of a group, then runs each of them. What memory can answer comes first, including
/// scans for a few rows; the rest, longer scans and what needs the disk, runs concurrently.
async fn run_reads<K>(
    edge: &Arc<Edge>,
    group: &Group,
    consistency: Consistency,
    reads: Vec<Read<K>>,
    (answers, waiting): (&mpsc::Sender<Outgoing<K>>, &Waiting),
    (arrived, arrived_ns): (Instant, u64),
) {
    // The most patient read decides how long to wait; the others are answered that late at worst.
    let deadline = reads.iter().map(|read| read.request.header.deadline).max().unwrap_or_default();
    let began_ns = now_ns();
    let point = edge.read_point(group, consistency, deadline.saturating_sub(arrived.elapsed())).await;
    let read_point_ns = now_ns().saturating_sub(began_ns);
    let time = match point {
        Ok(time) => time,
        Err(error) => {
            for Read { key, slot, .. } in reads {
                finish(edge, answers, key, Err(error.clone()), slot);
            }
            return;
        }
    };
    terrane_env::buggify_pause!("a read waits after its read point").await;
    let mut rest = Vec::new();
    let mut since_yield = 0;
    for Read { key, request, slot } in reads {
        waiting.ease().await;
        since_yield += if matches!(request.body, Body::Scan(_)) { GETS_PER_SCAN } else { 1 };
        if edge.intake.answers_are_full() {
            finish(edge, answers, key, Err(Error::Busy { retry_after: ROOM_RETRY }), slot);
            continue;
        }
        let mut watch = watch(edge, &request, arrived_ns);
        if let Some(watch) = &mut watch {
            watch.begins(edge, read_point_ns);
        }
        match begin_read(edge, request, time) {
            Begun::Done(answer) => finish_watched(edge, answers, key, answer, (slot, watch)),
            Begun::Rest(read) => rest.push((key, read, (slot, watch))),
        }
        if since_yield >= terrane_env::limit!("gets between two yields", GETS_PER_YIELD, 1..=4) {
            since_yield = 0;
            tokio::task::yield_now().await;
        }
    }
    let mut under_way = FuturesUnordered::new();
    let mut rest = rest.into_iter();
    loop {
        if under_way.is_empty() {
            waiting.ease().await;
        }
        if under_way.len() < terrane_env::limit!("reads of a batch at once", READS_AT_ONCE, 1..=2)
            && !waiting.is_full()
            && let Some((key, read, end)) = rest.next()
        {
            under_way.push(async move { (key, end_read(edge, read, time).await, end) });
            continue;
        }
        let Some((key, answer, end)) = under_way.next().await else {
            match rest.len() {
                0 => return,
                _ => continue,
            }
        };
        finish_watched(edge, answers, key, answer, end);
    }
}

fn watch(edge: &Edge, request: &Request, arrived_ns: u64) -> Option<Watch> {
    match &request.body {
        Body::Get(get) => Some(Watch::get(edge, &request.header, get, arrived_ns)),
        Body::Scan(scan) => Some(Watch::scan(edge, &request.header, &scan.0, arrived_ns)),
        Body::Mutate(_) | Body::Bulk(_) | Body::SealPage(_) | Body::OpenPage(_) => None,
    }
}

fn finish_watched<K>(
    edge: &Edge,
    answers: &mpsc::Sender<Outgoing<K>>,
    key: K,
    answer: Result<Answer, Error>,
    (slot, watch): (Slot, Option<Watch>),
) {
    if let Some(watch) = watch {
        watch.ended(edge, answer.as_ref().err());
    }
    finish(edge, answers, key, answer, slot);
}

/// How far a read gets without waiting.
enum Begun {
    Done(Result<Answer, Error>),
    Rest(Unfinished),
}

enum Unfinished {
    Get(Box<DiskGet>),
    Scan { rest: Box<scan::Unfinished>, reverse: bool },
}

fn begin_read(edge: &Edge, request: Request, time: ReadTime) -> Begun {
    let Request { header, body } = request;
    match body {
        Body::Get(get) => match edge.get(&header, &get, time.now_ms) {
            Ok(Got::Rows(rows)) => Begun::Done(Ok(Answer::Rows { rows, as_of_ms: time.as_of_ms })),
            Ok(Got::NeedsDisk(rest)) => Begun::Rest(Unfinished::Get(rest)),
            Err(error) => Begun::Done(Err(error)),
        },
        Body::Scan(scan) => {
            let (scan, cursor) = *scan;
            let (reverse, as_of_ms) = (scan.reverse, time.as_of_ms);
            match edge.begin_scan(&header, &scan, cursor, time.now_ms) {
                Ok(scan::Begun::Done(block)) => Begun::Done(Ok(Answer::Block { block, reverse, as_of_ms })),
                Ok(scan::Begun::Rest(rest)) => Begun::Rest(Unfinished::Scan { rest, reverse }),
                Err(error) => Begun::Done(Err(error)),
            }
        }
        Body::Mutate(_) | Body::Bulk(_) | Body::SealPage(_) | Body::OpenPage(_) => {
            Begun::Done(Err(Error::Internal { message: "a request among the reads that is not a read".to_owned() }))
        }
    }
}

async fn end_read(edge: &Edge, read: Unfinished, time: ReadTime) -> Result<Answer, Error> {
    let as_of_ms = time.as_of_ms;
    match read {
        Unfinished::Get(rest) => Ok(Answer::Rows { rows: rest.finish(&edge.intake).await?, as_of_ms }),
        Unfinished::Scan { rest, reverse } => {
            let block = edge.end_scan(*rest).await?;
            Ok(Answer::Block { block: Box::new(block), reverse, as_of_ms })
        }
    }
}

fn finish<K>(edge: &Edge, answers: &mpsc::Sender<Outgoing<K>>, key: K, answer: Result<Answer, Error>, mut slot: Slot) {
    match &answer {
        Ok(answer) => slot.share = Some(edge.intake.count_answer(answer.bytes() as u64)),
        Err(_) => {
            edge.metrics.refused.inc();
        }
    }
    send(answers, key, answer, slot);
}

/// Every answer in the queue holds at least one unit, so the queue is never full. A client that went away gets nothing.
fn send<K>(answers: &mpsc::Sender<Outgoing<K>>, key: K, answer: Result<Answer, Error>, mut slot: Slot) {
    if let (Ok(answer), Some((waiting, bytes))) = (&answer, &mut slot.waiting) {
        *bytes = answer.bytes();
        waiting.bytes.fetch_add(*bytes, Ordering::AcqRel);
    }
    if let Err(mpsc::error::TrySendError::Full(_)) = answers.try_send(Outgoing { key, answer, slot }) {
        tracing::error!("a session's queue of answers is full, which its units should prevent");
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn reads_wait_while_answers_of_too_many_bytes_have_not_left() {
        let free = Arc::new(Semaphore::new(2));
        let (answers, mut queue) = mpsc::channel(2);
        let waiting = Arc::<Waiting>::default();
        let answer = |bytes| Answer::Rows { rows: vec![0; bytes], as_of_ms: 0 };
        for bytes in [WAITING_BYTES_MAX, 1] {
            assert!(waiting.ease().now_or_never().is_some(), "as much as may wait is not too much");
            let units = free.clone().try_acquire_owned().unwrap();
            let slot = Slot { _units: units, waiting: Some((waiting.clone(), 0)), share: None, schema_news: 0 };
            send(&answers, 1, Ok(answer(bytes)), slot);
        }
        let mut ease = Box::pin(waiting.ease());
        assert!((&mut ease).now_or_never().is_none());
        // An answer no longer counts when it leaves, or when its receiver is gone.
        drop(queue.recv().await);
        ease.await;
        assert_eq!((waiting.bytes.load(Ordering::Relaxed), free.available_permits()), (1, 1));
        drop(queue);
        drop(answers);
        assert_eq!((waiting.bytes.load(Ordering::Relaxed), free.available_permits()), (0, 2));
    }
}
