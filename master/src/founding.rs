//! How several masters found a cluster: they agree on its id before their group has a log.
//!
//! Each master draws a nonce and syncs it with the list of masters before it tells it to anyone. The cluster id is the
//! exclusive or of all nonces, so all masters must run once, in any order and over any number of restarts. A leader-made
//! id would need a log, and the log's links need the id, which keeps strangers out.
//!
//! Invariants:
//! - A master that knows the cluster id got every nonce, so all masters know the same id.
//! - A master whose directory was lost draws another nonce. It cannot found another cluster, nor take part in this one
//!   as if it had kept its log: the others know an id that does not follow from its nonce, and it ends with the reason.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::join_all;
use terrane_proto::v1;
use terrane_proto::v1::master_peers_client::MasterPeersClient;
use terrane_types::ClusterId;
use tokio::time::Instant;

use crate::identity::Founder;

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
    /// The cluster exists, and this directory is not part of it.
    #[error(
        "the data directory is new, but the master at {address} belongs to cluster {cluster}, which was founded with \
         another directory of this master; restore that directory, and keep the majority of the masters running meanwhile"
    )]
    Founded {
        /// The other master.
        address: String,
        /// Its cluster.
        cluster: ClusterId,
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

/// What this master tells the others. It does so as long as it runs.
#[derive(Debug)]
pub struct Told {
    founder: Option<Founder>,
    cluster: OnceLock<ClusterId>,
}

impl Told {
    /// What a master with this part in the founding tells; a nil `cluster` is not known yet.
    pub fn new(founder: Option<Founder>, cluster: ClusterId) -> Arc<Self> {
        let told = Self { founder, cluster: OnceLock::new() };
        if !cluster.is_nil() {
            told.set_cluster(cluster);
        }
        Arc::new(told)
    }

    /// The cluster id is known now.
    pub fn set_cluster(&self, cluster: ClusterId) {
        self.cluster.get_or_init(|| cluster);
    }

    /// The reply to another master.
    pub fn reply(&self) -> v1::FoundingReply {
        let bytes = |id: &[u8; 16]| bytes::Bytes::copy_from_slice(id);
        let founder = self.founder.as_ref();
        v1::FoundingReply {
            peers: founder.map(|founder| founder.peers.clone()).unwrap_or_default(),
            nonce: founder.map(|founder| bytes(&founder.nonce)).unwrap_or_default(),
            cluster_id: self.cluster.get().map(|cluster| bytes(&cluster.0)).unwrap_or_default(),
        }
    }
}

/// Collects what the masters of one cluster tell each other. Without I/O.
struct Roll<'a> {
    own: &'a Founder,
    /// By place in the list.
    nonces: Vec<Option<[u8; 16]>>,
    /// A master that knows the cluster id already, and the id.
    founded: Option<(String, ClusterId)>,
}

impl<'a> Roll<'a> {
    fn new(own: &'a Founder, place: usize) -> Self {
        let mut nonces = vec![None; own.peers.len()];
        nonces[place] = Some(own.nonce);
        Self { own, nonces, founded: None }
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.nonces.len()).filter(|place| self.nonces[*place].is_none()).collect()
    }

    fn hear(&mut self, place: usize, reply: v1::FoundingReply) -> Result<(), FoundingError> {
        let address = || self.own.peers[place].clone();
        if reply.peers != self.own.peers {
            let (ours, theirs) = (self.own.peers.clone(), reply.peers);
            return Err(FoundingError::Lists { address: address(), ours, theirs });
        }
        let id = |bytes: &[u8], what| {
            <[u8; 16]>::try_from(bytes).map_err(|_| FoundingError::Malformed { address: address(), what })
        };
        if !reply.cluster_id.is_empty() {
            let cluster = ClusterId(id(&reply.cluster_id, "a malformed cluster id")?);
            self.founded = Some((address(), cluster));
        }
        let nonce = id(&reply.nonce, "a malformed nonce")?;
        self.nonces[place] = Some(nonce);
        Ok(())
    }

    /// The cluster id, once every master was heard.
    fn cluster(&self) -> Option<Result<ClusterId, FoundingError>> {
        let nonces: Option<Vec<[u8; 16]>> = self.nonces.iter().copied().collect();
        let sum = nonces?.into_iter().map(u128::from_be_bytes).fold(0, |sum, nonce| sum ^ nonce);
        let cluster = ClusterId(sum.to_be_bytes());
        Some(match &self.founded {
            Some((address, other)) if *other != cluster => {
                Err(FoundingError::Founded { address: address.clone(), cluster: *other })
            }
            _ => Ok(cluster),
        })
    }
}

/// Asks the other masters until all have answered; returns the cluster id.
pub async fn found(own: &Founder, place: usize) -> Result<ClusterId, FoundingError> {
    let mut roll = Roll::new(own, place);
    let mut say_at = Instant::now() + SAY_AFTER;
    loop {
        let missing = roll.missing();
        let answers = missing.iter().map(|place| async { (*place, ask(&own.peers[*place]).await) });
        for (place, answer) in join_all(answers).await {
            if let Some(reply) = answer {
                roll.hear(place, reply)?;
            }
        }
        if let Some(cluster) = roll.cluster() {
            return cluster;
        }
        if Instant::now() >= say_at {
            say_at = Instant::now() + SAY_EVERY;
            let waits: Vec<&str> = roll.missing().into_iter().map(|place| own.peers[place].as_str()).collect();
            tracing::warn!("a new cluster needs all its masters once; waiting for {}", waits.join(", "));
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn ask(address: &str) -> Option<v1::FoundingReply> {
    // The list was checked when the settings were.
    let mut client = MasterPeersClient::new(terrane_env::net::channel(address).ok()?);
    let answer = tokio::time::timeout(ASK_MAX, client.founding(v1::FoundingRequest {})).await;
    answer.ok()?.ok().map(tonic::Response::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn founder(nonce: u8) -> Founder {
        Founder { nonce: [nonce; 16], peers: vec!["a:1".into(), "b:1".into(), "c:1".into()] }
    }

    fn reply(nonce: u8, cluster: ClusterId) -> v1::FoundingReply {
        Told::new(Some(founder(nonce)), cluster).reply()
    }

    #[test]
    fn all_masters_derive_the_same_id_whatever_the_order() {
        let mut ids = Vec::new();
        for place in 0..3 {
            let own = founder(1 << place);
            let mut roll = Roll::new(&own, place);
            for other in roll.missing().into_iter().rev() {
                assert_eq!(roll.cluster(), None);
                roll.hear(other, reply(1 << other, ClusterId::nil())).unwrap();
            }
            ids.push(roll.cluster().unwrap().unwrap());
        }
        assert_eq!(ids, [ClusterId([7; 16]); 3]);
    }

    #[test]
    fn a_late_master_joins_and_one_that_lost_its_directory_does_not() {
        let cluster = ClusterId([7; 16]);
        let heard = |own: &Founder| {
            let mut roll = Roll::new(own, 2);
            roll.hear(0, reply(1, cluster)).unwrap();
            roll.hear(1, reply(2, ClusterId::nil())).unwrap();
            roll.cluster().unwrap()
        };
        assert_eq!(heard(&founder(4)), Ok(cluster));
        let lost = heard(&founder(9)).unwrap_err();
        assert_eq!(lost, FoundingError::Founded { address: "a:1".into(), cluster });
        assert!(lost.to_string().contains("restore that directory"), "{lost}");
    }

    #[test]
    fn other_lists_and_single_masters_are_refused() {
        let own = founder(1);
        let mut roll = Roll::new(&own, 0);
        let refused = roll.hear(1, Told::new(None, ClusterId([9; 16])).reply()).unwrap_err().to_string();
        assert!(refused.contains("the master at b:1 is a single master"), "{refused}");
        let other = Founder { nonce: [2; 16], peers: vec!["a:1".into(), "b:1".into(), "d:1".into()] };
        let refused = roll.hear(1, Told::new(Some(other), ClusterId::nil()).reply()).unwrap_err().to_string();
        assert!(refused.contains("has --peers a:1,b:1,d:1"), "{refused}");
    }
}
