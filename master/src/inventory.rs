//! What servers report about groups and regions: leaders, sizes, progress. In memory only, without I/O.
//!
//! Reports arrive late and out of order, so terms decide: a group's leader is that of its newest term, and only this
//! leader describes the group's regions. Regions whose descriptors may differ from the map (after a split) are returned
//! as claims, which the catalog accepts or ignores by epoch.

use std::collections::BTreeMap;

use terrane_proto::v1;
use terrane_types::{GroupId, RegionDescriptor, RegionId, ServerId};

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
#[derive(Clone, Copy, Debug)]
pub struct GroupSeen {
    /// The group.
    pub group: GroupId,
    /// Its term.
    pub term: u64,
    /// The leader it follows in that term.
    pub leader: Option<ServerId>,
    /// Its applied index.
    pub applied: u64,
}

/// One region, as reported by its leader.
#[derive(Clone, Debug)]
pub struct RegionSeen {
    /// The region as of its log.
    pub descriptor: RegionDescriptor,
    /// Its size.
    pub bytes: u64,
    /// Its state.
    pub state: String,
    /// The term in which the reporter leads the region's group.
    pub term: u64,
    /// What is requested of it, per second.
    pub load: v1::RegionLoad,
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
    /// Its other health issues.
    pub issues: Vec<String>,
    /// Its limited resources, kept in the wire's form because they are only passed on.
    pub resources: Vec<v1::ResourceUsage>,
}

/// A group as of the newest reports.
#[derive(Clone, Debug, Default)]
pub struct GroupView {
    /// The newest reported term.
    pub term: u64,
    /// Its leader.
    pub leader: Option<ServerId>,
    /// The leader's applied index.
    pub applied: u64,
    regions: BTreeMap<RegionId, RegionView>,
}

/// A region's size and state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionView {
    /// Its size.
    pub bytes: u64,
    /// Its state.
    pub state: String,
    /// What is requested of it, per second.
    pub load: v1::RegionLoad,
}

/// What a report changed.
#[derive(Debug, Default)]
pub struct Absorbed {
    /// The regions as their leaders reported them.
    pub claims: Vec<RegionDescriptor>,
    /// Whether the leader of a group changed.
    pub leaders_changed: bool,
}

/// Everything that has been reported.
#[derive(Debug, Default)]
pub struct Inventory {
    groups: BTreeMap<GroupId, GroupView>,
    servers: BTreeMap<ServerId, ServerLoad>,
}

impl Inventory {
    /// Processes a report.
    pub fn absorb(&mut self, report: Report) -> Absorbed {
        let mut absorbed = Absorbed::default();
        for seen in &report.groups {
            absorbed.leaders_changed |= self.see_group(report.server, seen);
        }
        for seen in report.regions {
            let Some(view) = self.groups.get_mut(&seen.descriptor.group) else { continue };
            // A deposed leader reports outdated regions.
            if view.leader != Some(report.server) || seen.term < view.term {
                continue;
            }
            let region = RegionView { bytes: seen.bytes, state: seen.state, load: seen.load };
            view.regions.insert(seen.descriptor.region, region);
            absorbed.claims.push(seen.descriptor);
        }
        self.servers.insert(report.server, report.load);
        absorbed
    }

    fn see_group(&mut self, server: ServerId, seen: &GroupSeen) -> bool {
        let view = self.groups.entry(seen.group).or_default();
        let (term_before, leader_before) = (view.term, view.leader);
        if seen.term > view.term {
            (view.term, view.leader) = (seen.term, seen.leader);
        } else if seen.term == view.term {
            view.leader = view.leader.or(seen.leader);
        }
        if view.leader == Some(server) && seen.term >= view.term {
            view.applied = seen.applied;
            // The leader reports all regions of the group: others no longer exist.
            view.regions.clear();
        }
        debug_assert!(view.term >= term_before, "group {} went back from term {term_before}", seen.group);
        view.leader != leader_before
    }

    /// Records that a server followed an order as leader, unless a report has named the leader.
    pub fn hint_leader(&mut self, group: GroupId, server: ServerId) {
        let view = self.groups.entry(group).or_default();
        view.leader = view.leader.or(Some(server));
    }

    /// A group as of the newest reports.
    pub fn group(&self, group: GroupId) -> Option<&GroupView> {
        self.groups.get(&group)
    }

    /// A group's leader in its newest term.
    pub fn leader(&self, group: GroupId) -> Option<ServerId> {
        self.groups.get(&group).and_then(|view| view.leader)
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

    /// `report s1 term=2 leader=s1 regions=7:100,8:5`: regions with their bytes.
    fn report(line: &Line<'_>) -> Report {
        let term = number(line.argument("term").expect("term=TERM"));
        let regions = line.argument("regions").into_iter().flat_map(|regions| regions.split(',')).map(|region| {
            let (region, bytes) = region.split_once(':').expect("REGION:BYTES");
            let descriptor = RegionDescriptor { group: GROUP, ..descriptor(number(region), "", "", 1) };
            RegionSeen { descriptor, bytes: number(bytes), state: "open".into(), term, load: v1::RegionLoad::default() }
        });
        let leader = line.argument("leader").map(|leader| ServerId(number(leader)));
        Report {
            server: ServerId(line.number(1)),
            groups: vec![GroupSeen { group: GROUP, term, leader, applied: term * 10 }],
            regions: regions.collect(),
            load: ServerLoad::default(),
        }
    }

    #[test]
    fn reports_of_leaders() {
        terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/inventory/testdata"), || {
            let mut inventory = Inventory::default();
            move |text, out| {
                let line = Line::of(text);
                match line.words[0] {
                    "report" => {
                        let Absorbed { claims, leaders_changed } = inventory.absorb(report(&line));
                        writeln!(out, "claims={} leaders_changed={leaders_changed}", claims.len()).unwrap();
                    }
                    "hint" => inventory.hint_leader(GROUP, ServerId(line.number(1))),
                    "show" => show(&inventory, out),
                    other => panic!("no such command: {other}"),
                }
            }
        });
    }

    fn show(inventory: &Inventory, out: &mut String) {
        let view = inventory.group(GROUP).expect("a group that was reported");
        let leader = view.leader.map_or_else(|| "none".to_owned(), |leader| format!("s{leader}"));
        let regions: Vec<_> = view.regions.iter().map(|(region, view)| format!(" r{region}={}", view.bytes)).collect();
        writeln!(out, "g1 term={} leader={leader} applied={}{}", view.term, view.applied, regions.concat()).unwrap();
    }
}
