//! Links between servers, one per peer and lane, and the frames they carry.
//!
//! There are three lanes, so that a heartbeat never waits behind a megabyte of entries, nor entries behind a copy. The calling
//! server opens them and sends requests; replies return on the same stream, in the order in which they become ready.

pub(crate) mod addresses;
pub(crate) mod frame;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod headroom;
mod link;
pub(crate) mod network;
pub(crate) mod service;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use terrane_env::budget::{Budget, Unit};
use terrane_proto::hello::Identity;
use terrane_proto::v1;
use terrane_types::ServerId;

use crate::time::clock::Clocks;

pub(crate) use self::frame::Message;
pub(crate) use self::headroom::Headroom;
use self::link::Route;
pub(crate) use self::link::{Call, Link};
use crate::AddressBook;
use crate::metrics::Metrics;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Votes and heartbeats: small, and useless when late.
    Votes,
    /// Entries.
    Appends,
    /// Copies of groups, in large parts.
    Copies,
}

impl Lane {
    fn wire(self) -> i32 {
        match self {
            Lane::Votes => v1::Lane::Votes.into(),
            Lane::Appends => v1::Lane::Appends.into(),
            Lane::Copies => v1::Lane::Snapshots.into(),
        }
    }
}

/// The calling ends of all links of this process.
pub(crate) struct Peers {
    identity: Identity,
    /// The address of this process.
    advertised: String,
    addresses: Arc<AddressBook>,
    clocks: Arc<Clocks>,
    metrics: Arc<Metrics>,
    links: Mutex<BTreeMap<(ServerId, Lane), Link>>,
    /// Bytes of calls queued on all links together.
    calls: Arc<Budget>,
}

/// Their limit. Each link has its own limit too, so that a peer that reads nothing does not use up what others need.
const CALL_BYTES_MAX: u64 = 256 << 20;

impl Peers {
    pub(crate) fn new(
        identity: Identity,
        advertised: String,
        addresses: Arc<AddressBook>,
        clocks: Arc<Clocks>,
        metrics: Arc<Metrics>,
    ) -> Peers {
        let calls = Budget::new("peer_calls", Unit::Bytes, CALL_BYTES_MAX);
        Peers { identity, advertised, addresses, clocks, metrics, links: Mutex::default(), calls }
    }

    /// For metrics and status.
    pub(crate) fn budget(&self) -> Arc<Budget> {
        self.calls.clone()
    }

    /// The link to `server`, created when first requested.
    pub(crate) fn link(&self, server: ServerId, lane: Lane) -> Link {
        let mut links = self.links.lock();
        let open = || {
            let (advertised, addresses) = (self.advertised.clone(), self.addresses.clone());
            let (clocks, metrics) = (self.clocks.clone(), self.metrics.clone());
            let route = Route { identity: self.identity, advertised, server, lane, addresses, clocks, metrics };
            Link::open(route, self.calls.clone())
        };
        links.entry((server, lane)).or_insert_with(open).clone()
    }

    /// Ends all links; calls in progress fail.
    pub(crate) fn close(&self) {
        for link in std::mem::take(&mut *self.links.lock()).into_values() {
            link.close();
        }
    }
}
