//! What servers report about groups and regions: leaders, sizes, progress. In memory only, without I/O.
//!
//! Reports arrive late and out of order, so terms decide: a group's leader is that of its newest term, and only this
//! leader describes the group's regions. Regions whose descriptors may differ from the map (after a split) are returned
//! as claims, which the catalog accepts or ignores by epoch.

use std::collections::{BTreeMap, BTreeSet};

use terrane_proto::v1;
use terrane_raft::RECOVERY_TERMS;
use terrane_types::states::RegionState;
use terrane_types::{Endpoint, GroupId, Issue, RegionDescriptor, RegionId, ReplicaId, ServerId};

/// One server's report.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The reporting server.
    pub server: ServerId,
    /// The replicas on it.
    pub groups: Vec<GroupSeen>,
    /// The regions of the groups it leads.
    pub regions: Vec<RegionSeen>,
    /// The load of the server as a whole.
    pub load: ServerLoad,
}

/// One replica of a group.
#[derive(Clone, Debug, Default)]
pub struct GroupSeen {
    /// The group.
    pub group: GroupId,
    /// The replica.
    pub replica: ReplicaId,
    /// Its term.
    pub term: u64,
    /// The leader it follows in that term.
    pub leader: Option<ServerId>,
    /// Its applied index.
    pub applied: u64,
    /// The group's members, if this replica leads it.
    pub members: Vec<MemberSeen>,
    /// Some of its store files are damaged.
    pub damaged: bool,
    /// If it is damaged: its server can discard it and take another one.
    pub discardable: bool,
    /// The regions of the group that it has; `None`: it has not said.
    pub regions: Option<u32>,
    /// If it leads: how many regions were compared on all replicas and found equal, and when the longest ago of these was.
    pub compared: (u32, u64),
}

/// A member of a group, as its leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberSeen {
    /// Its replica id.
    pub replica: ReplicaId,
    /// Its server.
    pub server: ServerId,
    /// Whether it votes; otherwise it is a learner.
    pub voter: bool,
    /// Up to where its log is known to match the leader's.
    pub matched: u64,
    /// Up to where it is known to have applied that; as [`Self::matched`] if its leader's build does not say.
    pub applied: u64,
    /// Whether it has not applied what the leader had applied two seconds ago.
    pub lags: bool,
    /// Whether it answers the leader.
    pub alive: bool,
    /// The size of the copy that it is receiving; 0: none.
    pub copy_bytes: u64,
    /// What it has received of the copy.
    pub copied_bytes: u64,
}

impl MemberSeen {
    /// Up to where it has the log and has applied it.
    pub fn reached(&self) -> u64 {
        self.matched.min(self.applied)
    }
}

impl From<v1::MemberProgress> for MemberSeen {
    fn from(seen: v1::MemberProgress) -> Self {
        Self {
            replica: ReplicaId(seen.replica),
            server: ServerId(seen.server),
            voter: seen.voter,
            matched: seen.matched,
            applied: seen.applied.unwrap_or(seen.matched),
            lags: seen.lags,
            alive: seen.alive,
            copy_bytes: seen.copy_bytes,
            copied_bytes: seen.copied_bytes,
        }
    }
}

/// One region, as reported by its leader.
#[derive(Clone, Debug)]
pub struct RegionSeen {
    /// The region as of its log.
    pub descriptor: RegionDescriptor,
    /// Its size.
    pub bytes: u64,
    /// Its state.
    pub state: RegionState,
    /// The term in which the reporter leads the region's group.
    pub term: u64,
    /// What is requested of it, per second.
    pub load: v1::RegionLoad,
    /// What decides whether it merges with a neighbour; not known while it changes.
    pub shape: Option<v1::RegionShape>,
    /// What its leader has counted, and what it occupies there.
    pub counts: v1::RegionCounts,
}

/// A server's load and health issues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerLoad {
    /// Bytes of its shared log.
    pub log_bytes: u64,
    /// The log's limit.
    pub log_limit: u64,
    /// What holds the log back; empty if nothing does.
    pub log_held_by: String,
    /// Bytes in its memtables.
    pub memtable_bytes: u64,
    /// Bytes of its store files; `None`: its build does not say.
    pub store_bytes: Option<u64>,
    /// Free bytes of the disk of its data directory; `None`: not known.
    pub disk_free_bytes: Option<u64>,
    /// Its other health issues.
    pub issues: Vec<Issue>,
    /// Files on its disk that nothing names, if there are any.
    pub orphans: Option<v1::OrphanFiles>,
    /// Where it serves clients of other protocols.
    pub endpoints: Vec<Endpoint>,
    /// Its limited resources, kept in the wire's form because they are only passed on.
    pub resources: Vec<v1::ResourceUsage>,
}

/// A group as of the newest reports.
#[derive(Clone, Debug, Default)]
pub struct GroupView {
    /// The newest reported term that had a leader, or that its leader has gone on to.
    pub term: u64,
    /// Its leader.
    pub leader: Option<ServerId>,
    /// The leader's applied index.
    pub applied: u64,
    /// The members as the leader last named them; empty if it has not.
    pub members: Vec<MemberSeen>,
    /// How many regions the leader knows as compared on all replicas and equal, and when the longest ago of these was.
    pub compared: (u32, u64),
    /// The leader of the last [`Election`]. It stays while there is none, and an order that finds the next one does not
    /// change it, so every change of leaders is returned once.
    elected: Option<ServerId>,
    /// The last server that reported its regions, which it does once it serves them, and the term in which it leads them.
    serves: Option<(ServerId, u64)>,
    regions: BTreeMap<RegionId, RegionView>,
}

/// Entries that a member may lack and still count as caught up: those of the moment, if it does not lag behind in time.
const CAUGHT_UP_WITHIN: u64 = 256;

impl GroupView {
    /// A member as the leader last named it.
    pub fn member(&self, replica: ReplicaId) -> Option<&MemberSeen> {
        self.members.iter().find(|member| member.replica == replica)
    }

    /// Whether a member answers and has applied all but a few entries: it could serve.
    pub fn is_caught_up(&self, member: &MemberSeen) -> bool {
        if Some(member.server) == self.leader && member.voter {
            return member.applied.saturating_add(CAUGHT_UP_WITHIN) >= member.matched;
        }
        let newest = self.members.iter().map(|member| member.matched).max().unwrap_or(0);
        let copying = member.copied_bytes < member.copy_bytes;
        let has = member.reached();
        member.alive && !copying && !member.lags && has > 0 && has.saturating_add(CAUGHT_UP_WITHIN) >= newest
    }

    /// The regions as the leader last reported them.
    pub fn regions(&self) -> impl Iterator<Item = (RegionId, &RegionView)> {
        self.regions.iter().map(|(region, view)| (*region, view))
    }
}

/// A region's descriptor, size and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// The region as of its log.
    pub descriptor: RegionDescriptor,
    /// Its size.
    pub bytes: u64,
    /// Its state.
    pub state: RegionState,
    /// What is requested of it, per second.
    pub load: v1::RegionLoad,
    /// What decides whether it merges with a neighbour; not known while it changes.
    pub shape: Option<v1::RegionShape>,
    /// What its leader has counted, and what it occupies there.
    pub counts: v1::RegionCounts,
}

/// A group whose leader changed, as a report says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Election {
    /// The group.
    pub group: GroupId,
    /// The leader that was known before.
    pub from: Option<ServerId>,
    /// The leader now.
    pub to: ServerId,
    /// The term it leads in; 0 if it took over by order and has not reported yet.
    pub term: u64,
}

/// What a report changed.
#[derive(Debug, Default)]
pub struct Absorbed {
    /// The regions as their leaders reported them.
    pub claims: Vec<RegionDescriptor>,
    /// Whether the leader of a group changed.
    pub leaders_changed: bool,
    /// The servers that no longer lead a group, without an order of this master.
    pub deposed: Vec<ServerId>,
    /// The groups that have another leader than was known, with that one, and the new one.
    pub elections: Vec<Election>,
}

/// Everything that has been reported.
#[derive(Debug, Default)]
pub struct Inventory {
    groups: BTreeMap<GroupId, GroupView>,
    servers: BTreeMap<ServerId, ServerLoad>,
    /// The replicas on each server, as of its last report.
    replicas: BTreeMap<ServerId, BTreeMap<GroupId, GroupSeen>>,
}

impl Inventory {
    /// Processes a report.
    pub fn absorb(&mut self, report: Report) -> Absorbed {
        let mut absorbed = Absorbed::default();
        for seen in &report.groups {
            let before = self.leader(seen.group);
            absorbed.leaders_changed |= self.see_group(report.server, seen);
            let after = self.leader(seen.group);
            let term = self.group(seen.group).map_or(0, |view| view.term);
            absorbed.elections.extend(self.elected(seen.group, term));
            absorbed.deposed.extend(before.filter(|before| after.is_some_and(|after| after != *before)));
        }
        for seen in report.regions {
            let Some(view) = self.groups.get_mut(&seen.descriptor.group) else { continue };
            // A deposed leader reports outdated regions.
            if view.leader != Some(report.server) || seen.term < view.term {
                continue;
            }
            let (descriptor, state) = (seen.descriptor.clone(), seen.state);
            let region = RegionView {
                descriptor,
                bytes: seen.bytes,
                state,
                load: seen.load,
                shape: seen.shape,
                counts: seen.counts,
            };
            view.regions.insert(seen.descriptor.region, region);
            view.serves = Some((report.server, seen.term));
            absorbed.claims.push(seen.descriptor);
        }
        self.servers.insert(report.server, report.load);
        self.replicas.insert(report.server, report.groups.into_iter().map(|seen| (seen.group, seen)).collect());
        absorbed
    }

    fn see_group(&mut self, server: ServerId, seen: &GroupSeen) -> bool {
        let view = self.groups.entry(seen.group).or_default();
        let (term_before, leader_before) = (view.term, view.leader);
        // A term without a leader counts only if the leader itself says it. Another member may stand for election, tell of its term
        // here and be lost before it tells the group: its leader goes on in the earlier term.
        let counts = seen.leader.is_some() || view.leader == Some(server);
        if seen.term > view.term && counts {
            (view.term, view.leader) = (seen.term, seen.leader);
        } else if seen.term == view.term {
            view.leader = view.leader.or(seen.leader);
        }
        if view.leader == Some(server) && seen.leader == Some(server) && seen.term >= view.term {
            view.applied = seen.applied;
            view.compared = seen.compared;
            view.members.clone_from(&seen.members);
            // The leader reports all regions of the group: others no longer exist.
            view.regions.clear();
        } else if view.leader == Some(server) && seen.term >= view.term {
            // It no longer leads, and no other server does yet: no region of the group is asked for anything.
            view.regions.values_mut().for_each(|region| region.load = v1::RegionLoad::default());
        }
        debug_assert!(view.term >= term_before, "group {} went back from term {term_before}", seen.group);
        view.leader != leader_before
    }

    /// Whether the leader is another one than that of the last election.
    fn elected(&mut self, group: GroupId, term: u64) -> Option<Election> {
        let view = self.groups.get_mut(&group)?;
        let to = view.leader?;
        let from = view.elected.replace(to);
        (from != Some(to)).then_some(Election { group, from, to, term })
    }

    /// The leader has handed over to another server by order; its next reports say so themselves. Returns the election,
    /// unless a report already brought it.
    pub fn handed_over(&mut self, group: GroupId, to: ServerId) -> Option<Election> {
        self.groups.get_mut(&group)?.leader = Some(to);
        self.elected(group, 0)
    }

    /// Records that a server followed an order as leader, unless a report has named the leader.
    pub fn hint_leader(&mut self, group: GroupId, server: ServerId) {
        let view = self.groups.entry(group).or_default();
        view.leader = view.leader.or(Some(server));
    }

    /// The leader has named the group's members in its answer to an order.
    pub fn note_members(&mut self, group: GroupId, members: Vec<MemberSeen>) {
        self.groups.entry(group).or_default().members = members;
    }

    /// A server has created its replica of a group by an order.
    pub fn note_replica(&mut self, server: ServerId, group: GroupId, replica: ReplicaId) {
        let replicas = self.replicas.entry(server).or_default();
        if replicas.get(&group).is_none_or(|seen| seen.replica != replica) {
            replicas.insert(group, GroupSeen { group, replica, ..GroupSeen::default() });
        }
    }

    /// A server has removed its replica of a group by an order.
    pub fn forget_replica(&mut self, server: ServerId, group: GroupId) {
        if let Some(replicas) = self.replicas.get_mut(&server) {
            replicas.remove(&group);
        }
    }

    /// The replicas on a server as of its last report; `None` if it has not reported to this master.
    pub fn replicas(&self, server: ServerId) -> Option<&BTreeMap<GroupId, GroupSeen>> {
        self.replicas.get(&server)
    }

    /// The servers of a group's replicas that are damaged.
    pub fn damaged(&self, group: GroupId) -> BTreeSet<ServerId> {
        let is_damaged = |(server, replicas): (&ServerId, &BTreeMap<GroupId, GroupSeen>)| {
            replicas.get(&group).is_some_and(|seen| seen.damaged).then_some(*server)
        };
        self.replicas.iter().filter_map(is_damaged).collect()
    }

    /// A group as of the newest reports.
    pub fn group(&self, group: GroupId) -> Option<&GroupView> {
        self.groups.get(&group)
    }

    /// The groups that were recovered after they had lost their majority, each with its newest term.
    pub fn recovered(&self) -> impl Iterator<Item = (GroupId, u64)> {
        let terms = self.groups.iter().map(|(group, view)| (*group, view.term));
        terms.filter(|(_, term)| *term >= RECOVERY_TERMS)
    }

    /// A group's leader in its newest term.
    pub fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.groups.get(&group).and_then(|view| view.leader)
    }

    /// A group's leader, once it serves the group's regions: a server is elected before it knows all that it has to apply.
    pub fn serving_leader(&self, group: GroupId) -> Option<ServerId> {
        let view = self.groups.get(&group)?;
        view.leader.filter(|leader| view.serves == Some((*leader, view.term)))
    }

    /// The leader, or while there is none, the one before.
    pub fn last_leader(&self, group: GroupId) -> Option<ServerId> {
        self.groups.get(&group).and_then(|view| view.leader.or(view.elected))
    }

    /// A region as its leader reported it.
    pub fn region(&self, group: GroupId, region: RegionId) -> Option<&RegionView> {
        self.groups.get(&group)?.regions.get(&region)
    }

    /// A server's load as last reported.
    pub fn load(&self, server: ServerId) -> Option<&ServerLoad> {
        self.servers.get(&server)
    }

    /// The groups a server leads.
    pub fn led_by(&self, server: ServerId) -> impl Iterator<Item = GroupId> {
        self.groups.iter().filter(move |(_, view)| view.leader == Some(server)).map(|(group, _)| *group)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::scripts::{Line, number};
    use crate::catalog::tests::descriptor;

    const GROUP: GroupId = GroupId(1);

    impl MemberSeen {
        /// A voter that answers and has applied the log up to an index.
        pub(crate) fn voting(replica: u64, server: u64, applied: u64) -> Self {
            let (replica, server) = (ReplicaId(replica), ServerId(server));
            let (voter, alive, matched) = (true, true, applied);
            Self { replica, server, voter, matched, applied, lags: false, alive, copy_bytes: 0, copied_bytes: 0 }
        }
    }

    impl RegionSeen {
        /// An open region without load.
        pub(crate) fn open(descriptor: RegionDescriptor, bytes: u64, term: u64) -> Self {
            let (state, load, counts) = (RegionState::Open, Default::default(), Default::default());
            Self { descriptor, bytes, state, term, load, shape: None, counts }
        }
    }

    /// `report s1 term=2 leader=s1 regions=7:100,8:5`: regions with their bytes.
    fn report(line: &Line<'_>) -> Report {
        let term = number(line.argument("term").expect("term=TERM"));
        let regions = line.argument("regions").into_iter().flat_map(|regions| regions.split(',')).map(|region| {
            let (region, bytes) = region.split_once(':').expect("REGION:BYTES");
            let descriptor = RegionDescriptor { group: GROUP, ..descriptor(number(region), "", "", 1) };
            RegionSeen::open(descriptor, number(bytes), term)
        });
        let leader = line.argument("leader").map(|leader| ServerId(number(leader)));
        Report {
            server: ServerId(line.number(1)),
            groups: vec![GroupSeen { group: GROUP, term, leader, applied: term * 10, ..GroupSeen::default() }],
            regions: regions.collect(),
            load: ServerLoad::default(),
        }
    }

    #[test]
    fn reports_of_leaders() {
        terrane_testscript::check_scripts(
            concat!(env!("CARGO_MANIFEST_DIR"), "/src/servers/inventory/testdata"),
            || {
                let mut inventory = Inventory::default();
                move |text, out| {
                    let line = Line::of(text);
                    match line.words[0] {
                        "report" => {
                            let Absorbed { claims, leaders_changed, .. } = inventory.absorb(report(&line));
                            writeln!(out, "claims={} leaders_changed={leaders_changed}", claims.len()).unwrap();
                        }
                        "serving" => match inventory.serving_leader(GROUP) {
                            Some(server) => writeln!(out, "s{server}").unwrap(),
                            None => writeln!(out, "none").unwrap(),
                        },
                        "hint" => inventory.hint_leader(GROUP, ServerId(line.number(1))),
                        "show" => show(&inventory, out),
                        other => panic!("no such command: {other}"),
                    }
                }
            },
        );
    }

    fn show(inventory: &Inventory, out: &mut String) {
        let view = inventory.group(GROUP).expect("a group that was reported");
        let leader = view.leader.map_or_else(|| "none".to_owned(), |leader| format!("s{leader}"));
        let regions: Vec<_> = view.regions.iter().map(|(region, view)| format!(" r{region}={}", view.bytes)).collect();
        writeln!(out, "g1 term={} leader={leader} applied={}{}", view.term, view.applied, regions.concat()).unwrap();
    }

    #[test]
    fn few_entries_that_take_long_are_behind() {
        let member = |server, applied, lags| MemberSeen { applied, lags, ..MemberSeen::voting(server, server, 40) };
        let (leader, busy, fetching) = (member(1, 40, false), member(2, 38, false), member(3, 38, true));
        let view =
            GroupView { leader: Some(ServerId(1)), members: vec![leader, busy, fetching], ..GroupView::default() };
        assert_eq!(
            view.members.iter().map(|member| view.is_caught_up(member)).collect::<Vec<_>>(),
            [true, true, false]
        );
    }
}
