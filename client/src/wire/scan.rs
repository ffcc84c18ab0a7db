//! Scans of one region as requests, and the blocks that answer them.

use std::sync::Arc;

use bytes::Bytes;
use terrane_proto::v1::{reply, request};
use terrane_proto::{error, v1};
use terrane_types::{KeyRange, ValueType};

use crate::wire::failure::{Failure, broken_reply};
use crate::wire::get::{ReadSpec, as_of};
use crate::wire::message::{Reply, Request};

/// A scan of the part of its range that lies in one region.
#[derive(Clone, Debug)]
pub(crate) struct RegionScan {
    pub(crate) range: KeyRange,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) offset: u64,
    pub(crate) spec: Arc<ReadSpec>,
    /// 0: the server's usual size.
    pub(crate) block_bytes: u32,
    /// The token of the last block, empty for the first request.
    pub(crate) resume: Bytes,
    pub(crate) output: Output,
    pub(crate) latest: Option<Latest>,
    pub(crate) snapshot: bool,
    pub(crate) fill_cache_never: bool,
    pub(crate) at_sequence: Option<u64>,
}

/// What a scan brings.
#[derive(Clone, Debug, Default)]
pub(crate) enum Output {
    #[default]
    Rows,
    /// The number of rows.
    Count,
    /// What a column's values add up to.
    Aggregate(AggregateColumn),
}

/// A column read as numbers.
#[derive(Clone, Debug)]
pub(crate) struct AggregateColumn {
    pub(crate) family: String,
    pub(crate) qualifier: Bytes,
    pub(crate) read_as: ValueType,
}

/// Only the first rows of each prefix.
#[derive(Clone, Debug)]
pub(crate) struct Latest {
    pub(crate) prefix: LatestPrefix,
    pub(crate) rows: u32,
    /// The last prefix of the region before, and how many of its rows were returned.
    pub(crate) last_prefix: Bytes,
    pub(crate) given: u32,
}

/// Which rows share a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatestPrefix {
    Parts(u32),
    Bytes(u32),
}

/// What a server found in the part of a region that a scan has passed. Numbers are big-endian: 16 bytes of an integer column,
/// 8 bytes of an `f64` one; empty without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AggregatePart {
    pub(crate) values: u64,
    pub(crate) sum: Bytes,
    pub(crate) min: Bytes,
    pub(crate) max: Bytes,
}

/// One block of a scan.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanBlock {
    /// Packed rows.
    pub(crate) rows: Bytes,
    /// Rows that were counted.
    pub(crate) row_count: u64,
    /// The token to resume from.
    pub(crate) resume: Bytes,
    /// Nothing of the range is left in this region, or the limit is reached.
    pub(crate) done: bool,
    /// The filter ended the whole scan.
    pub(crate) ended: bool,
    pub(crate) limit_left: u64,
    pub(crate) offset_left: u64,
    /// The last row continues in the next block.
    pub(crate) row_continues: bool,
    /// The row begun in earlier blocks starts over: its earlier parts are void.
    pub(crate) row_restarted: bool,
    /// Covers all blocks of this region so far.
    pub(crate) aggregate: Option<AggregatePart>,
    pub(crate) as_of_ms: Option<u64>,
    /// Of a scan for the latest rows: the last prefix, and how many of its rows were returned.
    pub(crate) last_prefix: Bytes,
    pub(crate) prefix_given: u32,
    /// Of a snapshot scan: the sequence number it reads at.
    pub(crate) sequence: Option<u64>,
    /// The schema version of the region; 0 if not said.
    pub(crate) schema_version: u64,
}

impl RegionScan {
    pub(super) fn into_wire(self) -> v1::Scan {
        let aggregate = match &self.output {
            Output::Rows | Output::Count => None,
            Output::Aggregate(AggregateColumn { family, qualifier, read_as }) => Some(v1::Aggregate {
                family: family.clone(),
                qualifier: qualifier.clone(),
                read_as: read_as.name().to_owned(),
            }),
        };
        v1::Scan {
            start: self.range.start,
            end: self.range.end,
            reverse: self.reverse,
            limit: self.limit.unwrap_or(0),
            offset: self.offset,
            projection: Some(self.spec.to_wire()),
            block_bytes: self.block_bytes,
            resume: self.resume,
            cells_as: 0,
            count_only: matches!(self.output, Output::Count),
            aggregate,
            latest: self.latest.map(Latest::into_wire),
            snapshot: self.snapshot,
            fill_cache_never: self.fill_cache_never,
            at_sequence: self.at_sequence,
        }
    }
}

impl Latest {
    fn into_wire(self) -> v1::Latest {
        let prefix = match self.prefix {
            LatestPrefix::Parts(parts) => v1::latest::Prefix::Parts(parts),
            LatestPrefix::Bytes(bytes) => v1::latest::Prefix::Bytes(bytes),
        };
        v1::Latest { prefix: Some(prefix), rows: self.rows, last_prefix: self.last_prefix, given: self.given }
    }
}

/// The request for one block of a scan.
pub(crate) fn request(scan: RegionScan) -> Request {
    Request(request::Body::Scan(Box::new(scan.into_wire())))
}

/// The block in the reply.
pub(crate) fn block(reply: Reply) -> Result<ScanBlock, Failure> {
    match reply.0 {
        reply::Body::Scan(block) => read_block(*block),
        _ => Err(broken_reply("the reply to a scan is of another kind")),
    }
}

/// A block as it arrived. One with an error ends its stream.
pub(super) fn read_block(mut block: v1::ScanBlock) -> Result<ScanBlock, Failure> {
    if let Some(detail) = block.error.take() {
        return Err(Failure::Refused(error::from_detail(detail)));
    }
    let part =
        |part: v1::AggregatePart| AggregatePart { values: part.values, sum: part.sum, min: part.min, max: part.max };
    Ok(ScanBlock {
        rows: block.rows,
        row_count: block.row_count,
        resume: block.resume,
        done: block.done,
        ended: block.ended,
        limit_left: block.limit_left,
        offset_left: block.offset_left,
        row_continues: block.row_continues,
        row_restarted: block.row_restarted,
        aggregate: block.aggregate.map(part),
        as_of_ms: as_of(block.as_of_ms),
        last_prefix: block.last_prefix,
        prefix_given: block.prefix_given,
        sequence: block.sequence,
        schema_version: block.region.map_or(0, |region| region.schema_version),
    })
}
