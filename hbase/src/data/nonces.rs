//! The nonces of calls: how an operation that must not be applied twice is known when it is tried again.

use terrane_regionserver::edge::nonce_number;

use crate::proto;

/// The nonces of a call.
#[derive(Clone, Copy)]
pub(super) struct Nonces {
    /// The nonce group of the client.
    pub group: u64,
}

impl Nonces {
    /// The number of an operation with this nonce; 0: it has none.
    pub fn number(self, nonce: Option<u64>) -> u64 {
        nonce.filter(|nonce| *nonce != 0).map_or(0, |nonce| nonce_number(self.group, nonce))
    }

    /// The number of a batch of mutations that has none of its own.
    pub fn of_batch(self, mutations: &[proto::Action]) -> u64 {
        let nonce = |action: &proto::Action| action.mutation.as_ref().and_then(|mutation| mutation.nonce);
        self.number(mutations.iter().find_map(nonce))
    }
}
