//! The read point of a scanner, as its client keeps it: `mvcc_read_point` of the answer that opens the scanner, which the Java client
//! sends along when it opens the scan again, at the same server or where the region went.
//!
//! ```text
//! read point = 0 | region + 1 modulo 32,767, at least 1: 15 bits | sequence number: 48 bits
//! ```
//!
//! It is the sequence number that the scanner reads at, which names the same view of the region on every server. It has no meaning for
//! another region, such as one that was merged, or is of a new table: so the low part of the region's id goes with it. Clients look at none
//! of this; only 0 means to them that there is no read point.

use std::sync::Arc;

use terrane_regionserver::edge::{Edge, Snapshot};
use terrane_types::RegionId;

const SEQUENCE_BITS: u32 = 48;
const REGIONS: u64 = (1 << 15) - 1;
const _: () = assert!(REGIONS < 1 << (63 - SEQUENCE_BITS), "clients take a read point below zero for none");

/// The sequence number at which a client wants to read a region on, if its read point belongs to that region or one of which it
/// continues the numbers.
pub(super) fn sequence_of(read_point: u64, numbered_as: &[RegionId]) -> Option<u64> {
    let (tag, sequence) = (read_point >> SEQUENCE_BITS, read_point & ((1 << SEQUENCE_BITS) - 1));
    numbered_as.iter().any(|region| tag_of(*region) == tag).then_some(sequence)
}

/// The read point of a scanner that reads at this sequence number of a region. No region comes to numbers that have no place in it: a
/// million writes a second take nine years.
pub(super) fn read_point(region: RegionId, sequence: u64) -> Option<u64> {
    (sequence >> SEQUENCE_BITS == 0).then(|| tag_of(region) << SEQUENCE_BITS | sequence)
}

/// The view of a scanner: what it will read is not collected. A scanner that ends before its client has read everything leaves the
/// view to its region for a while, since the client may open the scan again: over another connection, or after a call that came
/// out of order.
pub(super) struct View {
    edge: Arc<Edge>,
    region: RegionId,
    held: Option<Snapshot>,
}

impl View {
    pub const fn new(edge: Arc<Edge>, region: RegionId, held: Snapshot) -> Self {
        Self { edge, region, held: Some(held) }
    }

    /// Nothing more is read of it.
    pub fn end(mut self) {
        self.held = None;
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.edge.hold_for_return(self.region, self.held.take());
    }
}

const fn tag_of(region: RegionId) -> u64 {
    region.0 % REGIONS + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_point_belongs_to_its_region_and_those_that_continue_its_numbers() {
        for region in [0, 1, 32_766, 32_767, u64::MAX].map(RegionId) {
            for sequence in [0, 1, (1 << SEQUENCE_BITS) - 1] {
                let point = read_point(region, sequence).unwrap();
                assert!(point > 0 && i64::try_from(point).is_ok(), "clients take {point:#x} for none");
                assert_eq!(sequence_of(point, &[region]), Some(sequence));
                assert_eq!(sequence_of(point, &[RegionId(77), region]), Some(sequence), "a daughter");
                assert_eq!(sequence_of(point, &[RegionId(77)]), None, "another region");
            }
        }
        assert_eq!(read_point(RegionId(1), 1 << SEQUENCE_BITS), None);
    }
}
