//! Where a region may be split.
//!
//! The boundary is a row near the middle by bytes. In a table with `atomic=N` it moves back to the start of the row's first
//! N key parts, so that rows that share those parts stay together: two rows on either side of a boundary share a prefix
//! only if the boundary starts with it, and a boundary that *is* such a prefix sorts before all of its rows. A region whose
//! rows all share one prefix has no boundary and stays whole.

use terrane_types::Invalid;
use terrane_types::escape::escape;

use crate::group::region_state::RegionState;

/// The boundary at or before `row`, if the region can be split there.
#[must_use]
pub fn boundary(row: &[u8], region: &RegionState) -> Option<Vec<u8>> {
    let boundary = &row[..atomic_len(row, region).unwrap_or(row.len())];
    let range = &region.descriptor.range;
    (range.contains(boundary) && boundary > &range.start[..]).then(|| boundary.to_vec())
}

/// The length of the part of `row` that a split must not cut. `None`: the row does not have the declared form, so it begins
/// with no whole prefix and separates no rows.
fn atomic_len(row: &[u8], region: &RegionState) -> Option<usize> {
    let keeps = !terrane_env::planted!("a split cuts an atomic prefix");
    let parts = Some(region.schema.atomic).filter(|parts| *parts > 0 && keeps)?;
    region.schema.key.as_ref()?.prefix_len(row, parts)
}

/// Checks that a boundary separates no rows that the table keeps together.
pub fn check_boundary(at: &[u8], region: &RegionState) -> Result<(), Invalid> {
    match atomic_len(at, region) {
        Some(len) if len < at.len() => {
            let (prefix, parts) = (escape(&at[..len]), region.schema.atomic);
            let what = format!(
                "the boundary {} would separate rows that share their first {parts} key parts; {prefix} would not",
                escape(at)
            );
            Err(Invalid { what })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use terrane_types::{
        GroupId, KeyDeclaration, KeyRange, RegionDescriptor, RegionEpoch, RegionId, TableId, TableName, TableSchema,
    };

    use super::*;

    /// A region from this row on, of a table whose rows stay together by this many parts of their key.
    pub(crate) fn region(start: &[u8], key: Option<&str>, atomic: u32) -> RegionState {
        let mut schema = TableSchema::new(TableName::new("t").unwrap());
        schema.key = key.map(|key| KeyDeclaration::parse(key).unwrap());
        schema.atomic = atomic;
        let descriptor = RegionDescriptor {
            region: RegionId(1),
            table: TableId(5),
            range: KeyRange::new(start.to_vec(), Bytes::new()).unwrap(),
            epoch: RegionEpoch(3),
            group: GroupId(2),
            schema_version: 1,
        };
        RegionState { planned: descriptor.range.clone(), descriptor, schema: Arc::new(schema), moving: None }
    }

    #[test]
    fn without_atomic_parts_any_row_but_the_first_is_a_boundary() {
        let region = region(b"b", None, 0);
        assert_eq!(boundary(b"c", &region), Some(b"c".to_vec()));
        assert_eq!(boundary(b"b", &region), None);
    }

    #[test]
    fn a_boundary_moves_back_to_the_start_of_its_atomic_prefix() {
        let region = region(b"", Some("user:u32, time:u32"), 1);
        assert_eq!(boundary(&[0, 0, 0, 7, 0, 0, 0, 9], &region), Some(vec![0, 0, 0, 7]));
    }

    #[test]
    fn a_region_that_is_one_atomic_prefix_has_no_boundary() {
        let region = region(&[0, 0, 0, 7], Some("user:u32, time:u32"), 1);
        assert_eq!(boundary(&[0, 0, 0, 7, 0, 0, 0, 9], &region), None);
        assert_eq!(boundary(&[0, 0, 0, 8, 0, 0, 0, 9], &region), Some(vec![0, 0, 0, 8]));
    }

    #[test]
    fn a_requested_boundary_inside_an_atomic_prefix_is_refused_with_a_valid_one() {
        let region = region(b"", Some("user:u32, time:u32"), 1);
        assert!(check_boundary(&[0, 0, 0, 7], &region).is_ok());
        let refused = check_boundary(&[0, 0, 0, 7, 0, 0, 0, 9], &region).unwrap_err();
        assert!(refused.to_string().contains(r"\x00\x00\x00\x07 would not"), "{refused}");
    }
}
