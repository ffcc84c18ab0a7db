//! Why a master does not start.

use std::path::PathBuf;

use terrane_env::fs::{LockError, Occupied};
use terrane_types::ClusterId;

use crate::catalog::checkpoint::CheckpointError;
use crate::masters::founding::FoundingError;
use crate::server::identity::IdentityError;

/// Why a master did not start; each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A setting is invalid.
    #[error("{0}")]
    Settings(String),
    /// The directory is neither empty nor a master's.
    #[error(transparent)]
    Occupied(#[from] Occupied),
    /// Another process uses the directory.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The directory does not belong to this master.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The catalog's checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The catalog's log cannot be opened.
    #[error(transparent)]
    Log(#[from] terrane_raft::OpenError),
    /// `--peers` differs from the list that the cluster was created with.
    #[error(
        "this cluster was created with {}, but this start has {}; start the master with the original setting",
        named(recorded),
        named(given)
    )]
    Peers {
        /// The masters of the bootstrap.
        recorded: Vec<String>,
        /// The masters given at this start.
        given: Vec<String>,
    },
    /// The masters cannot found a cluster together.
    #[error(transparent)]
    Founding(#[from] FoundingError),
    /// The directory belongs to a master that was removed, or whose place another directory has taken.
    #[error(
        "{} belongs to a master that was removed from the cluster or replaced: it must not run again; start with an empty \
         directory, and add this master again with --join and `terrane admin set-masters` if it was removed",
        directory.display()
    )]
    Replaced {
        /// The directory.
        directory: PathBuf,
    },
    /// Parts of the directory belong to different clusters.
    #[error("{} contains the catalog of cluster {catalog}, but its `master` file names cluster {stamp}; do not mix data directories", directory.display())]
    Mixed {
        /// The directory.
        directory: PathBuf,
        /// The catalog's cluster.
        catalog: ClusterId,
        /// The cluster of the `master` file.
        stamp: ClusterId,
    },
    /// The cluster of the directory has a higher feature level than the build.
    #[error("{} cannot be used by this build: {why}", directory.display())]
    Level {
        /// The directory.
        directory: PathBuf,
        /// The two levels, and what to do.
        why: String,
    },
    /// The port could not be bound.
    #[error(transparent)]
    Listen(std::io::Error),
    /// A directory could not be created.
    #[error("cannot create {}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Group 0 did not start.
    #[error("the catalog did not start: {0}")]
    Catalog(String),
}

fn named(peers: &[String]) -> String {
    if peers.is_empty() { "a single master".to_owned() } else { format!("--peers {}", peers.join(",")) }
}
