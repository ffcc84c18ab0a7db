//! The two ends of a session, as its hello names them.

use terrane_proto::{hello, v1};
use terrane_types::{ClusterId, ServerId};

/// The server at the other end, and this client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) cluster: ClusterId,
    pub(crate) server: ServerId,
    /// Random per client; sent as the boot number, so that the server's log can distinguish clients.
    pub(crate) boot: u64,
}

impl Peer {
    pub(crate) fn hello(&self) -> v1::Hello {
        hello::ours(Some(self.cluster), self.server, ServerId(0), self.boot)
    }
}
