//! How servers and masters stand, and the balancer.

use terrane_proto::v1;
use terrane_types::states::MasterState;
use terrane_types::{Error, ServerId};
use tokio::time::Instant;

use super::{Edge, HbaseServer, Order};
use crate::catalog::Catalog;
use crate::fleet::intents;
use crate::masters_view;
use crate::servers::observed::now;

/// A server that serves HBase's clients, or did before it died.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where.
    pub hbase: HbaseServer,
    /// Whether it reports.
    pub is_live: bool,
    /// Whether it is being drained, or has been.
    pub drains: bool,
    /// Bytes in its limited memory budgets, and their limits.
    pub memory: (u64, u64),
    /// How long ago it reported, in milliseconds.
    pub since_report_ms: u64,
}

/// A master that serves HBase's clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    /// `host:port` of HBase's RPC.
    pub address: String,
    /// When it began to serve there, in milliseconds since 1970.
    pub start_code: u64,
    /// Whether it leads.
    pub leads: bool,
}

/// The balancer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// Whether it runs without being asked.
    pub on: bool,
    /// The changes that it makes or would make.
    pub steps: usize,
}

impl Edge {
    /// The servers that serve HBase's clients, or have reported to this master that they did.
    ///
    /// # Errors
    /// A redirect if this master does not lead.
    pub async fn all_servers(&self, deadline: Instant) -> Result<Vec<Server>, Error> {
        self.context.leadership.admit(deadline).await?;
        self.context.journal.barrier().await?;
        let now = now();
        Ok(self.context.journal.read(|catalog| {
            let known = catalog.servers().iter().map(|(server, _)| server);
            self.context.observed.with(|observed| {
                let seen = known.filter_map(|server| {
                    let load = observed.inventory.load(server).filter(|load| !load.hbase.is_empty())?;
                    let bytes = load.resources.iter().filter(|resource| resource.bytes);
                    let memory = bytes.fold((0u64, 0u64), |(used, limit), resource| {
                        (used.saturating_add(resource.used), limit.saturating_add(resource.limit))
                    });
                    let quiet = observed.liveness.quiet_for(server, now).as_millis();
                    Some(Server {
                        hbase: HbaseServer { server, address: load.hbase.clone(), boot: load.boot },
                        is_live: observed.liveness.is_live(server),
                        drains: catalog.servers().drain(server).is_some(),
                        memory,
                        since_report_ms: u64::try_from(quiet).unwrap_or(u64::MAX),
                    })
                });
                seen.collect()
            })
        }))
    }

    /// The server with this number, as its address for HBase's clients and the number of its life say.
    pub fn server_at(&self, address: &str, boot: Option<u64>) -> Option<ServerId> {
        let found = self.servers().into_iter().find(|server| server.address == address);
        found.filter(|server| boot.is_none_or(|boot| server.boot == boot)).map(|server| server.server)
    }

    /// The masters that answer and serve HBase's clients. Any master knows them.
    pub async fn masters(&self) -> Vec<Master> {
        let seen = masters_view::look(&self.context).await.masters.into_iter();
        let master = |seen: v1::MasterInfo| {
            let leads = seen.state == MasterState::Leader.name();
            seen.hbase.map(|hbase| Master { address: hbase.address, start_code: hbase.start_code, leads })
        };
        seen.filter_map(master).collect()
    }

    /// Whether the balancer runs without being asked.
    pub fn is_balancing(&self) -> bool {
        self.context.journal.read(Catalog::is_balancing)
    }

    /// Switches the balancer on or off.
    ///
    /// # Errors
    /// A redirect.
    pub async fn set_balancing(&self, on: bool, order: &Order) -> Result<Balance, Error> {
        let mode = if on { v1::BalanceMode::On } else { v1::BalanceMode::Off };
        self.balanced(mode, order).await
    }

    /// Balances now, or only says what that would do.
    ///
    /// # Errors
    /// A redirect.
    pub async fn balance(&self, is_dry_run: bool, order: &Order) -> Result<Balance, Error> {
        let mode = if is_dry_run { v1::BalanceMode::DryRun } else { v1::BalanceMode::Now };
        self.balanced(mode, order).await
    }

    async fn balanced(&self, mode: v1::BalanceMode, order: &Order) -> Result<Balance, Error> {
        let balanced = async {
            let reply = intents::balance(&self.context, mode).await?;
            Ok(Balance { on: reply.on, steps: reply.steps.len() })
        };
        self.lead("balance", mode.as_str_name(), order, balanced).await
    }
}
