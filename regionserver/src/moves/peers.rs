//! Calls of this server to other servers, and to the leaders of other groups.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::hello::{self, Identity};
use terrane_proto::v1::region_server_client::RegionServerClient;
use terrane_proto::{MESSAGE_BYTES_MAX, error, v1};
use terrane_types::{Error, GroupId, ServerId};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::masters::addresses::Addresses;
use crate::operation::Source;

/// Deadline of one call. One that fetches files answers earlier with how far it has come.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Redirects followed in one round, so that two servers that redirect to each other cannot loop.
const REDIRECTS_MAX: usize = 4;
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// The pause before a call or a proposal is repeated: it grows from the first to the second.
pub const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));

pub type Client = RegionServerClient<Channel>;

/// The channels to other servers.
pub struct Peers {
    identity: Identity,
    addresses: Arc<Addresses>,
    /// Replaced when an address changes.
    channels: Mutex<BTreeMap<ServerId, (String, Channel)>>,
}

impl Peers {
    pub fn new(identity: Identity, addresses: Arc<Addresses>) -> Self {
        Self { identity, addresses, channels: Mutex::default() }
    }

    pub fn server(&self) -> ServerId {
        self.identity.server
    }

    /// This server, as the source of files.
    pub fn source(&self) -> Source {
        Source { server: self.identity.server, boot: self.identity.boot }
    }

    pub fn client(&self, server: ServerId) -> Result<Client, Error> {
        let unavailable = |message| Error::Unavailable { message, retry_after: RETRY_AFTER };
        let address = self.addresses.get(server);
        let address = address.ok_or_else(|| unavailable(format!("the address of server {server} is not known")))?;
        let mut channels = self.channels.lock();
        let channel = match channels.get(&server) {
            Some((known, channel)) if *known == address => channel.clone(),
            _ => {
                let channel = terrane_env::net::channel(&address).map_err(|error| unavailable(error.to_string()))?;
                channels.insert(server, (address, channel.clone()));
                channel
            }
        };
        Ok(Client::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    pub fn hello(&self, server: ServerId) -> Option<v1::Hello> {
        Some(hello::ours(Some(self.identity.cluster), server, self.identity.server, self.identity.boot))
    }

    /// Calls the servers of a group in turn, until its leader answers. A refusal by the leader is final, and so is that it has
    /// forgotten; after any other error
    /// the caller waits and calls again.
    pub async fn at_leader<T, F>(
        &self,
        group: GroupId,
        servers: &[ServerId],
        call: impl Fn(Client, Option<v1::Hello>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut to_ask: VecDeque<ServerId> = servers.iter().copied().collect();
        let mut redirects = 0;
        let mut last = None;
        while let Some(server) = to_ask.pop_front() {
            let answered = match self.client(server) {
                Ok(client) => call(client, self.hello(server)).await,
                Err(error) => Err(error),
            };
            match answered {
                Ok(reply) => return Ok(reply),
                Err(error @ (Error::Invalid(_) | Error::Unsupported { .. } | Error::Uncertain { not_tried: true })) => {
                    return Err(error);
                }
                Err(error) => {
                    if let Error::NotLeader { leader: Some(leader), address, .. } = &error
                        && redirects < REDIRECTS_MAX
                        && *leader != server
                    {
                        redirects += 1;
                        self.addresses.set(address.clone().map(|address| (*leader, address)));
                        to_ask.retain(|other| other != leader);
                        to_ask.push_front(*leader);
                    }
                    last = Some(error);
                }
            }
        }
        let message = format!("no server of group {group} could be reached");
        Err(last.unwrap_or(Error::Unavailable { message, retry_after: RETRY_AFTER }))
    }
}

/// The answer to a call, within its deadline.
pub async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>, within: Duration) -> Result<T, Error> {
    match tokio::time::timeout(within, call).await {
        Ok(Ok(reply)) => Ok(reply.into_inner()),
        Ok(Err(status)) => Err(error::from_status(&status)),
        Err(_) => Err(Error::DeadlineExceeded),
    }
}
