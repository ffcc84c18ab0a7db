//! How several masters found a cluster: they agree on its id before their group has a log.
//!
//! Each master draws a nonce and syncs it with the list of masters before it tells it to anyone. The cluster id is the
//! exclusive or of all nonces, so all masters must run once, in any order and over any number of restarts. A leader-made
//! id would need a log, and the log's links need the id, which keeps strangers out.
//!
//! Invariants:
//! - A master that knows the cluster id got every nonce, so all masters know the same id.
//! - A master whose directory was lost draws another nonce. It cannot found another cluster, nor take part in this one
//!   as if it had kept its log: the others know another nonce of it, so it joins as a new replica (`replacing`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use terrane_proto::v1;
use terrane_proto::v1::master_peers_client::MasterPeersClient;
use terrane_types::ClusterId;
use tokio::time::Instant;

use crate::masters::numbers::{Peer, place_of};
use crate::masters::peers::from_wire;
use crate::server::identity::{Founder, Identity, Nonce};

/// Deadline of one call, and the pause before the masters that did not answer are asked again.
const ASK_MAX: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_millis(100);
/// A master that waits for others says so after this time, and then this often.
const SAY_AFTER: Duration = Duration::from_secs(2);
const SAY_EVERY: Duration = Duration::from_secs(30);

/// Why a cluster cannot be founded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FoundingError {
    /// Another master was started with another list.
    #[error(
        "this master has --peers {}, but the master at {address} {}; start all masters of a cluster with the same list",
        ours.join(","),
        if theirs.is_empty() { "is a single master".to_owned() } else { format!("has --peers {}", theirs.join(",")) }
    )]
    Lists {
        /// The other master.
        address: String,
        /// The list of this master.
        ours: Vec<String>,
        /// The list of the other.
        theirs: Vec<String>,
    },
    /// The cluster runs without this master.
    #[error(
        "the master at {address} belongs to a running cluster with the masters {}, and this one ({own}) is none of them; to \
         add it, start it with --join {} instead of --peers, and then use `terrane admin set-masters`",
        masters.join(","),
        masters.join(",")
    )]
    Running {
        /// The other master.
        address: String,
        /// This master.
        own: String,
        /// The masters of the cluster.
        masters: Vec<String>,
    },
    /// Another master answers what no master says.
    #[error("the master at {address} sent {what}")]
    Malformed {
        /// The other master.
        address: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// A cluster that was founded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founded {
    /// Its id.
    pub cluster: ClusterId,
    /// The nonces of all masters, in the order of their list.
    pub nonces: Vec<Nonce>,
}

/// A cluster that runs, as one of its masters tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub cluster: ClusterId,
    /// Its masters.
    pub masters: Vec<Peer>,
}

impl Running {
    /// What a master tells of the cluster that runs; `None`: it knows of none.
    pub fn of(reply: &v1::FoundingReply) -> Option<Self> {
        let cluster = Nonce::try_from(reply.cluster_id.as_ref()).ok()?;
        let masters = from_wire(reply.masters.clone());
        (!masters.is_empty()).then_some(Self { cluster: ClusterId(cluster), masters })
    }

    /// The master at an address.
    pub fn at(&self, address: &str) -> Option<&Peer> {
        self.masters.iter().find(|peer| peer.address == address)
    }
}

/// What a new directory of one of several masters is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is a founder of this cluster, unless its nonce differs from the one that the others know.
    Founded(Founded),
    /// The masters were changed since: it replaces a directory that was lost.
    Running(Running),
}

/// What this master knows of the founding and answers to the others, as long as it runs.
#[derive(Debug)]
pub struct FoundingState {
    founder: Option<Founder>,
    place: usize,
    founded: OnceLock<Founded>,
}

impl FoundingState {
    /// What a master with this identity knows.
    pub fn new(identity: &Identity) -> Arc<Self> {
        let (founder, place) = (identity.founder.clone(), place_of(identity.number));
        let state = Self { founder, place, founded: OnceLock::new() };
        let nonces = state.founder.as_ref().and_then(|founder| founder.nonces.iter().copied().collect());
        if let Some(nonces) = nonces.filter(|_| !identity.cluster.is_nil()) {
            state.set(Founded { cluster: identity.cluster, nonces });
        }
        Arc::new(state)
    }

    /// The cluster is founded.
    pub fn set(&self, founded: Founded) {
        self.founded.get_or_init(|| founded);
    }

    /// The reply to another master.
    pub fn reply(&self) -> v1::FoundingReply {
        let bytes = |id: &[u8; 16]| bytes::Bytes::copy_from_slice(id);
        let nonce = self.founder.as_ref().and_then(|founder| founder.nonces[self.place]);
        let founded = self.founded.get();
        v1::FoundingReply {
            peers: self.founder.as_ref().map(|founder| founder.peers.clone()).unwrap_or_default(),
            nonce: nonce.map(|nonce| bytes(&nonce)).unwrap_or_default(),
            cluster_id: founded.map(|founded| bytes(&founded.cluster.0)).unwrap_or_default(),
            nonces: founded.map(|founded| founded.nonces.iter().map(bytes).collect()).unwrap_or_default(),
            masters: Vec::new(),
        }
    }
}

/// Collects what the masters of one cluster tell each other. Without I/O.
struct FoundingRound<'a> {
    own: &'a Founder,
    /// By place in the list.
    nonces: Vec<Option<Nonce>>,
    /// The address of this master.
    address: &'a str,
    /// What a master says that knows the cluster already.
    founded: Option<Outcome>,
}

impl<'a> FoundingRound<'a> {
    fn new(own: &'a Founder, place: usize) -> Self {
        Self { own, address: &own.peers[place], nonces: own.nonces.clone(), founded: None }
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.nonces.len()).filter(|place| self.nonces[*place].is_none()).collect()
    }

    fn hear(&mut self, place: usize, reply: v1::FoundingReply) -> Result<(), FoundingError> {
        let address = || self.own.peers[place].clone();
        if let Some(running) = Running::of(&reply) {
            if running.at(self.address).is_none() {
                let masters = running.masters.into_iter().map(|peer| peer.address).collect();
                return Err(FoundingError::Running { address: address(), own: self.address.to_owned(), masters });
            }
            let masters = running.masters.iter().map(|peer| (peer.place(), &peer.address));
            let is_as_founded = masters.eq(self.own.peers.iter().enumerate());
            if !is_as_founded || reply.peers != self.own.peers {
                self.founded = Some(Outcome::Running(running));
                return Ok(());
            }
        }
        if reply.peers != self.own.peers {
            let (ours, theirs) = (self.own.peers.clone(), reply.peers);
            return Err(FoundingError::Lists { address: address(), ours, theirs });
        }
        let id = |bytes: &bytes::Bytes, what| {
            Nonce::try_from(bytes.as_ref()).map_err(|_| FoundingError::Malformed { address: address(), what })
        };
        if reply.cluster_id.is_empty() {
            self.nonces[place] = Some(id(&reply.nonce, "a malformed nonce")?);
            return Ok(());
        }
        let cluster = ClusterId(id(&reply.cluster_id, "a malformed cluster id")?);
        let nonces = reply.nonces.iter().map(|nonce| id(nonce, "a malformed nonce")).collect::<Result<Vec<_>, _>>()?;
        if nonces.len() != self.own.peers.len() {
            return Err(FoundingError::Malformed { address: address(), what: "too few nonces" });
        }
        self.founded = Some(Outcome::Founded(Founded { cluster, nonces }));
        Ok(())
    }

    /// The cluster, once every master was heard, or one that knows it.
    fn founded(&self) -> Option<Outcome> {
        if self.founded.is_some() {
            return self.founded.clone();
        }
        let nonces: Vec<Nonce> = self.nonces.iter().copied().collect::<Option<_>>()?;
        let sum = nonces.iter().map(|nonce| u128::from_be_bytes(*nonce)).fold(0, |sum, nonce| sum ^ nonce);
        Some(Outcome::Founded(Founded { cluster: ClusterId(sum.to_be_bytes()), nonces }))
    }
}

/// Asks the other masters until all have answered, or one that knows the cluster.
pub async fn found(own: &Founder, place: usize) -> Result<Outcome, FoundingError> {
    let mut round = FoundingRound::new(own, place);
    let mut say_at = Instant::now() + SAY_AFTER;
    loop {
        let missing = round.missing();
        let answers = missing.iter().map(|place| async { (*place, ask(&own.peers[*place]).await) });
        for (place, answer) in join_all(answers).await {
            if let Some(reply) = answer {
                round.hear(place, reply)?;
            }
        }
        if let Some(founded) = round.founded() {
            return Ok(founded);
        }
        if Instant::now() >= say_at {
            say_at = Instant::now() + SAY_EVERY;
            let waits: Vec<&str> = round.missing().into_iter().map(|place| own.peers[place].as_str()).collect();
            tracing::warn!("a new cluster needs all its masters once; waiting for {}", waits.join(", "));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// What the master at an address tells of the founding; `None`: it does not answer.
pub async fn ask(address: &str) -> Option<v1::FoundingReply> {
    // The list was checked when the settings were.
    let mut client = MasterPeersClient::new(terrane_env::net::channel(address).ok()?);
    let answer = tokio::time::timeout(ASK_MAX, client.founding(v1::FoundingRequest {})).await;
    answer.ok()?.ok().map(tonic::Response::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers() -> Vec<String> {
        vec!["a:1".into(), "b:1".into(), "c:1".into()]
    }

    fn founder(place: usize, nonce: u8) -> Founder {
        let mut nonces = vec![None; 3];
        nonces[place] = Some([nonce; 16]);
        Founder { peers: peers(), nonces }
    }

    fn identity(place: usize, founder: Option<Founder>) -> Identity {
        Identity { cluster: ClusterId::nil(), number: place as u64 + 1, boot: 1, founder, met: Vec::new() }
    }

    fn reply(place: usize, nonce: u8) -> v1::FoundingReply {
        FoundingState::new(&identity(place, Some(founder(place, nonce)))).reply()
    }

    fn founded() -> Founded {
        Founded { cluster: ClusterId([7; 16]), nonces: vec![[1; 16], [2; 16], [4; 16]] }
    }

    #[test]
    fn all_masters_derive_the_same_id_whatever_the_order() {
        for place in 0..3 {
            let own = founder(place, 1 << place);
            let mut round = FoundingRound::new(&own, place);
            for other in round.missing().into_iter().rev() {
                assert_eq!(round.founded(), None);
                round.hear(other, reply(other, 1 << other)).unwrap();
            }
            assert_eq!(round.founded(), Some(Outcome::Founded(founded())));
        }
    }

    #[test]
    fn one_master_that_knows_the_cluster_is_enough() {
        let nonces = founded().nonces.into_iter().map(Some).collect();
        let knows = Identity { cluster: founded().cluster, ..identity(0, Some(Founder { peers: peers(), nonces })) };
        let own = founder(2, 9);
        let mut round = FoundingRound::new(&own, 2);
        round.hear(0, FoundingState::new(&knows).reply()).unwrap();
        // Its nonce differs from the one that the others know: its directory was lost.
        assert_eq!(round.founded(), Some(Outcome::Founded(founded())));
    }

    #[test]
    fn other_lists_and_single_masters_are_refused() {
        let own = founder(0, 1);
        let mut round = FoundingRound::new(&own, 0);
        let refused = round.hear(1, FoundingState::new(&identity(0, None)).reply()).unwrap_err().to_string();
        assert!(refused.contains("the master at b:1 is a single master"), "{refused}");
        let other = Founder { peers: vec!["a:1".into(), "b:1".into(), "d:1".into()], ..founder(1, 2) };
        let refused = round.hear(1, FoundingState::new(&identity(1, Some(other))).reply()).unwrap_err().to_string();
        assert!(refused.contains("has --peers a:1,b:1,d:1"), "{refused}");
    }

    #[test]
    fn a_running_cluster_with_other_masters_tells_whether_this_one_is_among_them() {
        let own = founder(0, 1);
        let masters = |addresses: &[&str]| {
            let peer = |(place, address): (usize, &&str)| v1::MasterPeer {
                number: crate::masters::numbers::numbered(place + 1, 3),
                address: (*address).to_owned(),
            };
            addresses.iter().enumerate().map(peer).collect()
        };
        let running = |addresses: &[&str]| v1::FoundingReply {
            cluster_id: bytes::Bytes::copy_from_slice(&founded().cluster.0),
            masters: masters(addresses),
            ..reply(1, 2)
        };
        let refused = FoundingRound::new(&own, 0).hear(1, running(&["b:1", "d:1", "e:1"])).unwrap_err().to_string();
        assert!(refused.contains("--join b:1,d:1,e:1"), "{refused}");
        let mut round = FoundingRound::new(&own, 0);
        round.hear(1, running(&["b:1", "a:1", "e:1"])).unwrap();
        assert!(matches!(round.founded(), Some(Outcome::Running(running)) if running.at("a:1").unwrap().place() == 2));
    }
}
