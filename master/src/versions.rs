//! What is known of the versions of this master and of the servers that report to it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use terrane_proto::{v1, versions};
use terrane_types::versions::{FormatVersions, Levels};
use terrane_types::{Error, ServerId};
use tokio::sync::MutexGuard;

use crate::catalog::{checkpoint, codec};

/// The formats of a catalog.
const FORMATS: &[FormatVersions] = &[
    checkpoint::VERSIONS,
    FormatVersions { name: "catalog edit", oldest: codec::EDIT_VERSION as u32, newest: codec::EDIT_VERSION as u32 },
];

/// All formats that a master writes.
pub fn formats() -> impl Iterator<Item = FormatVersions> {
    [FORMATS, terrane_raft::FORMATS, versions::FORMATS].into_iter().flatten().copied()
}

/// The versions of this process, and of the servers as far as they have told this master.
pub struct Versions {
    own: Levels,
    servers: Mutex<BTreeMap<ServerId, v1::Versions>>,
    /// Held while a server is registered, while masters are added, and while the level of the cluster rises: a process is
    /// never admitted by a level that is just being left.
    turn: tokio::sync::Mutex<()>,
}

impl Versions {
    /// Those of a master of these levels, to which no server has reported.
    pub fn new(own: Levels) -> Self {
        Self { own, servers: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// The levels that this master can work at.
    pub const fn own(&self) -> Levels {
        self.own
    }

    /// What this master says of its versions.
    pub fn said(&self) -> v1::Versions {
        versions::ours(self.own, formats())
    }

    /// The right to register a server, to add masters, or to raise the level.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes what a server has said.
    pub fn note(&self, server: ServerId, said: v1::Versions) {
        self.servers.lock().insert(server, said);
    }

    /// What a server has said; `None` if it has not reported to this master.
    pub fn of(&self, server: ServerId) -> Option<v1::Versions> {
        self.servers.lock().get(&server).cloned()
    }

    /// This master begins to lead: what servers said before they registered with another leader does not count.
    pub fn lead(&self) {
        self.servers.lock().clear();
    }
}

/// Refuses a process that cannot work in a cluster of this level.
///
/// # Errors
/// [`Error::Unsupported`], which the process takes as final.
pub fn admit(said: &v1::Versions, cluster: u32) -> Result<(), Error> {
    refuse(versions::levels(said).refusal(cluster))
}

/// Refuses a process that the cluster has outgrown. The level here may be behind, so that no other verdict is final.
///
/// # Errors
/// As [`admit`].
pub fn admit_known(said: &v1::Versions, cluster: u32) -> Result<(), Error> {
    refuse(versions::levels(said).outgrown(cluster))
}

fn refuse(why: Option<String>) -> Result<(), Error> {
    why.map_or(Ok(()), |feature| Err(Error::Unsupported { feature }))
}
