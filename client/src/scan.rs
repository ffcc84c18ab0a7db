//! Rows of a range as a stream, over all the regions it spans.
//!
//! A scan that wants few rows travels as requests on the shared session, one per block. A longer one opens a stream of its
//! own to each region's server; blocks come in ahead of the reader as far as the connection's window allows. The `meta`
//! table is scanned in the same way at a master. Where the scan stands is kept by [`crate::cursor`]; what goes wrong is
//! mended by the router like any other call, and the scan goes on from its position.

use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use terrane_proto::v1::{reply, request};
use terrane_proto::{error, v1};
use terrane_types::{Error as Wire, GroupId, KeyRange, Projection, RegionDescriptor, RegionEpoch, RegionId, TableId};
use tokio::time::Instant;

use crate::client::Core;
use crate::cursor::{Cursor, Wanted};
use crate::deadline::Progress;
use crate::error::Error;
use crate::masters::{Kind, never_connected};
use crate::reading::{RowData, Scan};
use crate::retry::{Failure, Risk};
use crate::route::Place;
use crate::table::Target;

/// Scans of up to so many rows travel on the session; their rows mostly fit one block.
const SMALL_ROWS_MAX: u64 = 1000;

/// The rows of a scan, one after another.
///
/// Call [`RowStream::next`] until it answers `None`, or make a [`Stream`] of it with [`RowStream::into_stream`]. After
/// an error it ends.
pub struct RowStream {
    core: Arc<Core>,
    target: Arc<Target>,
    cursor: Cursor,
    wanted: Wanted,
    small: bool,
    timeout: Duration,
    source: Option<Source>,
    rows: std::vec::IntoIter<RowData>,
    failed: bool,
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

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowStream").field("table", &self.target.table).field("cursor", &self.cursor).finish()
    }
}

impl RowStream {
    pub(crate) fn new(
        core: Arc<Core>,
        target: Arc<Target>,
        scan: &Scan,
        range: KeyRange,
        projection: &Projection,
        timeout: Duration,
    ) -> Self {
        let wanted = Wanted { projection: projection.into(), block_bytes: scan.block_bytes, count_only: false };
        let small = target.table != TableId::META && scan.limit.is_some_and(|limit| limit <= SMALL_ROWS_MAX);
        Self {
            core,
            target,
            cursor: Cursor::new(range, scan.reverse, scan.limit, scan.offset),
            wanted,
            small,
            timeout,
            source: None,
            rows: Vec::new().into_iter(),
            failed: false,
        }
    }

    /// The next row; `None` at the end. Waits at most the table's timeout for it.
    pub async fn next(&mut self) -> Option<Result<RowData, Error>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if self.failed || self.cursor.is_finished() {
                return None;
            }
            let mut rows = Vec::new();
            if let Err(error) = self.advance(&mut rows).await {
                self.failed = true;
                return Some(Err(error));
            }
            self.rows = rows.into_iter();
        }
    }

    /// The same rows as a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<RowData, Error>> + Send {
        futures::stream::unfold(self, |mut rows| async move { rows.next().await.map(|row| (row, rows)) })
    }

    /// Counts the rows instead of reading them.
    pub(crate) async fn count(mut self) -> Result<u64, Error> {
        if self.target.table == TableId::META {
            let mut count = 0;
            while let Some(row) = self.next().await {
                row?;
                count += 1;
            }
            return Ok(count);
        }
        self.wanted.count_only = true;
        while !self.cursor.is_finished() {
            self.advance(&mut Vec::new()).await?;
        }
        Ok(self.cursor.counted())
    }

    /// Takes one block, from wherever the scan stands, trying until the time is over.
    async fn advance(&mut self, rows: &mut Vec<RowData>) -> Result<(), Error> {
        let mut progress = Progress::new(Risk::READ, self.timeout);
        loop {
            let (place, failure) = match self.step(&progress, rows).await {
                Ok(()) => return Ok(()),
                Err(missed) => *missed,
            };
            self.source = None;
            if self.target.table == TableId::META {
                progress.failed(failure.clone());
                return Err(self.meta_failed(failure, &mut progress));
            }
            if matches!(failure, Failure::Refused(Wire::StaleEpoch { .. })) {
                self.cursor.restart();
            }
            let position = self.cursor.position();
            self.core.router.recover(&self.target, position, place.as_ref(), failure, &mut progress).await?;
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
            let block =
                next_block(&mut source, until).await.map_err(|failure| missed(source.place.clone(), failure))?;
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
        let placed = self.core.router.place(&self.target, self.cursor.position(), &progress.tried);
        let place = placed.map_err(|failure| missed(None, failure))?;
        if self.small {
            return self.ask(place, until, rows).await;
        }
        let blocks = self.open(&place, until).await.map_err(|failure| missed(Some(place.clone()), failure))?;
        self.source = Some(Source { blocks, place: Some(place) });
        Ok(())
    }

    fn take(&mut self, place: Option<Place>, block: v1::ScanBlock, rows: &mut Vec<RowData>) -> Result<(), Missed> {
        let region = place.as_ref().map_or_else(meta_region, |place| place.region.clone());
        let accepted = self.cursor.accept(&region, block, self.wanted.count_only, rows);
        if let Some(place) = &place {
            self.core.router.answered(place);
        }
        accepted.map_err(|message| missed(place, Failure::Refused(Wire::Internal { message })))
    }

    /// One block on the session.
    async fn ask(&mut self, place: Place, until: Instant, rows: &mut Vec<RowData>) -> Result<(), Missed> {
        let scan = self.cursor.request(&place.region, &self.wanted);
        let answer = self.core.router.attempt(&self.target, &place, request::Body::Scan(scan), until).await;
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
        let header = v1::RequestHeader { deadline_ms: 0, ..router.header(&self.target, &place.region, until) };
        let call = v1::ScanCall {
            hello: Some(router.hello_to(place.server)),
            header: Some(header),
            body: Some(self.cursor.request(&place.region, &self.wanted)),
        };
        let mut client = place.session.data_client();
        match tokio::time::timeout_at(until, client.scan(call)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(failure_of(&status)),
            Err(_) => Err(Failure::Lost(format!("server {} did not open the scan in time", place.server))),
        }
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
    match tokio::time::timeout_at(until, source.blocks.message()).await {
        Ok(Ok(Some(block))) => checked(block),
        Ok(Ok(None)) => Err(Failure::Lost("the scan ended before its region did".to_owned())),
        Ok(Err(status)) => Err(failure_of(&status)),
        Err(_) => Err(Failure::Lost("no block came in time".to_owned())),
    }
}

fn block_of(answer: reply::Body) -> Result<v1::ScanBlock, Failure> {
    match answer {
        reply::Body::Scan(block) => checked(block),
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
