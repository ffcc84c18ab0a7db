//! Observed state, which is not durable: liveness, leaders and sizes. A lock around two pure parts.

use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::convert::GroupLocation;
use terrane_types::{GroupId, ServerId};
use tokio::sync::Notify;

use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::servers::inventory::Inventory;
use crate::servers::liveness::{Liveness, Moment};

/// The present time on the monotonic clock.
pub fn now() -> Moment {
    Moment(terrane_env::time::now_ns() / 1_000_000)
}

/// Liveness and inventory, which most calls need together.
pub struct Observations {
    /// Which servers are alive.
    pub liveness: Liveness,
    /// What servers report.
    pub inventory: Inventory,
}

impl Observations {
    /// The leader of a group, if it is known and its server is live.
    pub fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.inventory.leader(group).filter(|server| self.liveness.is_live(*server))
    }

    /// The leader of a group, if it is known, live, and serves the group's regions.
    pub fn serving_leader(&self, group: GroupId) -> Option<ServerId> {
        self.inventory.serving_leader(group).filter(|server| self.liveness.is_live(*server))
    }

    /// A group's location, for clients and redirects.
    pub fn location(&self, catalog: &Catalog, group: GroupId, entry: &GroupEntry) -> GroupLocation {
        let members = entry.servers().into_iter().map(|server| (server, catalog.servers().address(server))).collect();
        let term = self.inventory.group(group).map_or(0, |view| view.term);
        GroupLocation { group, leader: self.leader(group), term, members }
    }
}

/// The lock around the observations. Held only briefly; if both are needed, lock the catalog first.
pub struct Observed {
    observed: Mutex<Observations>,
    /// A server is to be called: see `crate::servers::callbacks`.
    to_call: Notify,
}

impl Observed {
    /// No observations yet.
    pub fn new(silent_after: Duration) -> Self {
        let observed = Observations { liveness: Liveness::new(silent_after, now()), inventory: Inventory::default() };
        Self { observed: Mutex::new(observed), to_call: Notify::new() }
    }

    /// Wakes the task that calls servers.
    pub fn wake_caller(&self) {
        self.to_call.notify_one();
    }

    /// Returns when a server is to be called. Only one caller may wait.
    pub async fn until_called_for(&self) {
        self.to_call.notified().await;
    }

    /// Reads or updates the observations; the closure must not wait.
    pub fn with<T>(&self, look: impl FnOnce(&mut Observations) -> T) -> T {
        look(&mut self.observed.lock())
    }
}
