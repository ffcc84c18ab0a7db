//! A group, as clients see it.

use std::collections::BTreeMap;

use terrane_proto::v1;
use terrane_types::GroupId;
use terrane_types::states::GroupState;

use crate::catalog::Catalog;
use crate::catalog::groups::GroupEntry;
use crate::fleet::recovery;
use crate::servers::liveness::Moment;
use crate::servers::observed::Observations;

/// What is known of a group.
pub fn group_info(
    catalog: &Catalog,
    observed: &Observations,
    group: GroupId,
    entry: &GroupEntry,
    regions: &BTreeMap<GroupId, u64>,
    now: Moment,
) -> v1::GroupInfo {
    let view = observed.inventory.group(group);
    let (compared_regions, compared_ms) = view.map_or((0, 0), |view| view.compared);
    v1::GroupInfo {
        location: Some((&observed.location(catalog, group, entry)).into()),
        regions: regions.get(&group).map_or(0, |regions| u32::try_from(*regions).unwrap_or(u32::MAX)),
        applied: view.map_or(0, |view| view.applied),
        replicas: entry.members.keys().map(|replica| replica.0).collect(),
        state: if recovery::lacks_majority(observed, group, entry, now).is_some() {
            GroupState::NoMajority
        } else {
            entry.state.shown()
        }
        .name()
        .to_owned(),
        compared_regions,
        compared_ms,
    }
}
