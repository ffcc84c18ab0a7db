//! Answers of the data path onto the wire.

use bytes::Bytes;
use terrane_proto::{convert, error, mutation, v1};
use terrane_types::Error;

use super::decode::RequestKey;
use crate::edge::page_token::Position;
use crate::edge::{Answer, Committed, Mutated, PartsHere, RowFailure};
use crate::region::aggregate::Totals;
use crate::region::scan::Block;

/// An answer of a stream; `schema_version` is what the caller does not know of the table yet, or 0.
pub fn reply(key: RequestKey, answer: Result<Answer, Error>, schema_version: u64) -> v1::Reply {
    let RequestKey { id, messages } = key;
    let body = match answer.and_then(|answer| body(answer, messages)) {
        Ok(body) => body,
        Err(refused) => v1::reply::Body::Error(Box::new(error::detail(&refused))),
    };
    v1::Reply { id, body: Some(body), schema_version }
}

fn body(answer: Answer, messages: bool) -> Result<v1::reply::Body, Error> {
    Ok(match answer {
        Answer::Mutated(mutated) => v1::reply::Body::Mutate(mutate(mutated, messages)),
        Answer::Rows { rows, as_of_ms } => v1::reply::Body::Get(v1::GetReply { as_of_ms, ..get(rows, messages)? }),
        Answer::Block { block, reverse, as_of_ms } => {
            v1::reply::Body::Scan(Box::new(v1::ScanBlock { as_of_ms, ..scan(*block, reverse, messages)? }))
        }
        Answer::PartsHere(PartsHere { parts, timestamp_ms }) => {
            v1::reply::Body::BulkPart(v1::BulkPartReply { parts, timestamp_ms })
        }
        Answer::Committed(committed) => v1::reply::Body::BulkCommit(match committed {
            Committed::Loaded => v1::BulkCommitReply { loaded: true, ..Default::default() },
            Committed::Pending => v1::BulkCommitReply { pending: true, ..Default::default() },
            Committed::Missing { parts } => v1::BulkCommitReply { parts, ..Default::default() },
        }),
        Answer::Sealed(token) => v1::reply::Body::SealPage(v1::SealPageReply { token }),
        Answer::Opened(positions) => v1::reply::Body::OpenPage(opened(positions)),
    })
}

pub fn mutate(mutated: Mutated, messages: bool) -> v1::MutateReply {
    let Mutated { errors, results, stamp } = mutated;
    let error = |RowFailure { row, error, decided }| v1::RowError { row, error: Some(error::detail(&error)), decided };
    let result = |(row, outcome)| mutation::row_result(row, outcome, messages);
    v1::MutateReply {
        errors: errors.into_iter().map(error).collect(),
        stamp,
        results: results.into_iter().map(result).collect(),
    }
}

pub fn get(rows: Vec<u8>, messages: bool) -> Result<v1::GetReply, Error> {
    let (rows, messages) = cells(rows, messages)?;
    Ok(v1::GetReply { rows, messages, as_of_ms: 0 })
}

pub fn scan(block: Block, reverse: bool, messages: bool) -> Result<v1::ScanBlock, Error> {
    let resume = block.token(reverse).encode().map_err(|error| Error::Internal { message: error.to_string() })?;
    let sequence = block.cursor.sequence;
    let (rows, messages) = cells(block.rows, messages)?;
    let group = block.cursor.group.unwrap_or_default();
    Ok(v1::ScanBlock {
        rows,
        messages,
        row_count: block.row_count,
        resume,
        done: block.done,
        limit_left: block.cursor.limit_left.unwrap_or(0),
        offset_left: block.cursor.offset_left,
        row_continues: block.row_continues,
        row_restarted: block.row_restarted,
        cells_skipped: block.cells_skipped,
        region: Some(v1::RegionDescriptor::from(&block.region)),
        error: None,
        aggregate: block.cursor.totals.map(aggregate),
        as_of_ms: 0,
        last_prefix: group.prefix,
        prefix_given: group.returned,
        ended: block.ended,
        sequence,
    })
}

fn aggregate(totals: Totals) -> v1::AggregatePart {
    let Totals { rows, values, sum, extremes } = totals;
    let (min, max) = extremes.map(|(least, greatest)| (least.wire(), greatest.wire())).unwrap_or_default();
    let sum = if values > 0 { sum.wire() } else { Bytes::new() };
    v1::AggregatePart { rows, values, sum, min, max }
}

pub fn opened(positions: Vec<Position>) -> v1::OpenPageReply {
    let wire = |Position { bucket, last, finished }| v1::PagePosition { bucket, last, finished };
    v1::OpenPageReply { positions: positions.into_iter().map(wire).collect() }
}

fn cells(rows: Vec<u8>, messages: bool) -> Result<(Bytes, Vec<v1::Row>), Error> {
    if messages { Ok((Bytes::new(), convert::row_messages(rows.into())?)) } else { Ok((rows.into(), Vec::new())) }
}

/// About what a reply takes on the wire: enough to keep a batch of replies below a bound.
pub fn reply_bytes(reply: &v1::Reply) -> usize {
    match &reply.body {
        Some(v1::reply::Body::Get(get)) => get.rows.len() + messages_bytes(&get.messages),
        Some(v1::reply::Body::Scan(scan)) => scan.rows.len() + messages_bytes(&scan.messages),
        Some(v1::reply::Body::Mutate(mutate)) => {
            let of_result = |result: &v1::RowResult| {
                32 + result.cells.len() + result.messages.iter().map(message_bytes).sum::<usize>()
            };
            let of_error = |error: &v1::RowError| 32 + error.error.as_ref().map_or(0, error::detail_bytes);
            let errors: usize = mutate.errors.iter().map(of_error).sum();
            64 + errors + mutate.results.iter().map(of_result).sum::<usize>()
        }
        Some(v1::reply::Body::SealPage(sealed)) => 16 + sealed.token.len(),
        Some(v1::reply::Body::OpenPage(opened)) => {
            opened.positions.iter().map(|position| 16 + position.last.len()).sum()
        }
        Some(v1::reply::Body::Error(error)) => 16 + error::detail_bytes(error),
        Some(v1::reply::Body::BulkPart(_) | v1::reply::Body::BulkCommit(_)) | None => 16,
    }
}

fn messages_bytes(messages: &[v1::Row]) -> usize {
    let of_row = |row: &v1::Row| row.row.len() + 8 + row.cells.iter().map(message_bytes).sum::<usize>();
    messages.iter().map(of_row).sum()
}

fn message_bytes(cell: &v1::Cell) -> usize {
    cell.family.len() + cell.qualifier.len() + cell.value.len() + 24
}
