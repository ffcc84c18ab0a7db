//! What a name of the file system leads to.

/// What a name leads to: two names with equal nodes are names of the same file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The file system.
    pub device: u64,
    /// The file or directory in it.
    pub number: u64,
}
