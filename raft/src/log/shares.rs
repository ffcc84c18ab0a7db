//! Which groups may continue to write when the log is large: a pure decision from what each group has in it.
//!
//! Entries that a member of their group lacks stay in the log while the member is away. They may take the log's limit less
//! [`spill_bytes`], which all groups need to continue. Up to that, no group is refused. Beyond it, the space is divided
//! fairly: a group with less than an equal share keeps what it has, and the others divide the rest. A group that has used up
//! its share is refused until the member is back; all others continue.
//!
//! A group whose members are all present holds next to nothing of that kind, so it is never refused on account of another.
//! Entries that its own files do not cover yet count only at the limit itself, where the groups with the most bytes in the
//! log are refused, whatever the bytes are for. That takes a disk that fails flushes.

use std::collections::BTreeMap;

use terrane_types::GroupId;

/// What a group has in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUse {
    pub(crate) group: GroupId,
    /// Bytes of all its entries.
    pub(crate) all: u64,
    /// Bytes of the entries kept only for another member.
    pub(crate) for_members: u64,
}

/// The role of the writing replica: a follower accepts a little more than a leader proposes, so that the leader refuses first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Follower,
}

/// Why a group is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The bytes it may have.
    pub(crate) share: u64,
    /// The bytes it has.
    pub(crate) used: u64,
}

/// The refused groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    proposals: BTreeMap<GroupId, Refusal>,
    appends: BTreeMap<GroupId, Refusal>,
}

/// The fraction of the limit that a follower accepts beyond a leader.
const FOLLOWER_PART: u64 = 8;

/// The total size of segments above which entries that hold back old ones are copied out of them. It is well above the budget
/// at which regions flush, so that entries that a flush will free are not copied.
pub(super) fn spill_bytes(limit: u64, budget: u64) -> u64 {
    (2 * budget).clamp(limit / 4, limit / 2)
}

/// The size at which every group is refused at once. Copying takes time, so the log may exceed its limit meanwhile.
pub(super) fn overrun(limit: u64) -> u64 {
    limit + limit / 4
}

impl Refusals {
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty() && self.appends.is_empty()
    }

    pub(super) fn get(&self, group: GroupId, role: Role) -> Option<Refusal> {
        let of_role = match role {
            Role::Leader => &self.proposals,
            Role::Follower => &self.appends,
        };
        of_role.get(&group).copied()
    }

    pub(super) fn all(&self) -> Vec<(GroupId, Refusal)> {
        let both = self.appends.iter().chain(&self.proposals);
        both.map(|(group, refusal)| (*group, *refusal)).collect::<BTreeMap<_, _>>().into_iter().collect()
    }
}

/// Decides which groups are refused; `on_disk` is the size of the whole log.
pub(super) fn decide(uses: &[GroupUse], on_disk: u64, limit: u64, spill_bytes: u64) -> Refusals {
    let for_members = limit - spill_bytes;
    let mut refusals = Refusals {
        proposals: beyond(uses, for_members, |of| of.for_members),
        appends: beyond(uses, for_members + limit / FOLLOWER_PART, |of| of.for_members),
    };
    if on_disk >= limit {
        let half = uses.iter().map(|of| of.all).sum::<u64>() / 2;
        let largest = beyond(uses, half, |of| of.all);
        refusals.proposals.extend(&largest);
        if on_disk >= limit + limit / FOLLOWER_PART {
            refusals.appends.extend(&largest);
        }
    }
    refusals
}

/// The groups beyond their fair share of `space`, if all groups together exceed it.
fn beyond(uses: &[GroupUse], space: u64, bytes: impl Fn(&GroupUse) -> u64) -> BTreeMap<GroupId, Refusal> {
    let mut sizes: Vec<u64> = uses.iter().map(&bytes).collect();
    if sizes.iter().sum::<u64>() <= space {
        return BTreeMap::new();
    }
    sizes.sort_unstable();
    let (mut left, mut share) = (space, 0);
    for (at, size) in sizes.iter().enumerate() {
        share = left / (sizes.len() - at) as u64;
        if *size > share {
            break;
        }
        left -= size;
    }
    let refusal = |of: &GroupUse| (of.group, Refusal { share, used: bytes(of) });
    uses.iter().map(refusal).filter(|(_, refusal)| refusal.used > share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 800;

    fn uses(groups: &[(u64, u64)]) -> Vec<GroupUse> {
        let of = |(group, (all, for_members)): (u64, &(u64, u64))| GroupUse {
            group: GroupId(group),
            all: *all,
            for_members: *for_members,
        };
        (1..).zip(groups).map(of).collect()
    }

    fn refused(groups: &[(u64, u64)], on_disk: u64) -> (Vec<u64>, Vec<u64>) {
        let refusals = decide(&uses(groups), on_disk, LIMIT, spill_bytes(LIMIT, 50));
        let ids = |of: &BTreeMap<GroupId, Refusal>| of.keys().map(|group| group.0).collect();
        (ids(&refusals.proposals), ids(&refusals.appends))
    }

    #[test]
    fn one_held_group_may_use_what_the_others_leave_and_only_it_is_refused() {
        assert_eq!(refused(&[(590, 590), (100, 5), (100, 5)], 790), (vec![], vec![]));
        assert_eq!(refused(&[(595, 595), (100, 5), (100, 5)], 795), (vec![1], vec![]));
        assert_eq!(refused(&[(695, 695), (100, 5), (100, 5)], 799), (vec![1], vec![1]));
    }

    #[test]
    fn held_groups_share_fairly_and_small_ones_continue() {
        assert_eq!(refused(&[(300, 300), (210, 210), (100, 100), (0, 0)], 700), (vec![1], vec![]));
        assert_eq!(refused(&[(260, 260), (260, 260), (100, 100), (0, 0)], 700), (vec![1, 2], vec![]));
    }

    #[test]
    fn groups_that_wait_for_no_member_are_not_refused_below_the_limit() {
        assert_eq!(refused(&[(700, 0), (90, 90)], 799), (vec![], vec![]));
        assert_eq!(refused(&[(710, 0), (90, 90)], 800), (vec![1], vec![]));
        assert_eq!(refused(&[(710, 0), (90, 90)], 900), (vec![1], vec![1]));
    }

    #[test]
    fn an_empty_log_refuses_no_group() {
        assert_eq!(refused(&[], 0), (vec![], vec![]));
        assert_eq!(refused(&[(0, 0)], 900), (vec![], vec![]));
    }

    #[test]
    fn copying_begins_above_the_budget_for_flushes() {
        for (limit, budget) in [(8 << 30, 256 << 20), (64 << 20, 16 << 20), (256 << 10, 64 << 10)] {
            let spill = spill_bytes(limit, budget);
            assert!(spill >= 2 * budget && spill >= limit / 4 && spill <= limit / 2, "{limit} {budget}");
        }
    }
}
