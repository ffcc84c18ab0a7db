//! Where processes serve clients of other protocols than Terrane's.
//!
//! Each process reports one list. A protocol's name is read by the process that serves it and by those that look for it; masters, servers and
//! clients pass it on.

use crate::ServerId;

/// Where a process serves the clients of a protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The protocol's name.
    pub protocol: String,
    /// `host:port`.
    pub address: String,
    /// Distinguishes the lives of the process: a server's boot number, the time at which a master began to serve there.
    pub start_code: u64,
}

/// An endpoint of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEndpoint {
    /// The server.
    pub server: ServerId,
    /// Where it serves.
    pub endpoint: Endpoint,
}

/// An endpoint of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterEndpoint {
    /// Where it serves.
    pub endpoint: Endpoint,
    /// Whether the master leads, as far as is known.
    pub leads: bool,
}
