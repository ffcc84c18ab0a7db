//! Gets and scans of `hbase:meta`. A scanner remembers the last row it has returned, and every call renders the rows after it
//! again, so that nothing outdated is held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use terrane_types::escape;

use super::{TableCalls, deadline, unknown_method};
use crate::exception::{
    Exception, NO_CLOSEST_ROW, NOT_SERVING_REGION, OUT_OF_ORDER_SCANNER, REGION_TOO_BUSY, UNKNOWN_PROTOCOL,
    UNKNOWN_SCANNER,
};
use crate::frame::{Call, decode_parameter};
use crate::meta::{Rows, Span};
use crate::proto;
use crate::region_name::is_meta;
use crate::results::{of_key_values, push_row};
use crate::serve::{Answer, Outcome};
use crate::time_range::bounds;

/// Most open scanners of a connection.
const SCANNERS_MAX: usize = 256;
/// Most rows in one answer.
const ROWS_MAX: usize = 1_000;
/// The lease that clients are told. A scanner of meta holds nothing, so it lasts as long as its connection.
const LEASE_MS: u32 = 60_000;

/// The scanners of one connection.
#[derive(Default)]
pub(super) struct MetaScanners {
    next: AtomicU64,
    open: Mutex<HashMap<u64, MetaScanner>>,
}

struct MetaScanner {
    /// What is left of the scan.
    span: Span,
    rows: Rows,
    /// Most cells of one result.
    batch: usize,
    next_seq: u64,
}

impl TableCalls {
    /// A call of `ClientService`: of a master, it is about `hbase:meta`.
    pub(super) async fn read_meta(&self, call: Call) -> Outcome {
        match call.method.as_str() {
            "Get" => self.get_meta(call).await,
            "Scan" => self.scan_meta(call).await,
            "Mutate" | "Multi" => Err(Exception::bad_request(
                "hbase:meta is rendered from the catalog and takes no batches and no writes",
            )),
            other => Err(unknown_method("ClientService", other)),
        }
    }

    async fn get_meta(&self, call: Call) -> Outcome {
        let deadline = deadline(&call);
        let request: proto::GetRequest = decode_parameter(call.parameter)?;
        check_region(&request.region)?;
        let get = request.get;
        if get.closest_row_before() {
            return Err(Exception::new(UNKNOWN_PROTOCOL, NO_CLOSEST_ROW));
        }
        refuse(get.filter.is_some(), "filters")?;
        let view = self.master.view(deadline).await?;
        let row = view.scan(Span::row(get.row.clone()), rows(&get.column, get.time_range.as_ref())).next();
        let mut cells = Vec::new();
        let result = if get.existence_only() {
            proto::Result { exists: Some(row.is_some()), ..proto::Result::default() }
        } else {
            row.map(|row| of_key_values(self.opened.codec, row.key_values(), &mut cells))
                .transpose()?
                .unwrap_or_default()
        };
        Ok(Answer::with_cells(&proto::GetResponse { result: Some(result) }, cells))
    }

    async fn scan_meta(&self, call: Call) -> Outcome {
        let deadline = deadline(&call);
        let request: proto::ScanRequest = decode_parameter(call.parameter)?;
        let closes = request.close_scanner();
        let (id, mut scanner) = match (request.scanner_id, &request.scan) {
            (Some(id), None) => {
                let known = self.scanners.open.lock().remove(&id);
                match known {
                    Some(scanner) => (id, scanner),
                    // Closed by itself before.
                    None if closes => return Ok(ended(id)),
                    None => {
                        return Err(Exception::new(UNKNOWN_SCANNER, format!("scanner {id} is unknown; open it again")));
                    }
                }
            }
            (None, Some(scan)) => {
                check_region(&request.region.clone().unwrap_or_default())?;
                (self.scanners.next.fetch_add(1, Ordering::Relaxed) + 1, open(scan)?)
            }
            _ => return Err(Exception::bad_request("a scan is opened with a description or continued with a number")),
        };
        if let Some(seq) = request.next_call_seq {
            if seq != scanner.next_seq {
                let text = format!("scanner {id} expects call {} and got {seq}", scanner.next_seq);
                return Err(Exception::new(OUT_OF_ORDER_SCANNER, text));
            }
            scanner.next_seq += 1;
        }
        let wanted = usize::try_from(request.number_of_rows.unwrap_or(u32::from(!closes))).unwrap_or(ROWS_MAX);
        if closes && wanted == 0 {
            return Ok(ended(id));
        }
        let limit = usize::try_from(request.limit_of_rows()).ok().filter(|&limit| limit > 0);
        let most = limit.map_or(wanted, |limit| limit.min(wanted)).min(ROWS_MAX);
        let mut response =
            proto::ScanResponse { scanner_id: Some(id), ttl: Some(LEASE_MS), ..proto::ScanResponse::default() };
        let (mut cells, mut more, mut count) = (Vec::new(), true, 0);
        if !request.renew() {
            let view = self.master.view(deadline).await?;
            let mut found = view.scan(scanner.span.clone(), scanner.rows.clone());
            while count < most {
                let Some(row) = found.next() else {
                    more = false;
                    break;
                };
                let parts = (scanner.batch, false);
                push_row(&mut response, self.opened.codec, row.key_values(), parts, &mut cells)?;
                (scanner.span.start, scanner.span.include_start) = (row.key, false);
                count += 1;
            }
        }
        let limit_met = limit.is_some_and(|limit| count >= limit);
        response.more_results = Some(!limit_met);
        response.more_results_in_region = Some(more && !limit_met);
        if more && !limit_met && !closes {
            let mut open = self.scanners.open.lock();
            if open.len() >= SCANNERS_MAX {
                let text = format!("this connection has {SCANNERS_MAX} open scanners of hbase:meta; close some");
                return Err(Exception::new(REGION_TOO_BUSY, text));
            }
            open.insert(id, scanner);
        }
        Ok(Answer::with_cells(&response, cells))
    }
}

fn open(scan: &proto::Scan) -> Result<MetaScanner, Exception> {
    refuse(scan.filter.is_some(), "filters")?;
    let batch = scan.batch_size.and_then(|size| usize::try_from(size).ok()).filter(|&size| size > 0);
    let (start, stop) = (scan.start_row.clone().unwrap_or_default(), scan.stop_row.clone().unwrap_or_default());
    let is_row = scan.include_stop_row.is_none() && !start.is_empty() && start == stop;
    let span = Span {
        start,
        include_start: scan.include_start_row(),
        stop,
        include_stop: is_row || scan.include_stop_row(),
        reversed: scan.reversed(),
    };
    Ok(MetaScanner {
        span,
        rows: rows(&scan.column, scan.time_range.as_ref()),
        batch: batch.unwrap_or(usize::MAX),
        next_seq: 0,
    })
}

fn rows(columns: &[proto::Column], times: Option<&proto::TimeRange>) -> Rows {
    Rows {
        times: bounds(times),
        columns: columns.iter().map(|column| (column.family.clone(), column.qualifier.clone())).collect(),
    }
}

fn check_region(region: &proto::RegionSpecifier) -> Result<(), Exception> {
    if is_meta(region) {
        return Ok(());
    }
    let text = format!("region {} is not served by a master", escape(&region.value));
    Err(Exception::new(NOT_SERVING_REGION, text))
}

fn refuse(asked: bool, what: &str) -> Result<(), Exception> {
    if asked { Err(Exception::bad_request(&format!("{what} are not supported on hbase:meta yet"))) } else { Ok(()) }
}

/// The answer to a close.
fn ended(id: u64) -> Answer {
    let (more_results, more_results_in_region) = (Some(false), Some(false));
    Answer::of(&proto::ScanResponse {
        scanner_id: Some(id),
        more_results,
        more_results_in_region,
        ..Default::default()
    })
}
