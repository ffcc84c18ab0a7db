//! The data path of one server: sessions and requests in, answers out, all of them values.
//!
//! This is what a protocol is translated to. The gRPC services (`service`) are one such translator; nothing here knows
//! protobuf. A translator reads its requests into [`Request`]s, passes batches of them to a [`Session`], and writes the
//! [`Outgoing`] answers that come out of it in whatever order they are ready. Single calls go to [`Edge`] directly:
//! [`Edge::mutate`], [`Edge::get`], [`Edge::scan`].
//!
//! A request names its region and epoch; the edge finds the region, checks the request, and reads or proposes. What a
//! caller must know to find regions, retry and number its writes is the client's part (`docs/wire.md`).
//!
//! The edge hands writes to the group's log without waiting: the outcome comes to a callback, so that a stream of requests
//! never stops for one of them. Reads take a read point of the group first (many reads may share one), and only then look
//! at region, epoch and state: what was checked before the read point could be older than it.

pub(crate) mod admission;
mod answer;
mod bulk;
mod confirmation;
pub(crate) mod consistency;
pub(crate) mod error_mapping;
pub(crate) mod page_token;
mod request;
mod session;
pub(crate) mod slow;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use terrane_env::net::Intake;
use terrane_env::time::now_ns;
use terrane_env::trace::{TraceContext, Tracer};
use terrane_raft::ProposeError;
use terrane_types::{Error, GroupId, RegionDescriptor, RegionId, ServerId, TableSchema};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::answer::{Answer, Mutated, RowFailure};
use self::confirmation::{Grounds, is_by_schema};
pub use self::request::{Body, Bulk, DEADLINE_DEFAULT, Header, Mutation, Request};
pub use self::session::{Outgoing, Session, UNITS_MAX};
pub use self::watch::Watch;
use crate::edge::admission::{Admission, Admitted};
pub use crate::edge::consistency::{Consistency, ReadTime};
use crate::edge::error_mapping::{not_leader, propose_error, removed_error, require_leader, stopping};
use crate::edge::page_token::PageSeal;
pub use crate::edge::page_token::{Binding as PageBinding, Position as PagePosition};
use crate::edge::slow::SlowRequests;
use crate::evaluate::Columns;
use crate::evaluate::prefetch::Prefetch;
pub use crate::group::proposal::{Extras, RowCondition, RowRequest};
use crate::group::proposal::{Group, GroupHost, Proposal, Write};
use crate::group::reply::{Applied, Reply};
use crate::loads::commit::Loads;
pub use crate::loads::commit::{Commit, Committed};
pub use crate::loads::runs::{Part, PartsHere};
use crate::masters::addresses::Addresses;
use crate::metrics::Metrics;
use crate::operation::{Settle, WriteHeader};
pub use crate::region::aggregate::Aggregate;
pub use crate::region::filter::{Lookup, RowJudge};
pub use crate::region::latest::{Cut, Latest, PrefixProgress};
pub use crate::region::read::{GetRequest, Got};
pub use crate::region::scan::{Begun, Block, Cursor, ScanRequest, Unfinished};
pub use crate::region::write::ReceivedRow;
use crate::region::{read, scan, write};
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;
pub use crate::window::{ClientId, NONCE_CLIENT, UnderWay, nonce_number};
pub use terrane_engine::Snapshot;

/// How long a caller with a newer epoch or schema than this replica's waits: the entry is on its way.
const BEHIND_RETRY: Duration = Duration::from_millis(10);

/// The data path of one server.
pub struct Edge {
    /// This server.
    pub(crate) server: ServerId,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) host: Arc<GroupHost>,
    pub(crate) addresses: Arc<Addresses>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) slow: SlowRequests,
    pub(crate) tracer: Tracer,
    /// The feature level of the cluster.
    pub(crate) prefetch: Prefetch,
    pub(crate) loads: Arc<Loads>,
    pub(crate) page_seal: Arc<PageSeal>,
    /// How long a block of a scan's stream waits for its reader before the stream ends.
    pub(crate) scan_idle: Duration,
    /// All reads are confirmed by a quorum.
    pub(crate) strict_reads: bool,
    /// What the server's port holds, including answers that have not left.
    pub(crate) intake: Arc<Intake>,
    /// Set when the server stops and has handed its leaderships over: new requests are redirected to the new leaders.
    pub(crate) closing: CancellationToken,
    /// Reads and scans in progress, waited for when the server stops.
    pub(crate) tasks: TaskTracker,
    /// Set when nothing more is answered: sessions end.
    pub(crate) ended: CancellationToken,
    /// Tasks that run as long as a session.
    pub(crate) sessions: TaskTracker,
}

impl Edge {
    /// Checks a write and hands it to the log; `done` receives the outcome, at once if the write is refused here for another
    /// reason than its table's schema. The write arrived at `arrived_ns` of the monotonic clock.
    pub fn mutate<D>(self: &Arc<Self>, header: &Header, mutation: Mutation, arrived_ns: u64, done: D)
    where
        D: FnOnce(Result<Mutated, Error>) + Send + 'static,
    {
        let count = mutation.rows.len();
        let mut watch = Watch::write(self, header, &mutation.rows, arrived_ns);
        match self.prepare(header, mutation, watch.trace()) {
            Err(Refused { error, grounds }) => {
                self.metrics.refused.inc();
                self.answer(Err(error), grounds, done);
            }
            Ok(Prepared { write: None, errors, grounds, .. }) => {
                self.answer(Ok(Mutated::join(errors, &[], Applied::default())), grounds, done);
            }
            Ok(Prepared { write: Some((write, admitted)), errors, places, group, grounds }) => {
                let edge = self.clone();
                let id = group.id();
                watch.begins(self, 0);
                group.submit_timed(Proposal::Write(write), move |outcome, timing| {
                    if outcome.is_err() && terrane_env::planted!("a failed write keeps its admission") {
                        std::mem::forget(admitted);
                    } else {
                        drop(admitted);
                    }
                    let applied = count - errors.len();
                    let outcome = edge.outcome(id, outcome, applied);
                    watch.logged(timing);
                    watch.ended(&edge, outcome.as_ref().err());
                    edge.answer(outcome.map(|applied| Mutated::join(errors, &places, applied)), grounds, done);
                });
            }
        }
    }

    fn prepare(&self, header: &Header, mutation: Mutation, trace: Option<TraceContext>) -> Result<Prepared, Refused> {
        let (hosted, group) = self.find(header)?;
        let write_header = WriteHeader {
            region: header.region,
            epoch: header.epoch,
            schema_version: header.schema_version,
            client: header.client,
            lowest_unsettled: header.lowest_unsettled,
            atomic: mutation.atomic,
            exact_schema: header.exact_schema,
            trace: trace.filter(|_| !terrane_env::planted!("a traced write is logged without its trace")),
        };
        let state = hosted.state();
        let grounds = || Grounds::new(header, state.schema.version, &group);
        let checked = write::check(&write_header, mutation.rows, &state)
            .map_err(|error| Refused { grounds: is_by_schema(&error).then(grounds), error })?;
        let grounds = checked.errors.iter().any(|(_, error)| is_by_schema(error)).then(grounds);
        if let Some(under_way) = mutation.under_way {
            let settle = Settle { region: header.region, client: header.client, under_way };
            // Nothing waits for it: if it is lost, the next one says more.
            group.submit(Proposal::Settle(settle), drop);
        }
        let write = match checked.write {
            Some(write) => {
                let admitted = self.admission.admit(write.bytes()).map_err(|busy| self.elsewhere(&group, busy))?;
                let rows = write.rows();
                hosted.load.written(rows.len() as u64, write.bytes() as u64, |at| rows.get(at).map(|row| &row.row[..]));
                if write.evaluation().is_some() {
                    let columns: Arc<dyn Columns> = hosted;
                    self.prefetch.begin(&columns, &write, &self.tasks);
                }
                Some((write, admitted))
            }
            None => None,
        };
        Ok(Prepared { write, errors: checked.errors, places: checked.places, group, grounds })
    }

    /// A caller retries a server that refuses for now, so one that does not lead redirects to the leader instead.
    fn elsewhere(&self, group: &Group, refusal: Error) -> Error {
        let status = group.status();
        match status.leader {
            Some((_, leader)) if leader != self.server => not_leader(group, status.term, Some(leader), &self.addresses),
            _ => refusal,
        }
    }

    /// The answer to a request that comes while this server stops.
    fn leaving(&self, region: RegionId) -> Error {
        let group = self.replicas.regions.get(region).and_then(|hosted| self.host.group(hosted.group));
        group.map_or_else(stopping, |group| self.elsewhere(&group, stopping()))
    }

    fn outcome(&self, group: GroupId, outcome: Result<Reply, ProposeError>, rows: usize) -> Result<Applied, Error> {
        let result = match outcome {
            Ok(reply) => reply.applied(),
            Err(error) => Err(match self.host.group(group) {
                Some(group) => propose_error(error, &group, &self.addresses),
                // The replica was removed meanwhile, which says nothing of what it had logged.
                None => removed_error(error),
            }),
        };
        match &result {
            Ok(_) => self.metrics.rows_written.inc_by(rows as u64),
            Err(_) => self.metrics.refused.inc(),
        };
        result
    }

    /// The region that a request names, checked as things stand here and now, and its group.
    pub fn find(&self, header: &Header) -> Result<(Arc<HostedRegion>, Group), Error> {
        let hosted = self.find_region(header)?;
        let group = self.host.group(hosted.group).ok_or_else(stopping)?;
        Ok((hosted, group))
    }

    /// A region with a replica here and its table's schema, by the region's id alone: what a protocol needs whose requests carry
    /// neither table nor epoch. It may be outdated by the time a request is made from it, which is then refused.
    pub fn region(&self, region: RegionId) -> Option<(RegionDescriptor, Arc<TableSchema>)> {
        let state = self.replicas.regions.get(region)?.state();
        Some((state.descriptor.clone(), state.schema.clone()))
    }

    /// The regions whose sequence numbers mean the same in this one: itself, and those that it is known to come from by splits.
    pub fn numbered_as(&self, region: RegionId) -> Vec<RegionId> {
        self.replicas.regions.get(region).map_or_else(Vec::new, |hosted| hosted.numbered_as())
    }

    /// Holds the snapshot of a reader that was refused, and is about to continue at the same number.
    pub fn hold_for_return(&self, region: RegionId, held: Option<Snapshot>) {
        // Where the region has moved, its new self has snapshots of its own.
        if let (Some(held), Some(hosted)) = (held, self.replicas.regions.get(region))
            && hosted.engine.is_seen_by(&held)
        {
            hosted.held_snapshots.hand_over(held, now_ns());
        }
    }

    fn find_region(&self, header: &Header) -> Result<Arc<HostedRegion>, Error> {
        if self.closing.is_cancelled() {
            return Err(self.leaving(header.region));
        }
        let found = self.replicas.find(header.table, header.region, header.epoch);
        let hosted = found.map_err(|error| self.behind(header, error))?;
        self.check_schema(header, &hosted)?;
        Ok(hosted)
    }

    /// A caller whose schema is newer than the region's must not be answered under the old one. A caller whose schema is older
    /// is answered, because the server's rules always apply, unless its request depends on the schema it knows.
    fn check_schema(&self, header: &Header, hosted: &HostedRegion) -> Result<(), Error> {
        let version = hosted.schema_version();
        if header.schema_version > version {
            return Err(self.not_yet(hosted.group, || {
                format!("schema version {} of table {} is not here yet", header.schema_version, header.table)
            }));
        }
        if header.exact_schema && header.schema_version < version {
            return Err(Error::SchemaChanged { table: header.table, version });
        }
        Ok(())
    }

    /// The version of the table's schema, if it is newer than the one that the caller named; otherwise 0.
    pub fn schema_news(&self, header: &Header) -> u64 {
        if header.schema_version == 0 {
            return 0;
        }
        let version = self.replicas.regions.get(header.region).map_or(0, |hosted| hosted.schema_version());
        if version > header.schema_version { version } else { 0 }
    }

    /// What the caller knows is in the log and not applied here: a follower redirects it to the leader, a leader that is still
    /// applying asks it to wait a little.
    fn not_yet(&self, group: GroupId, message: impl FnOnce() -> String) -> Error {
        match self.host.group(group).map(|group| require_leader(&group, &self.addresses)) {
            Some(Err(error)) => error,
            _ => Error::Unavailable { message: message(), retry_after: BEHIND_RETRY },
        }
    }

    /// A caller that knows a newer epoch than this replica must not be redirected to the past.
    fn behind(&self, header: &Header, error: Error) -> Error {
        let Error::StaleEpoch { current, .. } = &error else { return error };
        let Some(ours) = current.iter().find(|ours| ours.region == header.region) else { return error };
        let here = self.host.group(ours.group).map(|group| group.status().is_leader);
        match ours.epoch.cmp(&header.epoch) {
            std::cmp::Ordering::Greater => error,
            // It is a note of where the region went, and the caller has been told already. If that group is led here, the region
            // was split or merged there since, and the note of that is gone: the map knows.
            std::cmp::Ordering::Equal if here != Some(false) => {
                Error::StaleEpoch { region: header.region, current: Vec::new() }
            }
            _ => self
                .not_yet(ours.group, || format!("region {} is not yet at epoch {} here", header.region, header.epoch)),
        }
    }

    /// The time that most servers agree on; clients number their writes by it.
    pub fn time_ms(&self) -> u64 {
        self.host.time_ms()
    }

    /// What the server's ports have accepted.
    pub const fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// How a read of this region is answered that asks for `asked`: settings of the table and of the server may ask for more,
    /// except of a stale read, which asks for less by name.
    pub fn consistency(&self, hosted: &HostedRegion, asked: Consistency) -> Consistency {
        asked.under(|| self.strict_reads || hosted.reads_strictly())
    }

    /// A read point of the group: reads that start after it see what `consistency` promises.
    pub async fn read_point(
        &self,
        group: &Group,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<ReadTime, Error> {
        let began_ns = now_ns();
        let point = consistency.read_point(group, &self.addresses, deadline).await;
        self.metrics.latencies.read_point.observe_ns(now_ns().saturating_sub(began_ns));
        point
    }

    /// Rows by key. The caller has taken a read point since the request came in.
    pub fn get(&self, header: &Header, request: &GetRequest, now_ms: i64) -> Result<Got, Error> {
        let hosted = self.find_region(header)?;
        hosted.check_enabled()?;
        let got = read::get(&hosted, request, now_ms)?;
        let rows = request.rows.len() as u64;
        self.metrics.rows_got.inc_by(rows);
        let bytes = if let Got::Rows(found) = &got { found.len() as u64 } else { 0 };
        hosted.load.read(rows, bytes, |place| request.rows.get(place).map(|row| &row[..]));
        Ok(got)
    }

    /// Begins the next block of a scan with what is in memory. The caller has taken a read point since the scan began.
    pub fn begin_scan(
        &self,
        header: &Header,
        request: &Arc<ScanRequest>,
        cursor: Cursor,
        now_ms: i64,
    ) -> Result<Begun, Error> {
        let hosted = self.find_region(header)?;
        hosted.check_enabled()?;
        let begun = scan::begin(&hosted, request, cursor, now_ms)?;
        if let Begun::Done(block) = &begun {
            self.metrics.rows_scanned.inc_by(block.row_count);
        }
        Ok(begun)
    }

    /// Finishes what [`Edge::begin_scan`] began, if the budget of answers has a block left.
    pub async fn end_scan(&self, rest: Unfinished) -> Result<Block, Error> {
        let share = self.intake.answer(rest.block_bytes() as u64);
        let _share = share.ok_or(Error::Busy { retry_after: read::ROOM_RETRY })?;
        let block = rest.finish().await?;
        self.metrics.rows_scanned.inc_by(block.row_count);
        Ok(block)
    }

    /// The next block of a scan. The caller has taken a read point since the scan began.
    pub async fn scan(
        &self,
        header: &Header,
        request: &Arc<ScanRequest>,
        cursor: Cursor,
        now_ms: i64,
    ) -> Result<Block, Error> {
        let mut watch = Watch::scan(self, header, request, now_ns());
        watch.begins(self, 0);
        let block = match self.begin_scan(header, request, cursor, now_ms) {
            Ok(Begun::Done(block)) => Ok(*block),
            Ok(Begun::Rest(rest)) => self.end_scan(*rest).await,
            Err(error) => Err(error),
        };
        watch.ended(self, block.as_ref().err());
        block
    }
}

/// A checked write before it is proposed.
struct Prepared {
    write: Option<(Write, Admitted)>,
    errors: Vec<(u32, Error)>,
    /// Where in the request the proposed rows are, unless all are.
    places: Vec<u32>,
    group: Group,
    /// Of the errors, if the schema decided one of them.
    grounds: Option<Grounds>,
}

/// Why a request is refused as a whole.
struct Refused {
    error: Error,
    /// If the schema decided it.
    grounds: Option<Grounds>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { error, grounds: None }
    }
}
