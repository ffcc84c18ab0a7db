//! The registered servers: their ids, their addresses, and what is intended for them.
//!
//! Liveness is not part of the catalog: it changes by the second and never enters the log (`crate::servers::liveness`).

use std::collections::BTreeMap;

use terrane_types::ServerId;

use super::codec::{ByteWriter as _, DecodeError, Reader};

/// What a server registers with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The address at which clients and peers reach it.
    pub address: String,
    /// The address of its web console; empty if it has none.
    pub console: String,
    /// The storage engine of its data directory.
    pub engine: String,
    /// Servers of one zone may fail together; empty if it has no label.
    pub zone: String,
}

impl Registration {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.text(&self.address);
        out.text(&self.console);
        out.text(&self.engine);
        out.text(&self.zone);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { address: from.text()?, console: from.text()?, engine: from.text()?, zone: from.text()? })
    }
}

/// The drain of a server: its replicas are moved to others, and it gets no new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// The stamp of the entry that began it, in milliseconds since 1970.
    pub since_ms: u64,
    /// The replicas that the server had then.
    pub replicas: u32,
}

/// All registered servers by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Servers {
    by_id: BTreeMap<ServerId, Registration>,
    draining: BTreeMap<ServerId, Drain>,
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

    /// The drain of a server, if it is being drained or has been.
    pub fn drain(&self, server: ServerId) -> Option<Drain> {
        self.draining.get(&server).copied()
    }

    /// The servers that are being drained or have been.
    pub fn drains(&self) -> impl Iterator<Item = (ServerId, Drain)> {
        self.draining.iter().map(|(server, drain)| (*server, *drain))
    }

    /// Begins a drain unless one has begun.
    pub(super) fn begin_drain(&mut self, server: ServerId, drain: Drain) {
        self.draining.entry(server).or_insert(drain);
    }

    pub(super) fn end_drain(&mut self, server: ServerId) {
        self.draining.remove(&server);
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
        self.draining.remove(&server);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.list(self.by_id.iter(), |out, (server, registration)| {
            out.u64(server.0);
            registration.encode(out);
        });
        out.list(self.draining.iter(), |out, (server, drain)| {
            out.u64(server.0);
            out.u64(drain.since_ms);
            out.u32(drain.replicas);
        });
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let servers = from.list(|from| Ok::<_, DecodeError>((ServerId(from.u64()?), Registration::decode(from)?)))?;
        let drain = |from: &mut Reader<'_>| {
            Ok::<_, DecodeError>((ServerId(from.u64()?), Drain { since_ms: from.u64()?, replicas: from.u32()? }))
        };
        let (by_id, draining): (BTreeMap<_, _>, BTreeMap<_, _>) =
            (servers.into_iter().collect(), from.list(drain)?.into_iter().collect());
        match draining.keys().find(|server| !by_id.contains_key(server)) {
            Some(server) => Err(unknown(*server)),
            None => Ok(Self { by_id, draining }),
        }
    }
}

fn unknown(server: ServerId) -> DecodeError {
    DecodeError::Rule(format!("server {server} does not exist"))
}
