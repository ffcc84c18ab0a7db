//! What the master sees and does not write down: who is alive, who leads, how big. One lock around two pure parts.

use std::time::Duration;

use parking_lot::Mutex;
use terrane_proto::convert::GroupLocation;
use terrane_types::{GroupId, ServerId};

use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::inventory::Inventory;
use crate::liveness::{Liveness, Moment};

/// The present moment on the clock that never goes back.
pub fn now() -> Moment {
    Moment(terrane_env::time::now_ns() / 1_000_000)
}

/// Liveness and inventory together, since every question needs both.
pub struct Observations {
    /// Who is alive.
    pub liveness: Liveness,
    /// What leaders report.
    pub inventory: Inventory,
}

impl Observations {
    /// The leader of a group, when it is known and its server is not known to be gone.
    pub fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.inventory.leader(group).filter(|server| self.liveness.is_live(*server))
    }

    /// A group's whereabouts for clients and redirects.
    pub fn location(&self, catalog: &Catalog, group: GroupId, entry: &GroupEntry) -> GroupLocation {
        let members = entry.members.values().map(|server| (*server, catalog.servers().address(*server))).collect();
        let term = self.inventory.group(group).map_or(0, |view| view.term);
        GroupLocation { group, leader: self.leader(group), term, members }
    }
}

/// The lock around it. Held for look-ups only; lock the catalog first where both are needed.
pub struct Observed {
    observed: Mutex<Observations>,
}

impl Observed {
    /// Nothing was seen yet.
    pub fn new(silent_after: Duration) -> Self {
        let observed = Observations { liveness: Liveness::new(silent_after, now()), inventory: Inventory::default() };
        Self { observed: Mutex::new(observed) }
    }

    /// Looks, or notes something; nothing may wait inside.
    pub fn with<T>(&self, look: impl FnOnce(&mut Observations) -> T) -> T {
        look(&mut self.observed.lock())
    }
}
