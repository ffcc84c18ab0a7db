//! The location cache: which region holds a row, and, apart from that, which server leads a region's group.
//!
//! The two are kept apart because they change apart: a failover moves the leader of a group and with it hundreds of
//! regions, so one `NotLeader` mends them all; a split changes one region and no leader.
//!
//! Sans-I/O: what servers and masters say goes in, where to send goes out. It is a cache of hints. Whatever it answers
//! wrongly, a server corrects by refusing, because every request names region id and epoch.
//!
//! Invariants:
//! - regions of one table never overlap; where nothing is known there is a gap, and only a gap asks a master;
//! - of two claims on a row the one with the higher epoch stays, whichever came first;
//! - what is known of a group never goes back to an older term.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use terrane_proto::convert::GroupLocation;
use terrane_types::{GroupId, KeyRange, RegionDescriptor, RegionId, ServerId, TableId};

/// Groups whose members are remembered; far more than clusters have, and a bound all the same.
const GROUPS_MAX: usize = 65_536;
/// Regions remembered over all tables. Past it the table asked for is emptied and learnt anew.
const REGIONS_MAX: usize = 1 << 20;

/// A member of a group that was asked in vain by a call.
pub(crate) type Tried = (GroupId, ServerId);

/// What is known about where things are.
#[derive(Debug, Default)]
pub(crate) struct Locator {
    tables: BTreeMap<TableId, BTreeMap<Bytes, RegionDescriptor>>,
    groups: BTreeMap<GroupId, Group>,
    regions: usize,
}

#[derive(Debug, Default)]
struct Group {
    term: u64,
    leader: Option<ServerId>,
    members: BTreeMap<ServerId, String>,
    /// The server that was the leader when it fell silent: asked last while no leader is known.
    silent: Option<ServerId>,
}

impl Locator {
    /// The region that holds `row`.
    pub(crate) fn find(&self, table: TableId, row: &[u8]) -> Option<&RegionDescriptor> {
        let regions = self.tables.get(&table)?;
        let (_, region) = regions.range::<[u8], _>((Bound::Unbounded, Bound::Included(row))).next_back()?;
        region.range.is_before_end(row).then_some(region)
    }

    /// The region that holds the last rows before `end` (empty: of the table).
    pub(crate) fn find_before(&self, table: TableId, end: &[u8]) -> Option<&RegionDescriptor> {
        let regions = self.tables.get(&table)?;
        if end.is_empty() {
            let (_, region) = regions.last_key_value()?;
            return region.range.end.is_empty().then_some(region);
        }
        let (_, region) = regions.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(end))).next_back()?;
        (region.range.end.is_empty() || region.range.end >= end).then_some(region)
    }

    /// Learns a region, unless something newer is known of any row of it. True when it was taken.
    pub(crate) fn learn_region(&mut self, region: RegionDescriptor) -> bool {
        let overlapping = self.overlapping(region.table, &region.range);
        let regions = self.tables.entry(region.table).or_default();
        if overlapping.iter().any(|start| regions.get(start).is_some_and(|known| known.epoch > region.epoch)) {
            return false;
        }
        for start in &overlapping {
            regions.remove(start);
        }
        if self.regions + 1 > REGIONS_MAX + overlapping.len() {
            self.regions -= regions.len() + overlapping.len();
            regions.clear();
        } else {
            self.regions -= overlapping.len();
        }
        regions.insert(region.range.start.clone(), region);
        self.regions += 1;
        true
    }

    fn overlapping(&self, table: TableId, range: &KeyRange) -> Vec<Bytes> {
        let Some(regions) = self.tables.get(&table) else { return Vec::new() };
        let before = regions
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&range.start[..])))
            .next_back()
            .filter(|(_, region)| region.range.is_before_end(&range.start));
        let inside = regions
            .range::<[u8], _>((Bound::Included(&range.start[..]), Bound::Unbounded))
            .take_while(|(start, _)| range.is_before_end(start));
        before.into_iter().chain(inside).map(|(start, _)| start.clone()).collect()
    }

    /// Takes in what a server said in place of `region`: the descriptors that hold now. When it named none, the region is
    /// forgotten, which leaves a gap. True when something is known for the rows now.
    pub(crate) fn stale_epoch(&mut self, table: TableId, region: RegionId, current: Vec<RegionDescriptor>) -> bool {
        let mut learnt = false;
        for descriptor in current {
            if descriptor.table == table {
                learnt |= self.learn_region(descriptor);
            }
        }
        if !learnt {
            self.forget_region(table, region);
        }
        learnt
    }

    /// Forgets one region.
    pub(crate) fn forget_region(&mut self, table: TableId, region: RegionId) {
        let Some(regions) = self.tables.get_mut(&table) else { return };
        let before = regions.len();
        regions.retain(|_, known| known.region != region);
        self.regions -= before - regions.len();
    }

    /// Forgets a table.
    pub(crate) fn forget_table(&mut self, table: TableId) {
        if let Some(regions) = self.tables.remove(&table) {
            self.regions -= regions.len();
        }
    }

    /// Learns where a group is, unless that is older than what is known.
    pub(crate) fn learn_group(&mut self, location: GroupLocation) {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&location.group) {
            self.groups.clear();
        }
        let group = self.groups.entry(location.group).or_default();
        if location.term < group.term {
            return;
        }
        if location.term > group.term {
            group.term = location.term;
            group.leader = location.leader;
            group.silent = None;
        } else if location.leader.is_some() {
            // One term has one leader, so this can only fill in what was missing.
            group.leader = location.leader;
        }
        if !location.members.is_empty() {
            group.members = location.members.into_iter().collect();
        }
    }

    /// A server said that it does not lead; `location` is what it knows instead.
    pub(crate) fn not_leader(&mut self, from: ServerId, location: GroupLocation) {
        let (id, term) = (location.group, location.term);
        let names_itself = location.leader == Some(from);
        self.learn_group(GroupLocation { leader: location.leader.filter(|_| !names_itself), ..location });
        if let Some(group) = self.groups.get_mut(&id)
            && group.leader == Some(from)
            && (group.term <= term || names_itself)
        {
            group.leader = None;
        }
    }

    /// A server did not answer. Until someone names a leader again, the other members are asked first.
    pub(crate) fn silent(&mut self, id: GroupId, server: ServerId) {
        if let Some(group) = self.groups.get_mut(&id)
            && group.leader == Some(server)
        {
            group.leader = None;
            group.silent = Some(server);
        }
    }

    /// Whether any member of a group is known.
    pub(crate) fn knows_members(&self, id: GroupId) -> bool {
        self.groups.get(&id).is_some_and(|group| !group.members.is_empty())
    }

    /// The leader of a group and its address, if both are known.
    pub(crate) fn leader_at(&self, id: GroupId) -> Option<(ServerId, &str)> {
        let group = self.groups.get(&id)?;
        let leader = group.leader?;
        group.members.get(&leader).map(|address| (leader, address.as_str()))
    }

    /// A server answered as the leader does.
    pub(crate) fn answered(&mut self, id: GroupId, server: ServerId) {
        // Members go on naming a leader that fell silent, until they elect another one.
        if let Some(group) = self.groups.get_mut(&id)
            && (group.leader.is_none() || group.leader == group.silent)
        {
            group.leader = Some(server);
            group.silent = None;
        }
    }

    /// Whom to ask about a group: its leader, else a member that was not `tried` yet. `None`: all were.
    pub(crate) fn candidate(&self, id: GroupId, tried: &[Tried]) -> Option<(ServerId, &str)> {
        let group = self.groups.get(&id)?;
        let leader = group.leader.filter(|leader| group.members.contains_key(leader));
        let others = group.members.keys().copied().filter(|server| group.silent != Some(*server));
        leader
            .into_iter()
            .chain(others)
            .chain(group.silent)
            .find(|server| !tried.contains(&(id, *server)))
            .and_then(|server| group.members.get(&server).map(|address| (server, address.as_str())))
    }

    /// Whom to ask what any member may answer: one that does not lead and was not `tried` yet, chosen by `spread`, else the
    /// leader. `None`: all were tried.
    pub(crate) fn any_member(&self, id: GroupId, tried: &[Tried], spread: u64) -> Option<(ServerId, &str)> {
        let group = self.groups.get(&id)?;
        let is_open = |server: &ServerId| !tried.contains(&(id, *server));
        let aside = |server: &ServerId| group.leader == Some(*server) || group.silent == Some(*server);
        let followers: Vec<ServerId> =
            group.members.keys().copied().filter(|server| is_open(server) && !aside(server)).collect();
        let count = u64::try_from(followers.len()).expect("a group has few members");
        let chosen = spread.checked_rem(count).and_then(|at| followers.get(usize::try_from(at).ok()?)).copied();
        let last = group.members.keys().copied().filter(|server| aside(server) && is_open(server));
        let server = chosen.or_else(|| last.max_by_key(|server| group.leader == Some(*server)))?;
        group.members.get(&server).map(|address| (server, address.as_str()))
    }

    /// Whether the leader of a group is known, which is the warm path.
    pub(crate) fn leader(&self, id: GroupId) -> Option<ServerId> {
        self.groups.get(&id).and_then(|group| group.leader)
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::RegionEpoch;

    use super::*;

    const TABLE: TableId = TableId(5);

    fn region(text: &str) -> RegionDescriptor {
        // `r1@2 [a,m) g3`
        let (id, rest) = text.split_once('@').expect("region@epoch");
        let (epoch, rest) = rest.split_once(" [").expect("a range");
        let (range, group) = rest.split_once(") g").expect("a group");
        let (start, end) = range.split_once(',').expect("two bounds");
        RegionDescriptor {
            region: RegionId(id[1..].parse().expect("a number")),
            table: TABLE,
            range: KeyRange::new(start.to_owned(), end.to_owned()).expect("ordered"),
            epoch: RegionEpoch(epoch.parse().expect("a number")),
            group: GroupId(group.parse().expect("a number")),
            schema_version: 1,
        }
    }

    fn show(locator: &Locator) -> String {
        let regions = locator.tables.get(&TABLE).into_iter().flat_map(BTreeMap::values);
        let shown: Vec<String> = regions.map(|r| format!("r{}@{} {}", r.region, r.epoch, r.range)).collect();
        assert_eq!(locator.regions, shown.len(), "the count of regions is kept right");
        shown.join(" ")
    }

    fn holding(regions: &[&str]) -> Locator {
        let mut locator = Locator::default();
        for text in regions {
            locator.learn_region(region(text));
        }
        locator
    }

    fn located(term: u64, leader: u64) -> GroupLocation {
        let members = (1..=3).map(|server| (ServerId(server), format!("s{server}:7700"))).collect();
        GroupLocation { group: GroupId(3), leader: (leader != 0).then_some(ServerId(leader)), term, members }
    }

    fn with_group(term: u64, leader: u64) -> Locator {
        let mut locator = Locator::default();
        locator.learn_group(located(term, leader));
        locator
    }

    fn asks(locator: &Locator, tried: &[u64]) -> Option<u64> {
        let tried: Vec<Tried> = tried.iter().map(|server| (GroupId(3), ServerId(*server))).collect();
        locator.candidate(GroupId(3), &tried).map(|(server, _)| server.0)
    }

    #[test]
    fn rows_are_found_by_half_open_ranges() {
        let locator = holding(&["r1@1 [,m) g1", "r2@1 [m,) g2"]);
        let find = |row: &str| locator.find(TABLE, row.as_bytes()).map(|region| region.region.0);
        assert_eq!((find("a"), find("lzz"), find("m"), find("zz")), (Some(1), Some(1), Some(2), Some(2)));
        assert_eq!(locator.find(TableId(6), b"a"), None);
    }

    #[test]
    fn gaps_are_not_guessed_over() {
        let locator = holding(&["r1@1 [b,d) g1", "r2@1 [m,p) g2"]);
        for row in ["a", "d", "e", "p", "z"] {
            assert_eq!(locator.find(TABLE, row.as_bytes()), None, "{row}");
        }
        for end in ["b", "e", "q", ""] {
            assert_eq!(locator.find_before(TABLE, end.as_bytes()), None, "before {end}");
        }
        assert_eq!(locator.find_before(TABLE, b"d").map(|region| region.region.0), Some(1));
        assert_eq!(locator.find_before(TABLE, b"n").map(|region| region.region.0), Some(2));
    }

    #[test]
    fn backwards_the_region_before_a_boundary_is_found() {
        let locator = holding(&["r1@1 [,m) g1", "r2@1 [m,) g2"]);
        let find = |end: &str| locator.find_before(TABLE, end.as_bytes()).map(|region| region.region.0);
        assert_eq!((find("m"), find("m\0"), find(""), find("a")), (Some(1), Some(2), Some(2), Some(1)));
    }

    #[test]
    fn a_split_replaces_the_parent() {
        let mut locator = holding(&["r1@1 [,) g1"]);
        let current = vec![region("r1@2 [,m) g1"), region("r2@2 [m,) g1")];
        assert!(locator.stale_epoch(TABLE, RegionId(1), current));
        assert_eq!(show(&locator), "r1@2 [,m) r2@2 [m,)");
    }

    #[test]
    fn a_late_parent_does_not_overwrite_its_daughters() {
        let mut locator = holding(&["r1@2 [,m) g1", "r2@2 [m,) g1"]);
        assert!(!locator.learn_region(region("r1@1 [,) g1")));
        assert_eq!(show(&locator), "r1@2 [,m) r2@2 [m,)");
    }

    #[test]
    fn a_parent_older_than_one_daughter_is_refused_whole() {
        let mut locator = holding(&["r2@2 [m,) g1"]);
        assert!(!locator.learn_region(region("r1@1 [,) g1")));
        assert_eq!(show(&locator), "r2@2 [m,)");
    }

    #[test]
    fn one_daughter_alone_leaves_a_gap() {
        let mut locator = holding(&["r1@1 [,) g1"]);
        assert!(locator.learn_region(region("r2@2 [m,) g1")));
        assert_eq!(show(&locator), "r2@2 [m,)");
        assert_eq!(locator.find(TABLE, b"a"), None);
    }

    #[test]
    fn a_merge_replaces_both() {
        let mut locator = holding(&["r1@2 [,m) g1", "r2@5 [m,) g1", "r9@1 [x,x) g1"]);
        assert!(locator.learn_region(region("r1@6 [,) g1")));
        assert_eq!(show(&locator), "r1@6 [,)");
    }

    #[test]
    fn neighbours_that_only_touch_stay() {
        let mut locator = holding(&["r1@9 [,b) g1", "r3@9 [m,) g1"]);
        assert!(locator.learn_region(region("r2@1 [b,m) g1")));
        assert_eq!(show(&locator), "r1@9 [,b) r2@1 [b,m) r3@9 [m,)");
    }

    #[test]
    fn the_same_region_again_is_one_region() {
        let mut locator = holding(&["r1@1 [,m) g1", "r1@1 [,m) g1", "r1@2 [,m) g4"]);
        assert_eq!(show(&locator), "r1@2 [,m)");
        assert_eq!(locator.find(TABLE, b"a").expect("known").group, GroupId(4));
        locator.forget_table(TABLE);
        assert_eq!(show(&locator), "");
    }

    #[test]
    fn a_region_that_nobody_knows_leaves_a_gap() {
        let mut locator = holding(&["r1@1 [,m) g1", "r2@1 [m,) g1"]);
        assert!(!locator.stale_epoch(TABLE, RegionId(1), Vec::new()));
        assert_eq!(show(&locator), "r2@1 [m,)");
    }

    #[test]
    fn an_answer_older_than_what_was_refused_leaves_a_gap() {
        // The server knows less than the cache: neither is to be trusted, a master is asked.
        let mut locator = holding(&["r1@3 [,m) g1"]);
        assert!(!locator.stale_epoch(TABLE, RegionId(1), vec![region("r1@2 [,m) g1")]));
        assert_eq!(show(&locator), "");
    }

    #[test]
    fn descriptors_of_another_table_are_not_taken() {
        let mut locator = holding(&["r1@1 [,) g1"]);
        let other = RegionDescriptor { table: TableId(77), ..region("r8@9 [,) g1") };
        assert!(!locator.stale_epoch(TABLE, RegionId(1), vec![other]));
        assert_eq!(locator.find(TableId(77), b"a"), None);
    }

    #[test]
    fn one_not_leader_mends_all_regions_of_the_group() {
        let mut locator = holding(&["r1@1 [,m) g3", "r2@1 [m,) g3"]);
        locator.learn_group(located(4, 1));
        locator.not_leader(ServerId(1), located(5, 2));
        for row in ["a", "z"] {
            let group = locator.find(TABLE, row.as_bytes()).expect("known").group;
            assert_eq!(locator.candidate(group, &[]), Some((ServerId(2), "s2:7700")));
        }
    }

    #[test]
    fn an_older_term_never_overwrites_a_newer() {
        let mut locator = with_group(7, 2);
        locator.learn_group(located(6, 1));
        assert_eq!(asks(&locator, &[]), Some(2));
        locator.not_leader(ServerId(3), located(6, 1));
        assert_eq!(asks(&locator, &[]), Some(2));
    }

    #[test]
    fn a_newer_term_without_a_leader_forgets_the_old_one() {
        let mut locator = with_group(7, 2);
        locator.not_leader(ServerId(2), located(8, 0));
        assert_eq!(locator.leader(GroupId(3)), None);
        assert_eq!(asks(&locator, &[2]), Some(1));
    }

    #[test]
    fn without_a_hint_the_other_members_are_asked_in_turn() {
        let mut locator = with_group(7, 2);
        locator.not_leader(ServerId(2), located(7, 0));
        assert_eq!(asks(&locator, &[2]), Some(1));
        assert_eq!(asks(&locator, &[2, 1]), Some(3));
        assert_eq!(asks(&locator, &[2, 1, 3]), None);
    }

    #[test]
    fn a_refusal_of_an_older_term_does_not_depose() {
        // A server that has not heard of its own election yet.
        let mut locator = with_group(7, 2);
        locator.not_leader(ServerId(2), located(6, 0));
        assert_eq!(locator.leader(GroupId(3)), Some(ServerId(2)));
    }

    #[test]
    fn a_server_that_names_itself_while_refusing_is_not_believed() {
        let mut locator = with_group(7, 2);
        locator.not_leader(ServerId(2), located(7, 2));
        assert_eq!(asks(&locator, &[2]), Some(1));
        assert_eq!(locator.leader(GroupId(3)), None);
    }

    #[test]
    fn what_any_member_may_answer_goes_to_the_leader_last() {
        let locator = with_group(4, 1);
        let asks = |tried: &[u64], spread| {
            let tried: Vec<Tried> = tried.iter().map(|server| (GroupId(3), ServerId(*server))).collect();
            locator.any_member(GroupId(3), &tried, spread).map(|(server, _)| server.0)
        };
        assert_eq!((asks(&[], 0), asks(&[], 1), asks(&[], 2)), (Some(2), Some(3), Some(2)));
        assert_eq!((asks(&[2], 0), asks(&[2, 3], 7), asks(&[1, 2, 3], 0)), (Some(3), Some(1), None));
    }

    #[test]
    fn a_silent_leader_is_asked_last() {
        let mut locator = with_group(7, 1);
        locator.silent(GroupId(3), ServerId(1));
        assert_eq!((asks(&locator, &[]), asks(&locator, &[2, 3])), (Some(2), Some(1)));
        locator.answered(GroupId(3), ServerId(3));
        assert_eq!(asks(&locator, &[]), Some(3));
    }

    #[test]
    fn whoever_answers_takes_the_place_of_a_silent_leader_that_members_still_name() {
        let mut locator = with_group(7, 1);
        locator.silent(GroupId(3), ServerId(1));
        locator.not_leader(ServerId(2), located(7, 1));
        locator.answered(GroupId(3), ServerId(3));
        assert_eq!(locator.leader(GroupId(3)), Some(ServerId(3)));
        locator.answered(GroupId(3), ServerId(2));
        assert_eq!(locator.leader(GroupId(3)), Some(ServerId(3)), "no server fell silent since");
    }

    #[test]
    fn silence_of_a_follower_changes_nothing() {
        let mut locator = with_group(7, 1);
        locator.silent(GroupId(3), ServerId(2));
        locator.answered(GroupId(3), ServerId(2));
        assert_eq!(asks(&locator, &[]), Some(1));
    }

    #[test]
    fn members_change_their_addresses() {
        let mut locator = with_group(7, 1);
        let mut moved = located(7, 1);
        moved.members[0].1 = "elsewhere:7700".to_owned();
        locator.learn_group(moved);
        assert_eq!(locator.candidate(GroupId(3), &[]), Some((ServerId(1), "elsewhere:7700")));
    }

    #[test]
    fn a_leader_without_an_address_is_passed_over() {
        let locator = with_group(7, 9);
        assert_eq!(asks(&locator, &[]), Some(1));
        assert_eq!(locator.candidate(GroupId(44), &[]), None);
    }
}
