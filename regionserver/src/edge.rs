//! What the data path does with a request once it is decoded: find the region, check, read or propose.
//!
//! Writes are handed to the group's log without waiting: the outcome comes to a callback, so that a stream of requests
//! never stands still behind one of them. Reads take a read point of the group first (many reads may share one), and only
//! then look at region, epoch and state: what was checked before the read point could be older than it.

use std::sync::Arc;
use std::time::Duration;

use terrane_env::net::Intake;
use terrane_proto::hello::Identity;
use terrane_types::{Error, GroupId, RegionEpoch, RegionId, RowOutcome, TableId};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::addresses::Addresses;
use crate::admission::Admission;
use crate::consistency::{Consistency, ReadTime};
use crate::error_mapping::{not_leader, propose_error, stopping};
use crate::evaluate::Columns;
use crate::evaluate::prefetch::Prefetch;
use crate::hosted::HostedRegion;
use crate::metrics::Metrics;
use crate::operation::{Settle, WriteHeader};
use crate::page_token::PageSeal;
use crate::proposal::{Group, GroupHost};
use crate::region::read::{self, GetRequest, Got};
use crate::region::scan::{self, Begun, Block, Cursor, ScanRequest, Unfinished};
use crate::region::write::{self, RowMutation};
use crate::replicas::Replicas;
use crate::reply::{Applied, Reply};
use crate::window::UnderWay;

/// How long a request may take when it does not say.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// How long a caller waits that knows a newer epoch or schema than this replica: the entry is on its way.
const BEHIND_RETRY: Duration = Duration::from_millis(10);

/// About what a row of a write takes beside its bytes.
const ROW_OVERHEAD: usize = size_of::<RowMutation>();

/// What every data request says.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub table: TableId,
    pub region: RegionId,
    pub epoch: RegionEpoch,
    /// Of the table, as the caller knows it; 0: not known.
    pub schema_version: u64,
    /// Whether the request means nothing under a newer schema.
    pub exact_schema: bool,
    pub deadline: Duration,
    pub client: [u8; 16],
    pub lowest_unsettled: u64,
    /// What a read is to show.
    pub consistency: Consistency,
}

/// A write as it came in.
#[derive(Default)]
pub struct Mutation {
    pub rows: Vec<RowMutation>,
    /// All rows or none.
    pub atomic: bool,
    /// Which of its numbers the client still waits for, where it says so.
    pub under_way: Option<UnderWay>,
}

impl Mutation {
    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let of_row =
            |row: &RowMutation| ROW_OVERHEAD + row.row.len() + row.cells.as_ref().map_or(0, |cells| cells.len());
        self.rows.iter().map(of_row).sum()
    }
}

/// The outcome of a write: the rows that failed and those that have something to tell, by their place, and the stamp of
/// the others.
#[derive(Debug, Default)]
pub struct Mutated {
    /// By place in the request, in its order.
    pub errors: Vec<RowFailure>,
    pub results: Vec<(u32, RowOutcome)>,
    pub stamp: u64,
}

/// Why a row was not applied.
#[derive(Debug)]
pub struct RowFailure {
    pub row: u32,
    pub error: Error,
    /// The log says so; else it was refused before its number was looked up.
    pub decided: bool,
}

/// The data path of one server.
pub struct Edge {
    pub identity: Identity,
    pub replicas: Arc<Replicas>,
    pub host: Arc<GroupHost>,
    pub addresses: Arc<Addresses>,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    pub prefetch: Prefetch,
    pub page_seal: Arc<PageSeal>,
    /// How long a block of a scan's stream waits for its reader before the stream ends.
    pub scan_idle: Duration,
    /// What the server's port holds, answers that have not left among it.
    pub intake: Arc<Intake>,
    /// Set when the server stops and has handed its leaderships over: what is new is sent to the new leaders.
    pub closing: CancellationToken,
    /// Reads and scans under way, waited for when the server stops.
    pub tasks: TaskTracker,
    /// Set when nothing more is answered: sessions end.
    pub ended: CancellationToken,
    /// What runs as long as a session.
    pub sessions: TaskTracker,
}

impl Edge {
    /// Checks a write and hands it to the log; `done` hears the outcome, at once when it is refused here.
    pub fn mutate<D>(self: &Arc<Self>, header: &Header, mutation: Mutation, done: D)
    where
        D: FnOnce(Result<Mutated, Error>) + Send + 'static,
    {
        let count = mutation.rows.len();
        match self.propose(header, mutation) {
            Err(error) => {
                self.metrics.refused.inc();
                done(Err(error));
            }
            Ok(Proposal { operation: None, errors, .. }) => done(Ok(put_together(errors, &[], Applied::default()))),
            Ok(Proposal { operation: Some((operation, admitted)), errors, places, group }) => {
                let edge = self.clone();
                let id = group.id();
                let finish = move |outcome: Result<bytes::Bytes, terrane_raft::ProposeError>| {
                    drop(admitted);
                    let applied = count - errors.len();
                    done(edge.outcome(id, outcome, applied).map(|applied| put_together(errors, &places, applied)));
                };
                group.submit(operation, finish);
            }
        }
    }

    fn propose(&self, header: &Header, mutation: Mutation) -> Result<Proposal, Error> {
        let (hosted, group) = self.find(header)?;
        let write_header = WriteHeader {
            region: header.region,
            epoch: header.epoch,
            schema_version: header.schema_version,
            client: header.client,
            lowest_unsettled: header.lowest_unsettled,
            atomic: mutation.atomic,
            exact_schema: header.exact_schema,
            families_checked: false,
        };
        let prepared = write::prepare(&write_header, mutation.rows, &hosted.state())?;
        if let Some(under_way) = mutation.under_way {
            let settle = Settle { region: header.region, client: header.client, under_way };
            // Nobody waits for it: where it is lost, the next one says more.
            group.submit(settle.encode(), drop);
        }
        let operation = match prepared.operation {
            Some(operation) => {
                let admitted = self.admission.admit(operation.len()).map_err(|busy| self.elsewhere(&group, busy))?;
                if prepared.evaluates {
                    let columns: Arc<dyn Columns> = hosted;
                    self.prefetch.begin(&columns, &operation, &self.tasks);
                }
                Some((operation, admitted))
            }
            None => None,
        };
        Ok(Proposal { operation, errors: prepared.errors, places: prepared.places, group })
    }

    /// A server that refuses for now is asked again, so one that does not lead sends to the leader instead.
    fn elsewhere(&self, group: &Group, refusal: Error) -> Error {
        let status = group.status();
        match status.leader {
            Some((_, leader)) if leader != self.identity.server => {
                not_leader(group, status.term, Some(leader), &self.addresses)
            }
            _ => refusal,
        }
    }

    /// Where to go with a request that comes while this server stops.
    fn leaving(&self, region: RegionId) -> Error {
        let group = self.replicas.regions.get(region).and_then(|hosted| self.host.group(hosted.group));
        group.map_or_else(stopping, |group| self.elsewhere(&group, stopping()))
    }

    fn outcome(
        &self,
        group: GroupId,
        outcome: Result<bytes::Bytes, terrane_raft::ProposeError>,
        rows: usize,
    ) -> Result<Applied, Error> {
        let result = match outcome {
            Ok(reply) => match Reply::decode(reply) {
                Ok(reply) => reply.applied(),
                Err(error) => Err(Error::Internal { message: error.to_string() }),
            },
            Err(error) => Err(match self.host.group(group) {
                Some(group) => propose_error(error, &group, &self.addresses),
                None => stopping(),
            }),
        };
        match &result {
            Ok(_) => self.metrics.rows_written.inc_by(rows as u64),
            Err(_) => self.metrics.refused.inc(),
        };
        result
    }

    /// The region that a request names and its group, checked as things stand here and now.
    pub fn find(&self, header: &Header) -> Result<(Arc<HostedRegion>, Group), Error> {
        let hosted = self.find_region(header)?;
        let group = self.host.group(hosted.group).ok_or_else(stopping)?;
        Ok((hosted, group))
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

    /// A caller whose schema is newer than the region's must not be answered under the old one; one whose schema is older
    /// is, since data is always judged by the server's rules, unless it says that its request depends on what it knows.
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

    /// The version of the table's schema that a caller does not know who named an older one; 0 when there is no news.
    pub fn schema_news(&self, header: &Header) -> u64 {
        if header.schema_version == 0 {
            return 0;
        }
        let version = self.replicas.regions.get(header.region).map_or(0, |hosted| hosted.schema_version());
        if version > header.schema_version { version } else { 0 }
    }

    /// What the caller knows of is in the log and not applied here: a follower sends it to the leader, a leader that is
    /// still applying asks it to wait a little.
    fn not_yet(&self, group: GroupId, message: impl FnOnce() -> String) -> Error {
        match self.host.group(group) {
            Some(group) if !group.status().is_leader => {
                let status = group.status();
                not_leader(&group, status.term, status.leader.map(|(_, server)| server), &self.addresses)
            }
            _ => Error::Unavailable { message: message(), retry_after: BEHIND_RETRY },
        }
    }

    /// A caller that knows a newer epoch than this replica has not to be redirected to the past.
    fn behind(&self, header: &Header, error: Error) -> Error {
        let Error::StaleEpoch { current, .. } = &error else { return error };
        let Some(ours) = current.iter().find(|ours| ours.region == header.region) else { return error };
        if ours.epoch >= header.epoch {
            return error;
        }
        self.not_yet(ours.group, || format!("region {} is not yet at epoch {} here", header.region, header.epoch))
    }

    /// A read point of the group: what reads that start now see is what `consistency` promises.
    pub async fn read_point(
        &self,
        group: &Group,
        consistency: Consistency,
        deadline: Duration,
    ) -> Result<ReadTime, Error> {
        consistency.read_point(group, &self.addresses, deadline).await
    }

    /// Rows by key; a read point was taken since the request came in.
    pub fn get(&self, header: &Header, request: &GetRequest, now_ms: i64) -> Result<Got, Error> {
        let hosted = self.find_region(header)?;
        let got = read::get(&hosted, request, now_ms)?;
        self.metrics.rows_got.inc_by(request.rows.len() as u64);
        Ok(got)
    }

    /// Begins the next block of a scan with what is in memory; a read point was taken since the scan began.
    pub fn begin_scan(
        &self,
        header: &Header,
        request: &Arc<ScanRequest>,
        cursor: Cursor,
        now_ms: i64,
    ) -> Result<Begun, Error> {
        let hosted = self.find_region(header)?;
        let begun = scan::begin(&hosted, request, cursor, now_ms)?;
        if let Begun::Done(block) = &begun {
            self.metrics.rows_scanned.inc_by(block.row_count);
        }
        Ok(begun)
    }

    /// Ends what [`Edge::begin_scan`] began, if answers have room for a block.
    pub async fn end_scan(&self, rest: Unfinished) -> Result<Block, Error> {
        let share = self.intake.answer(rest.block_bytes() as u64);
        let _share = share.ok_or(Error::Busy { retry_after: read::ROOM_RETRY })?;
        let block = rest.finish().await?;
        self.metrics.rows_scanned.inc_by(block.row_count);
        Ok(block)
    }

    /// The next block of a scan; a read point was taken since the scan began.
    pub async fn scan(
        &self,
        header: &Header,
        request: &Arc<ScanRequest>,
        cursor: Cursor,
        now_ms: i64,
    ) -> Result<Block, Error> {
        match self.begin_scan(header, request, cursor, now_ms)? {
            Begun::Done(block) => Ok(*block),
            Begun::Rest(rest) => self.end_scan(*rest).await,
        }
    }
}

/// A checked write on its way to the log.
struct Proposal {
    operation: Option<(Vec<u8>, crate::admission::Admitted)>,
    errors: Vec<(u32, Error)>,
    /// Where in the request the proposed rows are, unless all are.
    places: Vec<u32>,
    group: Group,
}

/// The outcome of the proposed rows and the errors of the others, in the order of the request.
fn put_together(refused: Vec<(u32, Error)>, places: &[u32], applied: Applied) -> Mutated {
    let refused = refused.into_iter().map(|(row, error)| RowFailure { row, error, decided: false });
    let (mut errors, mut results) = (refused.collect::<Vec<_>>(), Vec::new());
    for (row, outcome) in applied.rows {
        let at = usize::try_from(row).ok().and_then(|row| places.get(row)).copied().unwrap_or(row);
        match outcome {
            Ok(outcome) => results.push((at, outcome)),
            Err(error) => errors.push(RowFailure { row: at, error, decided: true }),
        }
    }
    errors.sort_by_key(|failure| failure.row);
    Mutated { errors, results, stamp: applied.stamp }
}
