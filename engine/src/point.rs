//! The points up to which the log is covered by files.

use bytes::Bytes;
use terrane_types::{GroupId, RegionId};

/// Everything of a region up to `index` of its group's log is in synced files. `descriptor` and `window` belong to the
/// region server and are opaque here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurablePoint {
    /// The group whose log `index` refers to.
    pub group: GroupId,
    /// The last log index covered.
    pub index: u64,
    /// The region's sequence number at that index.
    pub sequence: u64,
    /// The last stamp applied at that index, milliseconds since 1970.
    pub stamp: u64,
    /// The region's descriptor at that index.
    pub descriptor: Bytes,
    /// The exactly-once window at that index; empty until one exists.
    pub window: Bytes,
}

/// The state of a group itself (schemas, dropped tables) as of a log index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPoint {
    /// The last log index covered.
    pub index: u64,
    /// The state; opaque here.
    pub state: Bytes,
}

/// A region on a server. While a region moves from one group to another, a server may have it in both.
pub(crate) type RegionKey = (GroupId, RegionId);
