//! A region's descriptor: which rows of which table, and who orders their writes.

use crate::binary::begin;
use crate::byte_writer::ByteWriter as _;
use crate::ids::{GroupId, RegionEpoch, RegionId, TableId};
use crate::invalid::Invalid;
use crate::range::KeyRange;

const DESCRIPTOR_FORMAT: u8 = 1;

/// A region as its log defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionDescriptor {
    /// The region.
    pub region: RegionId,
    /// The table it belongs to.
    pub table: TableId,
    /// The rows it holds.
    pub range: KeyRange,
    /// Raised by every split, merge and move.
    pub epoch: RegionEpoch,
    /// The group that orders its writes.
    pub group: GroupId,
    /// The version of the table's schema that it uses.
    pub schema_version: u64,
}

impl RegionDescriptor {
    /// Two regions by their first rows.
    #[must_use]
    pub fn in_order<'r>(one: &'r Self, other: &'r Self) -> (&'r Self, &'r Self) {
        if one.range.start <= other.range.start { (one, other) } else { (other, one) }
    }

    /// The range of this region and its neighbour with the higher rows, which a merge gives them.
    ///
    /// # Errors
    /// Why the two cannot be merged, and what would work.
    pub fn range_with(&self, right: &Self) -> Result<KeyRange, Invalid> {
        let (l, r) = (self.region, right.region);
        if l == r {
            return Err(Invalid::new(format!("region {l} is named twice; name two neighbouring regions")));
        }
        if self.table != right.table {
            let what =
                format!("regions {l} and {r} belong to different tables; only neighbours in one table can be merged");
            return Err(Invalid::new(what));
        }
        if self.range.end.is_empty() || self.range.end != right.range.start {
            let what = format!(
                "regions {l} {} and {r} {} are not neighbours; name two regions of which one ends where the other begins",
                self.range, right.range
            );
            return Err(Invalid::new(what));
        }
        if self.group != right.group {
            let what = format!(
                "region {l} is in group {} and region {r} in group {}; move one of them to the other's group first",
                self.group, right.group
            );
            return Err(Invalid::new(what));
        }
        KeyRange::new(self.range.start.clone(), right.range.end.clone())
    }

    /// The binary form for logs and manifests.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![DESCRIPTOR_FORMAT];
        out.u64(self.region.0);
        out.u64(self.table.0);
        out.bytes(&self.range.start);
        out.bytes(&self.range.end);
        out.u64(self.epoch.0);
        out.u64(self.group.0);
        out.u64(self.schema_version);
        out
    }

    /// Decodes the bytes of [`RegionDescriptor::encode`].
    ///
    /// # Errors
    /// [`Invalid`] for an unknown version, missing or extra bytes, or a reversed range.
    pub fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut input = begin("region descriptor", DESCRIPTOR_FORMAT, bytes)?;
        let descriptor = Self {
            region: RegionId(input.u64()?),
            table: TableId(input.u64()?),
            range: KeyRange::new(input.bytes()?.to_vec(), input.bytes()?.to_vec())?,
            epoch: RegionEpoch(input.u64()?),
            group: GroupId(input.u64()?),
            schema_version: input.u64()?,
        };
        input.finish()?;
        Ok(descriptor)
    }
}
