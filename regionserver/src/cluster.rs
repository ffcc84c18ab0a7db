//! What this server knows of the cluster around it: who it is itself and where the others are reached.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use terrane_types::ServerId;

/// Addresses of servers as the master last told them. They are never logged, so they may change at any start.
#[derive(Default)]
pub struct Addresses {
    known: RwLock<BTreeMap<ServerId, String>>,
}

impl Addresses {
    pub fn set(&self, addresses: impl IntoIterator<Item = (ServerId, String)>) {
        self.known.write().extend(addresses);
    }

    pub fn get(&self, server: ServerId) -> Option<String> {
        self.known.read().get(&server).cloned()
    }
}
