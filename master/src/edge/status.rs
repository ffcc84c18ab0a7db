//! The status of servers and masters, and the balancer.

use terrane_proto::v1;
use terrane_types::states::MasterState;
use terrane_types::{Error, MasterEndpoint, ServerEndpoint, ServerId};
use tokio::time::Instant;

use super::{Edge, Order};
use crate::catalog::Catalog;
use crate::fleet::intents;
use crate::masters_view;
use crate::servers::observed::now;

/// A server that serves the protocol, or did before it died.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where.
    pub place: ServerEndpoint,
    /// Whether it reports.
    pub is_live: bool,
    /// Whether it is being drained, or has been.
    pub drains: bool,
    /// Bytes in its limited memory budgets, and their limits.
    pub memory: (u64, u64),
    /// How long ago it reported, in milliseconds.
    pub since_report_ms: u64,
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
    /// The servers that serve the protocol, or have reported to this master that they did.
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
                    let load = observed.inventory.load(server)?;
                    let endpoint = load.endpoints.iter().find(|endpoint| endpoint.protocol == self.protocol)?.clone();
                    let bytes = load.resources.iter().filter(|resource| resource.bytes);
                    let memory = bytes.fold((0u64, 0u64), |(used, limit), resource| {
                        (used.saturating_add(resource.used), limit.saturating_add(resource.limit))
                    });
                    let quiet = observed.liveness.quiet_for(server, now).as_millis();
                    Some(Server {
                        place: ServerEndpoint { server, endpoint },
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

    /// The live server that serves the protocol at an address, if its start code is this one.
    pub fn server_at(&self, address: &str, start_code: Option<u64>) -> Option<ServerId> {
        let found = self.servers().into_iter().find(|known| known.endpoint.address == address)?;
        start_code.is_none_or(|code| found.endpoint.start_code == code).then_some(found.server)
    }

    /// The masters that answer and serve the protocol. Any master knows them.
    pub async fn masters(&self) -> Vec<MasterEndpoint> {
        let seen = masters_view::look(&self.context).await.masters.into_iter();
        let master = |seen: v1::MasterInfo| {
            let leads = seen.state == MasterState::Leader.name();
            let endpoint = seen.endpoints.into_iter().find(|endpoint| endpoint.protocol == self.protocol)?;
            Some(MasterEndpoint { endpoint: endpoint.into(), leads })
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
