//! The masters that this server knows, and its registration with the one that leads.
//!
//! The server begins with the configured masters. A master that does not lead names the leader, and the answer to the
//! registration names all masters, so one address is enough to find the others.

pub(crate) mod addresses;
pub(crate) mod description;
pub(crate) mod endpoints;
pub(crate) mod joining;
pub(crate) mod leadership;
pub(crate) mod region_ids;
pub(crate) mod report;

use std::time::Duration;

use terrane_proto::v1::master_client::MasterClient;
use terrane_proto::{MESSAGE_BYTES_MAX, error, hello, v1, versions};
use terrane_types::{ClusterId, Error, GroupId, ServerId};
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::edge::page_token::PageKey;
use crate::masters::region_ids::STOCK_IDS;

/// Deadline of one call, and the pause before the next master is called.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// A server that is still looking for a master logs it after this time.
const WARN_AFTER: Duration = Duration::from_secs(2);
/// The interval between reports if the master names none.
pub const REPORT_INTERVAL: Duration = Duration::from_millis(500);

const NO_MASTER: &str = "no master is configured";
/// Masters that are kept; a cluster has five at most, and a master must not fill memory with made-up ones.
const MASTERS_MAX: usize = 16;

/// The known masters, and the one to register with.
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
    pub zone: String,
    pub versions: v1::Versions,
}

/// What a master answers.
pub struct Registered {
    pub cluster: ClusterId,
    pub server: ServerId,
    pub addresses: Vec<(ServerId, String)>,
    pub region_ids: (u64, u32),
    pub report_every: Duration,
    pub page_keys: Vec<PageKey>,
    /// The addresses of all masters.
    pub masters: Vec<String>,
    /// The feature level of the cluster.
    pub level: u32,
    /// The groups that were recovered after they had lost their majority, each with its term.
    pub recovered: Vec<(GroupId, u64)>,
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
    /// This build and the cluster cannot work together.
    #[error("the master at {master} refused this server: {why}")]
    Level { master: String, why: String },
}

impl Masters {
    pub fn new(addresses: &[String]) -> Result<Self, RegisterError> {
        let clients = addresses.iter().map(|address| Ok((address.clone(), client(address)?)));
        Ok(Self { clients: clients.collect::<Result<Vec<_>, RegisterError>>()?, current: 0 })
    }

    /// All known masters.
    pub fn all(&self) -> &[(String, MasterClient<Channel>)] {
        &self.clients
    }

    /// Adds the masters that another master named; returns the place of the last one.
    pub fn learn(&mut self, addresses: &[String]) -> Option<usize> {
        let mut place = None;
        for address in addresses {
            place = self.clients.iter().position(|(known, _)| known == address);
            if place.is_none()
                && self.clients.len() < MASTERS_MAX
                && let Ok(client) = client(address)
            {
                place = Some(self.clients.len());
                self.clients.push((address.clone(), client));
            }
        }
        place
    }

    /// Takes over the masters that the leader named: those that were removed get no reports any more. None: an older master
    /// names none.
    pub fn renew(&mut self, addresses: &[String]) {
        let current = self.clients.get(self.current).map(|(address, _)| address.clone());
        if self.learn(addresses).is_some() {
            self.clients.retain(|(known, _)| addresses.contains(known));
        }
        let place = self.clients.iter().position(|(known, _)| Some(known) == current.as_ref());
        self.current = place.unwrap_or(0);
    }

    /// Moves on to the leader that a master named, or to the next master.
    fn move_on(&mut self, leader: Option<String>) {
        let next = (self.current + 1) % self.clients.len().max(1);
        let leader = leader.and_then(|address| self.learn(&[address]));
        self.current = leader.filter(|place| *place != self.current).unwrap_or(next);
    }

    /// Registers with the first master that answers, for at most `patience`.
    pub async fn register(&mut self, what: &Registration, patience: Duration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut warned = false;
        loop {
            let Unanswered { why: last, leader } = match self.ask(what).await {
                Ok(answer) => return answer,
                Err(unanswered) => unanswered,
            };
            if started.elapsed() >= patience {
                return Err(RegisterError::Unreachable { masters: self.names(), waited: patience, last });
            }
            if !warned && started.elapsed() >= WARN_AFTER {
                warned = true;
                tracing::warn!("no master answered yet ({last}); retrying for up to {} s", patience.as_secs());
            }
            self.move_on(leader);
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Registers with the first master that answers, calling about each of them once.
    pub async fn register_once(&mut self, what: &Registration) -> Result<Registered, RegisterError> {
        let started = Instant::now();
        let mut last = NO_MASTER.to_owned();
        // One more, for a leader that the last one names.
        for _ in 0..=self.clients.len() {
            match self.ask(what).await {
                Ok(answer) => return answer,
                Err(Unanswered { why, leader }) => {
                    last = why;
                    self.move_on(leader);
                }
            }
        }
        Err(RegisterError::Unreachable { masters: self.names(), waited: started.elapsed(), last })
    }

    /// Calls the current master once.
    async fn ask(&mut self, what: &Registration) -> Result<Result<Registered, RegisterError>, Unanswered> {
        let Some((master, mut client)) = self.clients.get(self.current).cloned() else {
            return Err(Unanswered { why: NO_MASTER.to_owned(), leader: None });
        };
        let call = tokio::time::timeout(CALL_TIMEOUT, client.register(registration(what))).await;
        if let Ok(Err(status)) = &call
            && is_no_master(status)
        {
            return Err(Unanswered { why: no_master(&master), leader: None });
        }
        match call.map(|reply| reply.map_err(|status| error::from_status(&status))) {
            Ok(Ok(reply)) => {
                let registered = registered(reply.into_inner());
                if let Ok(registered) = &registered {
                    self.learn(&registered.masters);
                }
                Ok(registered.map_err(|refusal| RegisterError::Refused { master, refusal }))
            }
            Ok(Err(Error::Unsupported { feature: why })) => Ok(Err(RegisterError::Level { master, why })),
            Ok(Err(refusal)) if is_final(&refusal) => Ok(Err(RegisterError::Refused { master, refusal })),
            Ok(Err(Error::NotLeader { address, .. })) => {
                Err(Unanswered { why: format!("{master} does not lead the masters"), leader: address })
            }
            Ok(Err(error)) => Err(Unanswered { why: error.to_string(), leader: None }),
            Err(_) => Err(Unanswered { why: format!("{master} did not answer in time"), leader: None }),
        }
    }

    fn names(&self) -> String {
        let masters: Vec<&str> = self.clients.iter().map(|(address, _)| address.as_str()).collect();
        masters.join(", ")
    }
}

/// A master did not register the server.
struct Unanswered {
    why: String,
    /// The leader that it named.
    leader: Option<String>,
}

fn client(address: &str) -> Result<MasterClient<Channel>, RegisterError> {
    let channel = terrane_env::net::channel(address)?;
    Ok(MasterClient::new(channel)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .max_encoding_message_size(MESSAGE_BYTES_MAX))
}

fn registration(what: &Registration) -> v1::RegisterRequest {
    let own = what.server.unwrap_or_default();
    v1::RegisterRequest {
        hello: Some(versions::at_level(
            hello::ours(what.cluster, ServerId(0), own, what.boot),
            versions::levels(&what.versions),
        )),
        address: what.address.clone(),
        console: what.console.clone(),
        engine: what.engine.clone(),
        boot: what.boot,
        region_ids_wanted: STOCK_IDS,
        zone: what.zone.clone(),
        versions: Some(what.versions.clone()),
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
        masters: reply.masters,
        level: reply.feature_level,
        recovered: recovered(reply.recovered),
    })
}

pub fn page_keys(keys: Vec<v1::PageKey>) -> Vec<PageKey> {
    keys.into_iter().map(|v1::PageKey { id, secret }| PageKey { id, secret }).collect()
}

pub fn addresses(servers: Vec<v1::ServerAddress>) -> Vec<(ServerId, String)> {
    servers.into_iter().map(|server| (ServerId(server.server), server.address)).collect()
}

pub fn recovered(groups: Vec<v1::RecoveredGroup>) -> Vec<(GroupId, u64)> {
    groups.into_iter().map(|recovered| (GroupId(recovered.group), recovered.term)).collect()
}

/// Whether the process that answered knows no such call: it is a region server, or no part of Terrane. A master says in the details
/// what it does not support.
pub fn is_no_master(status: &Status) -> bool {
    status.code() == Code::Unimplemented && status.details().is_empty()
}

/// What to say of such a process.
pub fn no_master(address: &str) -> String {
    format!("the process at {address} is not a master: it does not know the call; check --masters")
}

/// Refusals that the same call would receive again.
fn is_final(error: &Error) -> bool {
    matches!(
        error,
        Error::WrongCluster { .. } | Error::Invalid(_) | Error::AlreadyExists { .. } | Error::NotFound { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_knows_no_such_call_is_no_master_and_refuses_nothing() {
        assert!(is_no_master(&Status::unimplemented("")));
        let refusal = Error::Unsupported { feature: "its build has feature level 1".to_owned() };
        assert!(!is_no_master(&error::status(&refusal)));
        assert!(!is_no_master(&Status::unavailable("")));
        assert!(no_master("a:1").contains("a:1 is not a master"));
    }

    // A channel needs a runtime.
    #[tokio::test]
    async fn a_server_moves_on_to_the_named_leader_and_learns_the_others() {
        let mut masters = Masters::new(&["a:1".to_owned(), "b:1".to_owned()]).unwrap();
        masters.move_on(None);
        assert_eq!(masters.current, 1);
        masters.move_on(Some("c:1".to_owned()));
        assert_eq!((masters.current, masters.names().as_str()), (2, "a:1, b:1, c:1"));
        masters.move_on(Some("c:1".to_owned()));
        assert_eq!(masters.current, 0, "the named leader is the one that does not answer");
        let all = ["a:1", "c:1", "no port", "d:1"].map(str::to_owned);
        masters.learn(&all);
        assert_eq!(masters.names(), "a:1, b:1, c:1, d:1");
        masters.move_on(Some("c:1".to_owned()));
        masters.renew(&["b:1".to_owned(), "c:1".to_owned(), "e:1".to_owned()]);
        assert_eq!((masters.current, masters.names().as_str()), (1, "b:1, c:1, e:1"));
        masters.renew(&[]);
        assert_eq!(masters.names(), "b:1, c:1, e:1");
    }
}
