//! Requests to a region server and its replies, as the rest of the client passes them on: sealed values, so that only the
//! modules of `wire` know what is inside.

use std::time::Duration;

use bytes::Bytes;
use terrane_env::trace::TraceContext;
use terrane_proto::v1::{reply, request};
use terrane_proto::{PACKED_FORMAT, v1};
use terrane_types::{RegionEpoch, RegionId, TableId};

use crate::consistency::Consistency;

/// The body of a request. `wire::mutate`, `wire::get`, `wire::scan` and `wire::page` create them.
#[derive(Clone)]
pub(crate) struct Request(pub(super) request::Body);

/// The body of a reply that is not an error. The module that created the request reads it.
pub(crate) struct Reply(pub(super) reply::Body);

/// What every request to a region server says about itself.
pub(crate) struct Header {
    pub(crate) table: TableId,
    pub(crate) region: RegionId,
    pub(crate) epoch: RegionEpoch,
    /// The version of the table's schema that the client knows.
    pub(crate) schema_version: u64,
    /// The time left for the request. `None`: no deadline, for a stream that lives as long as its reader reads.
    pub(crate) time_left: Option<Duration>,
    pub(crate) consistency: Consistency,
    /// The operation numbers of a write.
    pub(crate) operations: Option<OperationNumbers>,
    /// The trace of the call, and its span.
    pub(crate) trace: Option<TraceContext>,
}

/// What a write says about the operation numbers of its client.
pub(crate) struct OperationNumbers {
    pub(crate) client_id: Bytes,
    /// All numbers below this one are settled.
    pub(crate) lowest_unsettled: u64,
    pub(crate) unsettled: Option<Unsettled>,
}

/// The operation numbers that are not settled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsettled {
    /// Numbers from here on have not been given out yet.
    pub(crate) below: u64,
    /// Inclusive, ascending.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Header {
    pub(super) fn into_wire(self) -> v1::RequestHeader {
        let millis = |left: Duration| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1);
        let consistency = match self.consistency {
            Consistency::Linearizable => v1::Consistency::Linearizable,
            Consistency::Strict => v1::Consistency::Strict,
            Consistency::Stale => v1::Consistency::Stale,
        };
        let mut header = v1::RequestHeader {
            format: PACKED_FORMAT,
            table: self.table.0,
            region: self.region.0,
            epoch: self.epoch.0,
            schema_version: self.schema_version,
            deadline_ms: self.time_left.map_or(0, millis),
            consistency: consistency.into(),
            trace: self.trace.map(|trace| Bytes::copy_from_slice(&trace.to_bytes())).unwrap_or_default(),
            ..v1::RequestHeader::default()
        };
        if let Some(operations) = self.operations {
            header.client_id = operations.client_id;
            header.lowest_unsettled = operations.lowest_unsettled;
            header.under_way = operations.unsettled.map(|Unsettled { below, ranges }| v1::UnderWay {
                below,
                ranges: ranges.into_iter().flat_map(|(first, last)| [first, last]).collect(),
            });
        }
        header
    }
}
