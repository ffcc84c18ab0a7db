//! Why a region server could not start.

use terrane_env::fs;

use crate::identity::IdentityError;
use crate::masters::RegisterError;

/// Why a server did not start. The words say what to do; there is no use in a stack trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be made.
    #[error("cannot use the data directory {directory}: {source}")]
    Directory { directory: String, source: std::io::Error },
    /// Another process has it.
    #[error(transparent)]
    Locked(#[from] fs::LockError),
    /// It belongs to another cluster or engine, or its stamp is damaged.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The port is taken, or the address is not this machine's.
    #[error("{0}")]
    Listen(std::io::Error),
    /// A wildcard is no address that others can reach.
    #[error("others cannot reach {listen}: say with --advertise HOST:PORT where they can")]
    Advertise { listen: String },
    /// No master, or one that refuses.
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
