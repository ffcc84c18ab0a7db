//! Gets and scans of system tables. A scanner remembers the last row it has looked at, and every call renders the rows after
//! it again, so that nothing outdated is held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use terrane_regionserver::edge::RowJudge;
use terrane_types::rows::RowRefs;

use super::system::SystemTable;
use super::{TableCalls, deadline, unknown_method};
use crate::cell_block::{Codec, KeyValue};
use crate::exception::{
    Exception, NO_CLOSEST_ROW, OUT_OF_ORDER_SCANNER, REGION_TOO_BUSY, UNKNOWN_PROTOCOL, UNKNOWN_SCANNER,
};
use crate::filter::{Evaluator, StoreLimits};
use crate::frame::{Call, decode_parameter};
use crate::limits::SCAN_ANSWER_BYTES_MAX;
use crate::meta::{Row, Rows, Span, View};
use crate::proto;
use crate::results::{Part, full_answer, of_row, push_row};
use crate::serve::{Answer, Outcome};
use crate::time_range::bounds;

/// Most open scanners of a connection.
const SCANNERS_MAX: usize = 256;
/// Most rows in one answer.
const ROWS_MAX: usize = 1_000;
/// The lease that clients are told. A scanner here holds no rows, so it lasts as long as its connection.
const LEASE_MS: u32 = 60_000;

/// The scanners of one connection.
#[derive(Default)]
pub(super) struct SystemScanners {
    next: AtomicU64,
    open: Mutex<HashMap<u64, SystemScanner>>,
}

struct SystemScanner {
    table: SystemTable,
    /// What is left of the scan.
    span: Span,
    reading: Reading,
    /// Most cells of one result.
    batch: usize,
    next_seq: u64,
}

/// What a read takes of the rows it looks at.
struct Reading {
    rows: Rows,
    /// A filter, or limits of cells.
    judge: Option<Box<dyn RowJudge>>,
}

/// What of a read is about cells.
struct Wanted<'a> {
    columns: &'a [proto::Column],
    times: Option<&'a proto::TimeRange>,
    family_times: &'a [proto::ColumnFamilyTimeRange],
    versions: u32,
    filter: Option<&'a proto::Filter>,
    limits: StoreLimits,
    defers: bool,
    reversed: bool,
}

impl Reading {
    fn new(table: SystemTable, wanted: &Wanted<'_>) -> Result<Self, Exception> {
        let columns: Vec<_> =
            wanted.columns.iter().map(|column| (column.family.clone(), column.qualifier.clone())).collect();
        let judge = (wanted.filter.is_some() || wanted.limits != StoreLimits::default()).then(|| {
            let named = columns.iter().map(|(family, qualifiers)| (family.to_vec(), !qualifiers.is_empty()));
            let all = table.families().iter().filter(|_| columns.is_empty()).map(|family| (family.to_vec(), false));
            let evaluator = Evaluator::new(wanted.filter, wanted.versions, wanted.limits)?;
            let evaluator = evaluator.deferring(wanted.defers).reversed(wanted.reversed).reading(named.chain(all));
            Ok(Box::new(evaluator) as Box<dyn RowJudge>)
        });
        let judge =
            judge.transpose().map_err(|refused: terrane_types::Invalid| Exception::bad_request(&refused.what))?;
        let of_family =
            |times: &proto::ColumnFamilyTimeRange| (times.column_family.clone(), bounds(Some(&times.time_range)));
        let family_times = wanted.family_times.iter().map(of_family).collect();
        Ok(Self { rows: Rows { times: bounds(wanted.times), family_times, columns }, judge })
    }

    /// What is returned of a row, packed; `None`: nothing.
    fn take(&mut self, row: &Row) -> Result<Option<Bytes>, Exception> {
        let mut packed = row.pack();
        if let Some(judge) = &mut self.judge {
            let shown = judge.judge(&mut packed, 0).map_err(|refused| Exception::bad_request(&refused.what))?;
            if !shown {
                return Ok(None);
            }
        }
        Ok(Some(packed.into()))
    }

    /// Whether no further row is returned.
    fn is_done(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| judge.is_done())
    }

    /// Whether the filter ends the scan, as far as clients are told.
    fn is_over(&self) -> bool {
        self.judge.as_ref().is_some_and(|judge| judge.is_over())
    }
}

impl TableCalls {
    /// A call of `ClientService`: of a master, it is about system tables.
    pub(super) async fn read_system(&self, call: Call) -> Outcome {
        match call.method.as_str() {
            "Get" => {
                let until = deadline(&call);
                let request: proto::GetRequest = decode_parameter(call.parameter)?;
                let table = SystemTable::of_region(&request.region)?;
                let (view, mut cells) = (self.view(table, until).await?, Vec::new());
                let codec = self.opened.codec_of_gets();
                let result = get_system(codec, table, &view, &request.get, &mut cells)?;
                Ok(Answer::with_cells(&proto::GetResponse { result: Some(result) }, cells))
            }
            "Scan" => self.scan_system(call).await,
            "Multi" => self.get_many(call).await,
            "Mutate" => Err(read_only()),
            other => Err(unknown_method("ClientService", other)),
        }
    }

    /// A batch: its gets are carried out, and its writes refused one by one.
    async fn get_many(&self, call: Call) -> Outcome {
        let until = deadline(&call);
        let request: proto::MultiRequest = decode_parameter(call.parameter)?;
        let (mut response, mut cells, mut bytes) = (proto::MultiResponse::default(), Vec::new(), 0);
        // Each table is rendered once for the whole batch.
        let mut views: Vec<(SystemTable, View)> = Vec::new();
        for of_region in &request.region_action {
            let mut result = proto::RegionActionResult::default();
            let table = match SystemTable::of_region(&of_region.region) {
                Ok(table) => table,
                Err(refused) => {
                    result.exception = Some(refused.to_pair());
                    response.region_action_result.push(result);
                    continue;
                }
            };
            if !views.iter().any(|(known, _)| *known == table) {
                views.push((table, self.view(table, until).await?));
            }
            let view = views.iter().find(|(known, _)| *known == table).map(|(_, view)| view);
            for action in &of_region.action {
                let outcome = match (&action.get, view) {
                    (Some(_), _) if bytes + cells.len() >= SCAN_ANSWER_BYTES_MAX => Err(full_answer(&self.opened)),
                    (Some(get), Some(view)) => get_system(self.opened.codec, table, view, get, &mut cells),
                    _ => Err(read_only()),
                };
                let index = action.index;
                result.result_or_exception.push(match outcome {
                    Ok(result) => {
                        bytes += result.encoded_len();
                        proto::ResultOrException { index, result: Some(result), exception: None }
                    }
                    Err(refused) => {
                        proto::ResultOrException { index, result: None, exception: Some(refused.to_pair()) }
                    }
                });
            }
            response.region_action_result.push(result);
        }
        Ok(Answer::with_cells(&response, cells))
    }

    async fn scan_system(&self, call: Call) -> Outcome {
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
                let table = SystemTable::of_region(&request.region.clone().unwrap_or_default())?;
                (self.scanners.next.fetch_add(1, Ordering::Relaxed) + 1, open(table, scan)?)
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
            let view = self.view(scanner.table, deadline).await?;
            let mut found = view.scan(scanner.span.clone(), scanner.reading.rows.clone());
            while count < most {
                let next = if scanner.reading.is_done() { None } else { found.next() };
                let Some(row) = next else {
                    more = false;
                    break;
                };
                let taken = scanner.reading.take(&row)?;
                (scanner.span.start, scanner.span.include_start) = (row.key, false);
                let Some(packed) = taken else { continue };
                let part = Part { batch: scanner.batch, continues: false, joins: false };
                for row in RowRefs::new(&packed) {
                    let row = row.map_err(|malformed| Exception::bad_request(&malformed.what))?;
                    let of_row = row.cells().map(|cell| KeyValue { row: row.row, cell });
                    push_row(&mut response, self.opened.codec, of_row, part, &mut cells)?;
                }
                count += 1;
            }
        }
        let limit_met = limit.is_some_and(|limit| count >= limit);
        // With rows in the answer, a filter ends the region only, as in the other tables.
        response.more_results = Some(!(limit_met || (scanner.reading.is_over() && count == 0)));
        response.more_results_in_region = Some(more && !limit_met);
        if more && !limit_met && !closes {
            let mut open = self.scanners.open.lock();
            if open.len() >= SCANNERS_MAX {
                let text = format!("this connection has {SCANNERS_MAX} open scanners of system tables; close some");
                return Err(Exception::new(REGION_TOO_BUSY, text));
            }
            open.insert(id, scanner);
        }
        Ok(Answer::with_cells(&response, cells))
    }
}

/// The result of a get, whose cells are appended to the cell block.
fn get_system(
    codec: Option<Codec>,
    table: SystemTable,
    view: &View,
    get: &proto::Get,
    cells: &mut Vec<u8>,
) -> Result<proto::Result, Exception> {
    if get.closest_row_before() {
        return Err(Exception::new(UNKNOWN_PROTOCOL, NO_CLOSEST_ROW));
    }
    let wanted = Wanted {
        columns: &get.column,
        times: get.time_range.as_ref(),
        family_times: &get.cf_time_range,
        versions: get.max_versions(),
        filter: get.filter.as_ref(),
        limits: StoreLimits { limit: get.store_limit, offset: get.store_offset() },
        defers: get.load_column_families_on_demand.unwrap_or(true),
        reversed: false,
    };
    let mut reading = Reading::new(table, &wanted)?;
    let row = view.scan(Span::row(get.row.clone()), reading.rows.clone()).next();
    let packed = row.map(|row| reading.take(&row)).transpose()?.flatten();
    of_row(codec, &packed.unwrap_or_default(), get.existence_only(), cells)
}

fn open(table: SystemTable, scan: &proto::Scan) -> Result<SystemScanner, Exception> {
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
    let wanted = Wanted {
        columns: &scan.column,
        times: scan.time_range.as_ref(),
        family_times: &scan.cf_time_range,
        versions: scan.max_versions(),
        filter: scan.filter.as_ref(),
        limits: StoreLimits { limit: scan.store_limit, offset: scan.store_offset() },
        defers: scan.load_column_families_on_demand.unwrap_or(true),
        reversed: scan.reversed(),
    };
    let reading = Reading::new(table, &wanted)?;
    Ok(SystemScanner { table, span, reading, batch: batch.unwrap_or(usize::MAX), next_seq: 0 })
}

fn read_only() -> Exception {
    Exception::bad_request("system tables are rendered from the catalog and take no writes")
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::render_namespace;

    fn namespace(name: &'static str) -> Row {
        render_namespace(&proto::NamespaceDescriptor { name: name.into(), configuration: Vec::new() }, 7)
    }

    fn scanner(scan: proto::Scan) -> SystemScanner {
        open(SystemTable::Namespace, &scan).unwrap()
    }

    #[test]
    fn a_filter_keeps_its_state_from_one_row_to_the_next() {
        let page = proto::PageFilter { page_size: 2 }.encode_to_vec().into();
        let filter = proto::Filter {
            name: "org.apache.hadoop.hbase.filter.PageFilter".to_owned(),
            serialized_filter: Some(page),
        };
        let mut reading = scanner(proto::Scan { filter: Some(filter), ..Default::default() }).reading;
        for (name, shown, done) in [("a", true, false), ("b", true, true)] {
            assert_eq!(reading.take(&namespace(name)).unwrap().is_some(), shown, "{name}");
            assert_eq!(reading.is_done(), done, "{name}");
        }
    }

    #[test]
    fn cells_are_skipped_and_limited_per_family() {
        let taken = |limit, offset| {
            let scan = proto::Scan { store_limit: limit, store_offset: offset, ..Default::default() };
            scanner(scan).reading.take(&namespace("a")).unwrap().is_some()
        };
        assert!(taken(Some(1), None) && taken(None, None));
        assert!(!taken(None, Some(1)), "the only cell is left out, and so is the row");
    }

    #[test]
    fn a_filter_that_is_unknown_is_refused_when_the_scan_is_opened() {
        let filter = proto::Filter { name: "org.example.Mine".to_owned(), serialized_filter: None };
        let refused =
            open(SystemTable::Meta, &proto::Scan { filter: Some(filter), ..Default::default() }).err().unwrap();
        assert!(refused.do_not_retry, "{}", refused.text);
    }

    #[test]
    fn a_region_that_is_not_of_a_system_table_is_not_served() {
        let specifier = crate::region_name::specifier(Bytes::from_static(b"t,,1"));
        assert_eq!(SystemTable::of_region(&specifier).unwrap_err().class, crate::exception::NOT_SERVING_REGION.name);
        let meta = crate::region_name::specifier(Bytes::from_static(b"hbase:meta,,1"));
        assert_eq!(SystemTable::of_region(&meta), Ok(SystemTable::Meta));
    }
}
