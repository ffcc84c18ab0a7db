//! What a call without a task needs to know when the answer to its request comes.

use bytes::Bytes;
use terrane_types::{FamilyName, RegionEpoch};

use super::region::Region;

/// How the answer to a call's request becomes the answer to the call.
pub(super) enum Finish {
    Get { epoch: RegionEpoch, exists_only: bool },
    Mutate(Box<Mutating>),
}

/// A mutation under way.
pub(super) struct Mutating {
    pub epoch: RegionEpoch,
    pub row: Bytes,
    /// The answer says whether it was made.
    pub says_processed: bool,
    /// It may be tried again.
    pub repeatable: bool,
    pub read_back: Option<ReadBack>,
}

/// The columns of an increment or append, which are read if it turns out to have been applied before.
pub(super) struct ReadBack {
    pub region: Region,
    pub row: Bytes,
    pub columns: Vec<(FamilyName, Bytes)>,
    pub says_processed: bool,
}
