//! Requests of the data path, from the wire into the edge's values. What comes out has been checked as far as that is
//! possible without knowing the region.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_env::trace::TraceContext;
use terrane_filter::Filter;
use terrane_proto::{PACKED_FORMAT, convert, mutation, v1};
use terrane_types::limits::{GET_ROWS_MAX, ROW_BYTES_MAX, SCAN_BLOCK_BYTES_DEFAULT, SCAN_BLOCK_BYTES_MAX};
use terrane_types::{Condition, Error, Invalid, KeyRange, Projection, ReadModifyWrite, RegionEpoch, RegionId, TableId};

use crate::edge::consistency::Consistency;
use crate::edge::page_token::{self, Binding};
use crate::edge::{Body, Bulk, Commit, DEADLINE_DEFAULT, Header, Mutation, Part, Request};
use crate::group::proposal::RowRequest;
use crate::region::aggregate::Aggregate;
use crate::region::filter::Lookup;
use crate::region::latest::{Cut, Latest, PrefixProgress};
use crate::region::read::GetRequest;
use crate::region::resume_token::{Position, ResumeToken};
use crate::region::scan::{Cursor, ScanRequest};
use crate::region::write::ReceivedRow;
use crate::window::UnderWay;

/// What the answer to a request of a stream needs.
#[derive(Clone, Copy, Debug)]
pub struct RequestKey {
    pub id: u64,
    /// The caller wants cells as messages.
    pub messages: bool,
}

/// A request of a stream.
pub fn request(request: v1::Request) -> (RequestKey, Result<Request, Error>) {
    let v1::Request { id, header, body } = request;
    let messages = match &body {
        Some(v1::request::Body::Mutate(body)) => has_messages(body),
        Some(v1::request::Body::Get(body)) => wants_messages(body.cells_as),
        Some(v1::request::Body::Scan(body)) => wants_messages(body.cells_as),
        _ => false,
    };
    (RequestKey { id, messages }, typed(header, body))
}

fn typed(mut wire: Option<v1::RequestHeader>, body: Option<v1::request::Body>) -> Result<Request, Error> {
    let waits_for = take_under_way(&mut wire);
    let header = header(wire)?;
    let body = match body {
        Some(v1::request::Body::Mutate(body)) => Body::Mutate(mutate(body, waits_for)?),
        Some(v1::request::Body::Get(body)) => Body::Get(get(body)?),
        Some(v1::request::Body::Scan(body)) => Body::Scan(Box::new(scan(*body)?)),
        Some(v1::request::Body::BulkPart(body)) => Body::Bulk(Box::new(Bulk::Part(bulk_part(*body)?))),
        Some(v1::request::Body::BulkCommit(body)) => {
            let commit = bulk_commit(*body, &header)?;
            Body::Bulk(Box::new(Bulk::Commit(commit, waits_for.map(under_way).transpose()?)))
        }
        Some(v1::request::Body::SealPage(body)) => Body::SealPage(Box::new(seal_page(*body)?)),
        Some(v1::request::Body::OpenPage(body)) => Body::OpenPage(Box::new(open_page(*body)?)),
        None => return Err(invalid("the request has no body this server knows")),
    };
    Ok(Request { header, body })
}

/// The header of every data request.
pub fn header(header: Option<v1::RequestHeader>) -> Result<Header, Error> {
    let header = header.ok_or_else(|| invalid("the request has no header"))?;
    if let Some(feature) = header.required_features.first() {
        return Err(Error::Unsupported { feature: format!("required feature {feature}") });
    }
    if header.format != PACKED_FORMAT {
        let feature = format!("format {} of packed bytes (this server reads {PACKED_FORMAT})", header.format);
        return Err(Error::Unsupported { feature });
    }
    Ok(Header {
        table: TableId(header.table),
        region: RegionId(header.region),
        epoch: RegionEpoch(header.epoch),
        schema_version: header.schema_version,
        exact_schema: header.exact_schema,
        deadline: deadline(header.deadline_ms),
        client: client_id(&header.client_id)?,
        lowest_unsettled: header.lowest_unsettled,
        consistency: consistency(header.consistency)?,
        trace: TraceContext::from_bytes(&header.trace).map_err(|bad| invalid(&bad.to_string()))?,
    })
}

fn consistency(wire: i32) -> Result<Consistency, Error> {
    match v1::Consistency::try_from(wire) {
        Ok(v1::Consistency::Linearizable) => Ok(Consistency::Linearizable),
        Ok(v1::Consistency::Strict) => Ok(Consistency::Strict),
        Ok(v1::Consistency::Stale) => Ok(Consistency::Stale),
        Err(_) => Err(Error::Unsupported { feature: format!("consistency {wire}") }),
    }
}

/// A request for a page token.
pub fn seal_page(body: v1::SealPage) -> Result<(Binding, Vec<page_token::Position>), Error> {
    let position = |position: v1::PagePosition| page_token::Position {
        bucket: position.bucket,
        last: position.last,
        finished: position.finished,
    };
    Ok((binding(body.binding)?, body.positions.into_iter().map(position).collect()))
}

/// A page token to be read.
pub fn open_page(body: v1::OpenPage) -> Result<(Binding, Bytes), Error> {
    Ok((binding(body.binding)?, body.token))
}

fn binding(binding: Option<v1::PageBinding>) -> Result<Binding, Error> {
    let binding =
        binding.ok_or_else(|| invalid("a page token is bound to a table and a range; the call names none"))?;
    let v1::PageBinding { table, start, end, reverse, filter } = binding;
    Ok(Binding { table: TableId(table), start, end, reverse, filter })
}

fn deadline(ms: u32) -> Duration {
    if ms == 0 { DEADLINE_DEFAULT } else { Duration::from_millis(u64::from(ms)) }
}

/// Callers without their own id (grpcurl) share the nil one.
fn client_id(bytes: &[u8]) -> Result<[u8; 16], Error> {
    if bytes.is_empty() {
        return Ok([0; 16]);
    }
    bytes.try_into().map_err(|_| invalid(&format!("a client id has 16 bytes, this one {}", bytes.len())))
}

/// The numbers that the client says it waits for.
pub fn take_under_way(header: &mut Option<v1::RequestHeader>) -> Option<v1::UnderWay> {
    header.as_mut()?.under_way.take()
}

fn under_way(wire: v1::UnderWay) -> Result<UnderWay, Error> {
    let (pairs, rest) = wire.ranges.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(invalid("the last range of numbers under way has no end"));
    }
    let ranges = pairs.iter().map(|[first, last]| (*first, *last)).collect();
    UnderWay::new(wire.below, ranges).map_err(|error| invalid(&error.to_string()))
}

/// A write; what is wrong with one row is that row's own error.
pub fn mutate(body: v1::Mutate, waits_for: Option<v1::UnderWay>) -> Result<Mutation, Error> {
    let row = |row: v1::RowMutation| ReceivedRow {
        operation: row.operation,
        first_try_ms: row.first_try_ms,
        cells: cells(row.cells, &row.messages),
        delete_row: row.delete_row,
        request: row_request(row.condition, row.read_modify_writes, row.returns, row.return_found),
        row: row.row,
    };
    let under_way = waits_for.map(under_way).transpose()?;
    Ok(Mutation { rows: body.rows.into_iter().map(row).collect(), atomic: body.atomic, under_way })
}

/// A part of a run of a bulk load.
fn bulk_part(body: v1::BulkPart) -> Result<Part, Error> {
    let row = |row: v1::RowMutation| {
        let is_plain = !row.delete_row && row.condition.is_none() && row.read_modify_writes.is_empty();
        if !is_plain || row.returns != 0 {
            return Err(invalid("rows of a bulk load have cells and nothing else"));
        }
        let (cells, request) = (cells(row.cells, &row.messages), Ok(None));
        Ok(ReceivedRow { operation: 0, first_try_ms: 0, delete_row: false, cells, request, row: row.row })
    };
    let rows = body.rows.into_iter().map(row).collect::<Result<_, _>>()?;
    Ok(Part { run: run_id(&body.run)?, part: body.part, rows, timestamp_ms: body.timestamp_ms })
}

fn bulk_commit(body: v1::BulkCommit, header: &Header) -> Result<Commit, Error> {
    let v1::BulkCommit { run, parts, operations, first_try_ms } = body;
    let (client, lowest_unsettled) = (header.client, header.lowest_unsettled);
    Ok(Commit { client, lowest_unsettled, run: run_id(&run)?, parts, operations, first_try_ms })
}

fn run_id(bytes: &[u8]) -> Result<[u8; 16], Error> {
    bytes.try_into().map_err(|_| invalid(&format!("the id of a run has 16 bytes, this one {}", bytes.len())))
}

/// Whether any row's cells came as messages: then so do those of its answer.
fn has_messages(body: &v1::Mutate) -> bool {
    body.rows.iter().any(|row| !row.messages.is_empty())
}

/// Whether any row's cells came packed.
pub fn has_packed(body: &v1::Mutate) -> bool {
    body.rows.iter().any(|row| !row.cells.is_empty())
}

fn row_request(
    condition: Option<v1::Condition>,
    read_modify_writes: Vec<v1::ReadModifyWrite>,
    returns: i32,
    return_found: bool,
) -> Result<Option<Box<RowRequest>>, Error> {
    let request = RowRequest {
        condition: condition.map(Condition::try_from).transpose()?,
        read_modify_writes: read_modify_writes.into_iter().map(ReadModifyWrite::try_from).collect::<Result<_, _>>()?,
        returns: mutation::returns(returns)?,
        return_found,
        ttl_ms: None,
        extras: Default::default(),
    };
    Ok(request.boxed())
}

fn cells(packed: Bytes, messages: &[v1::Cell]) -> Result<Bytes, Error> {
    match (packed.is_empty(), messages.is_empty()) {
        (_, true) => Ok(packed),
        (true, false) => Ok(convert::pack_messages(messages)?.into_bytes()),
        (false, false) => Err(invalid("a mutation carries cells packed and as messages; send one of the two")),
    }
}

/// A read by key.
pub fn get(body: v1::Get) -> Result<GetRequest, Error> {
    if body.rows.len() > GET_ROWS_MAX {
        let rows = body.rows.len();
        return Err(invalid(&format!(
            "the get asks for {rows} rows; the limit is {GET_ROWS_MAX}: ask for fewer at once"
        )));
    }
    let (projection, filter) = projection(body.projection)?;
    let filter = filter.as_ref();
    let lookup = if body.exists_only { Lookup::exists(projection, filter) } else { Lookup::new(projection, filter) };
    Ok(GetRequest { rows: body.rows, lookup, exists_only: body.exists_only })
}

/// A scan, and where it begins or continues.
pub fn scan(body: v1::Scan) -> Result<(Arc<ScanRequest>, Cursor), Error> {
    let aggregate = body.aggregate.map(|of| Aggregate::new(&of.family, of.qualifier, &of.read_as)).transpose()?;
    let (latest, group) = body.latest.map(latest).transpose()?.unzip();
    let (mut projection, filter) = projection(body.projection)?;
    // Values are what is summed up; none are sent.
    projection.keys_only &= aggregate.is_none();
    let lookup = Lookup::new(projection, filter.as_ref());
    let cursor = if body.resume.is_empty() {
        // A page of the filter is a limit, whichever is less.
        let limit_left = [(body.limit != 0).then_some(body.limit), lookup.page()].into_iter().flatten().min();
        let totals = aggregate.as_ref().map(Aggregate::nothing);
        let (position, sequence) = (Position::Start, body.at_sequence);
        Cursor { limit_left, offset_left: body.offset, position, group, totals, sequence }
    } else {
        let token = ResumeToken::decode(body.resume, body.reverse)?;
        let ResumeToken { limit_left, offset_left, position, group, totals, sequence, .. } = token;
        let fits = match (&aggregate, &totals) {
            (None, None) => true,
            (Some(aggregate), Some(totals)) => aggregate.fits(totals),
            _ => false,
        };
        if !fits || group.is_some() != latest.is_some() {
            return Err(invalid("the resume token belongs to a scan that aggregates otherwise; start the scan again"));
        }
        Cursor { limit_left, offset_left, position, group, totals, sequence }
    };
    if body.at_sequence.is_some() && !body.snapshot {
        return Err(invalid("a scan at a sequence number is a snapshot scan: set `snapshot` too"));
    }
    let request = ScanRequest {
        range: KeyRange::new(body.start, body.end)?,
        reverse: body.reverse,
        lookup,
        block_bytes: block_bytes(body.block_bytes),
        count_only: body.count_only,
        aggregate,
        latest,
        fills_cache: !body.fill_cache_never,
        snapshot: body.snapshot,
    };
    Ok((Arc::new(request), cursor))
}

/// What is requested for each prefix, and how far the regions before got with the prefix in which they ended.
fn latest(wire: v1::Latest) -> Result<(Latest, PrefixProgress), Error> {
    let cut = match wire.prefix {
        Some(v1::latest::Prefix::Parts(parts)) => Cut::Parts(parts),
        Some(v1::latest::Prefix::Bytes(bytes)) => Cut::Bytes(bytes),
        None => Cut::Bytes(0),
    };
    if wire.last_prefix.len() > ROW_BYTES_MAX {
        return Err(invalid("the last prefix is longer than a row"));
    }
    let latest = Latest { cut, rows: wire.rows }.checked()?;
    Ok((latest, PrefixProgress { prefix: wire.last_prefix, returned: wire.given }))
}

fn block_bytes(wanted: u32) -> usize {
    match usize::try_from(wanted) {
        Ok(0) => terrane_env::limit!("bytes of a block of a scan", SCAN_BLOCK_BYTES_DEFAULT, 64..=2048),
        Ok(bytes) => bytes.min(SCAN_BLOCK_BYTES_MAX),
        Err(_) => SCAN_BLOCK_BYTES_MAX,
    }
}

fn projection(projection: Option<v1::Projection>) -> Result<(Projection, Option<Filter>), Error> {
    let Some(projection) = projection else { return Ok((Projection::all(), None)) };
    let (projection, text) = terrane_proto::projection::projection(projection)?;
    let filter = if text.is_empty() { None } else { Some(Filter::from_text(&text).map_err(Invalid::from)?) };
    if let Some(part) = filter.as_ref().and_then(Filter::part_without_key) {
        let what =
            format!("the filter tests key({part}) without the table's key, as in key('user:u64, time:desc i64', user)");
        return Err(Invalid::new(what).into());
    }
    Ok((projection, filter))
}

pub fn wants_messages(cells_as: i32) -> bool {
    cells_as == v1::CellsAs::Messages as i32
}

fn invalid(what: &str) -> Error {
    Error::Invalid(Invalid::new(what))
}
