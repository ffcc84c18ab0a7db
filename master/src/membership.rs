//! Servers that register and report.

use std::sync::Arc;
use std::time::Duration;

use terrane_proto::convert::server_address;
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1;
use terrane_types::{Error, GroupId, Invalid, RegionDescriptor, RegionId, ServerId};

use crate::catalog::servers::Registration;
use crate::catalog::{Catalog, CatalogEdit, Outcome};
use crate::context::MasterContext;
use crate::inventory::{Absorbed, GroupSeen, RegionSeen, Report, ServerLoad};
use crate::liveness::{Replaced, ServerState};
use crate::observed::now;
use crate::page_keys;

/// Region ids handed out at once.
const REGION_IDS_MAX: u32 = 1_024;
/// Longest text a server may register.
const TEXT_BYTES_MAX: usize = 512;
/// Dropped tables named in one answer; the next report brings the next ones.
const DROPPED_TABLES_MAX: usize = 1_024;

/// What servers ask of the master.
pub struct Membership {
    context: Arc<MasterContext>,
    identity: Identity,
    report_every: Duration,
}

impl Membership {
    /// Membership of this master's cluster.
    pub const fn new(context: Arc<MasterContext>, identity: Identity, report_every: Duration) -> Self {
        Self { context, identity, report_every }
    }

    /// A server has started: a fresh one gets an id, a known one says where it is now.
    pub async fn register(&self, request: v1::RegisterRequest) -> Result<v1::RegisterReply, Error> {
        let registration = registration(&request)?;
        let own = ServerId(request.hello.as_ref().map_or(0, |hello| hello.own_server));
        let server = if own.0 == 0 { self.add(registration).await? } else { self.update(own, registration).await? };
        self.heard(server, request.boot)?;
        self.context.journal.nudge();
        let (region_id_first, region_id_count) = self.region_ids(request.region_ids_wanted).await?;
        tracing::info!(%server, address = request.address, boot = request.boot, "a server has registered");
        Ok(v1::RegisterReply {
            cluster_id: bytes::Bytes::copy_from_slice(&self.identity.cluster.0),
            server: server.0,
            cluster_time_ms: terrane_env::time::wall_ms(),
            servers: self.addresses(),
            region_id_first,
            region_id_count,
            report_every_ms: u32::try_from(self.report_every.as_millis()).unwrap_or(u32::MAX),
            page_keys: page_keys::current(&self.context.journal).await,
        })
    }

    async fn add(&self, registration: Registration) -> Result<ServerId, Error> {
        match self.context.journal.record(&CatalogEdit::AddServer(registration)).await? {
            Outcome::Server(server) => Ok(server),
            outcome => Err(Error::Internal { message: format!("the catalog answered a new server with {outcome:?}") }),
        }
    }

    async fn update(&self, server: ServerId, registration: Registration) -> Result<ServerId, Error> {
        let known = self.context.journal.read(|catalog| catalog.servers().get(server).cloned());
        match known {
            None => Err(unknown(server)),
            Some(known) if known == registration => Ok(server),
            Some(known) if known.engine != registration.engine => Err(Error::Invalid(Invalid::new(format!(
                "server {server} was registered with the engine {}, not {}",
                known.engine, registration.engine
            )))),
            Some(_) => {
                let edit = CatalogEdit::UpdateServer { server, registration };
                self.context.journal.record(&edit).await.map(|_| server)
            }
        }
    }

    /// Notes a sign of life; a server that comes back wakes whatever waits for servers.
    fn heard(&self, server: ServerId, boot: u64) -> Result<(), Error> {
        match self.context.observed.with(|observed| observed.liveness.heard(server, boot, now())) {
            Ok(None) => Ok(()),
            Ok(Some(before)) => {
                tracing::info!(%server, before = before.name(), "a server is live");
                self.context.journal.nudge();
                Ok(())
            }
            Err(Replaced { by_boot }) => Err(Error::Invalid(Invalid::new(format!(
                "server {server} was started again (start {by_boot}); this process (start {boot}) must stop"
            )))),
        }
    }

    /// A block of region ids; the high-water mark is journaled before any of them is used.
    async fn region_ids(&self, wanted: u32) -> Result<(u64, u32), Error> {
        let count = wanted.min(REGION_IDS_MAX);
        if count == 0 {
            return Ok((0, 0));
        }
        match self.context.journal.record(&CatalogEdit::TakeRegionIds { count }).await? {
            Outcome::RegionIds(RegionId(first)) => Ok((first, count)),
            outcome => {
                Err(Error::Internal { message: format!("the catalog answered a wish for ids with {outcome:?}") })
            }
        }
    }

    /// A server tells what it has, as it does every second and when a leader changes.
    pub async fn report(&self, request: v1::ReportRequest) -> Result<v1::ReportReply, Error> {
        let server = ServerId(request.server);
        if self.context.journal.read(|catalog| catalog.servers().get(server).is_none()) {
            return Err(unknown(server));
        }
        self.heard(server, request.boot)?;
        self.note(server, &request);
        let wanted = request.region_ids_wanted;
        let report = decode(request)?;
        let dropped_tables = self.dropped(&report);
        let absorbed = self.context.observed.with(|observed| observed.inventory.absorb(report));
        self.index(absorbed).await?;
        let (region_id_first, region_id_count) = self.region_ids(wanted).await?;
        Ok(v1::ReportReply {
            cluster_time_ms: terrane_env::time::wall_ms(),
            servers: self.addresses(),
            region_id_first,
            region_id_count,
            dropped_tables,
            page_keys: page_keys::current(&self.context.journal).await,
        })
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
            tracing::info!(%server, "a server is stopping");
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

    /// Brings the map up to date with what a leader claims; a report without news records nothing.
    async fn index(&self, absorbed: Absorbed) -> Result<(), Error> {
        self.index_regions(&absorbed.claims).await?;
        if absorbed.leaders_changed {
            self.context.journal.nudge();
        }
        Ok(())
    }

    /// Records those of the descriptors that the map does not know yet.
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

    /// Time passed: servers that have fallen silent are told once, and whatever depends on them looks again.
    pub fn tick(&self) {
        let fallen = self.context.observed.with(|observed| observed.liveness.tick(now()));
        for server in &fallen {
            tracing::warn!(%server, state = ServerState::Silent.name(), "a server no longer reports");
        }
        if !fallen.is_empty() {
            self.context.journal.nudge();
        }
    }

    /// Checks the hello of a server's call. A fresh one does not know the cluster yet.
    pub fn check(&self, hello: Option<&v1::Hello>) -> Result<(), Error> {
        let fresh = hello.is_none_or(|hello| hello.own_server == 0);
        hello::check_cluster(hello, self.identity, fresh)
    }
}

fn unknown(server: ServerId) -> Error {
    Error::NotFound { what: format!("server {server} of this cluster") }
}

fn registration(request: &v1::RegisterRequest) -> Result<Registration, Error> {
    for (name, text) in [("address", &request.address), ("console", &request.console), ("engine", &request.engine)] {
        if text.len() > TEXT_BYTES_MAX {
            return Err(Error::Invalid(Invalid::new(format!("a server's {name} has at most {TEXT_BYTES_MAX} bytes"))));
        }
    }
    if let Err(error) = terrane_env::net::channel(&request.address) {
        return Err(Error::Invalid(Invalid::new(error.to_string())));
    }
    let (address, console, engine) = (request.address.clone(), request.console.clone(), request.engine.clone());
    Ok(Registration { address, console, engine })
}

fn decode(request: v1::ReportRequest) -> Result<Report, Error> {
    let groups = request.groups.into_iter().map(|seen| GroupSeen {
        group: GroupId(seen.group),
        term: seen.term,
        leader: (seen.leader != 0).then_some(ServerId(seen.leader)),
        applied: seen.applied,
    });
    let regions = request.regions.into_iter().map(|seen| {
        let descriptor = seen.descriptor.ok_or_else(|| Invalid::new("a reported region has no descriptor"))?;
        Ok(RegionSeen {
            descriptor: descriptor.try_into()?,
            bytes: seen.bytes,
            state: seen.state,
            term: seen.group_term,
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
            troubles: request.troubles,
            resources: request.resources,
        },
    })
}
