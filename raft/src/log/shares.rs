//! Who may go on writing when the log is large: a plain decision over what each group has in it.
//!
//! Entries that a member of their group has not got yet stay, for as long as it is away. They may take the log's limit less
//! [`spill_bytes`], which is what all groups need to go on. Up to that nobody is refused. Beyond it the room is shared out
//! fairly: who has less than an equal share keeps what it has, and the others divide what that leaves. A group that has its
//! share takes no more until the member is back; all others go on.
//!
//! A group whose members are all there holds next to nothing of that kind, so it is never refused for another's sake. What
//! its own files do not cover yet counts only at the limit itself, where the groups are refused that have most in the log,
//! whatever for. That takes a disk that does not flush.

use std::collections::BTreeMap;

use terrane_types::GroupId;

/// What a group has in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUse {
    pub(crate) group: GroupId,
    /// Bytes of all its entries.
    pub(crate) all: u64,
    /// Bytes of those that are there for another member alone.
    pub(crate) for_members: u64,
}

/// Who would write: a follower takes a little more than a leader proposes, so that the leader is the one to refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Follower,
}

/// Why a group takes no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The bytes it may have.
    pub(crate) share: u64,
    /// The bytes it has.
    pub(crate) used: u64,
}

/// The groups that take no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    proposals: BTreeMap<GroupId, Refusal>,
    appends: BTreeMap<GroupId, Refusal>,
}

/// The part of the limit that a follower takes beyond a leader.
const FOLLOWER_PART: u64 = 8;

/// The size of all segments together above which what holds back old ones is copied out of them. Well above the budget at
/// which regions are asked to flush, so that what a flush will free is not copied.
pub(super) fn spill_bytes(limit: u64, budget: u64) -> u64 {
    (2 * budget).clamp(limit / 4, limit / 2)
}

/// The size at which everybody is refused, at once. What is copied out of the way takes time, so the log may pass its limit.
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

/// Decides who takes no more; `on_disk` is the size of the whole log.
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

/// The groups that have their fair share of `room`, if all of them together have more than that.
fn beyond(uses: &[GroupUse], room: u64, bytes: impl Fn(&GroupUse) -> u64) -> BTreeMap<GroupId, Refusal> {
    let mut sizes: Vec<u64> = uses.iter().map(&bytes).collect();
    if sizes.iter().sum::<u64>() <= room {
        return BTreeMap::new();
    }
    sizes.sort_unstable();
    let (mut left, mut share) = (room, 0);
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
    fn one_held_group_may_take_what_the_others_leave_and_only_it_is_refused() {
        assert_eq!(refused(&[(590, 590), (100, 5), (100, 5)], 790), (vec![], vec![]));
        assert_eq!(refused(&[(595, 595), (100, 5), (100, 5)], 795), (vec![1], vec![]));
        assert_eq!(refused(&[(695, 695), (100, 5), (100, 5)], 799), (vec![1], vec![1]));
    }

    #[test]
    fn held_groups_share_fairly_and_small_ones_go_on() {
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
    fn an_empty_log_refuses_nobody() {
        assert_eq!(refused(&[], 0), (vec![], vec![]));
        assert_eq!(refused(&[(0, 0)], 900), (vec![], vec![]));
    }

    #[test]
    fn segments_are_relieved_above_what_flushes_are_asked_for() {
        for (limit, budget) in [(8 << 30, 256 << 20), (64 << 20, 16 << 20), (256 << 10, 64 << 10)] {
            let spill = spill_bytes(limit, budget);
            assert!(spill >= 2 * budget && spill >= limit / 4 && spill <= limit / 2, "{limit} {budget}");
        }
    }
}
