//! Requests of the data path, as values.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use terrane_env::trace::TraceContext;
use terrane_types::{RegionEpoch, RegionId, TableId};

use crate::edge::consistency::Consistency;
use crate::edge::page_token::{Binding, Position};
use crate::loads::commit::Commit;
use crate::loads::runs::Part;
use crate::region::read::GetRequest;
use crate::region::scan::{Cursor, ScanRequest};
use crate::region::write::ReceivedRow;
use crate::window::{ClientId, UnderWay};

/// How long a request may take if it does not say.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// What every data request says.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub table: TableId,
    pub region: RegionId,
    pub epoch: RegionEpoch,
    /// The version of the table's schema that the caller knows; 0: none.
    pub schema_version: u64,
    /// Whether the request is meaningless under a newer schema.
    pub exact_schema: bool,
    pub deadline: Duration,
    /// The writing client; its operation numbers make writes exactly-once.
    pub client: ClientId,
    /// The lowest operation number that the client still waits for.
    pub lowest_unsettled: u64,
    /// What a read has to show.
    pub consistency: Consistency,
    /// The trace that the request belongs to, if one is recorded.
    pub trace: Option<TraceContext>,
}

/// A request of a session.
pub struct Request {
    pub header: Header,
    pub body: Body,
}

/// What a request is for.
pub enum Body {
    Mutate(Mutation),
    Get(GetRequest),
    /// The next block of a scan.
    Scan(Box<(Arc<ScanRequest>, Cursor)>),
    /// A step of a bulk load.
    Bulk(Box<Bulk>),
    /// Makes a page token.
    SealPage(Box<(Binding, Vec<Position>)>),
    /// Reads a page token.
    OpenPage(Box<(Binding, Bytes)>),
}

/// A step of a bulk load.
pub enum Bulk {
    Part(Part),
    /// Takes a run in. With it the numbers that the client still waits for, if it says so.
    Commit(Commit, Option<UnderWay>),
}

/// A write as it was received.
#[derive(Default)]
pub struct Mutation {
    pub rows: Vec<ReceivedRow>,
    /// All rows or none.
    pub atomic: bool,
    /// Which of its numbers the client still waits for, if it says so.
    pub under_way: Option<UnderWay>,
}

impl Mutation {
    /// About what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(ReceivedRow::memory_bytes).sum()
    }
}
