//! Why a region server could not start.

use terrane_env::fs;

use crate::masters::RegisterError;
use crate::server::identity::IdentityError;

/// Why a server did not start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Settings cannot work.
    #[error("{0}")]
    Settings(String),
    /// The data directory cannot be created.
    #[error("cannot use the data directory {directory}: {source}")]
    Directory { directory: String, source: std::io::Error },
    /// The data directory is neither empty nor a region server's.
    #[error(transparent)]
    Occupied(#[from] fs::Occupied),
    /// Another process uses the data directory.
    #[error(transparent)]
    Locked(#[from] fs::LockError),
    /// The directory belongs to another cluster or engine, or its identity file is damaged.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The port is taken, or the address is not this machine's.
    #[error("{0}")]
    Listen(std::io::Error),
    /// The listen address is a wildcard, which others cannot reach.
    #[error("other servers cannot reach {listen}; name an address that they can reach with --advertise HOST:PORT")]
    Advertise { listen: String },
    /// No master answered, or one refused the server.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The engine does not open.
    #[error("cannot open the engine")]
    Engine(#[source] terrane_engine::Error),
    /// The log does not open.
    #[error(transparent)]
    Log(#[from] terrane_raft::OpenError),
    /// The build is broken.
    #[error("gRPC reflection: {0}")]
    Reflection(String),
}
