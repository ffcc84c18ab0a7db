//! The operations of a region's move from one group to another.
//!
//! Freeze, Unfreeze and Depart are in the log of the group that the region comes from, Adopt and Refuse in that of the other
//! one. Of Adopt and Refuse the first in that log stands: it decides the move.

use bytes::Bytes;
use terrane_types::{ByteWriter as _, GroupId, MoveId, RegionDescriptor, RegionEpoch, RegionId, ServerId};

use super::{FORMAT, put_descriptor, read_descriptor};
use crate::record::{Malformed, Reader};

pub(super) const FREEZE: u8 = 7;
pub(super) const UNFREEZE: u8 = 8;
pub(super) const DEPART: u8 = 9;
pub(super) const ADOPT: u8 = 10;
pub(super) const REFUSE: u8 = 11;

/// Stops all requests for a region: what it holds is about to be handed to another group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    pub region: RegionId,
    pub epoch: RegionEpoch,
    pub to: Destination,
}

/// Where a region moves, and under which id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub id: MoveId,
    pub group: GroupId,
    /// The servers of the group when the move began: where a later leader asks what became of it.
    pub servers: Vec<ServerId>,
}

/// Undoes a freeze: the other group has refused the move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unfreeze {
    pub region: RegionId,
    pub id: MoveId,
}

/// Removes a region that the other group has adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depart {
    pub id: MoveId,
    /// The region in its new group.
    pub adopted: RegionDescriptor,
}

/// Takes a region into the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopt {
    pub id: MoveId,
    /// Where its files come from.
    pub source: Source,
    /// What the manifest of the source says of the region ([`terrane_engine::RegionContents`]).
    pub contents: Bytes,
}

/// The server that a region's files come from. Their numbers belong to one start of it: after another, a number that no file
/// had any more may be given out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub server: ServerId,
    pub boot: u64,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.server, self.boot)
    }
}

/// Refuses a move, unless the region is adopted already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse {
    pub id: MoveId,
}

impl Freeze {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, FREEZE]);
        out.u64(self.region.0);
        out.u64(self.epoch.0);
        self.to.encode(out);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let (region, epoch) = (RegionId(reader.u64()?), RegionEpoch(reader.u64()?));
        let to = Destination::decode(&mut reader)?;
        reader.finish()?;
        Ok(Self { region, epoch, to })
    }
}

impl Destination {
    /// Appends it, in the layout of operations and durable points.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.u64(self.id.0);
        out.u64(self.group.0);
        out.list(self.servers.iter(), |out, server| out.u64(server.0));
    }

    /// Reads what [`Destination::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<Self, Malformed> {
        let (id, group) = (MoveId(reader.u64()?), GroupId(reader.u64()?));
        let count = reader.count(8)?;
        let servers = (0..count).map(|_| Ok(ServerId(reader.u64()?))).collect::<Result<_, Malformed>>()?;
        Ok(Self { id, group, servers })
    }
}

impl Unfreeze {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, UNFREEZE]);
        out.u64(self.region.0);
        out.u64(self.id.0);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let (region, id) = (RegionId(reader.u64()?), MoveId(reader.u64()?));
        reader.finish()?;
        Ok(Self { region, id })
    }
}

impl Depart {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, DEPART]);
        out.u64(self.id.0);
        put_descriptor(out, &self.adopted);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let id = MoveId(reader.u64()?);
        let adopted = read_descriptor(&mut reader)?;
        reader.finish()?;
        Ok(Self { id, adopted })
    }
}

impl Adopt {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, ADOPT]);
        out.u64(self.id.0);
        out.u64(self.source.server.0);
        out.u64(self.source.boot);
        out.bytes(&self.contents);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let id = MoveId(reader.u64()?);
        let source = Source { server: ServerId(reader.u64()?), boot: reader.u64()? };
        let contents = reader.bytes()?;
        reader.finish()?;
        Ok(Self { id, source, contents })
    }
}

impl Refuse {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, REFUSE]);
        out.u64(self.id.0);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let id = MoveId(reader.u64()?);
        reader.finish()?;
        Ok(Self { id })
    }
}
