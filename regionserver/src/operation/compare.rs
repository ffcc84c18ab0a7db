//! The operation that compares the replicas of a region: each pins a snapshot at this entry, so that all read the same state.

use terrane_types::{ByteWriter as _, RegionId};

use super::FORMAT;
use crate::record::{Malformed, Reader};

pub(super) const COMPARE: u8 = 13;

/// One comparison of a region's replicas. Random, so that no leader takes the answer to another one's comparison for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparisonId(pub [u8; 16]);

/// Pins a snapshot of a region. It changes nothing of what the group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compare {
    pub region: RegionId,
    pub id: ComparisonId,
}

impl Compare {
    /// Bytes that it takes in the log.
    pub const BYTES: usize = 2 + 8 + 16;

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[FORMAT, COMPARE]);
        out.u64(self.region.0);
        out.extend_from_slice(&self.id.0);
    }

    pub(super) fn decode(mut reader: Reader) -> Result<Self, Malformed> {
        let compare = Self { region: RegionId(reader.u64()?), id: ComparisonId(reader.array()?) };
        reader.finish()?;
        Ok(compare)
    }
}
