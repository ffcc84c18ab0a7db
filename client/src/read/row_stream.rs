//! Rows of a range as a stream, over all the regions it spans.
//!
//! A scan that wants few rows travels as requests on the shared session, one per block. A longer one opens a stream of its
//! own to each region's server; blocks come in ahead of the reader as far as the connection's window allows. The `meta`
//! table is scanned in the same way at a master. Where the scan stands is kept by [`crate::read::scan_cursor`]; what goes wrong is
//! mended by the router like any other call, and the scan goes on from its position.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use terrane_proto::v1::{reply, request};
use terrane_proto::{error, v1};
use terrane_types::{Error as Wire, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId};
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::core::Core;
use crate::api::table::Table;
use crate::error::Error;
use crate::read::query::Scan;
use crate::read::request::How;
use crate::read::row_data::RowData;
use crate::read::scan_cursor::{Cursor, Wanted};
use crate::route::consistency::{AsOf, Consistency};
use crate::route::masters::{Kind, never_connected};
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::Place;
use crate::route::target::Target;
use crate::wire::failure::Failure;

/// Scans of up to so many rows travel on the session; their rows mostly fit one block.
const SMALL_ROWS_MAX: u64 = 1000;

/// The rows of a scan, one after another: a [`Stream`], or a loop over [`RowStream::next`] until it answers `None`.
///
/// Rows come in blocks. What waits in this process is one block that was asked for by itself, or as much as the connection's
/// window allows of a longer scan: who reads slowly slows the servers down, and nothing piles up. Dropping it ends the
/// scan. After an error it ends.
///
/// ```no_run
/// use futures::TryStreamExt as _;
/// use terrane_client::{Client, Scan};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let table = Client::connect("127.0.0.1:7600").await?.table("users").await?;
/// let mut rows = table.scan(Scan::prefix("user-")).await?;
/// while let Some(row) = rows.try_next().await? {
///     println!("{row:?}");
/// }
/// # Ok(()) }
/// ```
pub struct RowStream {
    state: State,
    rows: std::vec::IntoIter<RowData>,
}

/// The scan as it went on, and the rows that came.
type Fetched = (Box<Scanner>, Result<Vec<RowData>, Error>);

/// What a stream does between two rows.
enum State {
    /// Nothing is under way.
    Waits(Box<Scanner>),
    /// A block is.
    Fetches(BoxFuture<'static, Fetched>),
    /// The last row came, or an error.
    Ended(Option<u64>),
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("RowStream");
        if let State::Waits(scanner) = &self.state {
            shown.field("table", &scanner.target.table).field("cursor", &scanner.cursor);
        }
        shown.finish_non_exhaustive()
    }
}

impl RowStream {
    pub(crate) fn new(scanner: Scanner) -> Self {
        Self { state: State::Waits(Box::new(scanner)), rows: Vec::new().into_iter() }
    }

    /// The next row; `None` at the end. Waits at most the read's timeout for it. A call that is dropped loses nothing: the
    /// next goes on waiting for the same row.
    pub async fn next(&mut self) -> Option<Result<RowData, Error>> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// The same rows as a [`Stream`]; it is one by itself.
    pub fn into_stream(self) -> impl Stream<Item = Result<RowData, Error>> + Send {
        self
    }

    /// Of a scan with [`Consistency::Stale`]: everything acknowledged before this time is shown in the rows that came
    /// so far (milliseconds since 1970, by the cluster's clock). `None`: the rows are linearizable, or none came yet.
    #[must_use]
    pub fn as_of_ms(&self) -> Option<u64> {
        match &self.state {
            State::Waits(scanner) => scanner.cursor.as_of_ms(),
            State::Fetches(_) => None,
            State::Ended(as_of_ms) => *as_of_ms,
        }
    }
}

impl Stream for RowStream {
    type Item = Result<RowData, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        loop {
            if let Some(row) = stream.rows.next() {
                return Poll::Ready(Some(Ok(row)));
            }
            match std::mem::replace(&mut stream.state, State::Ended(None)) {
                State::Waits(scanner) if scanner.is_finished() => {
                    stream.state = State::Ended(scanner.cursor.as_of_ms());
                    return Poll::Ready(None);
                }
                State::Waits(mut scanner) => {
                    stream.state = State::Fetches(Box::pin(async move {
                        let mut rows = Vec::new();
                        let taken = scanner.advance(&mut rows).await;
                        (scanner, taken.map(|()| rows))
                    }));
                }
                State::Fetches(mut fetching) => match fetching.as_mut().poll(context) {
                    Poll::Pending => {
                        stream.state = State::Fetches(fetching);
                        return Poll::Pending;
                    }
                    Poll::Ready((scanner, Ok(rows))) => {
                        stream.rows = rows.into_iter();
                        stream.state = State::Waits(scanner);
                    }
                    Poll::Ready((scanner, Err(error))) => {
                        stream.state = State::Ended(scanner.cursor.as_of_ms());
                        return Poll::Ready(Some(Err(error)));
                    }
                },
                State::Ended(as_of_ms) => {
                    stream.state = State::Ended(as_of_ms);
                    return Poll::Ready(None);
                }
            }
        }
    }
}

/// A scan under way: its position, and the stream of blocks that is open if any.
pub(crate) struct Scanner {
    core: Arc<Core>,
    target: Arc<Target>,
    cursor: Cursor,
    wanted: Wanted,
    consistency: Consistency,
    small: bool,
    timeout: Duration,
    source: Option<Source>,
}

/// A stream of blocks that is open.
struct Source {
    blocks: tonic::Streaming<v1::ScanBlock>,
    /// Where it comes from; `None`: a master.
    place: Option<Place>,
}

/// A failed try, and where it was made if anywhere.
type Missed = Box<(Option<Place>, Failure)>;

fn missed(place: Option<Place>, failure: Failure) -> Missed {
    Box::new((place, failure))
}

impl Scanner {
    /// The scan of `range`, which lies in the scan's own.
    pub(crate) fn new(table: &Table, scan: &Scan, range: KeyRange, projection: v1::Projection, how: How) -> Self {
        let wanted = Wanted {
            projection,
            block_bytes: scan.block_bytes,
            count_only: false,
            aggregate: None,
            latest: scan.latest.map(|(per, rows)| per.wire(rows)),
            snapshot: scan.snapshot,
            fill_cache_never: scan.fill_cache_never,
        };
        let limit = scan.limit_in_all();
        // One stream holds a snapshot from block to block.
        let small =
            table.target.table != TableId::META && !scan.snapshot && limit.is_some_and(|limit| limit <= SMALL_ROWS_MAX);
        Self {
            core: Arc::clone(&table.core),
            target: Arc::clone(&table.target),
            cursor: Cursor::new(range, scan.reverse, limit, scan.offset),
            wanted,
            consistency: how.consistency,
            small,
            timeout: how.timeout_of(table),
            source: None,
        }
    }

    fn is_finished(&self) -> bool {
        self.cursor.is_finished()
    }

    /// Counts the rows instead of reading them.
    pub(crate) async fn count(mut self) -> Result<AsOf<u64>, Error> {
        if self.target.table == TableId::META {
            let mut rows = Vec::new();
            while !self.is_finished() {
                self.advance(&mut rows).await?;
            }
            return Ok(AsOf { value: rows.len() as u64, as_of_ms: None });
        }
        self.wanted.count_only = true;
        while !self.is_finished() {
            self.advance(&mut Vec::new()).await?;
        }
        Ok(AsOf { value: self.cursor.counted(), as_of_ms: self.cursor.as_of_ms() })
    }

    /// Sums up a column instead of reading the rows: what servers know of each region, in the order of the scan.
    pub(crate) async fn aggregate(mut self, column: v1::Aggregate) -> Result<AsOf<Vec<v1::AggregatePart>>, Error> {
        if self.target.table == TableId::META {
            return Err(Error::Unsupported { feature: "an aggregate over table meta".to_owned() });
        }
        self.wanted.aggregate = Some(column);
        while !self.is_finished() {
            self.advance(&mut Vec::new()).await?;
        }
        let as_of_ms = self.cursor.as_of_ms();
        Ok(AsOf { value: self.cursor.into_sums(), as_of_ms })
    }

    /// Takes one block, from wherever the scan stands, trying until the time is over.
    async fn advance(&mut self, rows: &mut Vec<RowData>) -> Result<(), Error> {
        let (core, target) = (Arc::clone(&self.core), Arc::clone(&self.target));
        let call = core.router.observer.begin(CallKind::Scan, &target, 0)?;
        let mut progress = Progress::new(Risk::READ, self.timeout);
        let span = tracing::debug_span!("call", kind = "scan", table = %target.table);
        let result = self.try_to_advance(rows, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    async fn try_to_advance(&mut self, rows: &mut Vec<RowData>, progress: &mut Progress) -> Result<(), Error> {
        loop {
            let (place, failure) = match self.step(progress, rows).await {
                Ok(()) => return Ok(()),
                Err(missed) => *missed,
            };
            self.source = None;
            if self.target.table == TableId::META {
                progress.failed(failure.clone());
                return Err(self.meta_failed(failure, progress));
            }
            // Asking again would show another moment.
            if self.wanted.snapshot && matches!(failure, Failure::Refused(Wire::SnapshotTooOld { .. })) {
                return Err(failure.into_error(false));
            }
            if matches!(failure, Failure::Refused(Wire::StaleEpoch { .. })) {
                self.cursor.restart();
            }
            let position = self.cursor.position();
            self.core.router.recover(&self.target, position, place.as_ref(), failure, progress).await?;
        }
    }

    /// A scan of the meta table that broke in the middle. Opening it has been retried already.
    fn meta_failed(&self, failure: Failure, progress: &mut Progress) -> Error {
        match failure {
            Failure::Refused(error) => error.into(),
            _ => progress.timeout(),
        }
    }

    /// One try to take one block.
    async fn step(&mut self, progress: &Progress, rows: &mut Vec<RowData>) -> Result<(), Missed> {
        let until = progress.try_until();
        if let Some(mut source) = self.source.take() {
            // A living server may take as long as the caller waits.
            let block = next_block(&mut source, progress.deadline())
                .await
                .map_err(|failure| missed(source.place.clone(), failure))?;
            let place = source.place.clone();
            if !block.done {
                self.source = Some(source);
            }
            return self.take(place, block, rows);
        }
        if self.target.table == TableId::META {
            let source = self.open_meta().await.map_err(|failure| missed(None, failure))?;
            self.source = Some(source);
            return Ok(());
        }
        let placed = self.core.router.place_to_read(&self.target, self.cursor.position(), progress, self.consistency);
        let place = placed.map_err(|failure| missed(None, failure))?;
        if self.small {
            return self.ask(place, progress, rows).await;
        }
        let blocks = self.open(&place, until).await.map_err(|failure| missed(Some(place.clone()), failure))?;
        self.source = Some(Source { blocks, place: Some(place) });
        Ok(())
    }

    fn take(&mut self, place: Option<Place>, block: v1::ScanBlock, rows: &mut Vec<RowData>) -> Result<(), Missed> {
        let region = place.as_ref().map_or_else(meta_region, |place| place.region.clone());
        let described = block.region.as_ref().map_or(0, |region| region.schema_version);
        self.target.saw_schema_version(described);
        let accepted = self.cursor.accept(&region, block, &self.wanted, rows);
        if let Some(place) = &place {
            self.core.router.answered_read(place, self.consistency);
        }
        accepted.map_err(|message| missed(place, Failure::Refused(Wire::Internal { message })))
    }

    /// One block on the session.
    async fn ask(&mut self, place: Place, progress: &Progress, rows: &mut Vec<RowData>) -> Result<(), Missed> {
        let scan = self.cursor.request(&place.region, &self.wanted);
        let answer = self
            .core
            .router
            .attempt_read(&self.target, &place, self.consistency, request::Body::Scan(Box::new(scan)), progress)
            .await;
        match answer.and_then(block_of) {
            Ok(block) => self.take(Some(place), block, rows),
            Err(failure) => Err(missed(Some(place), failure)),
        }
    }

    /// Opens a stream of its own for the rest of the scan in one region.
    async fn open(&mut self, place: &Place, until: Instant) -> Result<tonic::Streaming<v1::ScanBlock>, Failure> {
        let router = &self.core.router;
        router.counting.requests.add();
        // The stream lives for as long as its reader reads: it has no deadline of its own, each wait for a block has.
        let header =
            v1::RequestHeader { deadline_ms: 0, ..router.read_header(&self.target, place, self.consistency, until) };
        let call = v1::ScanCall {
            hello: Some(router.hello_to(place.server)),
            header: Some(header),
            body: Some(self.cursor.request(&place.region, &self.wanted)),
        };
        let mut client = place.session.data_client();
        let opened = alive(Some(place), until, "the scan was not opened in time", client.scan(call)).await?;
        opened.map(tonic::Response::into_inner).map_err(|status| failure_of(&status))
    }

    async fn open_meta(&mut self) -> Result<Source, Failure> {
        let router = &self.core.router;
        router.counting.master_calls.add();
        let call = v1::ScanCall {
            hello: Some(router.masters.hello(Some(router.cluster))),
            header: None,
            body: Some(self.cursor.request(&meta_region(), &self.wanted)),
        };
        let opened = router.masters.call(Kind::Read, self.timeout, |mut master, _left| {
            let call = call.clone();
            async move { master.scan_meta(call).await }
        });
        match opened.await {
            Ok(blocks) => Ok(Source { blocks, place: None }),
            Err(error) => {
                Err(Failure::Refused(Wire::Unavailable { message: error.to_string(), retry_after: Duration::ZERO }))
            }
        }
    }
}

/// The meta table is one region to a scan.
const fn meta_region() -> RegionDescriptor {
    RegionDescriptor {
        region: RegionId(0),
        table: TableId::META,
        range: KeyRange::all(),
        epoch: RegionEpoch(0),
        group: GroupId::MASTER,
        schema_version: 0,
    }
}

async fn next_block(source: &mut Source, until: Instant) -> Result<v1::ScanBlock, Failure> {
    let Source { blocks, place } = source;
    let message = alive(place.as_ref(), until, "no block came in time", blocks.message()).await?;
    match message {
        Ok(Some(block)) => checked(block),
        Ok(None) => Err(Failure::Lost("the scan ended before its region did".to_owned())),
        Err(status) => Err(failure_of(&status)),
    }
}

/// Waits for what comes on a stream beside the session, for as long as the server is alive: that is told by the session.
async fn alive<T>(
    place: Option<&Place>,
    until: Instant,
    late: &str,
    answer: impl Future<Output = T>,
) -> Result<T, Failure> {
    let Some(place) = place else {
        return tokio::time::timeout_at(until, answer).await.map_err(|_| Failure::Lost(late.to_owned()));
    };
    let _awaiting = place.session.awaits();
    tokio::select! {
        // What has come counts, whatever became of the server since.
        biased;
        answer = tokio::time::timeout_at(until, answer) => {
            let answer = answer.map_err(|_| Failure::Lost(late.to_owned()))?;
            place.session.hear();
            Ok(answer)
        }
        () = place.session.ended() => {
            Err(Failure::Lost(format!("the session with server {} ended during a scan", place.server)))
        }
    }
}

fn block_of(answer: reply::Body) -> Result<v1::ScanBlock, Failure> {
    match answer {
        reply::Body::Scan(block) => checked(*block),
        _ => Err(Failure::Refused(Wire::Internal { message: "the server answered a scan with something else".into() })),
    }
}

fn checked(mut block: v1::ScanBlock) -> Result<v1::ScanBlock, Failure> {
    match block.error.take() {
        Some(detail) => Err(Failure::Refused(error::from_detail(detail))),
        None => Ok(block),
    }
}

fn failure_of(status: &tonic::Status) -> Failure {
    if status.details().is_empty() && never_connected(status) {
        return Failure::NotSent(status.message().to_owned());
    }
    match error::from_status(status) {
        // Without details it is the transport that speaks: the server may be gone.
        Wire::Unavailable { message, .. } if status.details().is_empty() => Failure::Lost(message),
        error => Failure::Refused(error),
    }
}
