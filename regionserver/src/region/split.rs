//! Where a region may be split, and the proposal that does it.
//!
//! The boundary is a row near the middle by bytes. In a table with `atomic=N` it is moved back to the beginning of the
//! row's first N key parts, so that no two rows sharing them are separated: two rows around a boundary share a prefix only
//! if the boundary begins with it, and a boundary that *is* such a prefix lies before all of its rows. A region that is one
//! prefix has no boundary and stays whole.

use bytes::Bytes;
use terrane_env::task::run_blocking;
use terrane_raft::Group;
use terrane_types::escape::escape;
use terrane_types::{Error, Invalid, RegionDescriptor, range};

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::Addresses;
use crate::faults::propose_error;
use crate::group::state::RegionState;
use crate::ids::IdStock;
use crate::operation::Split;
use crate::registry::Hosted;
use crate::reply::Reply;

/// How long a caller waits when the master has handed out no region ids lately.
const NO_IDS_RETRY: Duration = Duration::from_millis(500);

/// The boundary that `row` stands for, if the region can be split there.
#[must_use]
pub fn boundary(row: &[u8], region: &RegionState) -> Option<Vec<u8>> {
    let boundary = &row[..atomic_len(row, region).unwrap_or(row.len())];
    let range = &region.descriptor.range;
    (range.contains(boundary) && boundary > &range.start[..]).then(|| boundary.to_vec())
}

/// How long the part of `row` is that a split must not cut. `None`: the row is no key of the declared form, so it begins
/// with no whole prefix and separates nobody.
fn atomic_len(row: &[u8], region: &RegionState) -> Option<usize> {
    let parts = Some(region.schema.atomic).filter(|parts| *parts > 0)?;
    region.schema.key.as_ref()?.prefix_len(row, parts)
}

/// Whether a boundary separates no rows that the table keeps together.
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

/// Looks for a boundary near the middle. `None`: the region stays whole.
pub async fn find_boundary(hosted: &Arc<Hosted>) -> Option<Bytes> {
    let (region, state) = (hosted.engine.clone(), hosted.state());
    // The engine may read indexes or many keys for it.
    let found = run_blocking(move || region.split_point(&|row| boundary(row, &state))).await;
    found.map(Bytes::from)
}

/// Splits a region that this server leads, at `at` or near the middle.
pub async fn split(
    hosted: &Arc<Hosted>,
    group: &Group,
    at: Option<Bytes>,
    stock: &IdStock,
    addresses: &Addresses,
) -> Result<Vec<RegionDescriptor>, Error> {
    let state = hosted.state();
    let at = match at {
        Some(at) => {
            range::check_boundary(&at)?;
            state.descriptor.range.split(&at)?;
            check_boundary(&at, &state)?;
            at
        }
        None => find_boundary(hosted).await.ok_or_else(|| unsplittable(hosted))?,
    };
    let Some((left, right)) = stock.take_two() else {
        let message = "no region ids are in stock: the master has not answered lately".to_owned();
        return Err(Error::Unavailable { message, retry_after: NO_IDS_RETRY });
    };
    let split = Split { region: hosted.region, epoch: state.descriptor.epoch, left, right, at };
    let operation = split.encode().map_err(|error| Error::Invalid(Invalid::new(error.to_string())))?;
    let reply = group.propose(operation).await.map_err(|error| propose_error(error, group, addresses))?;
    match Reply::decode(reply) {
        Ok(Reply::Split { daughters }) => Ok(daughters),
        Ok(refused) => Err(super::write::refusal(refused)),
        Err(error) => Err(Error::Internal { message: error.to_string() }),
    }
}

fn unsplittable(hosted: &Hosted) -> Error {
    let bytes = hosted.engine.size_bytes();
    hosted.set_unsplittable(bytes.max(1));
    let what =
        format!("region {} has no row to split at: it is empty, one row, or one atomic key prefix", hosted.region);
    Error::Invalid(Invalid { what })
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, KeyDeclaration, KeyRange, RegionEpoch, RegionId, TableId, TableName, TableSchema};

    use super::*;

    fn region(start: &[u8], key: Option<&str>, atomic: u32) -> RegionState {
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
        RegionState { descriptor, schema: Arc::new(schema) }
    }

    #[test]
    fn without_atomic_parts_any_row_but_the_first_is_a_boundary() {
        let region = region(b"b", None, 0);
        assert_eq!(boundary(b"c", &region), Some(b"c".to_vec()));
        assert_eq!(boundary(b"b", &region), None);
    }

    #[test]
    fn a_boundary_moves_back_to_the_beginning_of_its_atomic_prefix() {
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
    fn a_given_boundary_inside_an_atomic_prefix_is_refused_with_one_that_would_do() {
        let region = region(b"", Some("user:u32, time:u32"), 1);
        assert!(check_boundary(&[0, 0, 0, 7], &region).is_ok());
        let refused = check_boundary(&[0, 0, 0, 7, 0, 0, 0, 9], &region).unwrap_err();
        assert!(refused.to_string().contains(r"\x00\x00\x00\x07 would not"), "{refused}");
    }
}
