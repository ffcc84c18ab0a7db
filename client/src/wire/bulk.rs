//! The steps of a bulk load as requests, and their replies.

use bytes::Bytes;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};

use crate::wire::failure::{Failure, broken_reply};
use crate::wire::message::{Reply, Request};

/// A row of a bulk load: packed cells, all of them puts.
#[derive(Clone, Debug)]
pub(crate) struct LoadRow {
    pub(crate) row: Bytes,
    pub(crate) cells: Bytes,
}

/// What the leader has of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedParts {
    pub(crate) parts: u32,
    /// The time of cells without one.
    pub(crate) timestamp_ms: u64,
}

/// What became of a run that was to be taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    Loaded,
    Pending,
    /// The leader has so many parts of it.
    Missing {
        parts: u32,
    },
}

/// A part of a run. `timestamp_ms` is 0 until a server has named one.
pub(crate) fn part(run: &[u8; 16], part: u32, rows: &[LoadRow], timestamp_ms: u64) -> Request {
    let row = |row: &LoadRow| v1::RowMutation {
        row: row.row.clone(),
        cells: row.cells.clone(),
        ..v1::RowMutation::default()
    };
    let (run, rows) = (Bytes::copy_from_slice(run), rows.iter().map(row).collect());
    Request(request::Body::BulkPart(Box::new(v1::BulkPart { run, part, rows, timestamp_ms })))
}

/// The reply to a part.
pub(crate) fn received_parts(reply: Reply) -> Result<ReceivedParts, Failure> {
    match reply.0 {
        reply::Body::BulkPart(v1::BulkPartReply { parts, timestamp_ms }) => Ok(ReceivedParts { parts, timestamp_ms }),
        _ => Err(broken_reply("the reply to a part of a bulk load is of another kind")),
    }
}

/// The request to take a run in.
pub(crate) fn commit(run: &[u8; 16], parts: u32, operations: Vec<u64>, first_try_ms: u64) -> Request {
    let run = Bytes::copy_from_slice(run);
    Request(request::Body::BulkCommit(Box::new(v1::BulkCommit { run, parts, operations, first_try_ms })))
}

/// The reply to that.
pub(crate) fn committed(reply: Reply) -> Result<Committed, Failure> {
    match reply.0 {
        reply::Body::BulkCommit(v1::BulkCommitReply { loaded: true, .. }) => Ok(Committed::Loaded),
        reply::Body::BulkCommit(v1::BulkCommitReply { pending: true, .. }) => Ok(Committed::Pending),
        reply::Body::BulkCommit(v1::BulkCommitReply { parts, .. }) => Ok(Committed::Missing { parts }),
        _ => Err(broken_reply("the reply to the commit of a bulk load is of another kind")),
    }
}
