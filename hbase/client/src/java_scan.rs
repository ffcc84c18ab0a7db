//! A scan as HBase's Java client makes it: with the read point of its first scanner it is opened again where its region went, from
//! the row on that was received last.

use bytes::Bytes;
use prost::Message as _;
use terrane_hbase::proto;

use super::HbaseClient;

/// The classes of exceptions after which the Java client opens a scan again.
const REOPENS: [&str; 4] =
    ["UnknownScannerException", "NotServingRegionException", "ScannerResetException", "OutOfOrderScannerNextException"];

/// Whether the Java client opens a scan again after this error.
#[must_use]
pub fn reopens(why: &str) -> bool {
    REOPENS.iter().any(|class| why.contains(class))
}

/// A scanner's number that no server gives.
const NO_SCANNER: u64 = u64::MAX;

/// A scan of one region, or of what became of it.
#[derive(Debug, Default)]
pub struct JavaScan {
    /// What is asked for next. The read point is that of the first scanner.
    pub scan: proto::Scan,
    /// The number of the open scanner, and its next call's.
    scanner: Option<(u64, u64)>,
    /// The last row that was received, and how many of its cells if it is not complete.
    last: Option<(Bytes, Option<usize>)>,
    /// Cells that come once more after the scan was opened again.
    repeated: usize,
    /// How often it was opened again.
    pub reopened: usize,
    /// The cells as the program sees them.
    pub seen: Vec<proto::Cell>,
}

impl JavaScan {
    /// A scan that is opened by its first call.
    #[must_use]
    pub fn new(scan: proto::Scan) -> Self {
        Self { scan, ..Self::default() }
    }

    /// The row that the next call is about.
    fn row(&self) -> Bytes {
        let last = self.last.as_ref().map(|(row, _)| row.clone());
        last.or_else(|| self.scan.start_row.clone()).unwrap_or_default()
    }

    /// One call. Returns whether there is more in the region. After an exception with which the Java client opens the scan again, the
    /// next call does so.
    ///
    /// # Errors
    /// Any other exception, as the program sees it, or why the call was given up.
    pub async fn next(&mut self, client: &mut HbaseClient, gives_up: impl Fn() -> bool) -> Result<bool, String> {
        let (scan, scanner) = (self.scan.clone(), self.scanner);
        let encode = |region| {
            proto::ScanRequest {
                region: scanner.is_none().then_some(region),
                scan: scanner.is_none().then(|| scan.clone()),
                scanner_id: scanner.map(|(id, _)| id),
                number_of_rows: Some(1),
                next_call_seq: scanner.map(|(_, calls)| calls),
                client_handles_partials: Some(true),
                client_handles_heartbeats: Some(true),
                ..proto::ScanRequest::default()
            }
            .encode_to_vec()
        };
        let answer = match client.call::<proto::ScanResponse>(&self.row(), "Scan", encode, gives_up).await {
            Ok(outcome) => outcome.answer,
            Err(why) if scanner.is_some() && reopens(&why) => {
                self.open_again();
                return Ok(true);
            }
            Err(why) => return Err(why),
        };
        if let (None, Some(point)) = (scanner, answer.mvcc_read_point) {
            self.scan.mvcc_read_point = Some(point);
        }
        let id = answer.scanner_id.unwrap_or(NO_SCANNER);
        self.scanner = Some((id, scanner.map_or(0, |(_, calls)| calls + 1)));
        let has_more = answer.more_results() && answer.more_results_in_region();
        for (at, result) in answer.results.into_iter().enumerate() {
            let is_partial = answer.partial_flag_per_result.get(at).copied().unwrap_or(result.partial());
            self.take(result.cell, is_partial);
        }
        Ok(has_more)
    }

    /// Goes on with a server that does not know the scanner, as when another one leads the region.
    pub fn lose_scanner(&mut self) {
        if let Some((id, _)) = &mut self.scanner {
            *id = NO_SCANNER;
        }
    }

    /// The next call opens the scan again.
    pub fn open_again(&mut self) {
        self.scanner = None;
        self.reopened += 1;
        if let Some((row, cells)) = &self.last {
            self.scan.start_row = Some(row.clone());
            self.scan.include_start_row = Some(cells.is_some());
            self.repeated = cells.unwrap_or(0);
        }
    }

    fn take(&mut self, cells: Vec<proto::Cell>, is_partial: bool) {
        for cell in cells {
            let row = cell.row.clone().unwrap_or_default();
            if self.repeated > 0 {
                self.repeated -= 1;
                continue;
            }
            let before = self.last.as_ref().filter(|(last, _)| *last == row).and_then(|(_, cells)| *cells);
            self.last = Some((row, Some(before.unwrap_or(0) + 1)));
            self.seen.push(cell);
        }
        if let Some((_, cells)) = self.last.as_mut().filter(|_| !is_partial) {
            *cells = None;
        }
    }
}
