//! Registration and reports of region servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use terrane_proto::convert::server_address;
use terrane_proto::hello::{self, Identity};
use terrane_proto::{v1, versions as wire};
use terrane_raft::is_lost;
use terrane_types::states::{RegionState, ServerState};
use terrane_types::{Error, GroupId, Invalid, RegionDescriptor, RegionId, ReplicaId, ServerId};

use crate::catalog::servers::Registration;
use crate::catalog::{Catalog, CatalogEdit, Outcome};
use crate::context::MasterContext;
use crate::history::chronicle;
use crate::servers::inventory::{Absorbed, GroupSeen, RegionSeen, Report, ServerLoad};
use crate::servers::liveness::Replaced;
use crate::servers::observed::now;
use crate::{page_keys, versions};

/// Most region ids in one block.
const REGION_IDS_MAX: u32 = 1_024;
/// Longest text a server may register.
const TEXT_BYTES_MAX: usize = 512;
/// Most dropped tables in one reply; the reply to the next report lists further ones.
const DROPPED_TABLES_MAX: usize = 1_024;

/// How much later than due a report may come before its server is called.
const REPORT_LATE_AFTER: Duration = Duration::from_millis(100);
/// How long the server that is registered at an address may take to answer there, before a newcomer gets it. Its registration
/// waits meanwhile.
const OCCUPANT_TIME_MAX: Duration = Duration::from_secs(1);

/// Handles the calls of region servers.
pub struct Membership {
    context: Arc<MasterContext>,
    identity: Identity,
    report_every: Duration,
}

impl Membership {
    /// The membership of this master's cluster.
    pub const fn new(context: Arc<MasterContext>, identity: Identity, report_every: Duration) -> Self {
        Self { context, identity, report_every }
    }

    /// A server is starting. A fresh one gets an id; a known one tells its present address. It counts as live when it serves,
    /// which its first report says.
    pub async fn register(&self, request: v1::RegisterRequest) -> Result<v1::RegisterReply, Error> {
        let registration = registration(&request)?;
        let own = ServerId(request.hello.as_ref().map_or(0, |hello| hello.own_server));
        // Before anything is recorded: a replaced process must not bring its own address back into the catalog.
        let current = self.context.observed.with(|observed| observed.liveness.check_boot(own, request.boot));
        current.map_err(|replaced| refuse_replaced(own, request.boot, replaced))?;
        if own.0 != 0 && self.context.journal.read(|catalog| catalog.servers().get(own).is_none()) {
            // The server ends when it is told, so the catalog must be the newest: this master may have been deposed.
            self.context.leadership.confirm().await?;
        }
        let admission = self.context.journal.read(|catalog| admission(catalog, own, &registration))?;
        self.check_address(own, &registration.address).await?;
        let said = wire::theirs(request.hello.as_ref(), request.versions);
        let server = {
            let _turn = self.context.versions.turn().await;
            versions::admit(&said, self.context.journal.read(Catalog::level))?;
            let server = self.admit(admission, registration).await?;
            let is_new = admission == Admission::New;
            let noted = self
                .context
                .observed
                .with(|observed| observed.liveness.registered(server, request.boot, is_new, now()));
            noted.map_err(|replaced| refuse_replaced(server, request.boot, replaced))?;
            self.context.versions.note(server, said);
            server
        };
        self.displace(server, &request.address);
        self.context.journal.nudge();
        let (region_id_first, region_id_count) = self.region_ids(request.region_ids_wanted).await?;
        tracing::info!(%server, address = request.address, boot = request.boot, "server registered");
        Ok(v1::RegisterReply {
            cluster_id: bytes::Bytes::copy_from_slice(&self.identity.cluster.0),
            server: server.0,
            cluster_time_ms: terrane_env::time::wall_ms(),
            servers: self.addresses(),
            region_id_first,
            region_id_count,
            report_every_ms: u32::try_from(self.report_every.as_millis()).unwrap_or(u32::MAX),
            page_keys: page_keys::current(&self.context.journal).await,
            masters: self.context.journal.peers().addresses(),
            recovered: self.recovered(|_, _| true),
            feature_level: self.context.journal.read(Catalog::level),
        })
    }

    /// The recovered groups that are chosen, each with its term.
    fn recovered(&self, chosen: impl Fn(GroupId, u64) -> bool) -> Vec<v1::RecoveredGroup> {
        self.context.observed.with(|observed| {
            let recovered = observed.inventory.recovered().filter(|(group, term)| chosen(*group, *term));
            recovered.map(|(group, term)| v1::RecoveredGroup { group: group.0, term }).collect()
        })
    }

    /// Records an admission; returns the server's id.
    async fn admit(&self, admission: Admission, registration: Registration) -> Result<ServerId, Error> {
        let edit = match admission {
            Admission::Unchanged(server) => return Ok(server),
            Admission::New => CatalogEdit::AddServer(registration),
            Admission::Changed(server) => CatalogEdit::UpdateServer { server, registration },
        };
        match (self.context.journal.record(&edit).await?, admission) {
            (Outcome::Server(server), Admission::New) | (Outcome::Done, Admission::Changed(server)) => Ok(server),
            (outcome, _) => Err(Error::Internal { message: format!("registering a server returned {outcome:?}") }),
        }
    }

    /// Refuses an address at which another server is: of two processes that name one address, the one that answers there has it. The
    /// newcomer does not serve yet, so a server that lost its disk leaves no answer there. One that may only be slow is waited for until
    /// its reports are late.
    async fn check_address(&self, own: ServerId, address: &str) -> Result<(), Error> {
        if terrane_env::planted!("a taken address is given to a newcomer") {
            return Ok(());
        }
        let others = self.context.journal.read(|catalog| others_at(catalog, own, address));
        for server in others {
            let (is_live, boot) = self
                .context
                .observed
                .with(|observed| (observed.liveness.is_live(server), observed.liveness.boot(server)));
            if !is_live {
                continue;
            }
            let answered = self.context.orders.identify(server, boot);
            if matches!(tokio::time::timeout(OCCUPANT_TIME_MAX, answered).await, Ok(Ok(()))) {
                return Err(taken(server, address));
            }
            let late = self.report_every * 2 + REPORT_LATE_AFTER;
            let is_late = self.context.observed.with(|observed| observed.liveness.quiet_for(server, now()) > late);
            if !is_late {
                let message = format!(
                    "server {server} of this cluster has reported from {address} a moment ago; it is waited for until its reports are late"
                );
                return Err(Error::Unavailable { message, retry_after: REPORT_LATE_AFTER });
            }
        }
        Ok(())
    }

    /// A server that lost its disk comes back under a new id at the address of the old one, of which nothing more will come. At
    /// once, not when its reports are overdue: a new group must not get both, for they are one machine.
    fn displace(&self, by: ServerId, address: &str) {
        for server in self.context.journal.read(|catalog| others_at(catalog, by, address)) {
            if self.context.observed.with(|observed| observed.liveness.displaced(server)) {
                tracing::warn!(%server, %by, address, "another server has taken over a server's address");
            }
        }
    }

    /// Records that a server reports. If that makes it live, whatever waits for servers is woken; a process that has not answered yet
    /// is called.
    fn heard(&self, server: ServerId, boot: u64) -> Result<(), Error> {
        let (heard, is_due) = self.context.observed.with(|observed| {
            let heard = observed.liveness.heard(server, boot, now());
            (heard, !observed.liveness.is_live(server))
        });
        if is_due {
            self.context.observed.wake_caller();
        }
        match heard {
            Ok(None) => Ok(()),
            Ok(Some(before)) => {
                tracing::info!(%server, before = before.name(), "server is live");
                self.context.journal.nudge();
                Ok(())
            }
            Err(replaced) => Err(refuse_replaced(server, boot, replaced)),
        }
    }

    /// A block of region ids. The counter is journaled before any of them can be used.
    async fn region_ids(&self, wanted: u32) -> Result<(u64, u32), Error> {
        let count = wanted.min(REGION_IDS_MAX);
        if count == 0 {
            return Ok((0, 0));
        }
        match self.context.journal.record(&CatalogEdit::TakeRegionIds { count }).await? {
            Outcome::RegionIds(RegionId(first)) => Ok((first, count)),
            outcome => Err(Error::Internal { message: format!("taking region ids returned {outcome:?}") }),
        }
    }

    /// A periodic report of what a server has. Servers report to every master: a follower only notes it, so that it knows
    /// the servers when it leads, and the locations that clients ask it for.
    pub async fn report(&self, mut request: v1::ReportRequest) -> Result<v1::ReportReply, Error> {
        let said = wire::theirs(request.hello.as_ref(), request.versions.take());
        versions::admit_known(&said, self.context.journal.read(Catalog::level))?;
        if !self.context.leadership.holds() {
            return self.observe(request, said);
        }
        let server = ServerId(request.server);
        if self.context.journal.read(|catalog| catalog.servers().get(server).is_none()) {
            // The server ends when it is told, so the catalog must be the newest: this master may have been deposed.
            self.context.leadership.confirm().await?;
            if self.context.journal.read(|catalog| catalog.servers().get(server).is_none()) {
                self.context.observed.with(|observed| observed.liveness.forget(server));
                return Err(Error::NotFound { what: format!("server {server} of this cluster") });
            }
        }
        self.heard(server, request.boot)?;
        self.context.versions.note(server, said);
        self.note(server, &request);
        let wanted = request.region_ids_wanted;
        let terms: BTreeMap<u64, u64> = request.groups.iter().map(|seen| (seen.group, seen.term)).collect();
        let report = self.of_members(decode(request)?);
        let dropped_tables = self.dropped(&report);
        let absorbed = self.context.observed.with(|observed| {
            let absorbed = observed.inventory.absorb(report);
            absorbed.deposed.iter().for_each(|server| observed.liveness.deposed(*server, now()));
            absorbed
        });
        if !absorbed.elections.is_empty() {
            chronicle::elected(&self.context, &absorbed.elections);
        }
        self.index(absorbed).await?;
        let (region_id_first, region_id_count) = self.region_ids(wanted).await?;
        Ok(v1::ReportReply {
            cluster_time_ms: terrane_env::time::wall_ms(),
            servers: self.addresses(),
            region_id_first,
            region_id_count,
            dropped_tables,
            page_keys: page_keys::current(&self.context.journal).await,
            masters: self.context.journal.peers().addresses(),
            recovered: self.recovered(|group, term| terms.get(&group.0).is_some_and(|own| is_lost(*own, term))),
            is_follower: false,
            feature_level: self.context.journal.read(Catalog::level),
            endpoints: self.own_endpoints(),
            server_endpoints: self.context.server_endpoints().into_iter().map(Into::into).collect(),
            unreachable: self
                .context
                .observed
                .with(|observed| observed.liveness.unreachable_because(server).map(str::to_owned).unwrap_or_default()),
        })
    }

    /// What a replica that has left its group says of the group's leader does not count. Lost members of a recovered group that
    /// return may elect a leader among themselves. A replica that a lost catalog has ordered counts all the same: a rebuilt
    /// one may have missed that it became a voter.
    fn of_members(&self, mut report: Report) -> Report {
        self.context.journal.read(|catalog| disown(catalog, &mut report));
        report
    }

    /// Notes a report without recording anything.
    fn observe(&self, request: v1::ReportRequest, said: v1::Versions) -> Result<v1::ReportReply, Error> {
        let server = ServerId(request.server);
        // Its registration may not be applied here yet.
        if self.context.journal.read(|catalog| catalog.servers().get(server).is_some()) {
            self.heard(server, request.boot)?;
            self.context.versions.note(server, said);
            self.note(server, &request);
            let report = self.of_members(decode(request)?);
            self.context.observed.with(|observed| observed.inventory.absorb(report));
        }
        let cluster_time_ms = terrane_env::time::wall_ms();
        // A server may not know the master that leads: it was added while the server was away.
        let masters = self.context.journal.peers().addresses();
        let endpoints = self.own_endpoints();
        Ok(v1::ReportReply { cluster_time_ms, masters, is_follower: true, endpoints, ..v1::ReportReply::default() })
    }

    fn own_endpoints(&self) -> Vec<v1::Endpoint> {
        self.context.endpoints.iter().cloned().map(Into::into).collect()
    }

    fn note(&self, server: ServerId, request: &v1::ReportRequest) {
        let clock_off = i128::from(request.clock_ms) - i128::from(terrane_env::time::wall_ms());
        let clock_off = if request.clock_ms == 0 { 0 } else { i64::try_from(clock_off).unwrap_or(i64::MAX) };
        self.context.observed.with(|observed| {
            observed.liveness.clock(server, clock_off);
            if request.stopping {
                observed.liveness.stopped(server);
            }
        });
        if request.stopping {
            tracing::info!(%server, "server is stopping");
        }
    }

    fn dropped(&self, report: &Report) -> Vec<u64> {
        self.context.journal.read(|catalog| {
            let mut tables: Vec<u64> = report
                .regions
                .iter()
                .map(|region| region.descriptor.table)
                .filter(|table| catalog.tables().was_dropped(*table))
                .map(|table| table.0)
                .collect();
            tables.sort_unstable();
            tables.dedup();
            tables.truncate(DROPPED_TABLES_MAX);
            tables
        })
    }

    /// Updates the map from the regions that leaders reported; a report without news records nothing.
    async fn index(&self, absorbed: Absorbed) -> Result<(), Error> {
        self.index_regions(&absorbed.claims).await?;
        if absorbed.leaders_changed {
            self.context.journal.nudge();
        }
        Ok(())
    }

    /// Records the descriptors that are newer than the map.
    pub async fn index_regions(&self, claims: &[RegionDescriptor]) -> Result<(), Error> {
        let regions = self.context.journal.read(|catalog| catalog.news(claims));
        if regions.is_empty() {
            return Ok(());
        }
        self.context.journal.record(&CatalogEdit::IndexRegions { regions }).await.map(|_| ())
    }

    fn addresses(&self) -> Vec<v1::ServerAddress> {
        let all = |catalog: &Catalog| {
            catalog.servers().iter().map(|(server, known)| server_address(server, &known.address)).collect()
        };
        self.context.journal.read(all)
    }

    /// Marks servers silent whose reports are overdue, logs each once, and wakes whatever depends on them.
    pub fn tick(&self) {
        let silent = self.context.observed.with(|observed| observed.liveness.tick(now()));
        for server in &silent {
            tracing::warn!(%server, state = ServerState::Silent.name(), "server no longer reports");
        }
        if !silent.is_empty() {
            self.context.journal.nudge();
        }
    }

    /// Calls the servers whose reports are late, so that a status shows a death within a second and not only when several
    /// reports are overdue. Takes no time while all servers report.
    pub async fn look_for_dead(&self) {
        let late = self.report_every + REPORT_LATE_AFTER;
        let quiet = self.context.observed.with(|observed| observed.liveness.quiet(now(), late));
        let looked = quiet.into_iter().map(|server| async move { (server, self.context.orders.answers(server).await) });
        for (server, answers) in join_all(looked).await {
            if !answers {
                // A report may have come meanwhile.
                self.context.observed.with(|observed| observed.liveness.unanswered(server, now(), late));
            }
        }
    }

    /// Checks the hello of a server's call. A fresh server does not know the cluster yet.
    pub fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        let fresh = hello.is_none_or(|hello| hello.own_server == 0);
        hello::check_cluster(hello, self.identity, fresh)
    }
}

/// What a registration changes in the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    /// A fresh server needs an id.
    New,
    /// The catalog already has this registration.
    Unchanged(ServerId),
    /// A known server has another address or console.
    Changed(ServerId),
}

fn disown(catalog: &Catalog, report: &mut Report) {
    let server = report.server;
    for seen in &mut report.groups {
        let Some(entry) = catalog.groups().get(seen.group) else { continue };
        if catalog.has_assigned(seen.replica) && entry.server_of(seen.replica) != Some(server) {
            (seen.term, seen.leader) = (0, None);
            seen.members.clear();
        }
    }
}

/// Decides on the registration of a server that has this id; 0: none yet.
fn admission(catalog: &Catalog, own: ServerId, registration: &Registration) -> Result<Admission, Error> {
    if own.0 == 0 {
        return Ok(Admission::New);
    }
    match catalog.servers().get(own) {
        None => Err(gone(catalog, own)),
        Some(known) if known == registration => Ok(Admission::Unchanged(own)),
        Some(known) if known.engine != registration.engine => Err(Error::Invalid(Invalid::new(format!(
            "server {own} is registered with the engine {}, not {}; start it with the engine it was created with",
            known.engine, registration.engine
        )))),
        Some(_) => Ok(Admission::Changed(own)),
    }
}

/// The servers that were registered at an address which is another's now.
fn others_at(catalog: &Catalog, by: ServerId, address: &str) -> Vec<ServerId> {
    let servers = catalog.servers().iter();
    servers.filter(|(id, known)| *id != by && known.address == address).map(|(id, _)| id).collect()
}

fn refuse_replaced(server: ServerId, boot: u64, Replaced { by_boot }: Replaced) -> Error {
    Error::Invalid(Invalid::new(format!(
        "server {server} was started again (boot {by_boot}); this process (boot {boot}) must stop"
    )))
}

/// The refusal of a server that the catalog does not have. One that it had was removed.
fn gone(catalog: &Catalog, server: ServerId) -> Error {
    if catalog.has_assigned_server(server) {
        return Error::Invalid(Invalid::new(format!(
            "server {server} was removed from this cluster, and its id is not used again; stop it for good, or start it with an empty \
             --data directory to join as a new server"
        )));
    }
    Error::NotFound { what: format!("server {server} of this cluster") }
}

/// The refusal of a server that names the address of another one, which is there.
fn taken(server: ServerId, address: &str) -> Error {
    Error::Invalid(Invalid::new(format!(
        "{address} is the address of server {server} of this cluster, which answers there; start this server with --advertise HOST:PORT \
         that leads to it"
    )))
}

fn registration(request: &v1::RegisterRequest) -> Result<Registration, Error> {
    let texts = [
        ("address", &request.address),
        ("console", &request.console),
        ("engine", &request.engine),
        ("zone", &request.zone),
    ];
    for (name, text) in texts {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::Invalid(Invalid::new(format!(
                "a server's {name} may have at most {TEXT_BYTES_MAX} bytes"
            ))));
        }
    }
    if let Err(error) = terrane_env::net::channel(&request.address) {
        return Err(Error::Invalid(Invalid::new(error.to_string())));
    }
    let (address, console, engine) = (request.address.clone(), request.console.clone(), request.engine.clone());
    Ok(Registration { address, console, engine, zone: request.zone.clone() })
}

fn decode(request: v1::ReportRequest) -> Result<Report, Error> {
    let groups = request.groups.into_iter().map(|seen| GroupSeen {
        group: GroupId(seen.group),
        replica: ReplicaId(seen.replica),
        term: seen.term,
        leader: (seen.leader != 0).then_some(ServerId(seen.leader)),
        applied: seen.applied,
        members: seen.members.into_iter().map(Into::into).collect(),
        damaged: seen.damaged,
        discardable: seen.discardable,
        regions: Some(seen.regions),
        compared: (seen.compared_regions, seen.compared_ms),
    });
    let regions = request.regions.into_iter().map(|seen| {
        let descriptor = seen.descriptor.ok_or_else(|| Invalid::new("a reported region has no descriptor"))?;
        Ok(RegionSeen {
            descriptor: descriptor.try_into()?,
            bytes: seen.bytes,
            state: RegionState::named(&seen.state),
            term: seen.group_term,
            load: seen.load.unwrap_or_default(),
            shape: seen.shape,
            counts: seen.counts.unwrap_or_default(),
        })
    });
    Ok(Report {
        server: ServerId(request.server),
        groups: groups.collect(),
        regions: regions.collect::<Result<_, Error>>()?,
        load: ServerLoad {
            log_bytes: request.log_bytes,
            log_limit: request.log_limit,
            log_held_by: request.log_held_by,
            memtable_bytes: request.memtable_bytes,
            store_bytes: request.store_bytes,
            disk_free_bytes: request.disk_free_bytes,
            issues: request.issues.into_iter().map(Into::into).collect(),
            orphans: request.orphans,
            endpoints: request.endpoints.into_iter().map(Into::into).collect(),
            resources: request.resources,
        },
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::time::Duration;

    use super::*;
    use crate::catalog::scripts::{self, Line};
    use crate::servers::liveness::{Liveness, Moment};

    fn request(line: &Line<'_>, address: &str) -> v1::RegisterRequest {
        let engine = line.argument("engine").unwrap_or("memory").to_owned();
        v1::RegisterRequest { address: address.to_owned(), engine, ..v1::RegisterRequest::default() }
    }

    /// Registers a server as the calls do: check the request, decide, record, and note the boot.
    fn register(
        catalog: &mut Catalog,
        liveness: &mut Liveness,
        line: &Line<'_>,
        out: &mut String,
    ) -> Result<(), Error> {
        let own = ServerId(line.argument("own").map_or(0, scripts::number));
        let boot = line.argument("boot").map_or(1, scripts::number);
        let registration = registration(&request(line, line.words[1]))?;
        liveness.check_boot(own, boot).map_err(|replaced| refuse_replaced(own, boot, replaced))?;
        let admission = admission(catalog, own, &registration)?;
        let edit = match admission {
            Admission::Unchanged(_) => None,
            Admission::New => Some(CatalogEdit::AddServer(registration)),
            Admission::Changed(server) => Some(CatalogEdit::UpdateServer { server, registration }),
        };
        writeln!(out, "{admission:?}").unwrap();
        edit.iter().for_each(|edit| scripts::apply(catalog, edit, 1, out));
        let address = line.words[1];
        let server = catalog.servers().iter().map(|(id, _)| id).filter(|_| own.0 == 0).last().unwrap_or(own);
        for other in others_at(catalog, server, address) {
            writeln!(out, "s{server} displaces s{other}").unwrap();
        }
        liveness.live(own, boot, Moment(0)).map_err(|replaced| refuse_replaced(own, boot, replaced)).map(drop)
    }

    // Checking an address needs a runtime.
    #[tokio::test]
    async fn registrations() {
        terrane_testscript::check_scripts(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/membership/testdata"),
            || {
                let (mut catalog, mut liveness) =
                    (Catalog::default(), Liveness::new(Duration::from_secs(3), Moment(0)));
                move |text, out| {
                    let line = Line::of(text);
                    match line.words[0] {
                        "register" => {
                            if let Err(error) = register(&mut catalog, &mut liveness, &line, out) {
                                writeln!(out, "refused: {error}").unwrap();
                            }
                        }
                        "show" => scripts::show(&catalog, line.words[1], out),
                        _ => scripts::apply(&mut catalog, &scripts::edit(&line), 1, out),
                    }
                }
            },
        );
    }
}
