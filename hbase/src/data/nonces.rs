//! The nonces of calls: how an operation that must not be applied twice is known when it is tried again.

use terrane_regionserver::edge::nonce_number;

use crate::proto;

/// How the nonces of a call are recorded.
#[derive(Clone, Copy)]
pub(super) struct Nonces {
    /// `None`: they are not.
    pub group: Option<u64>,
}

impl Nonces {
    /// The number of an operation with this nonce; 0: it has none.
    pub fn number(self, nonce: Option<u64>) -> u64 {
        match (self.group, nonce) {
            (Some(group), Some(nonce)) if nonce != 0 => nonce_number(group, nonce),
            _ => 0,
        }
    }

    /// The number of a batch of mutations that has none of its own.
    pub fn of_batch(self, mutations: &[proto::Action]) -> u64 {
        let nonce = |action: &proto::Action| action.mutation.as_ref().and_then(|mutation| mutation.nonce);
        self.number(mutations.iter().find_map(nonce))
    }
}
