//! The feature level of the cluster, as far as this server knows it, and what the server says of its own versions.
//!
//! Masters raise the level and name it in every answer. A server that learns of a higher one first writes it into the `server`
//! file and then acts on it: a build that cannot read what is written at that level is refused by the directory. A server
//! whose own build does not reach the level must end.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use terrane_env::task::run_io;
use terrane_proto::{v1, versions};
use terrane_types::versions::{FormatVersions, Levels};
use tokio::sync::watch;

use crate::server::identity::Identity;
use crate::{group, operation};

/// The formats of a server itself.
const FORMATS: &[FormatVersions] = &[operation::VERSIONS, group::state::VERSIONS, group::region_state::VERSIONS];

/// All formats that a region server writes.
pub fn formats() -> impl Iterator<Item = FormatVersions> {
    let all = [FORMATS, terrane_engine::FORMATS, terrane_raft::FORMATS, versions::FORMATS];
    all.into_iter().flatten().copied()
}

/// What a server of these levels says of its versions.
pub fn said(levels: Levels) -> v1::Versions {
    versions::ours(levels, formats())
}

/// The level of the cluster.
pub struct ClusterLevel {
    /// The levels that this process can work at.
    own: Levels,
    level: AtomicU32,
    directory: PathBuf,
    /// What is written into the directory.
    identity: Mutex<Identity>,
    /// Tells the process why it must end.
    refused: watch::Sender<Option<String>>,
}

impl ClusterLevel {
    /// The level that the directory knows.
    pub fn new(own: Levels, directory: PathBuf, identity: Identity, refused: watch::Sender<Option<String>>) -> Self {
        Self { own, level: AtomicU32::new(identity.level), directory, identity: Mutex::new(identity), refused }
    }

    /// The levels of this process.
    pub const fn own(&self) -> Levels {
        self.own
    }

    /// The level of the cluster.
    pub fn level(&self) -> u32 {
        self.level.load(Ordering::Acquire)
    }

    /// Takes the level that a master names. One that this build does not reach ends the process.
    pub async fn learn(&self, level: u32) {
        if level <= self.level() {
            return;
        }
        if let Some(why) = self.own.outgrown(level) {
            return self.refuse(why);
        }
        let identity = Identity { level, ..self.identity.lock().clone() };
        let (stored, directory) = (identity.clone(), self.directory.clone());
        if !terrane_env::planted!("a server does not store the level of its cluster")
            && let Err(error) = run_io(async move { stored.store(&directory).await }).await
        {
            tracing::warn!(%error, level, "the cluster's new feature level is not stored yet; trying again");
            return;
        }
        *self.identity.lock() = identity;
        self.level.store(level, Ordering::Release);
        tracing::info!(level, "the cluster has a new feature level");
    }

    /// A master refuses this process for good.
    pub fn refuse(&self, why: String) {
        self.refused.send_replace(Some(why));
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::{ClusterId, ServerId};

    use super::*;

    #[tokio::test]
    async fn a_level_is_stored_before_it_counts_and_never_falls() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let identity =
            Identity { cluster: ClusterId([1; 16]), server: ServerId(1), engine: "memory".into(), boot: 2, level: 6 };
        identity.store(path).await.unwrap();
        let (sender, refused) = watch::channel(None);
        let level = ClusterLevel::new(Levels { oldest: 6, newest: 7 }, path.to_owned(), identity, sender);
        level.learn(5).await;
        assert_eq!((level.level(), Identity::look(path).await.unwrap().level), (6, 6));
        level.learn(7).await;
        assert_eq!((level.level(), Identity::look(path).await.unwrap().level), (7, 7));
        assert_eq!(*refused.borrow(), None);
        level.learn(8).await;
        assert_eq!(level.level(), 7);
        assert!(refused.borrow().as_ref().is_some_and(|why| why.contains("start a build of level 8")));
    }
}
