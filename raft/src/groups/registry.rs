//! The replicas that run in this process, by group.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use terrane_types::GroupId;
use tokio::sync::watch;

use crate::groups::replica::Replica;

/// The replicas of this process.
pub(crate) struct Registry {
    replicas: Mutex<BTreeMap<GroupId, Arc<Replica>>>,
    /// Counts the replicas that were added.
    added: watch::Sender<u64>,
}

impl Registry {
    pub(crate) fn new() -> Registry {
        Registry { replicas: Mutex::default(), added: watch::channel(0).0 }
    }

    pub(crate) fn get(&self, group: GroupId) -> Option<Arc<Replica>> {
        self.replicas.lock().get(&group).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Replica>> {
        self.replicas.lock().values().cloned().collect()
    }

    pub(crate) fn add(&self, replica: Arc<Replica>) {
        self.replicas.lock().insert(replica.view.group(), replica);
        self.added.send_modify(|added| *added += 1);
    }

    pub(crate) fn remove(&self, group: GroupId) {
        self.replicas.lock().remove(&group);
    }

    /// Waits for a replica of `group`. `None` if the host is dropped.
    pub(crate) async fn wait_for(&self, group: GroupId) -> Option<Arc<Replica>> {
        // Subscribe before the check, so that nothing is missed in between.
        let mut added = self.added.subscribe();
        loop {
            if let Some(replica) = self.get(group) {
                return Some(replica);
            }
            added.changed().await.ok()?;
        }
    }
}
