//! Reports to the masters: registration if it is still pending, then a report periodically, and what the answers bring.
//!
//! Reports keep the masters' index of regions current. Every master gets each report, so that one that is elected knows the
//! servers at once, and any of them knows the leaders of groups. The leader's answer carries addresses, region ids for
//! splits, page keys and the ids of dropped tables. A master that does not answer gets no further report meanwhile and holds
//! up nothing. When a group led here has another leader or other regions, a report follows at once: clients of the masters'
//! map find out within [`CHANGES_EVERY`] and a call, and many changes at a time are one report. While no master is reachable the server continues to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use terrane_engine::{Engine, FamilyReadCounts};
use terrane_env::budget::{Budgets, Unit, Usage};
use terrane_metrics::ResourceUse;
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{error, hello, leadership, v1, versions};
use terrane_raft::{Abstention, StateMachine as _, Weight};
use terrane_types::states::RegionState;
use terrane_types::{Endpoint, Error, FamilyName, GroupId, IssueKind, ServerId, TableId};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::background::disk_free::DiskFree;
use crate::edge::admission::{Admission, BYTES_MAX, operations_max};
use crate::edge::page_token::PageSeal;
use crate::group::proposal::{GroupHost, Proposal};
use crate::health::HealthIssues;
use crate::issues::{Lasting, damaged_log, failing_copies, log_issues, stopped_replica, stuck_replica};
use crate::masters::addresses::Addresses;
use crate::masters::endpoints::Endpoints;
use crate::masters::joining::Joining;
use crate::masters::leadership::NewestLeadership;
use crate::masters::region_ids::RegionIdStock;
use crate::masters::{
    CALL_TIMEOUT, Masters, RegisterError, Registered, addresses, is_no_master, no_master, page_keys, recovered,
};
use crate::metrics::{FamilyLabels, Metrics, TableCounts};
use crate::operation::ChangeTables;
use crate::region::orders::counts_of;
use crate::replicas::Replicas;
use crate::replicas::hosted::HostedRegion;
use crate::replicas::membership;
use crate::replicas::mending::Mending;
use crate::replicas::orphans::Orphans;
use crate::versions::{ClusterLevel, said};

/// The server says so when no leading master has accepted a report for so long.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// A change of leaders or regions is reported after this time, together with those that follow it meanwhile.
const CHANGES_EVERY: Duration = Duration::from_millis(20);

/// A report without an answer of use.
enum Unaccepted {
    /// The master may accept the next one.
    ForNow,
    /// This build and the cluster cannot work together, or the server was removed.
    Forever(String),
}

/// Why the reports of this server are refused for good, if an answer says so.
fn refusal(answer: Error, master: &str, server: ServerId) -> Option<String> {
    match answer {
        Error::Unsupported { feature: why } => Some(format!("the master at {master} refused this server: {why}")),
        Error::NotFound { .. } => Some(format!(
            "server {server} was removed from its cluster, as the master at {master} says: it holds nothing that the cluster uses, and its \
             id is not used again; stop it for good, or start it with an empty --data directory to join as a new server"
        )),
        _ => None,
    }
}

/// An answer, and the number of the leadership that gave it.
type Answer = (u64, v1::ReportReply);

/// The reports under way, at most one to each master and the last one.
#[derive(Default)]
struct Sending {
    calls: JoinSet<(String, Result<Answer, Unaccepted>)>,
    masters: BTreeSet<String>,
    /// Those of them that have not been told the latest change.
    lagging: BTreeSet<String>,
}

/// An answer to a report.
struct Answered {
    master: String,
    /// If it is the leader's.
    by_leader: Option<Answer>,
    /// The masters that another master named: as of its log, which may be old.
    named: Vec<String>,
    /// Whether something has changed since that report.
    is_lagging: bool,
}

impl Sending {
    fn is_under_way(&self, master: &str) -> bool {
        self.masters.contains(master)
    }

    fn send(&mut self, master: &str, mut client: MasterClient<Channel>, request: v1::ReportRequest) {
        let (master, server) = (master.to_owned(), ServerId(request.server));
        self.masters.insert(master.clone());
        self.calls.spawn(async move {
            let answer = tokio::time::timeout(CALL_TIMEOUT, client.report(request)).await;
            let reply = match answer {
                Ok(Ok(reply)) => Ok((leadership::of(reply.metadata()), reply.into_inner())),
                Ok(Err(status)) => {
                    tracing::debug!(master, error = status.message(), "a master does not accept the report");
                    if is_no_master(&status) {
                        tracing::debug!("{}", no_master(&master));
                    }
                    let refused = match error::from_status(&status) {
                        _ if is_no_master(&status) => None,
                        answer => refusal(answer, &master, server),
                    };
                    Err(refused.map_or(Unaccepted::ForNow, Unaccepted::Forever))
                }
                Err(_) => Err(Unaccepted::ForNow),
            };
            (master, reply)
        });
    }

    /// The next answer. The endpoints that it names are noted, a refusal for good is passed on to `level`. Never returns while
    /// no report is under way.
    async fn answer(&mut self, level: &ClusterLevel, endpoints: &Endpoints) -> Option<Answered> {
        let Some(ended) = self.calls.join_next().await else { return std::future::pending().await };
        let (master, reply) = ended.ok()?;
        self.masters.remove(&master);
        let is_lagging = self.lagging.remove(&master);
        let (by_leader, named) = match reply {
            Ok((number, mut reply)) => {
                endpoints.learn(&master, number, &reply);
                let named = if reply.is_follower { std::mem::take(&mut reply.masters) } else { Vec::new() };
                ((!reply.is_follower).then_some((number, reply)), named)
            }
            Err(Unaccepted::ForNow) => (None, Vec::new()),
            Err(Unaccepted::Forever(why)) => {
                level.refuse(why);
                (None, Vec::new())
            }
        };
        Some(Answered { master, by_leader, named, is_lagging })
    }

    async fn all_answered(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }
}

/// Reports to the masters until the server stops.
pub struct Reporter {
    pub masters: Masters,
    pub identity: hello::Identity,
    pub every: Duration,
    pub replicas: Arc<Replicas>,
    pub host: Arc<GroupHost>,
    pub addresses: Arc<Addresses>,
    pub region_ids: Arc<RegionIdStock>,
    pub admission: Arc<Admission>,
    pub metrics: Arc<Metrics>,
    pub health: Arc<HealthIssues>,
    pub lasting: Lasting,
    pub disk_free: Arc<DiskFree>,
    pub budgets: Arc<Budgets>,
    pub engine: Arc<Engine>,
    pub leadership: Arc<NewestLeadership>,
    /// Those of the masters and the other servers.
    pub endpoints: Arc<Endpoints>,
    pub mending: Arc<Mending>,
    pub orphans: Arc<Orphans>,
    pub page_seal: Arc<PageSeal>,
    pub level: Arc<ClusterLevel>,
    /// Those of this server.
    pub own_endpoints: Vec<Endpoint>,
    /// A registration that no master has answered yet, if any.
    pub joining: Option<Joining>,
}

impl Reporter {
    /// Registers if that is still pending, then reports periodically. The last report says that this server stops.
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
        let mut sending = Sending::default();
        let (mut accepted, mut silent) = (Instant::now(), false);
        // When a change is reported, if there is one.
        let mut due: Option<Instant> = None;
        let regions = self.replicas.regions.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                answered = sending.answer(&self.level, &self.endpoints) => {
                    let Some(Answered { master, by_leader, named, is_lagging }) = answered else { continue };
                    // The leader may have become a master while this server was away. Once it answers, its list counts alone.
                    if silent {
                        self.masters.learn(&named);
                    }
                    if is_lagging {
                        self.report_to(&mut sending, |known| known == master).await;
                    }
                    let Some((number, reply)) = by_leader else { continue };
                    self.leadership.heard(number);
                    accepted = Instant::now();
                    if std::mem::take(&mut silent) {
                        tracing::info!("the leading master responds again");
                    }
                    if !terrane_env::buggify!("an answer of the master to a report is lost") {
                        self.take(reply, number).await;
                    }
                }
                () = until(due) => {
                    due = None;
                    regions.take_changed();
                    self.report_to(&mut sending, |_| true).await;
                }
                () = regions.changed(), if due.is_none() => {
                    let changed = regions.take_changed();
                    let is_led = |group: &GroupId| self.host.group(*group).is_some_and(|group| group.leads());
                    due = changed.iter().any(is_led).then(|| Instant::now() + CHANGES_EVERY);
                }
                _ = turn.tick() => {
                    due = None;
                    regions.take_changed();
                    self.report(&mut sending, false).await;
                    if !silent && accepted.elapsed() > SILENT_AFTER {
                        silent = true;
                        tracing::warn!("no master that leads accepts the reports; the server continues to serve");
                    }
                }
            }
        }
        // If it does not arrive, the masters notice by the missing reports.
        self.report(&mut sending, true).await;
        tokio::time::timeout(CALL_TIMEOUT, sending.all_answered()).await.ok();
    }

    /// Calls the masters until one answers. Returns false if it refuses this server permanently.
    async fn join(&mut self, joining: &Joining) -> bool {
        loop {
            match self.masters.register_once(&joining.registration).await {
                Err(RegisterError::Unreachable { .. }) => tokio::time::sleep(self.every).await,
                answer => {
                    let Some(registered) = joining.take(answer) else { return false };
                    tracing::info!("registered with a master");
                    self.every = registered.report_every;
                    self.level.learn(registered.level).await;
                    self.take_over(registered);
                    return true;
                }
            }
        }
    }

    /// Applies the answer to a registration.
    pub fn take_over(&self, registered: Registered) {
        self.page_seal.set(registered.page_keys);
        self.region_ids.add(registered.region_ids.0, registered.region_ids.1);
        self.addresses.set(registered.addresses);
        self.note_recovered(registered.recovered);
    }

    /// Replicas that were lost with the majority of their group, and are back, take part no more.
    fn note_recovered(&self, recovered: Vec<(GroupId, u64)>) {
        recovered.into_iter().for_each(|(group, term)| self.host.note_recovered(group, term));
    }

    /// Sends a report to every master whose last answer has arrived; the last one to all.
    async fn report(&self, sending: &mut Sending, stopping: bool) {
        terrane_env::buggify_pause!("a report to the master is late").await;
        let request = self.compose(stopping);
        for (master, client) in self.masters.all() {
            if stopping || !sending.is_under_way(master) {
                sending.send(master, client.clone(), request.clone());
            }
        }
    }

    /// Reports a change to these masters. Those whose last answer has not arrived are told once it has.
    async fn report_to(&self, sending: &mut Sending, is_told: impl Fn(&str) -> bool) {
        let request = self.compose(false);
        for (master, client) in self.masters.all() {
            if !is_told(master) {
                continue;
            }
            if sending.is_under_way(master) {
                sending.lagging.insert(master.clone());
            } else {
                sending.send(master, client.clone(), request.clone());
            }
        }
    }

    fn compose(&self, stopping: bool) -> v1::ReportRequest {
        let mut groups = Vec::new();
        let mut regions = Vec::new();
        let (mut led, mut all_compared, mut kept_views) = (0, Vec::new(), 0);
        let (mut damages, mut stopped, mut failing) = (Vec::new(), Vec::new(), Vec::new());
        let worn = self.mending.look(&self.host, &self.replicas);
        for group in self.host.groups() {
            let (status, members) = (group.status(), group.members());
            let machine = self.replicas.machine(status.group);
            let hosted = machine.as_ref().map(|machine| machine.hosted()).unwrap_or_default();
            let damage = machine.as_ref().and_then(|machine| machine.damage());
            let (compared_regions, compared_ms) = compared(status.is_leader, &hosted);
            all_compared.push((compared_regions, compared_ms));
            groups.push(v1::GroupReport {
                group: status.group.0,
                replica: status.replica.0,
                term: status.term,
                leader: status.leader.map_or(0, |(_, server)| server.0),
                applied: status.applied,
                regions: u32::try_from(hosted.len()).unwrap_or(u32::MAX),
                members: members.iter().map(membership::member_progress).collect(),
                voter: status.voters.contains(&status.replica),
                damaged: machine.is_some_and(|machine| machine.is_damaged()),
                discardable: worn.is_none(),
                compared_regions,
                compared_ms,
            });
            match damage {
                Some(what) => damages.push(damaged_log(&status, &what)),
                None => stopped.extend(stopped_replica(&status)),
            }
            stopped.extend(stuck_replica(&status));
            failing.extend(failing_copies(&status, &members));
            for hosted in &hosted {
                hosted.held_snapshots.expire(terrane_env::time::now_ns());
                hosted.comparison.expire(terrane_env::time::now_ns());
                damages.extend(hosted.damages());
                hosted.let_views_go(None, terrane_env::time::now_ns());
                kept_views += i64::from(hosted.keeps_views());
            }
            if status.is_leader {
                led += 1;
                damages.extend(hosted.iter().filter_map(|hosted| hosted.hot_row()));
                regions.extend(hosted.iter().map(|hosted| region_report(hosted, status.term)));
            }
        }
        self.metrics.groups_led.set(led);
        self.publish_comparisons(&all_compared);
        self.metrics.kept_views.set(kept_views);
        self.host.note_level(self.level.level());
        self.host.publish_metrics();
        self.publish_sizes();
        let resources = self.budgets.usage();
        let usages: Vec<ResourceUse> = resources.iter().map(resource_use).collect();
        self.metrics.resources.publish(usages.iter().copied());
        self.publish_reads();
        let log = self.host.log_status();
        self.health.retain_regions(|region| self.replicas.regions.get(region).is_some());
        let mut issues = self.health.all();
        issues.extend(self.host.clock_trouble().map(|what| IssueKind::ClockWrong.issue(what)));
        issues.extend(worn.map(|what| IssueKind::DiskFailing.issue(what)));
        issues.extend(damages);
        issues.extend(stopped);
        issues.extend(failing);
        issues.extend(log_issues(&log));
        let now_ms = terrane_env::time::now_ns() / 1_000_000;
        issues.extend(self.lasting.look(now_ms, &usages, self.admission.pressure()));
        self.metrics.issues.publish(issues.iter().map(|issue| issue.kind));
        v1::ReportRequest {
            hello: Some(versions::at_level(
                hello::ours(Some(self.identity.cluster), ServerId(0), self.identity.server, self.identity.boot),
                self.level.own(),
            )),
            versions: Some(said(self.level.own())),
            server: self.identity.server.0,
            boot: self.identity.boot,
            groups,
            regions,
            region_ids_wanted: self.region_ids.wanted(),
            log_bytes: log.bytes,
            log_limit: log.limit,
            log_held_by: log.held_by.unwrap_or_default(),
            issues: issues.into_iter().map(Into::into).collect(),
            memtable_bytes: self.admission.memtable_bytes(),
            stopping,
            clock_ms: self.host.wall_ms(),
            resources: resources.into_iter().map(resource_usage).collect(),
            orphans: self.orphans.report(),
            store_bytes: Some(self.engine.regions().iter().map(|region| region.file_bytes()).sum()),
            disk_free_bytes: self.disk_free.get(),
            endpoints: self.own_endpoints.iter().cloned().map(Into::into).collect(),
        }
    }

    /// Publishes how many regions led here were compared on all replicas, and how long ago the first of them.
    fn publish_comparisons(&self, of_groups: &[(u32, u64)]) {
        let regions: i64 = of_groups.iter().map(|(regions, _)| i64::from(*regions)).sum();
        let longest = of_groups.iter().map(|(_, at)| *at).filter(|at| *at > 0).min();
        let age_ms = longest.map_or(0, |at| self.host.wall_ms().saturating_sub(at));
        self.metrics.regions_compared.set(regions);
        self.metrics.comparison_age_seconds.set(i64::try_from(age_ms / 1_000).unwrap_or(i64::MAX));
    }

    /// Publishes what regions and engine have counted under the tables' names, without tables that are no longer here.
    fn publish_reads(&self) {
        let mut tables: BTreeMap<TableId, String> = BTreeMap::new();
        let mut regions = Vec::new();
        for hosted in self.replicas.regions.all() {
            let state = hosted.state();
            let table = tables.entry(state.descriptor.table).or_insert_with(|| state.schema.name.to_string()).clone();
            let (region, group, requested) = (hosted.region, hosted.group, hosted.load.total());
            regions.push(TableCounts { table, region, group, requested, bytes: hosted.engine.size_bytes() });
        }
        let named = |(table, family, counts): (TableId, FamilyName, FamilyReadCounts)| {
            let table = tables.get(&table)?.clone();
            Some((FamilyLabels { table, family: family.to_string() }, counts))
        };
        let reads = self.engine.family_reads().into_iter().filter_map(named).collect();
        self.metrics.tables.publish(&regions, |named| self.metrics.family_reads.publish(named, reads));
    }

    fn publish_sizes(&self) {
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let log = self.host.log_status();
        self.metrics.log_bytes.set(gauge(log.bytes));
        self.budgets.sample("log", Unit::Bytes, log.bytes, log.limit);
        let memtables = self.admission.memtable_bytes();
        self.budgets.sample("memtables", Unit::Bytes, memtables, self.admission.memtable_budget());
        self.budgets.sample("write_operations", Unit::Count, self.admission.operations(), operations_max());
        self.budgets.sample("write_bytes", Unit::Bytes, self.admission.bytes(), BYTES_MAX);
        self.metrics.set_log_syncs(log.syncs);
        self.metrics.memtable_bytes.set(gauge(self.admission.memtable_bytes()));
        self.metrics.writes_in_flight.set(gauge(self.admission.operations()));
        self.metrics.set_write_pressure(self.admission.pressure());
        self.metrics.set_compactions(&self.engine.compaction_totals());
        self.metrics.block_cache_bytes.set(gauge(self.engine.cache_bytes()));
        self.metrics.regions.set(i64::try_from(self.replicas.regions.count()).unwrap_or(i64::MAX));
    }

    async fn take(&mut self, reply: v1::ReportReply, leadership: u64) {
        self.masters.renew(&reply.masters);
        self.endpoints.retain_masters(|master| self.masters.all().iter().any(|(known, _)| known == master));
        self.level.learn(reply.feature_level).await;
        self.metrics.feature_level.set(i64::from(self.level.level()));
        if self.leadership.is_newest(leadership) {
            self.addresses.replace(addresses(reply.servers), self.identity.server);
            self.note_unreachable(reply.unreachable);
        }
        self.region_ids.add(reply.region_id_first, reply.region_id_count);
        self.page_seal.set(page_keys(reply.page_keys));
        self.note_recovered(recovered(reply.recovered));
        let drops = async {
            for table in reply.dropped_tables {
                self.drop_late(TableId(table)).await;
            }
        };
        // A leader without a quorum would wait indefinitely, and hold up its reports. The next answer repeats the ids.
        tokio::time::timeout(self.every, drops).await.ok();
    }

    /// The leading master says whether it can call this server. If it cannot, peers and clients cannot either, so another member
    /// should lead if one can. An election needs no master, and neither does the decision: with no other candidate, this server leads.
    fn note_unreachable(&self, why: String) {
        let reason = (!why.is_empty()).then(|| Abstention {
            reason: format!("the masters cannot reach this server: {why}"),
            weight: Weight::Soft,
        });
        self.host.set_abstains("address", reason);
        match why.is_empty() {
            true if self.health.clear_unreachable() => tracing::info!("the masters reach this server again"),
            false if self.health.set_unreachable(why.clone()) => tracing::warn!(
                why,
                "the masters cannot reach this server at the address that it advertises; start it with --advertise HOST:PORT that leads \
                 to it"
            ),
            _ => {}
        }
    }

    /// Drops a table that was dropped while a group led here was unreachable.
    async fn drop_late(&self, table: TableId) {
        for machine in self.replicas.machines() {
            let Some(group) = self.host.group(machine.group()) else { continue };
            if machine.has_table(table) && group.status().is_leader {
                let change = ChangeTables { schema: None, create: Vec::new(), drop: Some(table) };
                // If it fails, the next answer repeats the id.
                group.propose(Proposal::ChangeTables(Box::new(change))).await.ok();
            }
        }
    }
}

fn resource_use(usage: &Usage) -> ResourceUse {
    let Usage { name, used, peak, limit, refused, .. } = *usage;
    ResourceUse { name, used, peak, limit, refused }
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

/// How many regions of a group that is led here were compared on all replicas, and when the longest ago of these was.
fn compared(is_leader: bool, hosted: &[Arc<HostedRegion>]) -> (u32, u64) {
    let times = hosted.iter().map(|hosted| hosted.comparison.compared_ms()).filter(|at| is_leader && *at > 0);
    times.fold((0, 0), |(regions, longest), at| (regions + 1, if longest == 0 { at } else { at.min(longest) }))
}

fn region_report(hosted: &HostedRegion, term: u64) -> v1::RegionReport {
    let load = hosted.load.average();
    let state = if hosted.is_stuck() { RegionState::Unsplittable } else { RegionState::Open };
    v1::RegionReport {
        descriptor: Some(v1::RegionDescriptor::from(&hosted.state().descriptor)),
        bytes: hosted.engine.size_bytes(),
        state: state.name().to_owned(),
        group_term: term,
        load: Some(v1::RegionLoad { rows_read: load.rows_read, rows_written: load.rows_written, bytes: load.bytes }),
        shape: region_shape(hosted),
        counts: Some(counts_of(hosted).into()),
    }
}

/// Returns at a time; never if there is none.
async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn region_shape(hosted: &HostedRegion) -> Option<v1::RegionShape> {
    let is_free = hosted.is_in_manifest() && !hosted.is_changing() && !hosted.engine.is_being_read();
    let planned = hosted.state().planned.clone();
    is_free.then(|| v1::RegionShape {
        planned_start: planned.start,
        planned_end: planned.end,
        age_ms: u64::try_from(hosted.age(terrane_env::time::now_ns()).as_millis()).unwrap_or(u64::MAX),
    })
}
