//! Ids: every number that names something has its own type.
//!
//! Tests rarely notice a region id passed as a group id, so the compiler rejects it. The master's catalog assigns ids
//! and never reuses them; the top 16 bits of each are the catalog's incarnation. Zero is reserved for what exists
//! before any catalog: the meta table and the master's group.

use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(
            /// The number, for wire and disk.
            pub u64,
        );

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<u64> for $name {
            fn from(number: u64) -> Self {
                Self(number)
            }
        }
    };
}

id! {
    /// A server, for the lifetime of its data directory. Zero stands for a client or for "any".
    ServerId
}
id! {
    /// One member of a log group on one server; it is the Raft node id, new for each membership.
    ReplicaId
}
id! {
    /// A log group: one Raft group that orders the writes of many regions.
    GroupId
}
id! {
    /// A region: a contiguous row range of one table.
    RegionId
}
id! {
    /// A table.
    TableId
}
id! {
    /// One attempt to move a region from a group to another. A later attempt has a higher id.
    MoveId
}
id! {
    /// The version of a region's placement: every split, merge and move raises it, and requests with an old one are
    /// refused.
    RegionEpoch
}

impl GroupId {
    /// The group whose state machine is the master's catalog.
    pub const MASTER: Self = Self(0);
}

impl TableId {
    /// The meta table: the index of regions that the master keeps.
    pub const META: Self = Self(0);
}

/// The cluster that a process belongs to: 128 random bits, chosen at bootstrap.
///
/// Every hello and unary call carries it, so that a client of an earlier cluster cannot write into a new one.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(
    /// The bytes, for wire and disk.
    pub [u8; 16],
);

impl ClusterId {
    /// The id of no cluster, which a process sends before it knows its own.
    #[must_use]
    pub const fn nil() -> Self {
        Self([0; 16])
    }

    /// Whether this is [`ClusterId::nil`].
    #[must_use]
    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_plain_numbers() {
        assert_eq!(RegionId(7).to_string(), "7");
        assert_eq!(format!("{:>4}", GroupId::from(12)), "  12");
    }

    #[test]
    fn cluster_id_prints_as_hex() {
        let mut id = ClusterId::nil();
        assert!(id.is_nil());
        id.0[0] = 0xab;
        id.0[15] = 1;
        assert_eq!(id.to_string(), "ab000000000000000000000000000001");
        assert!(!id.is_nil());
    }
}
