//! The handles of the server's groups, with the types of what is proposed to them.

use bytes::Bytes;

/// A group's handle.
pub type Group = terrane_raft::Group<Vec<u8>, Bytes>;

/// The server's replicas.
pub type GroupHost = terrane_raft::GroupHost<Vec<u8>, Bytes>;
