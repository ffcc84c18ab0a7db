//! Ids, each handed out once.
//!
//! Servers, groups, replicas, regions, tables and moves have one counter each. An id has 64 bits: the top 16 are the catalog's
//! incarnation, the others count up from 1. The incarnation starts at 0 and increases when a lost catalog is rebuilt. A
//! rebuilt catalog does not know how far the lost one had counted, but with a new incarnation it never repeats an id.
//!
//! Invariants: a counter only goes up. It is part of the catalog: an id is taken once the edit that took it is
//! committed, and an edit with an unknown outcome wastes ids rather than repeating them. Id 0 of every kind is reserved
//! (the meta table, the master's group, "no server"), and the first replica ids belong to the masters' group.

use std::ops::Range;

use terrane_types::{GroupId, RegionId, ReplicaId, ServerId, TableId};

use crate::catalog::codec::{ByteWriter as _, DecodeError, Reader};
use crate::catalog::moves::MoveId;

const INCARNATION_SHIFT: u32 = 48;
/// Replica ids below this one belong to the masters' group.
const REPLICA_FIRST: u64 = 8;

/// The counter of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    next: u64,
}

impl Counter {
    fn take(&mut self, count: u64) -> Range<u64> {
        let first = self.next;
        self.next = first + count;
        // A million ids a second would last nine years.
        assert_eq!(first >> INCARNATION_SHIFT, self.next >> INCARNATION_SHIFT, "the ids of a kind ran out at {first}");
        first..self.next
    }
}

/// The counters of all kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    incarnation: u16,
    server: Counter,
    group: Counter,
    replica: Counter,
    region: Counter,
    table: Counter,
    region_move: Counter,
}

impl Ids {
    /// The counters of a new catalog of this incarnation.
    pub fn new(incarnation: u16) -> Self {
        let from = |first: u64| Counter { next: u64::from(incarnation) << INCARNATION_SHIFT | first };
        Self {
            incarnation,
            server: from(1),
            group: from(1),
            replica: from(REPLICA_FIRST),
            region: from(1),
            table: from(1),
            region_move: from(1),
        }
    }

    /// Takes a server's id.
    pub fn server(&mut self) -> ServerId {
        ServerId(self.server.take(1).start)
    }

    /// Takes a group's id.
    pub fn group(&mut self) -> GroupId {
        GroupId(self.group.take(1).start)
    }

    /// The id of the next group. A plan of groups names it and is refused if it is taken meanwhile.
    pub fn next_group(&self) -> GroupId {
        GroupId(self.group.next)
    }

    /// Takes a replica's id.
    pub fn replica(&mut self) -> ReplicaId {
        ReplicaId(self.replica.take(1).start)
    }

    /// The number of the leadership in a term: higher than those of the terms before, and of the lost catalog's.
    pub fn leadership(&self, term: u64) -> u64 {
        (u64::from(self.incarnation) << INCARNATION_SHIFT) + term
    }

    /// Whether a replica's id has been handed out by this incarnation of the catalog.
    pub fn has_assigned(&self, replica: ReplicaId) -> bool {
        let first = u64::from(self.incarnation) << INCARNATION_SHIFT | REPLICA_FIRST;
        (first..self.replica.next).contains(&replica.0)
    }

    /// Whether a replica's id has been handed out by this catalog, or may have been by a lost one before it.
    pub fn may_have_assigned(&self, replica: ReplicaId) -> bool {
        (REPLICA_FIRST..self.replica.next).contains(&replica.0)
    }

    /// Whether a group's id has been handed out by this incarnation of the catalog.
    pub fn has_assigned_group(&self, group: GroupId) -> bool {
        let first = u64::from(self.incarnation) << INCARNATION_SHIFT | 1;
        (first..self.group.next).contains(&group.0)
    }

    /// Whether a server's id has been handed out by this incarnation of the catalog.
    pub fn has_assigned_server(&self, server: ServerId) -> bool {
        let first = u64::from(self.incarnation) << INCARNATION_SHIFT | 1;
        (first..self.server.next).contains(&server.0)
    }

    /// Takes `count` region ids; returns the first.
    pub fn regions(&mut self, count: u32) -> RegionId {
        RegionId(self.region.take(u64::from(count)).start)
    }

    /// Takes a table's id.
    pub fn table(&mut self) -> TableId {
        TableId(self.table.take(1).start)
    }

    /// Takes a move's id.
    pub fn region_move(&mut self) -> MoveId {
        MoveId(self.region_move.take(1).start)
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.u16(self.incarnation);
        for counter in [self.server, self.group, self.replica, self.region, self.table, self.region_move] {
            out.u64(counter.next);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let incarnation = from.u16()?;
        let mut counter = || from.u64().map(|next| Counter { next });
        Ok(Self {
            incarnation,
            server: counter()?,
            group: counter()?,
            replica: counter()?,
            region: counter()?,
            table: counter()?,
            region_move: counter()?,
        })
    }
}

impl Default for Ids {
    fn default() -> Self {
        Self::new(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_count_up_from_one_per_kind() {
        let mut ids = Ids::default();
        assert_eq!((ids.server(), ids.server()), (ServerId(1), ServerId(2)));
        assert_eq!((ids.table(), ids.group()), (TableId(1), GroupId(1)));
        assert_eq!((ids.regions(10), ids.regions(1)), (RegionId(1), RegionId(11)));
        assert_eq!(ids.replica(), ReplicaId(REPLICA_FIRST));
    }

    #[test]
    fn a_rebuilt_catalog_cannot_repeat_an_id() {
        let mut before = Ids::default();
        let used = before.regions(1_000_000).0 + 999_999;
        assert!(Ids::new(1).regions(1).0 > used);
        assert_eq!(Ids::new(3).server().0, (3 << 48) + 1);
    }

    #[test]
    fn counters_survive_the_checkpoint() {
        let mut ids = Ids::new(2);
        assert_eq!((ids.server().0, ids.regions(7).0, ids.table().0), ((2 << 48) + 1, (2 << 48) + 1, (2 << 48) + 1));
        assert_eq!(ids.region_move().0, (2 << 48) + 1);
        let mut out = Vec::new();
        ids.encode(&mut out);
        let mut from = Reader::new(&out);
        assert_eq!(Ids::decode(&mut from).unwrap(), ids);
        from.finish().unwrap();
    }
}
