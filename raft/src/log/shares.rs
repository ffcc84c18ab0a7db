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
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    const LIMIT: u64 = 800;

    fn uses(groups: &[(u64, u64)]) -> Vec<GroupUse> {
        let of = |(group, (all, for_members)): (u64, &(u64, u64))| GroupUse {
            group: GroupId(group),
            all: *all,
            for_members: *for_members,
        };
        (1..).zip(groups).map(of).collect()
    }

    /// `decide on-disk=BYTES ALL/HELD...`: groups 1, 2, ... of a log of 800 bytes, each with its bytes in the log and those
    /// kept for a member only.
    fn play(line: &str, out: &mut String) {
        let line = Line::new(line);
        assert_eq!(line.command(), "decide", "unknown command");
        let sizes = |word: &str| {
            let (all, held) = word.split_once('/').expect("ALL/HELD");
            (all.parse().unwrap(), held.parse().unwrap())
        };
        let groups: Vec<(u64, u64)> = line.words().map(sizes).collect();
        let refusals = decide(&uses(&groups), line.need("on-disk"), LIMIT, spill_bytes(LIMIT, 50));
        let text = |of: &BTreeMap<GroupId, Refusal>| {
            let each = of.iter().map(|(group, refusal)| format!("{group} ({}>{})", refusal.used, refusal.share));
            let each: Vec<_> = each.collect();
            if each.is_empty() { "none".to_owned() } else { each.join(" ") }
        };
        writeln!(out, "refused as leader: {}; as follower: {}", text(&refusals.proposals), text(&refusals.appends))
            .unwrap();
    }

    #[test]
    fn scripts() {
        check("log/shares", || play);
    }

    #[test]
    fn copying_begins_above_the_budget_for_flushes() {
        for (limit, budget) in [(8 << 30, 256 << 20), (64 << 20, 16 << 20), (256 << 10, 64 << 10)] {
            let spill = spill_bytes(limit, budget);
            assert!(spill >= 2 * budget && spill >= limit / 4 && spill <= limit / 2, "{limit} {budget}");
        }
    }
}
