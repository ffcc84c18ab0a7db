//! The registered servers: their ids and addresses.
//!
//! Liveness is not part of the catalog: it changes by the second and never enters the log (`crate::liveness`).

use std::collections::BTreeMap;

use terrane_types::ServerId;

use super::codec::{DecodeError, Reader, Writer};

/// What a server registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The address at which clients and peers reach it.
    pub address: String,
    /// The address of its web console; empty if it has none.
    pub console: String,
    /// The storage engine of its data directory.
    pub engine: String,
}

impl Registration {
    pub(crate) fn encode(&self, out: &mut Writer) {
        out.text(&self.address);
        out.text(&self.console);
        out.text(&self.engine);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { address: from.text()?, console: from.text()?, engine: from.text()? })
    }
}

/// All registered servers by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    by_id: BTreeMap<ServerId, Registration>,
}

impl Servers {
    /// The server of this id.
    pub fn get(&self, server: ServerId) -> Option<&Registration> {
        self.by_id.get(&server)
    }

    /// All servers, by id.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ServerId, &Registration)> {
        self.by_id.iter().map(|(server, registration)| (*server, registration))
    }

    /// The address of a server, or a placeholder if the server is unknown.
    pub fn address(&self, server: ServerId) -> String {
        self.get(server).map_or_else(|| format!("unknown server {server}"), |known| known.address.clone())
    }

    pub(super) fn add(&mut self, server: ServerId, registration: Registration) {
        let before = self.by_id.insert(server, registration);
        assert!(before.is_none(), "server id {server} was handed out twice");
    }

    /// Replaces the registration of a known server; returns whether it is known.
    pub(super) fn update(&mut self, server: ServerId, registration: Registration) -> bool {
        self.by_id.get_mut(&server).map(|known| *known = registration).is_some()
    }

    pub(super) fn remove(&mut self, server: ServerId) {
        self.by_id.remove(&server);
    }

    pub(super) fn encode(&self, out: &mut Writer) {
        out.list(self.by_id.iter(), |out, (server, registration)| {
            out.u64(server.0);
            registration.encode(out);
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let servers = from.list(|from| Ok::<_, DecodeError>((ServerId(from.u64()?), Registration::decode(from)?)))?;
        Ok(Self { by_id: servers.into_iter().collect() })
    }
}
