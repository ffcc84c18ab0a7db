//! Where log and files meet.

use bytes::Bytes;
use terrane_types::GroupId;

/// Everything of a region up to `index` of its group's log is in synced files. `descriptor` and `window` are the region
/// server's own and opaque here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurablePoint {
    /// The group whose log `index` counts in.
    pub group: GroupId,
    /// The last log index covered.
    pub index: u64,
    /// The region's sequence number then.
    pub sequence: u64,
    /// The last stamp applied then, milliseconds since 1970.
    pub stamp: u64,
    /// The region's descriptor then.
    pub descriptor: Bytes,
    /// The exactly-once window then; empty until that exists.
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
