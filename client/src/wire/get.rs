//! Gets as requests, and their replies.

use bytes::Bytes;
use terrane_proto::v1;
use terrane_proto::v1::{reply, request};
use terrane_types::{PackedRow, PackedRows, Projection};

use crate::consistency::AsOf;
use crate::wire::failure::{Failure, broken_reply};
use crate::wire::message::{Reply, Request};

/// What a get or scan returns of each row: the projection, and the text of its filter. The projection itself has no filter:
/// servers read the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadSpec {
    pub(crate) projection: Projection,
    /// Empty: no filter.
    pub(crate) filter: String,
}

impl ReadSpec {
    pub(super) fn to_wire(&self) -> v1::Projection {
        v1::Projection { filter: self.filter.clone(), ..v1::Projection::from(&self.projection) }
    }
}

/// The request for rows of one region by key. `exists_only`: rows come without cells.
pub(crate) fn request(rows: Vec<Bytes>, spec: &ReadSpec, exists_only: bool) -> Request {
    let projection = Some(spec.to_wire());
    Request(request::Body::Get(v1::Get { rows, projection, exists_only, ..v1::Get::default() }))
}

/// The rows in the reply, each made into a `T`; rows without a visible cell are not in it.
pub(crate) fn rows<T>(reply: Reply, row: impl Fn(PackedRow) -> T) -> Result<AsOf<Vec<T>>, Failure> {
    let reply::Body::Get(reply) = reply.0 else {
        return Err(broken_reply("the reply to a get is of another kind"));
    };
    let rows: Result<Vec<T>, _> = PackedRows::new(reply.rows).map(|packed| packed.map(&row)).collect();
    let value = rows.map_err(|invalid| broken_reply(format!("the rows of a reply cannot be read: {invalid}")))?;
    Ok(AsOf { value, as_of_ms: as_of(reply.as_of_ms) })
}

/// A linearizable answer has no such time: 0 on the wire.
pub(super) fn as_of(as_of_ms: u64) -> Option<u64> {
    (as_of_ms != 0).then_some(as_of_ms)
}
