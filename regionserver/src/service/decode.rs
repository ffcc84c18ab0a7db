//! Requests of the data path from the wire into the room's own terms. What comes out has been checked as far as that is
//! possible without knowing the region.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_proto::{PACKED_FORMAT, convert, mutation, v1};
use terrane_types::{Condition, Error, Invalid, KeyRange, Merge, Projection, RegionEpoch, RegionId, TableId};

use crate::edge::{DEADLINE_DEFAULT, Header, Mutation};
use crate::operation::Request as Asked;
use crate::region::read::GetRequest;
use crate::region::scan::{BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, Cursor, ScanRequest};
use crate::region::write::RowMutation;
use crate::session::{Body, Request};
use crate::token::{Position, Token};

/// A request of a stream.
pub fn request(request: v1::Request) -> (u64, Result<Request, Error>) {
    let v1::Request { id, header: wire, body } = request;
    let decoded = header(wire).and_then(|header| {
        let (body, messages) = match body {
            Some(v1::request::Body::Mutate(body)) => {
                let messages = has_messages(&body);
                (Body::Mutate(mutate(body)), messages)
            }
            Some(v1::request::Body::Get(body)) => {
                let messages = wants_messages(body.cells_as);
                (Body::Get(get(body)?), messages)
            }
            Some(v1::request::Body::Scan(body)) => {
                let messages = wants_messages(body.cells_as);
                (Body::Scan(Box::new(scan(body)?)), messages)
            }
            Some(v1::request::Body::SealPage(_) | v1::request::Body::OpenPage(_)) | None => {
                return Err(invalid("the request has no body this server knows"));
            }
        };
        Ok(Request { header, body, messages })
    });
    (id, decoded)
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
    if header.consistency != v1::Consistency::Linearizable as i32 {
        return Err(Error::Unsupported { feature: "reading at a consistency below linearizable".to_owned() });
    }
    Ok(Header {
        table: TableId(header.table),
        region: RegionId(header.region),
        epoch: RegionEpoch(header.epoch),
        schema_version: header.schema_version,
        deadline: deadline(header.deadline_ms),
        client: client_id(&header.client_id)?,
        lowest_unsettled: header.lowest_unsettled,
    })
}

fn deadline(ms: u32) -> Duration {
    if ms == 0 { DEADLINE_DEFAULT } else { Duration::from_millis(u64::from(ms)) }
}

/// Callers without an id of their own (grpcurl) share the nil one.
fn client_id(bytes: &[u8]) -> Result<[u8; 16], Error> {
    if bytes.is_empty() {
        return Ok([0; 16]);
    }
    bytes.try_into().map_err(|_| invalid(&format!("a client id has 16 bytes, this one {}", bytes.len())))
}

/// A write; what is wrong with one row is that row's own error.
pub fn mutate(body: v1::Mutate) -> Mutation {
    let row = |row: v1::RowMutation| RowMutation {
        operation: row.operation,
        first_try_ms: row.first_try_ms,
        cells: cells(row.cells, &row.messages),
        request: asked(row.condition, row.merges, row.returns, row.return_found),
        row: row.row,
    };
    Mutation { rows: body.rows.into_iter().map(row).collect(), atomic: body.atomic }
}

/// Whether any row's cells came as messages: then so do those of its answer.
fn has_messages(body: &v1::Mutate) -> bool {
    body.rows.iter().any(|row| !row.messages.is_empty())
}

/// Whether any row's cells came packed.
pub fn has_packed(body: &v1::Mutate) -> bool {
    body.rows.iter().any(|row| !row.cells.is_empty())
}

fn asked(
    condition: Option<v1::Condition>,
    merges: Vec<v1::Merge>,
    returns: i32,
    return_found: bool,
) -> Result<Asked, Error> {
    Ok(Asked {
        condition: condition.map(Condition::try_from).transpose()?,
        merges: merges.into_iter().map(Merge::try_from).collect::<Result<_, _>>()?,
        returns: mutation::returns(returns)?,
        return_found,
    })
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
    Ok(GetRequest { rows: body.rows, projection: projection(body.projection)? })
}

/// A scan and where it begins or goes on.
pub fn scan(body: v1::Scan) -> Result<(Arc<ScanRequest>, Cursor), Error> {
    let cursor = if body.resume.is_empty() {
        let limit_left = (body.limit != 0).then_some(body.limit);
        Cursor { limit_left, offset_left: body.offset, position: Position::Start }
    } else {
        let token = Token::decode(body.resume, body.reverse)?;
        Cursor { limit_left: token.limit_left, offset_left: token.offset_left, position: token.position }
    };
    let request = ScanRequest {
        range: KeyRange::new(body.start, body.stop)?,
        reverse: body.reverse,
        projection: projection(body.projection)?,
        block_bytes: block_bytes(body.block_bytes),
        count_only: body.count_only,
    };
    Ok((Arc::new(request), cursor))
}

fn block_bytes(wanted: u32) -> usize {
    match usize::try_from(wanted) {
        Ok(0) => BLOCK_BYTES_DEFAULT,
        Ok(bytes) => bytes.min(BLOCK_BYTES_MAX),
        Err(_) => BLOCK_BYTES_MAX,
    }
}

fn projection(projection: Option<v1::Projection>) -> Result<Projection, Error> {
    match projection {
        Some(projection) => Ok(Projection::try_from(projection)?.checked()?),
        None => Ok(Projection::all()),
    }
}

pub fn wants_messages(cells_as: i32) -> bool {
    cells_as == v1::CellsAs::Messages as i32
}

fn invalid(what: &str) -> Error {
    Error::Invalid(Invalid::new(what))
}
