//! The line to the masters: registration at the start, then a report every so often, in both directions.
//!
//! Reports carry what the master's index of regions is kept current by; answers bring addresses, region ids for splits and
//! the ids of dropped tables. A master that is away costs nothing but news: the server goes on serving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use terrane_engine::{Engine, FamilyReadCounts};
use terrane_env::budget::{Budgets, Unit, Usage};
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{MESSAGE_BYTES_MAX, error, hello, v1};
use terrane_raft::{GroupHost, GroupStatus, LogStatus};
use terrane_types::{ClusterId, Error, FamilyName, GroupId, ServerId, TableId};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::admission::{Admission, BYTES_MAX, OPERATIONS_MAX};
use crate::cluster::Addresses;
use crate::ids::{IdStock, STOCK_IDS};
use crate::joining::Joining;
use crate::metrics::{Metrics, OfFamily};
use crate::operation::ChangeTables;
use crate::page_seal::{PageKey, PageSeal};
use crate::registry::{Hosted, Registry};
use crate::troubles::Troubles;

/// Deadline of one call, and the pause before the next master is tried.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A server that still looks for a master says so after this time, so that nobody waits in silence.
const TELL_AFTER: Duration = Duration::from_secs(2);
/// How often to report when the master does not say.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(500);

const NO_MASTER: &str = "no master is configured";

/// The masters, and the one that answered last.
pub struct Masters {
    lines: Vec<(String, MasterClient<Channel>)>,
    current: usize,
}

/// What a server says about itself when it registers.
pub struct Registration {
    pub cluster: Option<ClusterId>,
    pub server: Option<ServerId>,
    pub boot: u64,
    pub address: String,
    pub console: String,
    pub engine: String,
}

/// What it is told.
pub struct Registered {
    pub cluster: ClusterId,
    pub server: ServerId,
    pub addresses: Vec<(ServerId, String)>,
    pub region_ids: (u64, u32),
    pub report_every: Duration,
    pub page_keys: Vec<PageKey>,
}

/// Why a server could not register.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// An address that is not one.
    #[error(transparent)]
    Address(#[from] terrane_env::net::InvalidAddress),
    /// Nobody answered in time.
    #[error("no master answered at {masters} within {} s (last: {last}); start a master, or name its address with --masters", waited.as_secs())]
    Unreachable { masters: String, waited: Duration, last: String },
    /// A master answered and refused: trying again would not help.
    #[error("the master at {master} refused this server: {refusal}")]
    Refused { master: String, refusal: Error },
}

impl Masters {
    pub fn new(addresses: &[String]) -> Result<Self, RegisterError> {
        let line = |address: &String| {
            let channel = terrane_env::net::channel(address)?;
            let client = MasterClient::new(channel)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok((address.clone(), client))
        };
        let lines = addresses.iter().map(line).collect::<Result<Vec<_>, RegisterError>>()?;
        Ok(Self { lines, current: 0 })
    }

    fn current(&mut self) -> Option<(String, MasterClient<Channel>)> {
        let count = self.lines.len().max(1);
        self.lines.get(self.current % count).cloned()
    }

    fn next(&mut self) {
        self.current = (self.current + 1) % self.lines.len().max(1);
    }

    /// Registers with whichever master answers first, for at most `patience`.
    pub async fn register(&mut self, what: &Registration, patience: Duration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut last = NO_MASTER.to_owned();
        let mut told = false;
        loop {
            match self.ask(what).await {
                Ok(answer) => return answer,
                Err(why) => last = why.unwrap_or(last),
            }
            if started.elapsed() >= patience {
                return Err(RegisterError::Unreachable { masters: self.names(), waited: patience, last });
            }
            if !told && started.elapsed() >= TELL_AFTER {
                told = true;
                tracing::warn!("no master answers yet ({last}); trying for {} s in all", patience.as_secs());
            }
            self.next();
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Registers with whichever master answers first, asking each of them once.
    pub async fn register_once(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut last = NO_MASTER.to_owned();
        for _ in 0..self.lines.len() {
            match self.ask(what).await {
                Ok(answer) => return answer,
                Err(why) => last = why.unwrap_or(last),
            }
            self.next();
        }
        Err(RegisterError::Unreachable { masters: self.names(), waited: started.elapsed(), last })
    }

    /// One call to the current master; an error says why it did not answer.
    async fn ask(&mut self, what: &Registration) -> Result<Result<Registered, RegisterError>, Option<String>> {
        let Some((master, mut client)) = self.current() else { return Err(None) };
        let call = tokio::time::timeout(CALL_TIMEOUT, client.register(registration(what))).await;
        match call.map(|reply| reply.map_err(|status| error::from_status(&status))) {
            Ok(Ok(reply)) => {
                let registered = registered(reply.into_inner());
                Ok(registered.map_err(|refusal| RegisterError::Refused { master, refusal }))
            }
            Ok(Err(refusal)) if is_final(&refusal) => Ok(Err(RegisterError::Refused { master, refusal })),
            Ok(Err(error)) => Err(Some(error.to_string())),
            Err(_) => Err(Some(format!("{master} did not answer in time"))),
        }
    }

    fn names(&self) -> String {
        let masters: Vec<&str> = self.lines.iter().map(|(address, _)| address.as_str()).collect();
        masters.join(", ")
    }
}

fn registration(what: &Registration) -> v1::RegisterRequest {
    let own = what.server.unwrap_or_default();
    v1::RegisterRequest {
        hello: Some(hello::ours(what.cluster, ServerId(0), own, what.boot)),
        address: what.address.clone(),
        console: what.console.clone(),
        engine: what.engine.clone(),
        boot: what.boot,
        region_ids_wanted: STOCK_IDS,
    }
}

fn registered(reply: v1::RegisterReply) -> Result<Registered, Error> {
    let cluster = hello::cluster_of(&reply.cluster_id)?
        .ok_or_else(|| Error::Internal { message: "the master named no cluster".to_owned() })?;
    let every = Duration::from_millis(u64::from(reply.report_every_ms));
    Ok(Registered {
        cluster,
        server: ServerId(reply.server),
        addresses: addresses(reply.servers),
        region_ids: (reply.region_id_first, reply.region_id_count),
        report_every: if every.is_zero() { REPORT_INTERVAL } else { every },
        page_keys: page_keys(reply.page_keys),
    })
}

fn page_keys(keys: Vec<v1::PageKey>) -> Vec<PageKey> {
    keys.into_iter().map(|v1::PageKey { id, secret }| PageKey { id, secret }).collect()
}

fn addresses(servers: Vec<v1::ServerAddress>) -> Vec<(ServerId, String)> {
    servers.into_iter().map(|server| (ServerId(server.server), server.address)).collect()
}

/// Refusals that the same call would meet again.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::WrongCluster { .. }
            | Error::Invalid(_)
            | Error::Unsupported { .. }
            | Error::AlreadyExists { .. }
            | Error::NotFound { .. }
    )
}

/// Reports until it is told to stop.
pub struct Reporter {
    pub masters: Masters,
    pub identity: hello::Identity,
    pub every: Duration,
    pub registry: Arc<Registry>,
    pub host: Arc<GroupHost>,
    pub addresses: Arc<Addresses>,
    pub stock: Arc<IdStock>,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    pub troubles: Arc<Troubles>,
    pub budgets: Arc<Budgets>,
    pub engine: Arc<Engine>,
    pub page_seal: Arc<PageSeal>,
    /// A registration that no master has answered yet.
    pub joining: Option<Joining>,
}

impl Reporter {
    /// Registers where that is still to be done, then reports every so often; the last report says that this server stops.
    pub async fn run(mut self, stop: CancellationToken) {
        if let Some(joining) = self.joining.take() {
            let joined = tokio::select! {
                biased;
                () = stop.cancelled() => false,
                joined = self.join(&joining) => joined,
            };
            if !joined {
                return;
            }
        }
        let mut turn = tokio::time::interval(self.every);
        turn.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut silent = false;
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                _ = turn.tick() => {}
            }
            match self.report(false).await {
                Ok(()) if silent => {
                    silent = false;
                    tracing::info!("a master answers again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !silent {
                        tracing::warn!(%error, "no master takes the report; serving goes on");
                    }
                    silent = true;
                    self.masters.next();
                }
            }
        }
        // The masters notice by themselves when this one does not arrive.
        self.report(true).await.ok();
    }

    /// Asks the masters until one answers; false when it refuses this server for good.
    async fn join(&mut self, joining: &Joining) -> bool {
        loop {
            match self.masters.register_once(&joining.registration).await {
                Err(RegisterError::Unreachable { .. }) => tokio::time::sleep(self.every).await,
                answer => {
                    let Some(registered) = joining.take(answer) else { return false };
                    tracing::info!("a master answers: the server is registered");
                    self.every = registered.report_every;
                    self.take_over(registered);
                    return true;
                }
            }
        }
    }

    /// Takes over what a registration brought.
    pub fn take_over(&self, registered: Registered) {
        self.page_seal.set(registered.page_keys);
        self.stock.add(registered.region_ids.0, registered.region_ids.1);
        self.addresses.set(registered.addresses);
    }

    async fn report(&mut self, stopping: bool) -> Result<(), Error> {
        let Some((_, mut client)) = self.masters.current() else { return Ok(()) };
        let request = self.compose(stopping);
        let reply = tokio::time::timeout(CALL_TIMEOUT, client.report(request)).await;
        let reply = reply.map_err(|_| Error::DeadlineExceeded)?.map_err(|status| error::from_status(&status))?;
        self.take(reply.into_inner()).await;
        Ok(())
    }

    fn compose(&self, stopping: bool) -> v1::ReportRequest {
        let mut groups = Vec::new();
        let mut regions = Vec::new();
        let mut led = 0;
        let (mut damages, mut stopped) = (Vec::new(), Vec::new());
        for group in self.host.groups() {
            let status = group.status();
            let hosted = self.registry.machine(status.group).map(|machine| machine.hosted()).unwrap_or_default();
            groups.push(v1::GroupReport {
                group: status.group.0,
                replica: status.replica.0,
                term: status.term,
                leader: status.leader.map_or(0, |(_, server)| server.0),
                applied: status.applied,
                regions: u32::try_from(hosted.len()).unwrap_or(u32::MAX),
            });
            stopped.extend(stopped_replica(&status));
            for replica in &status.snapshot_wanted_by {
                self.troubles.set(
                    &format!("snapshot for replica {replica}"),
                    format!("replica {replica} of group {} lacks entries that the log no longer holds", status.group),
                );
            }
            for hosted in &hosted {
                hosted.cut_rows.let_go(terrane_env::time::now_ns());
                damages.extend(hosted.damages());
            }
            if status.is_leader {
                led += 1;
                regions.extend(hosted.iter().map(|hosted| region_report(hosted, status.term)));
            }
        }
        self.metrics.groups_led.set(led);
        self.note_sizes();
        let resources = self.budgets.usage();
        self.metrics.resources.show(&resources);
        self.note_reads();
        let log = self.host.log_status();
        let mut troubles = self.troubles.sentences();
        troubles.extend(self.host.clock_trouble());
        troubles.extend(damages);
        troubles.extend(stopped);
        troubles.extend(log_troubles(&log));
        v1::ReportRequest {
            hello: Some(hello::ours(
                Some(self.identity.cluster),
                ServerId(0),
                self.identity.server,
                self.identity.boot,
            )),
            server: self.identity.server.0,
            boot: self.identity.boot,
            groups,
            regions,
            region_ids_wanted: self.stock.wanted(),
            log_bytes: log.bytes,
            log_limit: log.limit,
            log_held_by: log.held_by.unwrap_or_default(),
            troubles,
            memtable_bytes: self.admission.memtable_bytes(),
            stopping,
            clock_ms: self.host.wall_ms(),
            resources: resources.into_iter().map(resource_usage).collect(),
        }
    }

    /// The engine's counts under the names of tables; those of tables that are not here any more are left out.
    fn note_reads(&self) {
        let tables: BTreeMap<TableId, String> = self
            .registry
            .regions
            .all()
            .iter()
            .map(|hosted| hosted.state())
            .map(|state| (state.descriptor.table, state.schema.name.to_string()))
            .collect();
        let named = |(table, family, counts): (TableId, FamilyName, FamilyReadCounts)| {
            let table = tables.get(&table)?.clone();
            Some((OfFamily { table, family: family.to_string() }, counts))
        };
        self.metrics.family_reads.show(self.engine.family_reads().into_iter().filter_map(named).collect());
    }

    fn note_sizes(&self) {
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let log = self.host.log_status();
        self.metrics.log_bytes.set(gauge(log.bytes));
        self.budgets.sample("log", Unit::Bytes, log.bytes, log.limit);
        let memtables = self.admission.memtable_bytes();
        self.budgets.sample("memtables", Unit::Bytes, memtables, self.admission.memtable_budget());
        self.budgets.sample("write_operations", Unit::Count, self.admission.operations(), OPERATIONS_MAX);
        self.budgets.sample("write_bytes", Unit::Bytes, self.admission.bytes(), BYTES_MAX);
        self.metrics.log_syncs.set(gauge(log.syncs));
        self.metrics.memtable_bytes.set(gauge(self.admission.memtable_bytes()));
        self.metrics.writes_in_flight.set(gauge(self.admission.operations()));
        self.metrics.write_pressure.set(i64::from(self.admission.pressure()));
        let compacted = self.engine.compaction_totals();
        self.metrics.compactions.set(gauge(compacted.compactions));
        self.metrics.compaction_bytes_read.set(gauge(compacted.bytes_read));
        self.metrics.compaction_bytes_written.set(gauge(compacted.bytes_written));
        self.metrics.compaction_bytes_pending.set(gauge(compacted.bytes_pending));
        self.metrics.cache_bytes.set(gauge(self.engine.cache_bytes()));
        self.metrics.regions.set(i64::try_from(self.registry.regions.count()).unwrap_or(i64::MAX));
    }

    async fn take(&self, reply: v1::ReportReply) {
        self.addresses.set(addresses(reply.servers));
        self.stock.add(reply.region_id_first, reply.region_id_count);
        self.page_seal.set(page_keys(reply.page_keys));
        let drops = async {
            for table in reply.dropped_tables {
                self.drop_late(TableId(table)).await;
            }
        };
        // A leader without a quorum would wait for ever, and its reports with it. The next report brings the ids again.
        tokio::time::timeout(self.every, drops).await.ok();
    }

    /// A table that was dropped while a group led here was out of reach is dropped now.
    async fn drop_late(&self, table: TableId) {
        for machine in self.registry.machines() {
            let Some(group) = self.host.group(machine.group()) else { continue };
            if machine.has_table(table) && group.status().is_leader {
                let change = ChangeTables { schema: None, create: Vec::new(), drop: Some(table) };
                // The next report brings the id again, whatever comes of this.
                group.propose(change.encode()).await.ok();
            }
        }
    }
}

fn resource_usage(usage: Usage) -> v1::ResourceUsage {
    v1::ResourceUsage {
        name: usage.name.to_owned(),
        bytes: usage.unit == Unit::Bytes,
        used: usage.used,
        peak: usage.peak,
        limit: usage.limit,
        refused: usage.refused,
    }
}

/// A replica that takes part in nothing any more: its group has one member less until the server is started again.
fn stopped_replica(status: &GroupStatus) -> Option<String> {
    let why = status.failed.as_ref()?;
    Some(format!(
        "replica {} of group {} stopped for good: {why}; restart this server, and it says what to do if that does not help",
        status.replica, status.group
    ))
}

fn log_troubles(log: &LogStatus) -> Vec<String> {
    let refused = |(group, held_by): &(GroupId, String)| {
        format!("group {group} takes no writes here, its share of the log is full; held by {held_by}")
    };
    log.refusing.iter().map(refused).chain(log.trouble.clone()).collect()
}

fn region_report(hosted: &Hosted, term: u64) -> v1::RegionReport {
    let state = if hosted.is_stuck() { "unsplittable" } else { "open" };
    v1::RegionReport {
        descriptor: Some(v1::RegionDescriptor::from(&hosted.state().descriptor)),
        bytes: hosted.engine.size_bytes(),
        state: state.to_owned(),
        group_term: term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_share_of_the_log_and_what_is_wrong_with_it_are_troubles() {
        let log = LogStatus {
            refusing: vec![(GroupId(3), "server 2, which is behind".to_owned())],
            trouble: Some("entries could not be copied".to_owned()),
            ..LogStatus::default()
        };
        let troubles = log_troubles(&log);
        assert!(troubles[0].contains("group 3") && troubles[0].contains("server 2"), "{troubles:?}");
        assert_eq!(troubles[1..], ["entries could not be copied"]);
        assert!(log_troubles(&LogStatus::default()).is_empty());
    }
}
