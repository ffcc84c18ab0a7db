//! The two ends of a session, as its hello names them.

use terrane_proto::{hello, v1};
use terrane_types::{ClusterId, ServerId};

/// Who is expected at the other end, and who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub(crate) cluster: ClusterId,
    pub(crate) server: ServerId,
    /// Random per client; told to the server as the boot number, so that its logs can tell clients apart.
    pub(crate) boot: u64,
}

impl Peer {
    pub(crate) fn hello(&self) -> v1::Hello {
        hello::ours(Some(self.cluster), self.server, ServerId(0), self.boot)
    }
}
