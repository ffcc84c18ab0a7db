//! Follows one request from its arrival to its answer: what it asks for, and how long each stage takes.
//!
//! A watch reads the clock where a stage ends, and adds to histograms when the request is answered. It neither locks nor
//! allocates, unless the request turns out to be slow.

use std::sync::Arc;

use bytes::Bytes;
use terrane_env::time::{now_ns, wall_ms};
use terrane_raft::Timing;
use terrane_types::{Error, RegionId, TableId};

use super::{Edge, Header};
use crate::metrics::Operation;
use crate::region::read::GetRequest;
use crate::region::scan::ScanRequest;
use crate::region::write::ReceivedRow;
use crate::slow::{SlowRequest, Stages};

/// What a request names.
enum Keys {
    /// So many rows, the first and the last of them.
    Rows(Bytes, Bytes, u64),
    Range(Arc<ScanRequest>),
    Other,
}

/// One request under way.
pub struct Watch {
    operation: Operation,
    table: TableId,
    region: RegionId,
    keys: Keys,
    arrived_ns: u64,
    stages: Stages,
}

impl Watch {
    fn new(operation: Operation, header: &Header, keys: Keys, arrived_ns: u64) -> Self {
        let (table, region) = (header.table, header.region);
        Self { operation, table, region, keys, arrived_ns, stages: Stages::default() }
    }

    pub fn get(header: &Header, request: &GetRequest, arrived_ns: u64) -> Self {
        Self::new(Operation::Get, header, Keys::rows(&request.rows, Bytes::clone), arrived_ns)
    }

    pub fn scan(header: &Header, request: &Arc<ScanRequest>, arrived_ns: u64) -> Self {
        Self::new(Operation::Scan, header, Keys::Range(request.clone()), arrived_ns)
    }

    pub(super) fn write(header: &Header, rows: &[ReceivedRow], arrived_ns: u64) -> Self {
        Self::new(Operation::Write, header, Keys::rows(rows, |row| row.row.clone()), arrived_ns)
    }

    pub(super) fn bulk(header: &Header, arrived_ns: u64) -> Self {
        Self::new(Operation::Bulk, header, Keys::Other, arrived_ns)
    }

    /// The request's work begins now. Of the time since its arrival, so much went into the read point.
    pub fn begins(&mut self, edge: &Edge, read_point_ns: u64) {
        let waited_ns = now_ns().saturating_sub(self.arrived_ns);
        self.stages.read_point_ns = read_point_ns;
        self.stages.edge_ns = waited_ns.saturating_sub(read_point_ns);
        edge.metrics.latencies.edge(self.operation, self.stages.edge_ns);
    }

    /// The log took so long for the write.
    pub(super) fn logged(&mut self, timing: Timing) {
        self.stages.log = timing;
    }

    /// The request is answered now.
    pub fn ended(mut self, edge: &Edge, failure: Option<&Error>) {
        let took_ns = now_ns().saturating_sub(self.arrived_ns);
        let latencies = &edge.metrics.latencies;
        latencies.request(self.operation, took_ns);
        if matches!(self.operation, Operation::Get | Operation::Scan) && failure.is_none() {
            self.stages.read_ns = took_ns.saturating_sub(self.stages.edge_ns + self.stages.read_point_ns);
            latencies.read(self.operation, self.stages.read_ns);
        }
        if edge.slow.is_slow(took_ns) {
            self.note(edge, took_ns, failure);
        }
    }

    fn note(self, edge: &Edge, took_ns: u64, failure: Option<&Error>) {
        let (first, last, rows, is_range) = match self.keys {
            Keys::Rows(first, last, rows) => (first, last, rows, false),
            Keys::Range(scan) => (scan.range.start.clone(), scan.range.end.clone(), 0, true),
            Keys::Other => (Bytes::new(), Bytes::new(), 0, false),
        };
        edge.metrics.slow_requests.inc();
        edge.slow.note(SlowRequest {
            at_ms: wall_ms(),
            operation: self.operation,
            table: self.table,
            region: self.region,
            first,
            last,
            is_range,
            rows,
            took_ns,
            stages: self.stages,
            failure: failure.map(ToString::to_string),
        });
    }
}

impl Keys {
    fn rows<R>(rows: &[R], key: impl Fn(&R) -> Bytes) -> Self {
        match rows {
            [] => Self::Other,
            [only] => {
                let only = key(only);
                Self::Rows(only.clone(), only, 1)
            }
            [first, .., last] => Self::Rows(key(first), key(last), rows.len() as u64),
        }
    }
}
