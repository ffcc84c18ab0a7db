//! `Scan`: scanners of a connection, each of which holds a cursor and a snapshot of its region, and no rows.
//!
//! Invariants:
//! - Scanners are bounded ([`super::open_scanners`]); one that is silent for longer than its lease is closed soon after, so
//!   that nothing that was replaced since is kept for it any longer.
//! - A call that comes out of order is refused before anything is read, so that no row is skipped or repeated.
//! - A scan that a client opens again with its read point sees the view of the scanner before, or ends with an exception that reaches
//!   the program: the Java client would open it with the same read point again after one that resets scanners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use terrane_env::net::Answering;
use terrane_regionserver::edge::{Cursor, ScanRequest};
use terrane_types::rows::RowRefs;
use tokio::time::Instant;

use super::DataCalls;
use super::read_point::{View, read_point, sequence_of};
use super::reading;
use super::region::Region;
use crate::cell_block::KeyValue;
use crate::exception::{DO_NOT_RETRY, Exception, OUT_OF_ORDER_SCANNER, SCANNER_RESET, UNKNOWN_SCANNER};
use crate::frame::{Call, decode_parameter};
use crate::proto;
use crate::results::{Part, push_row};
use crate::serve::{Answer, Outcome};

/// What a scanner takes beside its description.
const SCANNER_BYTES: usize = 1 << 10;
/// Most bytes of rows in one answer, whatever the client allows.
const ANSWER_BYTES_MAX: usize = 8 << 20;
/// An answer leaves after this time, with the rows that are there.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// A scan of one region that goes on from call to call.
pub(super) struct Scanner {
    region: Bytes,
    scan: Arc<ScanRequest>,
    cursor: Cursor,
    /// Keeps what it will read from being collected, from its first block on.
    held: Option<View>,
    answer_bytes: usize,
    /// Most cells of one result.
    batch: usize,
    whole_rows: bool,
    /// The client is told how far the scan is when an answer leaves early.
    tells_place: bool,
    next_seq: u64,
    /// When its last call came.
    pub(super) heard: Instant,
    /// About what it takes of the memory.
    pub(super) bytes: usize,
}

impl Scanner {
    /// Its client reads nothing more of the region.
    fn end(self) {
        self.held.into_iter().for_each(View::end);
    }
}

/// The next scanner's number. Numbers of an earlier life of the process are not given again: they begin with the time.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let least = terrane_env::time::wall_ms() << 20;
    NEXT.fetch_max(least, Ordering::Relaxed);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The rows of one answer.
#[derive(Default)]
struct Collected {
    response: proto::ScanResponse,
    cells: Vec<u8>,
    bytes: usize,
    rows: u64,
    /// Rows that did not pass the filter.
    filtered: u64,
    /// The region has no further row for the scan.
    exhausted: bool,
    /// The scan's filter lets no further row pass.
    over: bool,
    /// The last row continues in the next block, or in the next answer.
    continues: bool,
    /// That row.
    continuing: Vec<u8>,
    /// What they occupy until the answer leaves.
    held: Option<Answering>,
}

impl Collected {
    /// A block cannot be read. If the client would send the same call again, what was read before leaves instead, and its next
    /// call finds out: the scanner stands behind it.
    fn end_early(&self, refused: Exception, whole_rows: bool) -> Result<(), Exception> {
        match (refused.is_retried_here() && self.bytes > 0, self.continues && whole_rows) {
            (false, _) => Err(refused),
            (true, false) => Ok(()),
            (true, true) => Err(Exception::new(SCANNER_RESET, refused.text)),
        }
    }
}

impl DataCalls {
    pub(super) async fn scan(&self, call: Call) -> Outcome {
        let outcome = self.answer_scan(call).await;
        outcome.map_err(|refused| {
            if refused.class == SCANNER_RESET.name && !self.opened.knows_scanner_resets() {
                Exception::new(UNKNOWN_SCANNER, refused.text)
            } else {
                refused
            }
        })
    }

    /// The lease of scanners in milliseconds, as clients are told.
    fn ttl(&self) -> Option<u32> {
        u32::try_from(self.scanners.lease().as_millis()).ok()
    }

    async fn answer_scan(&self, call: Call) -> Outcome {
        let request: proto::ScanRequest = decode_parameter(call.parameter)?;
        let closes = request.close_scanner();
        let (id, scanner) = match (request.scanner_id, &request.scan) {
            (Some(id), None) if closes && self.scanners.was_closed(id) => return Ok(closed(id)),
            (Some(id), None) => (id, self.scanners.take(id, Instant::now())?),
            (None, Some(scan)) => {
                let region = self.requests.region(request.region.as_ref(), call.timeout)?;
                let mut scanner = open(&region, &request, scan)?;
                if scan.mvcc_read_point() > 0 {
                    scanner.cursor.sequence = Some(self.view(&region, scan.mvcc_read_point())?);
                }
                (next_id(), scanner)
            }
            _ => return Err(Exception::bad_request("a scan is opened with a description or continued with a number")),
        };
        let mut scanner = scanner;
        if let Some(seq) = request.next_call_seq {
            if seq != scanner.next_seq {
                let text = format!("scanner {id} expects call {} and got {seq}; open it again", scanner.next_seq);
                return Err(Exception::new(OUT_OF_ORDER_SCANNER, text));
            }
            scanner.next_seq += 1;
        }
        scanner.heard = Instant::now();
        if request.renew() {
            self.scanners.keep(id, scanner, Instant::now())?;
            return Ok(Answer::of(&proto::ScanResponse {
                ttl: self.ttl(),
                scanner_id: Some(id),
                ..Default::default()
            }));
        }
        let wanted = request.number_of_rows.unwrap_or(u32::from(!closes)).into();
        if closes && wanted == 0 {
            scanner.end();
            self.scanners.note_closed(id);
            return Ok(closed(id));
        }
        let specifier = proto::RegionSpecifier { r#type: 1, value: scanner.region.clone() };
        let region = self.requests.region(Some(&specifier), call.timeout)?;
        let limit = Some(u64::from(request.limit_of_rows())).filter(|&limit| limit > 0);
        let rows = limit.map_or(wanted, |limit| limit.min(wanted));
        let collected = match self.collect(&region, &mut scanner, rows, request.client_handles_heartbeats()).await {
            Ok(collected) => collected,
            // Nothing was read, so that the client can repeat the call.
            Err(refused) if refused.is_retried_here() && request.scanner_id.is_some() => {
                scanner.next_seq -= u64::from(request.next_call_seq.is_some());
                self.scanners.keep(id, scanner, Instant::now())?;
                return Err(refused);
            }
            Err(refused) => return Err(refused),
        };
        let Collected { mut response, cells, rows, filtered, exhausted, over, continues, .. } = collected;
        if request.scanner_id.is_none() {
            response.mvcc_read_point =
                scanner.cursor.sequence.and_then(|sequence| read_point(region.descriptor.region, sequence));
        }
        let limit_met = limit.is_some_and(|limit| rows >= limit) && !continues;
        response.scanner_id = Some(id);
        response.ttl = self.ttl();
        response.scan_metrics = request.track_scan_metrics().then(|| metrics(rows, filtered));
        // With rows in the answer, a filter ends the region only: the next one begins with a filter of its own.
        let scan_ends = limit_met || (over && rows == 0);
        response.more_results = Some(!scan_ends);
        response.more_results_in_region = Some(!exhausted && !limit_met);
        if closes || limit_met || exhausted {
            scanner.end();
            self.scanners.note_closed(id);
        } else {
            scanner.heard = Instant::now();
            self.scanners.keep(id, scanner, Instant::now())?;
        }
        Ok(Answer::with_cells(&response, cells))
    }

    /// The sequence number of the view that a client wants to see more of.
    fn view(&self, region: &Region, read_point: u64) -> Result<u64, Exception> {
        let sequence = sequence_of(read_point, &self.requests.numbered_as(region));
        sequence.ok_or_else(|| {
            let text = format!(
                "the scan read a region that region {} was made of, or one that is gone, and cannot go on here; scan again",
                region.descriptor.region
            );
            Exception::new(DO_NOT_RETRY, text)
        })
    }

    /// Collects up to so many rows. For a client that may be answered without any, it takes a limited time.
    async fn collect(
        &self,
        region: &Region,
        scanner: &mut Scanner,
        rows: u64,
        may_leave_early: bool,
    ) -> Result<Collected, Exception> {
        let (mut all, began) = (Collected::default(), Instant::now());
        let time_max = if may_leave_early { (region.deadline / 2).min(ANSWER_TIME_MAX) } else { region.deadline };
        // A row in parts counts when it is complete. A scanner that opens gets its view, even without rows.
        while all.rows < rows || scanner.held.is_none() {
            scanner.cursor.limit_left = Some(rows - all.rows);
            let (cursor, holds_view) = (scanner.cursor.clone(), scanner.held.is_some());
            let next = self.requests.block(region, scanner.scan.clone(), cursor, holds_view).await;
            let (mut block, _block_held) = match next {
                Ok(block) => block,
                Err(refused) if !holds_view && refused.class == SCANNER_RESET.name => {
                    return Err(Exception::new(DO_NOT_RETRY, format!("{}; scan again", refused.text)));
                }
                Err(refused) => {
                    all.end_early(refused, scanner.whole_rows)?;
                    break;
                }
            };
            if let Some(snapshot) = block.snapshot.take() {
                // The new guard is there before the old one goes.
                let view = self.requests.view(region, snapshot);
                scanner.held.replace(view).into_iter().for_each(View::end);
            }
            if block.row_restarted {
                // Parts of the row have left already, as of an earlier time.
                return Err(Exception::new(
                    SCANNER_RESET,
                    "a large row changed while it was read; open the scan again",
                ));
            }
            scanner.cursor = block.cursor.clone();
            let limit_reached = scanner.cursor.limit_left == Some(0);
            // Clients expect at most one part of a row in an answer, unless they asked for batches of cells.
            let joins = all.continues && scanner.batch == usize::MAX;
            all.continues = block.row_continues;
            all.filtered += block.rows_filtered;
            let part = Part { batch: scanner.batch, continues: block.row_continues, joins };
            self.add(&mut all, &block.rows, part)?;
            assert!(all.rows <= rows, "{} rows were read for an answer of at most {rows}", all.rows);
            all.held = Some(self.requests.build(all.bytes));
            if (block.done && !limit_reached) || block.ended {
                (all.exhausted, all.over) = (true, block.ended);
                break;
            }
            if limit_reached {
                break;
            }
            let row_is_whole = !(all.continues && scanner.whole_rows);
            if row_is_whole && all.bytes >= scanner.answer_bytes {
                break;
            }
            if all.bytes >= ANSWER_BYTES_MAX && !row_is_whole {
                return Err(Exception::bad_request(
                    "a row is larger than an answer; let the client take partial results",
                ));
            }
            if began.elapsed() >= time_max && row_is_whole {
                all.response.heartbeat_message = Some(true);
                all.response.cursor = place(scanner);
                break;
            }
        }
        Ok(all)
    }

    /// Adds the rows of a block. Its first row may join the row before, its last one continue.
    fn add(&self, all: &mut Collected, block: &[u8], mut part: Part) -> Result<(), Exception> {
        if self.opened.codec.is_some() {
            // A cell takes about what it takes packed, or more where a row has several.
            all.cells.reserve(block.len() + block.len() / 8);
        }
        let mut rows = RowRefs::new(block).peekable();
        let row_continues = part.continues;
        while let Some(row) = rows.next() {
            let row = row.map_err(|malformed| Exception::bad_request(&malformed.what))?;
            part.continues = row_continues && rows.peek().is_none();
            all.bytes += row.row.len() + row.packed.len();
            all.rows += u64::from(!part.continues);
            let key = row.row;
            // What is left of a row may have expired since its first part was read.
            part.joins &= all.continuing == key;
            if part.continues {
                all.continuing.clear();
                all.continuing.extend_from_slice(key);
            }
            let cells = row.cells().map(|cell| KeyValue { row: key, cell });
            push_row(&mut all.response, self.opened.codec, cells, part, &mut all.cells)?;
            part.joins = false;
        }
        Ok(())
    }
}

fn open(region: &Region, request: &proto::ScanRequest, scan: &proto::Scan) -> Result<Scanner, Exception> {
    let name = request.region.as_ref().map(|region| region.value.clone()).unwrap_or_default();
    let size = scan.max_result_size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let batch = scan.batch_size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    Ok(Scanner {
        region: name,
        scan: reading::scan(region, scan)?,
        cursor: Cursor::start(None),
        held: None,
        answer_bytes: size.unwrap_or(ANSWER_BYTES_MAX).min(ANSWER_BYTES_MAX),
        batch: batch.unwrap_or(usize::MAX),
        tells_place: scan.need_cursor_result(),
        whole_rows: !request.client_handles_partials(),
        next_seq: 0,
        heard: Instant::now(),
        bytes: SCANNER_BYTES + scan.encoded_len(),
    })
}

/// How far a scan is, for a client that asked to be told.
fn place(scanner: &Scanner) -> Option<proto::Cursor> {
    let row = scanner.cursor.row().filter(|_| scanner.tells_place)?;
    Some(proto::Cursor { row: Some(row.clone()) })
}

/// What a client that measures its scan is told.
fn metrics(rows: u64, filtered: u64) -> proto::ScanMetrics {
    let count =
        |name: &str, count: u64| proto::NameInt64Pair { name: Some(name.to_owned()), value: i64::try_from(count).ok() };
    proto::ScanMetrics {
        metrics: vec![count("ROWS_SCANNED", rows.saturating_add(filtered)), count("ROWS_FILTERED", filtered)],
    }
}

/// The answer to a close.
fn closed(id: u64) -> Answer {
    Answer::of(&proto::ScanResponse {
        scanner_id: Some(id),
        more_results: Some(false),
        more_results_in_region: Some(false),
        ..proto::ScanResponse::default()
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::exception::{NOT_SERVING_REGION, REGION_TOO_BUSY};

    /// A scanner that takes so many bytes and was heard at this time.
    pub fn scanner(bytes: usize, heard: Instant) -> Scanner {
        let scan = ScanRequest {
            range: terrane_types::KeyRange::all(),
            reverse: false,
            lookup: terrane_regionserver::edge::Lookup::new(terrane_types::Projection::all(), None),
            block_bytes: 1,
            count_only: false,
            aggregate: None,
            latest: None,
            fills_cache: true,
            snapshot: false,
        };
        Scanner {
            region: Bytes::new(),
            scan: Arc::new(scan),
            cursor: Cursor::start(None),
            held: None,
            answer_bytes: 1,
            batch: usize::MAX,
            whole_rows: false,
            tells_place: false,
            next_seq: 0,
            heard,
            bytes,
        }
    }

    #[test]
    fn rows_that_were_read_before_a_failure_that_passes_leave_and_no_part_of_a_row_is_lost() {
        let busy = || Exception::new(REGION_TOO_BUSY, "busy");
        let moved = || Exception::new(NOT_SERVING_REGION, "moved");
        let nothing = Collected::default();
        let rows = Collected { bytes: 1, ..Collected::default() };
        let part = Collected { bytes: 1, continues: true, ..Collected::default() };
        assert_eq!(nothing.end_early(busy(), true), Err(busy()), "the client sends the call again");
        assert_eq!(rows.end_early(moved(), true), Err(moved()), "the client goes elsewhere");
        assert_eq!(rows.end_early(busy(), true), Ok(()));
        assert_eq!(part.end_early(busy(), false), Ok(()), "the client takes parts");
        assert_eq!(part.end_early(busy(), true).unwrap_err().class, SCANNER_RESET.name);
    }

    #[test]
    fn rows_that_did_not_pass_count_as_scanned() {
        let named = |metrics: proto::ScanMetrics| {
            metrics.metrics.into_iter().map(|one| (one.name.unwrap(), one.value.unwrap())).collect::<Vec<_>>()
        };
        let expected = [("ROWS_SCANNED".to_owned(), 5), ("ROWS_FILTERED".to_owned(), 3)];
        assert_eq!(named(metrics(2, 3)), expected);
    }
}
