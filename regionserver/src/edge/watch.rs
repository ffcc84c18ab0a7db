//! Follows one request from its arrival to its answer: what it asks for, and how long each stage takes.
//!
//! A watch reads the clock where a stage ends, and adds to histograms when the request is answered. It neither locks nor
//! allocates, unless the request turns out to be slow.

use std::sync::Arc;

use bytes::Bytes;
use terrane_env::time::{now_ns, wall_ms};
use terrane_env::trace::{Part, SpanKind, SpanValue, TraceContext, Traced};
use terrane_raft::Timing;
use terrane_types::{Error, RegionId, TableId};

use super::{Edge, Header};
use crate::edge::slow::{SlowRequest, Stages};
use crate::metrics::Operation;
use crate::region::read::GetRequest;
use crate::region::scan::ScanRequest;
use crate::region::write::ReceivedRow;

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
    traced: Option<Traced>,
}

impl Watch {
    fn new(edge: &Edge, operation: Operation, header: &Header, keys: Keys, arrived_ns: u64) -> Self {
        let (table, region) = (header.table, header.region);
        let traced = edge.tracer.follow(header.trace);
        Self { operation, table, region, keys, arrived_ns, stages: Stages::default(), traced }
    }

    pub fn get(edge: &Edge, header: &Header, request: &GetRequest, arrived_ns: u64) -> Self {
        Self::new(edge, Operation::Get, header, Keys::rows(&request.rows, Bytes::clone), arrived_ns)
    }

    pub fn scan(edge: &Edge, header: &Header, request: &Arc<ScanRequest>, arrived_ns: u64) -> Self {
        Self::new(edge, Operation::Scan, header, Keys::Range(request.clone()), arrived_ns)
    }

    pub(super) fn write(edge: &Edge, header: &Header, rows: &[ReceivedRow], arrived_ns: u64) -> Self {
        Self::new(edge, Operation::Write, header, Keys::rows(rows, |row| row.row.clone()), arrived_ns)
    }

    pub(super) fn bulk(edge: &Edge, header: &Header, arrived_ns: u64) -> Self {
        Self::new(edge, Operation::Bulk, header, Keys::Other, arrived_ns)
    }

    /// What the request's parts belong to, if its trace is recorded.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.traced.map(|traced| traced.context)
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
        if let Some(traced) = self.traced
            && edge.tracer.records()
        {
            self.record(edge, traced, took_ns, failure);
        }
        if edge.slow.is_slow(took_ns) {
            self.note(edge, took_ns, failure);
        }
    }

    /// Records the request and its stages, which follow one another. What replicas do when they apply a write is recorded by
    /// them.
    fn record(&self, edge: &Edge, traced: Traced, took_ns: u64, failure: Option<&Error>) {
        let Stages { edge_ns, read_point_ns, read_ns, log } = self.stages;
        let mut began_ns = self.arrived_ns;
        for (name, took_ns) in [
            ("edge", edge_ns),
            ("read_point", read_point_ns),
            ("read", read_ns),
            ("queue", log.queue_ns),
            ("commit", log.commit_ns),
        ] {
            if took_ns > 0 {
                let kind = SpanKind::Internal;
                let part = Part { name, kind, began_ns, took_ns, attributes: Vec::new(), error: None };
                edge.tracer.record_inside(traced.context, part);
            }
            began_ns += took_ns;
        }
        let rows = if let Keys::Rows(_, _, rows) = self.keys { Some(("terrane.rows", rows.into())) } else { None };
        let attributes: [(&str, SpanValue); 3] = [
            ("db.system.name", "terrane".to_owned().into()),
            ("terrane.table", self.table.0.into()),
            ("terrane.region", self.region.0.into()),
        ];
        edge.tracer.record(
            traced,
            Part {
                name: self.operation.name(),
                kind: SpanKind::Server,
                began_ns: self.arrived_ns,
                took_ns,
                attributes: attributes.into_iter().chain(rows).collect(),
                error: failure.map(ToString::to_string),
            },
        );
    }

    fn note(self, edge: &Edge, took_ns: u64, failure: Option<&Error>) {
        let trace = self.trace().map(|context| context.trace);
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
            trace,
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
