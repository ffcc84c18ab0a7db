//! Processes that say that they are servers and are not what they say: one that fails at every start, one that names the address
//! of another server, one whose address leads nowhere, and one that has the address of a server that cannot be reached.
//!
//! None of them may change what becomes of the others: a server that only ever starts is replaced like one that is gone, a server
//! that answers keeps its address, tables are created without a server that cannot be reached, and none is expelled by a newcomer.

use std::time::Duration;

use terrane_client::{Admin, Client, Error, ServerChange, ServerInfo};
use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{error, hello, v1, versions};
use terrane_types::states::ServerState;
use terrane_types::versions::Levels;
use terrane_types::{ClusterId, ServerId};
use tonic::transport::Channel;

use super::{new_table, now};
use crate::context::Context;
use crate::nodes::{REPORT_EVERY, address};
use crate::plan::MASTERS;
use crate::scenario::{passes, patiently};
use crate::trace::{self, chain};
use crate::verdict::Failure;

/// For so long a server fails at its starts, and how often it is started.
const FAILING_FOR: Duration = Duration::from_secs(6);
const START_EVERY: Duration = Duration::from_millis(400);
/// The countdown of a server that is away may be behind by so much.
const COUNTDOWN_LATE: Duration = Duration::from_millis(1_500);
/// Within this the masters know that a server cannot be reached.
const NOTICED_WITHIN: Duration = Duration::from_secs(4);
/// How long a call may take, and how long a registration is tried.
const CALL_MAX: Duration = Duration::from_secs(5);
const REGISTERED_WITHIN: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A table that is created while a server cannot be reached.
const TABLE: &str = "beside-a-stranger";

/// Has strangers knock while this server is down.
pub async fn try_to_register(context: Context, [down]: [&'static str; 1]) -> Result<(), Error> {
    let client = context.connect(CALL_MAX).await?;
    let strangers =
        Strangers { admin: client.admin().with_timeout(CALL_MAX), cluster: cluster(&client).await?, context };
    if let Err(what) = strangers.all(&client, down).await {
        strangers.context.state.fail(Failure::new(what));
    }
    Ok(())
}

async fn cluster(client: &Client) -> Result<ClusterId, Error> {
    Ok(patiently(async || client.admin().status().await).await?.cluster)
}

struct Strangers {
    context: Context,
    admin: Admin,
    cluster: ClusterId,
}

/// An answer to a registration.
type Answer = Result<v1::RegisterReply, terrane_types::Error>;

impl Strangers {
    async fn all(&self, client: &Client, down: &'static str) -> Result<(), String> {
        self.starts_bring_no_server_back(down).await?;
        self.an_address_that_answers_is_taken(down).await?;
        // Nothing serves at this port of a master.
        let nowhere = address(MASTERS[0]);
        let unreachable = self.a_server_that_cannot_be_reached_gets_nothing(client, &nowhere).await?;
        let newcomer = self.a_newcomer_expels_no_server(unreachable, &nowhere).await?;
        for server in [newcomer, unreachable] {
            self.decommission(server).await?;
        }
        new_table::read(client, TABLE, "a server that cannot be reached", &self.context)
            .await
            .map_err(|error| chain(&error))
    }

    /// The process starts, registers and ends, again and again. Its replicas are waited for no longer than if it did not.
    async fn starts_bring_no_server_back(&self, down: &'static str) -> Result<(), String> {
        let (began, place) = (now(), address(down));
        let known = self.listed().await?.into_iter().find(|known| known.address == place);
        let known = known.ok_or_else(|| format!("{place} is not listed"))?;
        while now() < began + FAILING_FOR {
            let answer = self.register(ServerId(known.server), known.boot, &place).await;
            trace::note(format_args!("{down} starts and fails: {:?}", answer.map(|reply| reply.server)));
            tokio::time::sleep(START_EVERY).await;
        }
        let known = self.server(ServerId(known.server)).await?;
        let Some(known) = known else { return Err(format!("{place} was removed although it may come back")) };
        if known.state == ServerState::Live {
            return Err(format!("{place} counts as live although it fails at every start"));
        }
        // A new leader waits for all servers from when it leads.
        let leads_since = self.context.state.leading_master().map_or(began, |(_, since)| since.max(began));
        let left = self.context.plan.replace_after.saturating_sub(now().saturating_sub(leads_since));
        if known.replaced_in.is_some_and(|replaced_in| replaced_in > left + COUNTDOWN_LATE) {
            let (shown, left) = (known.replaced_in.unwrap_or_default().as_secs_f64(), left.as_secs_f64());
            return Err(format!("{place} fails at every start and is replaced in {shown} s only; {left} s are left"));
        }
        self.context.watch.count("servers that failed at every start");
        Ok(())
    }

    async fn an_address_that_answers_is_taken(&self, down: &'static str) -> Result<(), String> {
        let hosts = self.context.plan.server_hosts();
        let place = address(hosts.iter().find(|host| **host != down).ok_or("there is one server only")?);
        match self.register(ServerId(0), 1, &place).await {
            Ok(reply) => Err(format!(
                "a newcomer got the address {place} as server {}, and a server answers there",
                reply.server
            )),
            Err(terrane_types::Error::Invalid(_)) => {
                self.context.watch.count("newcomers at a taken address");
                Ok(())
            }
            Err(error) => Err(format!("a newcomer at the address {place}, where a server answers, is told: {error}")),
        }
    }

    /// It reports all the time, and calls to its address lead nowhere. Returns its number.
    async fn a_server_that_cannot_be_reached_gets_nothing(
        &self,
        client: &Client,
        nowhere: &str,
    ) -> Result<ServerId, String> {
        let admitted = self.register(ServerId(0), 1, nowhere).await;
        let server = ServerId(admitted.map_err(|error| format!("a new server is refused: {error}"))?.server);
        let reports = async {
            loop {
                self.report(server).await;
                tokio::time::sleep(REPORT_EVERY).await;
            }
        };
        let looks = async {
            let began = now();
            loop {
                let known = self.server(server).await?.ok_or_else(|| format!("server {server} was removed"))?;
                match known.state {
                    ServerState::Live => {
                        return Err(format!("server {server} counts as live, and {nowhere} does not lead to it"));
                    }
                    ServerState::Unreachable => break,
                    state if now() > began + NOTICED_WITHIN => {
                        return Err(format!("server {server} reports and is {state}; {nowhere} does not lead to it"));
                    }
                    _ => tokio::time::sleep(LOOK_EVERY).await,
                }
            }
            new_table::write(client, TABLE).await.map_err(|error| chain(&error))
        };
        tokio::select! {
            biased;
            done = looks => done?,
            () = reports => {}
        }
        self.context.watch.count("servers that could not be reached");
        Ok(server)
    }

    /// A newcomer has the address of a server without replicas that cannot be reached.
    async fn a_newcomer_expels_no_server(&self, other: ServerId, nowhere: &str) -> Result<ServerId, String> {
        let admitted = self.register(ServerId(0), 1, nowhere).await;
        let newcomer = ServerId(admitted.map_err(|error| format!("a new server is refused: {error}"))?.server);
        if self.server(other).await?.is_none() {
            return Err(format!("server {newcomer} expelled server {other}, whose address it names"));
        }
        self.context.watch.count("newcomers at an address that leads nowhere");
        Ok(newcomer)
    }

    async fn decommission(&self, server: ServerId) -> Result<(), String> {
        let name = server.to_string();
        loop {
            match self.admin.change_server(&name, ServerChange::Decommission).await {
                Ok(_) => return Ok(()),
                // An answer was lost.
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) if passes(&error) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => return Err(format!("server {server} cannot be removed: {}", chain(&error))),
            }
        }
    }

    async fn server(&self, server: ServerId) -> Result<Option<ServerInfo>, String> {
        let listed = patiently(async || self.admin.servers().await).await.map_err(|error| chain(&error))?;
        Ok(listed.into_iter().find(|known| known.server == server))
    }

    /// The servers as the wire has them, with their boot numbers.
    async fn listed(&self) -> Result<Vec<v1::ServerInfo>, String> {
        let request =
            || v1::ClusterRequest { hello: Some(hello::ours(Some(self.cluster), ServerId(0), ServerId(0), 0)) };
        let began = now();
        loop {
            for mut master in self.masters() {
                if let Ok(Ok(reply)) = tokio::time::timeout(CALL_MAX, master.list_servers(request())).await {
                    return Ok(reply.into_inner().servers);
                }
            }
            if now() > began + REGISTERED_WITHIN {
                return Err("no master lists the servers".to_owned());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Registers as a process would, at whichever master leads.
    async fn register(&self, own: ServerId, boot: u64, place: &str) -> Answer {
        let cluster = (own.0 != 0).then_some(self.cluster);
        let request = || v1::RegisterRequest {
            hello: Some(hello::ours(cluster, ServerId(0), own, boot)),
            address: place.to_owned(),
            engine: "lsm".to_owned(),
            boot,
            versions: Some(versions::ours(Levels::BUILD, [])),
            ..v1::RegisterRequest::default()
        };
        let began = now();
        loop {
            for mut master in self.masters() {
                match tokio::time::timeout(CALL_MAX, master.register(request())).await {
                    Ok(Ok(reply)) => return Ok(reply.into_inner()),
                    Ok(Err(status)) if !status.details().is_empty() => match error::from_status(&status) {
                        refused @ (terrane_types::Error::Invalid(_) | terrane_types::Error::NotFound { .. }) => {
                            return Err(refused);
                        }
                        _ => {}
                    },
                    Ok(Err(_)) | Err(_) => {}
                }
            }
            if now() > began + REGISTERED_WITHIN {
                let message = "no master answers".to_owned();
                return Err(terrane_types::Error::Unavailable { message, retry_after: LOOK_EVERY });
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Reports to every master, as a server does. Whether one takes it shows in what the masters list.
    async fn report(&self, server: ServerId) {
        for mut master in self.masters() {
            let request = v1::ReportRequest {
                hello: Some(hello::ours(Some(self.cluster), ServerId(0), server, 1)),
                versions: Some(versions::ours(Levels::BUILD, [])),
                server: server.0,
                boot: 1,
                clock_ms: terrane_env::time::wall_ms(),
                ..v1::ReportRequest::default()
            };
            tokio::time::timeout(REPORT_EVERY, master.report(request)).await.ok();
        }
    }

    fn masters(&self) -> impl Iterator<Item = MasterClient<Channel>> + use<> {
        let masters = self.context.plan.masters().into_iter();
        masters.filter_map(|master| Some(MasterClient::new(terrane_env::net::channel(&master).ok()?)))
    }
}
