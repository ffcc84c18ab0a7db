//! A process that waits to be added to the masters of a running cluster.
//!
//! It is started with an empty directory and with addresses of that cluster's masters (`--join`). It serves nothing but the
//! answer to what it is, until the leading master gives it a number, or until it finds that it is a master already whose
//! directory was lost. It never founds a cluster.
//!
//! Invariants: it takes a number only of a cluster with one of the masters that it was told; it takes one number; and it
//! has stored it before it says so.

use std::sync::OnceLock;
use std::time::Duration;

use terrane_proto::hello::Identity as Hello;
use terrane_proto::{v1, versions};
use terrane_types::versions::Levels;
use terrane_types::{ClusterId, Error, Invalid, ServerId};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::masters::founding::{Running, ask};
use crate::masters::numbers::Peer;
use crate::masters::peers::{Peers, from_wire};
use crate::masters::replacing;
use crate::server::identity::Identity;
use crate::versions::formats;

/// How often the masters are asked whether this one is a master already.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// How often a process says that it waits.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// What a process is: one that waits, one that founds a cluster, or a master.
pub struct Joining {
    /// Where others reach it.
    address: String,
    /// Masters of the cluster to be added to; empty: it does not wait.
    join: Vec<String>,
    levels: Levels,
    invited: watch::Sender<Option<Identity>>,
    /// Its cluster and number, once they are stored.
    is: OnceLock<(ClusterId, u64)>,
}

impl Joining {
    /// A process of these levels that others reach at this address.
    pub fn new(address: &str, join: &[String], levels: Levels) -> Self {
        let join = join.iter().filter(|other| *other != address).cloned().collect();
        Self { address: address.to_owned(), join, levels, invited: watch::Sender::new(None), is: OnceLock::new() }
    }

    /// Its identity is stored.
    pub fn set(&self, cluster: ClusterId, number: u64) {
        self.is.get_or_init(|| (cluster, number));
    }

    /// What the process is, after it has taken over the number that it is given, if it waits.
    ///
    /// # Errors
    /// It waits for another cluster.
    pub fn answer(&self, request: v1::JoinRequest) -> Result<v1::JoinReply, Error> {
        let versions = Some(versions::ours(self.levels, formats()));
        let reply = v1::JoinReply { address: self.address.clone(), versions, ..v1::JoinReply::default() };
        if let Some((cluster, number)) = self.is.get() {
            return Ok(v1::JoinReply {
                cluster_id: bytes::Bytes::copy_from_slice(&cluster.0),
                number: *number,
                ..reply
            });
        }
        if request.number > 0 {
            self.invite(request)?;
        }
        Ok(v1::JoinReply { waits: !self.join.is_empty(), join: self.join.clone(), ..reply })
    }

    fn invite(&self, request: v1::JoinRequest) -> Result<(), Error> {
        let refused = |what: String| Error::Invalid(Invalid::new(what));
        let cluster: [u8; 16] =
            request.cluster_id.as_ref().try_into().map_err(|_| refused("the cluster id is malformed".to_owned()))?;
        let masters = from_wire(request.masters);
        let is_own = masters.iter().any(|peer| peer.number == request.number && peer.address == self.address);
        if !is_own || !masters.iter().any(|peer| self.join.contains(&peer.address)) {
            return Err(refused(format!(
                "the process at {} waits to be added to the cluster of {}",
                self.address,
                self.join.join(",")
            )));
        }
        let invitation = Identity::added(ClusterId(cluster), request.number, masters);
        self.invited.send_if_modified(|invited| {
            let is_first = invited.is_none();
            invited.get_or_insert(invitation);
            is_first
        });
        Ok(())
    }

    /// Waits until this process is added to the cluster, or finds that it is a master of it whose directory was lost.
    pub async fn joined(&self) -> Identity {
        let mut invited = self.invited.subscribe();
        let invitation = async {
            let invitation = invited.wait_for(Option::is_some).await.map(|identity| identity.clone());
            // The sender is in `self`.
            invitation.ok().flatten().expect("an invitation was waited for")
        };
        tokio::select! {
            biased;
            identity = invitation => identity,
            identity = self.lost() => identity,
        }
    }

    /// Returns when the masters name this one as a master: it has lost its directory, and gets another number.
    async fn lost(&self) -> Identity {
        let mut say_at = Instant::now();
        loop {
            let replies = futures::future::join_all(self.join.iter().map(|master| ask(master))).await;
            let running: Vec<Running> = replies.iter().flatten().filter_map(Running::of).collect();
            if let Some((running, peer)) = running.iter().find_map(|one| Some((one, one.at(&self.address)?))) {
                let hello = Hello { cluster: running.cluster, server: ServerId::default(), boot: 1 };
                let peers = Peers::new(hello, peer.number, self.levels, &running.masters, &running.masters);
                return replaced(running, peer, replacing::number(&peers).await);
            }
            if Instant::now() >= say_at {
                say_at = Instant::now() + SAY_EVERY;
                self.say(running.first());
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn say(&self, running: Option<&Running>) {
        let join = self.join.join(",");
        let Some(running) = running else {
            tracing::warn!("no master answers at {join}; waiting to be added to that cluster");
            return;
        };
        let masters: Vec<&str> = running.masters.iter().map(|peer| peer.address.as_str()).collect();
        tracing::info!(
            "waiting to be added to the masters {} as {}, with `terrane admin set-masters LIST --masters {join}`",
            masters.join(","),
            self.address
        );
    }
}

/// The identity of a master that got another number because its directory was lost.
pub fn replaced(running: &Running, peer: &Peer, number: u64) -> Identity {
    let own = Peer { number, address: peer.address.clone() };
    let others = running.masters.iter().filter(|other| *other != peer).cloned();
    Identity::added(running.cluster, number, others.chain([own]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: u64, masters: &[(u64, &str)]) -> v1::JoinRequest {
        let peer = |(number, address): &(u64, &str)| v1::MasterPeer { number: *number, address: (*address).to_owned() };
        let cluster_id = bytes::Bytes::from_static(&[7; 16]);
        v1::JoinRequest { cluster_id, number, masters: masters.iter().map(peer).collect() }
    }

    #[tokio::test]
    async fn a_process_takes_one_number_of_the_cluster_that_it_waits_for() {
        let joining = Joining::new("d:1", &["a:1".to_owned(), "d:1".to_owned()], Levels::BUILD);
        let reply = joining.answer(order(0, &[])).unwrap();
        assert!(reply.waits && reply.join == ["a:1"] && reply.cluster_id.is_empty());
        let refused = joining.answer(order(12, &[(1, "x:1"), (12, "d:1")])).unwrap_err().to_string();
        assert!(refused.contains("waits to be added to the cluster of a:1"), "{refused}");
        joining.answer(order(12, &[(1, "a:1"), (12, "e:1")])).unwrap_err();
        assert!(joining.answer(order(12, &[(1, "a:1"), (12, "d:1")])).unwrap().waits);
        assert!(joining.answer(order(20, &[(1, "a:1"), (20, "d:1")])).unwrap().waits);
        let identity = joining.joined().await;
        assert_eq!((identity.number, identity.cluster, identity.met.len()), (12, ClusterId([7; 16]), 2));
        joining.set(identity.cluster, identity.number);
        let reply = joining.answer(order(20, &[(1, "a:1"), (20, "d:1")])).unwrap();
        assert_eq!((reply.waits, reply.number), (false, 12));
    }

    #[test]
    fn a_process_that_founds_a_cluster_is_not_added_to_another() {
        let joining = Joining::new("d:1", &[], Levels::BUILD);
        assert!(!joining.answer(order(0, &[])).unwrap().waits);
        joining.answer(order(12, &[(1, "a:1"), (12, "d:1")])).unwrap_err();
    }
}
