//! The masters that this server knows, and its registration with one of them.

use std::time::Duration;

use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{MESSAGE_BYTES_MAX, error, hello, v1};
use terrane_types::{ClusterId, Error, ServerId};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::page_token::PageKey;
use crate::region_ids::STOCK_IDS;

/// Deadline of one call, and the pause before the next master is called.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A server that is still looking for a master logs it after this time.
const WARN_AFTER: Duration = Duration::from_secs(2);
/// The interval between reports if the master names none.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(500);

const NO_MASTER: &str = "no master is configured";

/// The configured masters, and the one that answered last.
pub struct Masters {
    clients: Vec<(String, MasterClient<Channel>)>,
    current: usize,
}

/// What a server sends when it registers.
pub struct Registration {
    pub cluster: Option<ClusterId>,
    pub server: Option<ServerId>,
    pub boot: u64,
    pub address: String,
    pub console: String,
    pub engine: String,
}

/// What a master answers.
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
    /// An address is malformed.
    #[error(transparent)]
    Address(#[from] terrane_env::net::InvalidAddress),
    /// No master answered in time.
    #[error("no master answered at {masters} within {} s (last: {last}); start a master, or name its address with --masters", waited.as_secs())]
    Unreachable { masters: String, waited: Duration, last: String },
    /// A master refused the server. Trying again would not help.
    #[error("the master at {master} refused this server: {refusal}")]
    Refused { master: String, refusal: Error },
}

impl Masters {
    pub fn new(addresses: &[String]) -> Result<Self, RegisterError> {
        let client = |address: &String| {
            let channel = terrane_env::net::channel(address)?;
            let client = MasterClient::new(channel)
                .max_decoding_message_size(MESSAGE_BYTES_MAX)
                .max_encoding_message_size(MESSAGE_BYTES_MAX);
            Ok((address.clone(), client))
        };
        let clients = addresses.iter().map(client).collect::<Result<Vec<_>, RegisterError>>()?;
        Ok(Self { clients, current: 0 })
    }

    /// The master to call next.
    pub fn current(&mut self) -> Option<(String, MasterClient<Channel>)> {
        let count = self.clients.len().max(1);
        self.clients.get(self.current % count).cloned()
    }

    /// Moves on to the next master.
    pub fn next(&mut self) {
        self.current = (self.current + 1) % self.clients.len().max(1);
    }

    /// Registers with the first master that answers, for at most `patience`.
    pub async fn register(&mut self, what: &Registration, patience: Duration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut last = NO_MASTER.to_owned();
        let mut warned = false;
        loop {
            match self.ask(what).await {
                Ok(answer) => return answer,
                Err(why) => last = why.unwrap_or(last),
            }
            if started.elapsed() >= patience {
                return Err(RegisterError::Unreachable { masters: self.names(), waited: patience, last });
            }
            if !warned && started.elapsed() >= WARN_AFTER {
                warned = true;
                tracing::warn!("no master answered yet ({last}); retrying for up to {} s", patience.as_secs());
            }
            self.next();
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Registers with the first master that answers, calling each of them once.
    pub async fn register_once(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut last = NO_MASTER.to_owned();
        for _ in 0..self.clients.len() {
            match self.ask(what).await {
                Ok(answer) => return answer,
                Err(why) => last = why.unwrap_or(last),
            }
            self.next();
        }
        Err(RegisterError::Unreachable { masters: self.names(), waited: started.elapsed(), last })
    }

    /// Calls the current master once. The error says why it did not answer.
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
        let masters: Vec<&str> = self.clients.iter().map(|(address, _)| address.as_str()).collect();
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

pub fn page_keys(keys: Vec<v1::PageKey>) -> Vec<PageKey> {
    keys.into_iter().map(|v1::PageKey { id, secret }| PageKey { id, secret }).collect()
}

pub fn addresses(servers: Vec<v1::ServerAddress>) -> Vec<(ServerId, String)> {
    servers.into_iter().map(|server| (ServerId(server.server), server.address)).collect()
}

/// Refusals that the same call would receive again.
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
