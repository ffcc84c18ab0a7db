//! The sealing and opening of page tokens as requests, and their replies.

use bytes::Bytes;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use terrane_types::{KeyRange, TableId};

use crate::wire::failure::{Failure, broken_reply};
use crate::wire::message::{Reply, Request};

/// What a page token is bound to: it opens only for the same.
#[derive(Clone, Debug)]
pub(crate) struct PageBinding {
    pub(crate) table: TableId,
    /// The whole range that is paged through.
    pub(crate) range: KeyRange,
    pub(crate) reverse: bool,
    pub(crate) filter: String,
}

/// Where a page ended.
#[derive(Clone, Debug)]
pub(crate) struct PagePosition {
    pub(crate) bucket: u32,
    /// The last row returned; empty: none yet.
    pub(crate) last: Bytes,
    pub(crate) finished: bool,
}

impl PageBinding {
    fn to_wire(&self) -> v1::PageBinding {
        v1::PageBinding {
            table: self.table.0,
            start: self.range.start.clone(),
            end: self.range.end.clone(),
            reverse: self.reverse,
            filter: self.filter.clone(),
        }
    }
}

/// The request to seal a token of these positions.
pub(crate) fn seal(binding: &PageBinding, positions: &[PagePosition]) -> Request {
    let position = |position: &PagePosition| v1::PagePosition {
        bucket: position.bucket,
        last: position.last.clone(),
        finished: position.finished,
    };
    let positions = positions.iter().map(position).collect();
    Request(request::Body::SealPage(Box::new(v1::SealPage { binding: Some(binding.to_wire()), positions })))
}

/// The sealed token in the reply.
pub(crate) fn sealed(reply: Reply) -> Result<Bytes, Failure> {
    match reply.0 {
        reply::Body::SealPage(reply) => Ok(reply.token),
        _ => Err(broken_reply("the reply to the sealing of a page token is of another kind")),
    }
}

/// The request to open a token.
pub(crate) fn open(binding: &PageBinding, token: &Bytes) -> Request {
    let open = v1::OpenPage { binding: Some(binding.to_wire()), token: token.clone() };
    Request(request::Body::OpenPage(Box::new(open)))
}

/// The positions of the opened token in the reply.
pub(crate) fn opened(reply: Reply) -> Result<Vec<PagePosition>, Failure> {
    let position = |position: v1::PagePosition| PagePosition {
        bucket: position.bucket,
        last: position.last,
        finished: position.finished,
    };
    match reply.0 {
        reply::Body::OpenPage(reply) => Ok(reply.positions.into_iter().map(position).collect()),
        _ => Err(broken_reply("the reply to the opening of a page token is of another kind")),
    }
}
