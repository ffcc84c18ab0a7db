//! Compares what replicas of a group hold at the same applied index.

use std::collections::BTreeMap;

use terrane_regionserver::GroupDigest;
use terrane_types::GroupId;

use super::Host;

/// A group and an index in its log.
type Place = (GroupId, u64);

/// The digests of all replicas.
#[derive(Default)]
pub struct Digests {
    /// What was seen first at each place, in the whole run.
    first: BTreeMap<Place, (Host, GroupDigest)>,
    /// Which hosts reported since the round began.
    round: BTreeMap<Place, Vec<Host>>,
}

impl Digests {
    /// Begins a round: every replica has to report.
    pub fn begin_round(&mut self) {
        self.round.clear();
    }

    /// Adds what a replica holds; an error if another held something else at that index.
    pub fn add(&mut self, host: Host, digest: &GroupDigest) -> Result<(), String> {
        let place = (digest.group, digest.applied);
        let (other, first) = *self.first.entry(place).or_insert((host, *digest));
        if first.digest != digest.digest {
            let shown = |host: Host, digest: &GroupDigest| {
                format!("{host} {:08x} ({} regions, {} rows)", digest.digest, digest.regions, digest.rows)
            };
            return Err(format!(
                "the replicas of group {} differ at index {}: {}, {}",
                digest.group,
                digest.applied,
                shown(other, &first),
                shown(host, digest)
            ));
        }
        let hosts = self.round.entry(place).or_default();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
        Ok(())
    }

    /// What was seen of these groups in this round.
    pub fn seen(&self, groups: &[GroupId]) -> String {
        let of_them = self.round.iter().filter(|((group, _), _)| groups.contains(group));
        of_them.map(|((group, index), hosts)| format!("group {group} at {index}: {hosts:?}; ")).collect()
    }

    /// Up to where the replicas of these groups have got in this round.
    pub fn reached(&self, groups: &[GroupId]) -> BTreeMap<(GroupId, Host), u64> {
        let of_them = self.round.iter().filter(|((group, _), _)| groups.contains(group));
        of_them.flat_map(|((group, index), hosts)| hosts.iter().map(|host| ((*group, *host), *index))).collect()
    }

    /// The groups of which fewer than so many replicas reported the same index in this round.
    pub fn missing(&self, groups: &[(GroupId, usize)]) -> Vec<GroupId> {
        let is_complete = |(group, members): &(GroupId, usize)| {
            let mut of_group = self.round.range((*group, 0)..=(*group, u64::MAX));
            of_group.any(|(_, hosts)| hosts.len() >= *members)
        };
        groups.iter().filter(|group| !is_complete(group)).map(|(group, _)| *group).collect()
    }
}
