//! The location cache: which region holds a row, and which server leads a region's group.
//!
//! The two are separate because they change separately: a failover moves the leader of a group, and with it hundreds of
//! regions, so one `NotLeader` corrects all of them; a split changes one region and no leader.
//!
//! Sans-I/O: what servers and masters say goes in, where to send goes out. The cache holds hints. If one is wrong, a server
//! refuses the request, because every request names region id and epoch.
//!
//! Invariants:
//! - regions of one table never overlap; unknown ranges are gaps, and only a gap needs a master;
//! - of two regions that hold the same row, the one with the higher epoch stays, whichever came first;
//! - a region that a server denied is a gap, but it is kept: while no master answers, it is the best guess there is. A server
//!   that restarts denies regions whose creation it has not applied yet;
//! - what is known of a group never returns to an older term.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use terrane_proto::convert::GroupLocation;
use terrane_types::{GroupId, KeyRange, RegionDescriptor, RegionEpoch, RegionId, ServerId, TableId};

/// Groups in the cache: a bound far above the number of groups in a cluster.
const GROUPS_MAX: usize = 65_536;
/// Regions in the cache, over all tables. Beyond it, the table that learns another region is emptied first.
const REGIONS_MAX: usize = 1 << 20;

/// Which region of a table is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Position<'a> {
    /// The one that holds this row.
    Row(&'a [u8]),
    /// The one with the last rows before this bound; empty: of the table.
    Before(&'a [u8]),
}

/// A member of a group that a call has tried without success.
pub(crate) type Member = (GroupId, ServerId);

/// The location cache.
#[derive(Debug, Default)]
pub(crate) struct Locator {
    tables: BTreeMap<TableId, BTreeMap<Bytes, Known>>,
    groups: BTreeMap<GroupId, Group>,
    regions: usize,
}

/// A region as it was learnt.
#[derive(Debug)]
struct Known {
    region: RegionDescriptor,
    /// A server said that it knows neither this region nor what became of it, and no look-up has failed since.
    is_denied: bool,
    /// The servers that have said so since the region was learnt.
    deniers: Vec<ServerId>,
}

impl Known {
    fn not_denied(&self) -> Option<&RegionDescriptor> {
        (!self.is_denied).then_some(&self.region)
    }
}

#[derive(Debug, Default)]
struct Group {
    term: u64,
    leader: Option<ServerId>,
    members: BTreeMap<ServerId, String>,
    /// The server that led when it stopped answering: tried last while no leader is known.
    silent: Option<ServerId>,
}

impl Group {
    fn silent(&mut self, server: ServerId) {
        if self.leader == Some(server) {
            self.leader = None;
            self.silent = Some(server);
        }
    }
}

impl Locator {
    /// The region that is meant; `None`: a gap.
    pub(crate) fn find(&self, table: TableId, position: Position<'_>) -> Option<&RegionDescriptor> {
        self.known(table, position)?.not_denied()
    }

    /// The region that is meant, or was until a server denied it.
    pub(crate) fn last_known(&self, table: TableId, position: Position<'_>) -> Option<&RegionDescriptor> {
        self.known(table, position).map(|known| &known.region)
    }

    fn known(&self, table: TableId, position: Position<'_>) -> Option<&Known> {
        let regions = self.tables.get(&table)?;
        match position {
            Position::Row(row) => {
                let (_, known) = regions.range::<[u8], _>((Bound::Unbounded, Bound::Included(row))).next_back()?;
                known.region.range.is_before_end(row).then_some(known)
            }
            Position::Before([]) => {
                let (_, known) = regions.last_key_value()?;
                known.region.range.end.is_empty().then_some(known)
            }
            Position::Before(end) => {
                let (_, known) = regions.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(end))).next_back()?;
                (known.region.range.end.is_empty() || known.region.range.end >= end).then_some(known)
            }
        }
    }

    /// Learns a region unless an undenied, newer one is known for any of its rows. True if it was taken.
    pub(crate) fn learn_region(&mut self, region: RegionDescriptor) -> bool {
        let overlapping = self.overlapping(region.table, &region.range);
        let regions = self.tables.entry(region.table).or_default();
        let is_newer = |known: &Known| known.not_denied().is_some_and(|known| known.epoch > region.epoch);
        if overlapping.iter().any(|start| regions.get(start).is_some_and(is_newer)) {
            return false;
        }
        for start in &overlapping {
            let removed = regions.remove(start).expect("listed a moment ago");
            assert!(
                !is_newer(&removed),
                "region {} at epoch {} would be replaced by region {} at the lower epoch {}",
                removed.region.region,
                removed.region.epoch,
                region.region,
                region.epoch
            );
        }
        if self.regions + 1 > REGIONS_MAX + overlapping.len() {
            self.regions -= regions.len() + overlapping.len();
            regions.clear();
        } else {
            self.regions -= overlapping.len();
        }
        regions.insert(region.range.start.clone(), Known { region, is_denied: false, deniers: Vec::new() });
        self.regions += 1;
        true
    }

    fn overlapping(&self, table: TableId, range: &KeyRange) -> Vec<Bytes> {
        let Some(regions) = self.tables.get(&table) else { return Vec::new() };
        let before = regions
            .range::<[u8], _>((Bound::Unbounded, Bound::Excluded(&range.start[..])))
            .next_back()
            .filter(|(_, known)| known.region.range.is_before_end(&range.start));
        let inside = regions
            .range::<[u8], _>((Bound::Included(&range.start[..]), Bound::Unbounded))
            .take_while(|(start, _)| range.is_before_end(start));
        before.into_iter().chain(inside).map(|(start, _)| start.clone()).collect()
    }

    /// A server refused a request for `region` at an epoch, and named the regions that hold its rows now. If it named none that
    /// is newer, it denied the region, which leaves a gap. (A server that the group has left names what the caller knows: the
    /// region as its group has it.) True if at least one was learnt.
    pub(crate) fn stale_epoch(
        &mut self,
        from: ServerId,
        table: TableId,
        (region, epoch): (RegionId, RegionEpoch),
        current: Vec<RegionDescriptor>,
    ) -> bool {
        let mut learnt = false;
        if terrane_env::planted!("a stale location stays") {
            return false;
        }
        for descriptor in current {
            if descriptor.table == table && (descriptor.region != region || descriptor.epoch > epoch) {
                learnt |= self.learn_region(descriptor);
            }
        }
        if !learnt {
            self.denied(from, table, (region, epoch));
        }
        learnt
    }

    /// A server does not know a region at this epoch, which leaves a gap.
    pub(crate) fn denied(&mut self, from: ServerId, table: TableId, (region, epoch): (RegionId, RegionEpoch)) {
        let regions = self.tables.get_mut(&table).into_iter().flat_map(BTreeMap::values_mut);
        // Another call may have learnt a newer one since this was sent.
        for known in regions.filter(|known| known.region.region == region && known.region.epoch <= epoch) {
            known.is_denied = true;
            if !known.deniers.contains(&from) {
                known.deniers.push(from);
            }
        }
    }

    /// No master answers: the regions of a table that servers denied may be where they were, and are gaps no longer.
    pub(crate) fn restore(&mut self, table: TableId) {
        let regions = self.tables.get_mut(&table).into_iter().flat_map(BTreeMap::values_mut);
        for known in regions.filter(|known| known.is_denied) {
            known.is_denied = false;
            if let Some(group) = self.groups.get_mut(&known.region.group) {
                known.deniers.iter().for_each(|denier| group.silent(*denier));
            }
        }
    }

    /// The servers that denied the region that is meant, although it may be there: they are tried after the others.
    pub(crate) fn deniers(&self, table: TableId, position: Position<'_>) -> Vec<Member> {
        let known = self.known(table, position).into_iter();
        known.flat_map(|known| known.deniers.iter().map(|denier| (known.region.group, *denier))).collect()
    }

    /// Removes the regions of a table.
    pub(crate) fn forget_table(&mut self, table: TableId) {
        if let Some(regions) = self.tables.remove(&table) {
            self.regions -= regions.len();
        }
    }

    /// Learns a group's leader and members, unless a newer term is known.
    pub(crate) fn learn_group(&mut self, location: GroupLocation) {
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&location.group) {
            self.groups.clear();
        }
        let group = self.groups.entry(location.group).or_default();
        if location.term < group.term {
            return;
        }
        if location.term > group.term {
            // A new term: nothing of the old one holds.
            group.term = location.term;
            group.leader = location.leader;
            group.silent = None;
        } else if location.leader.is_some() {
            // A term has one leader, so this can only fill in a missing one.
            group.leader = location.leader;
        }
        if !location.members.is_empty() {
            group.members = location.members.into_iter().collect();
        }
    }

    /// A server said that it does not lead; `location` is what it knows about the group.
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

    /// A server did not answer. Until a server names a leader again, the other members are tried first.
    pub(crate) fn silent(&mut self, id: GroupId, server: ServerId) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.silent(server);
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
        // Members keep naming a leader that has stopped answering until they elect another one.
        if let Some(group) = self.groups.get_mut(&id)
            && (group.leader.is_none() || group.leader == group.silent)
        {
            group.leader = Some(server);
            group.silent = None;
        }
    }

    /// The member to try next: the leader, else one that was not `tried` yet. `None`: all were tried.
    pub(crate) fn candidate(&self, id: GroupId, tried: &[Member]) -> Option<(ServerId, &str)> {
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

    /// The member to try next with a request that any member may answer: a follower that was not `tried` yet, chosen by
    /// `spread`, else the leader. `None`: all were tried.
    pub(crate) fn any_member(&self, id: GroupId, tried: &[Member], spread: u64) -> Option<(ServerId, &str)> {
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

    /// The leader of a group, if it is known.
    pub(crate) fn leader(&self, id: GroupId) -> Option<ServerId> {
        self.groups.get(&id).and_then(|group| group.leader)
    }
}

#[cfg(test)]
mod tests;
