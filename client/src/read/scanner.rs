//! A scan in progress: it takes one block after another, from wherever the scan stands.
//!
//! A scan for few rows travels as requests on the shared session, one per block. A longer one opens a stream to each
//! region's server; blocks arrive ahead of the reader as far as the connection's window allows. The `meta` table is scanned
//! at a master in the same way. The [cursor](crate::read::scan_cursor) knows where the scan stands; the router recovers from
//! failures as it does for any call, and the scan continues from its position.

use std::sync::Arc;
use std::time::Duration;

use terrane_types::{Error as Wire, GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId};
use tokio::time::Instant;
use tracing::Instrument;

use crate::api::core::Core;
use crate::api::table::Table;
use crate::consistency::{AsOf, Consistency};
use crate::error::Error;
use crate::read::request::ReadOptions;
use crate::read::row_data::RowData;
use crate::read::scan::Scan;
use crate::read::scan_cursor::{Cursor, Wanted};
use crate::route::observe::CallKind;
use crate::route::progress::Progress;
use crate::route::retry::Risk;
use crate::route::router::{Attempt, Missed, Place, Position, Router};
use crate::route::target::Target;
use crate::wire::failure::{Failure, broken_reply};
use crate::wire::get::ReadSpec;
use crate::wire::scan::{self, AggregateColumn, AggregatePart, Output, ScanBlock};
use crate::wire::scan_stream::ScanStream;

/// Scans of up to so many rows travel on the session; their rows mostly fit one block.
const SMALL_ROWS_MAX: u64 = 1000;

/// A scan in progress: its position, and the stream of blocks if one is open.
pub(crate) struct Scanner {
    core: Arc<Core>,
    target: Arc<Target>,
    cursor: Cursor,
    wanted: Wanted,
    consistency: Consistency,
    small: bool,
    timeout: Duration,
    /// Since when it has waited for a block. Opening a stream is no progress: a server may refuse each at once.
    waits_since: Option<Instant>,
    source: Option<Source>,
}

/// An open stream of blocks.
struct Source {
    blocks: ScanStream,
    /// Where it comes from; `None`: a master.
    place: Option<Place>,
}

/// A failure, and the place where it happened, if any.
type FailedAt = Box<(Option<Place>, Failure)>;

impl std::fmt::Debug for Scanner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scanner")
            .field("table", &self.target.table)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}

impl Scanner {
    /// The scan of `range`, which is the scan's own or a part of it.
    pub(crate) fn new(table: &Table, scan: &Scan, range: KeyRange, spec: Arc<ReadSpec>, options: ReadOptions) -> Self {
        let wanted = Wanted {
            spec,
            block_bytes: scan.block_bytes,
            output: Output::Rows,
            latest: scan.latest.map(|(per, rows)| per.first(rows)),
            snapshot: scan.snapshot,
            fill_cache_never: scan.fill_cache_never,
        };
        let limit = scan.total_limit();
        let small_max = terrane_env::limit!("rows of a small scan", SMALL_ROWS_MAX, 1..=20);
        // A snapshot is held from block to block by one stream.
        let small =
            table.target.table != TableId::META && !scan.snapshot && limit.is_some_and(|limit| limit <= small_max);
        Self {
            core: Arc::clone(&table.core),
            target: Arc::clone(&table.target),
            cursor: Cursor::new(range, scan.reverse, limit, scan.offset),
            wanted,
            consistency: options.consistency,
            small,
            timeout: options.timeout_of(table),
            waits_since: None,
            source: None,
        }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.cursor.is_finished()
    }

    /// As of when the rows so far are complete.
    pub(crate) fn as_of_ms(&self) -> Option<u64> {
        self.cursor.as_of_ms()
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
        self.wanted.output = Output::Count;
        while !self.is_finished() {
            self.advance(&mut Vec::new()).await?;
        }
        Ok(AsOf { value: self.cursor.counted(), as_of_ms: self.cursor.as_of_ms() })
    }

    /// Sums up a column instead of reading the rows: what servers found in each region, in the order of the scan.
    pub(crate) async fn aggregate(mut self, column: AggregateColumn) -> Result<AsOf<Vec<AggregatePart>>, Error> {
        if self.target.table == TableId::META {
            return Err(Error::Unsupported { feature: "an aggregate over table meta".to_owned() });
        }
        self.wanted.output = Output::Aggregate(column);
        while !self.is_finished() {
            self.advance(&mut Vec::new()).await?;
        }
        let as_of_ms = self.cursor.as_of_ms();
        Ok(AsOf { value: self.cursor.into_sums(), as_of_ms })
    }

    /// Takes one block and appends its rows, trying until the time is over. Opening a stream counts as a block without rows.
    pub(crate) async fn advance(&mut self, rows: &mut Vec<RowData>) -> Result<(), Error> {
        let (core, target) = (Arc::clone(&self.core), Arc::clone(&self.target));
        let call = core.router.observer.begin(CallKind::Scan, &target, 0)?;
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        let mut progress = Progress::since(since, Risk::READ, self.timeout);
        progress.trace = call.trace();
        let span = tracing::debug_span!("call", kind = "scan", table = %target.table);
        let mut advance = Advance { scanner: self, rows };
        let result = core.router.call(&target, &mut advance, &mut progress).instrument(span).await;
        call.end(&result, progress.tries);
        result
    }

    /// One try to take one block.
    async fn step(&mut self, progress: &Progress, rows: &mut Vec<RowData>) -> Result<(), FailedAt> {
        if let Some(Source { mut blocks, place }) = self.source.take() {
            // A live server may take as long as the caller waits.
            let session = place.as_ref().map(|place| &*place.session);
            let block = match blocks.next_block(session, progress.deadline()).await {
                Ok(block) => block,
                Err(failure) => return Err(Box::new((place, failure))),
            };
            if !block.done {
                self.source = Some(Source { blocks, place: place.clone() });
            }
            return self.take(place, block, rows);
        }
        if self.target.table == TableId::META {
            let blocks = self.open_meta().await.map_err(|failure| Box::new((None, failure)))?;
            self.source = Some(Source { blocks, place: None });
            return Ok(());
        }
        let router = &self.core.router;
        let place = router.place_to_read(&self.target, self.cursor.position(), progress, self.consistency);
        let place = place.map_err(|failure| Box::new((None, failure)))?;
        if self.small {
            return self.ask(place, progress, rows).await;
        }
        match self.open(&place, progress).await {
            Ok(blocks) => self.source = Some(Source { blocks, place: Some(place) }),
            Err(failure) => return Err(Box::new((Some(place), failure))),
        }
        Ok(())
    }

    fn take(&mut self, place: Option<Place>, block: ScanBlock, rows: &mut Vec<RowData>) -> Result<(), FailedAt> {
        let region = place.as_ref().map_or_else(meta_region, |place| place.region.clone());
        self.target.saw_schema_version(block.schema_version);
        let accepted = self.cursor.accept(&region, block, &self.wanted, rows);
        self.waits_since = None;
        if let Some(place) = &place {
            self.core.router.answered_read(place, self.consistency);
        }
        accepted.map_err(|message| Box::new((place, broken_reply(message))))
    }

    /// One block on the session.
    async fn ask(&mut self, place: Place, progress: &Progress, rows: &mut Vec<RowData>) -> Result<(), FailedAt> {
        let request = scan::request(self.cursor.request(&place.region, &self.wanted));
        let router = &self.core.router;
        let answer = router.attempt_read(&self.target, &place, self.consistency, request, progress).await;
        match answer.and_then(scan::block) {
            Ok(block) => self.take(Some(place), block, rows),
            Err(failure) => Err(Box::new((Some(place), failure))),
        }
    }

    /// Opens a stream for the rest of the scan in one region.
    async fn open(&mut self, place: &Place, progress: &Progress) -> Result<ScanStream, Failure> {
        let scan = self.cursor.request(&place.region, &self.wanted);
        self.core.router.open_scan(&self.target, place, self.consistency, scan, progress).await
    }

    async fn open_meta(&mut self) -> Result<ScanStream, Failure> {
        let scan = self.cursor.request(&meta_region(), &self.wanted);
        let opened = self.core.masters().scan_meta(scan, self.timeout).await;
        opened.map_err(|error| {
            Failure::Refused(Wire::Unavailable { message: error.to_string(), retry_after: Duration::ZERO })
        })
    }
}

/// One block of a scan, as the retry loop sees it.
struct Advance<'a> {
    scanner: &'a mut Scanner,
    rows: &'a mut Vec<RowData>,
}

impl Attempt for Advance<'_> {
    type Answer = ();

    async fn try_once(
        &mut self,
        _router: &Router,
        _target: &Target,
        progress: &mut Progress,
    ) -> Result<(), Box<Missed>> {
        let scanner = &mut *self.scanner;
        let Err(failed) = scanner.step(progress, self.rows).await else { return Ok(()) };
        let (place, failure) = *failed;
        scanner.source = None;
        if scanner.target.table == TableId::META {
            progress.failed(failure.clone());
            // Opening the scan was retried already; one that breaks in the middle is not.
            return Err(match failure {
                Failure::Refused(error) => Missed::finally(error),
                _ => Missed::finally(progress.timeout()),
            });
        }
        // Another try would show another moment.
        if scanner.wanted.snapshot && matches!(failure, Failure::Refused(Wire::SnapshotTooOld { .. })) {
            return Err(Missed::finally(failure.into_error(false)));
        }
        if matches!(failure, Failure::Refused(Wire::StaleEpoch { .. })) {
            scanner.cursor.restart();
        }
        Err(Box::new(Missed::Failed(place, failure)))
    }

    fn position(&self) -> Position<'_> {
        self.scanner.cursor.position()
    }
}

/// To a scan, the meta table is one region.
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
