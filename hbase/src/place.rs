//! Where a process serves HBase's clients.

use std::fmt;

use terrane_types::Endpoint;

use crate::proto;

/// Where a process serves HBase's clients, and since when. HBase calls this a server name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// A host name or address that clients resolve.
    pub host: String,
    /// The port.
    pub port: u16,
    /// When the process started, in milliseconds since 1970: two lives of one server have different names.
    pub start_code: u64,
}

impl Place {
    /// The place at `host:port`.
    #[must_use]
    pub fn at(address: &str, start_code: u64) -> Option<Self> {
        let (host, port) = address.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()?, start_code })
    }

    /// The place that a process has reported.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Option<Self> {
        Self::at(&endpoint.address, endpoint.start_code)
    }

    /// The place as a message.
    #[must_use]
    pub fn to_proto(&self) -> proto::ServerName {
        proto::ServerName {
            host_name: self.host.clone(),
            port: Some(self.port.into()),
            start_code: Some(self.start_code),
        }
    }
}

/// `host,port,startcode`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.host, self.port, self.start_code)
    }
}
