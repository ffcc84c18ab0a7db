//! Scripts over a catalog and reports of servers: strays, grace times, restarts, checks, and what an administrator asks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use terrane_types::{ClusterId, ReplicaId, ServerId};

use super::*;
use crate::catalog::groups::GroupEntry;
use crate::catalog::rebuilt::Found;
use crate::catalog::scripts::{self, Line, number};
use crate::catalog::{Bootstrap, Catalog};
use crate::server::config::SURPLUS_AFTER_DEFAULT;
use crate::servers::inventory::{GroupSeen, Inventory, MemberSeen, RegionSeen, Report};
use crate::servers::liveness::{Liveness, Moment, NoAnswer};
use crate::servers::observed::Observations;

struct Scene {
    catalog: Catalog,
    observed: Observations,
    now: Moment,
    surplus: surplus::Surplus,
    repair: repair::Repair,
    /// The last report of each server, which `pass` repeats.
    reports: BTreeMap<ServerId, String>,
}

impl Scene {
    fn new() -> Self {
        let liveness = Liveness::new(Duration::from_secs(3), Moment(0));
        Self {
            catalog: Catalog::default(),
            observed: Observations { liveness, inventory: Inventory::default() },
            now: Moment(0),
            surplus: surplus::Surplus::default(),
            repair: repair::Repair::default(),
            reports: BTreeMap::new(),
        }
    }

    /// `report s1 g1=8 leader=s1 members=8@s1,9@s2:behind,11@s4:learner regions=1@1`: the server has replica 8 of group 1.
    fn report(&mut self, line: &Line<'_>) {
        let server = ServerId(line.number(1));
        self.observed.liveness.live(server, 1, self.now).expect("the first boot");
        let term = line.argument("term").map_or(1, number);
        let leader = line.argument("leader").map(|leader| ServerId(number(leader)));
        let list = |name: &str| {
            line.argument(name).into_iter().flat_map(|list| list.split(',')).filter(|part| !part.is_empty())
        };
        let groups = (1..=3).filter_map(|group| {
            let replica = ReplicaId(number(line.argument(&format!("g{group}"))?));
            let members = if leader == Some(server) { list("members").map(member).collect() } else { Vec::new() };
            let damaged = line.argument("damaged") == Some(&format!("g{group}"));
            let regions = line.argument(&format!("has{group}")).map(|count| u32::try_from(number(count)).unwrap());
            let seen =
                GroupSeen { group: GroupId(group), replica, term, leader, members, regions, ..GroupSeen::default() };
            Some(GroupSeen { damaged, discardable: !line.words.contains(&"elsewhere"), ..seen })
        });
        let regions = list("regions").map(|region| {
            let (region, epoch) = region.split_once('@').expect("REGION@EPOCH");
            let descriptor = crate::catalog::tests::descriptor(number(region), "", "", number(epoch));
            RegionSeen::open(descriptor, 1, term)
        });
        let orphans = line.argument("orphans").map(|bytes| {
            let first = "engine/incoming/9/1".to_owned();
            terrane_proto::v1::OrphanFiles { files: 2, bytes: number(bytes), first }
        });
        let load = crate::servers::inventory::ServerLoad { orphans, ..Default::default() };
        let report = Report { server, groups: groups.collect(), regions: regions.collect(), load };
        let deposed = self.observed.inventory.absorb(report).deposed;
        deposed.iter().for_each(|server| self.observed.liveness.deposed(*server, self.now));
    }

    fn world(&self) -> World {
        World::of(&self.catalog, &self.observed, self.now, Duration::from_secs(300))
    }

    /// `surplus each=1 [mixed]`: what is done about surplus groups.
    fn look_at_surplus(&mut self, line: &Line<'_>, out: &mut String) {
        let world = self.world();
        let spread = shares::spread(&self.catalog, &self.observed, &Default::default(), &world, 1_000_000);
        let each = line.argument("each").map_or(1, |each| each.parse().unwrap());
        let (catalog, observed, mixed_builds) = (&self.catalog, &self.observed, line.words.contains(&"mixed"));
        let sight = surplus::Sight {
            catalog,
            observed,
            world: &world,
            spread: &spread,
            each,
            calm: SURPLUS_AFTER_DEFAULT,
            mixed_builds,
        };
        match self.surplus.look(&sight, self.now) {
            surplus::Next::Nothing => write!(out, "nothing").unwrap(),
            surplus::Next::Move(steps) => {
                let steps: Vec<String> = steps.iter().map(|step| format!("move {}", step.describe())).collect();
                write!(out, "{}", steps.join(", ")).unwrap();
            }
            surplus::Next::Remove(group) => write!(out, "remove group {group}").unwrap(),
        }
        let held = self.surplus.held().map_or_else(String::new, |held| format!(" ({held})"));
        writeln!(out, "{held}").unwrap();
    }

    fn command(&mut self, text: &str, out: &mut String) {
        let line = Line::of(text);
        match line.words[0] {
            "at" => {
                self.now = Moment(line.number(1) * 1_000);
                self.observed.liveness.tick(self.now);
            }
            "report" => {
                self.reports.insert(ServerId(line.number(1)), text.to_owned());
                self.report(&line);
            }
            // So many seconds pass, in which every server goes on reporting the same.
            "pass" => {
                for _ in 0..line.number(1) {
                    self.now = Moment(self.now.0 + 1_000);
                    self.observed.liveness.tick(self.now);
                    for text in self.reports.clone().into_values() {
                        self.report(&Line::of(&text));
                    }
                }
            }
            "strays" => {
                let strays = strays::find(&self.catalog, &self.observed, self.now);
                strays.iter().for_each(|stray| writeln!(out, "{stray:?}").unwrap());
            }
            // The catalog was lost, and is rebuilt from what the servers have.
            "rebuild" => {
                let (servers, groups) = (self.catalog.servers().iter(), self.catalog.groups().iter());
                let found = Found {
                    bootstrap: Bootstrap { cluster: ClusterId([7; 16]), peers: Vec::new(), replication: 3 },
                    incarnation: 1,
                    servers: servers.map(|(server, known)| (server, known.clone())).collect(),
                    groups: groups
                        .map(|(group, entry)| (group, GroupEntry { change: None, ..entry.clone() }))
                        .collect(),
                    schemas: Vec::new(),
                    claims: Vec::new(),
                    drop: BTreeSet::new(),
                };
                self.catalog = Catalog::rebuilt(found).unwrap();
            }
            "succeeded" => {
                let grace = Duration::from_secs(300);
                let gone = successors::find(&self.catalog, &self.observed.liveness, self.now, grace);
                let gone: Vec<String> = gone.iter().map(|server| format!("s{server}")).collect();
                writeln!(out, "{}", if gone.is_empty() { "none".to_owned() } else { gone.join(" ") }).unwrap();
            }
            "surplus" => self.look_at_surplus(&line, out),
            // A call to a server that reports does not lead to it.
            "strange" => {
                let (server, now) = (ServerId(line.number(1)), self.now);
                let liveness = &mut self.observed.liveness;
                let boot = liveness.boot(server);
                liveness.heard(server, boot.max(1), now).unwrap();
                let answer = Err(NoAnswer { why: "another server answers".to_owned(), by_another: true });
                liveness.called(server, boot.max(1), answer, now);
            }
            "displace" => drop(self.observed.liveness.displaced(ServerId(line.number(1)))),
            "conditions" => {
                for (server, view) in self.world().servers {
                    writeln!(out, "s{server} {:?} settled={}", view.condition, view.settled).unwrap();
                }
            }
            "unfit" => {
                for (group, view) in self.world().groups {
                    view.unfit
                        .iter()
                        .for_each(|(server, unfit)| writeln!(out, "g{group} s{server} {unfit:?}").unwrap());
                }
            }
            "restart-check" => {
                let obstacles = restart::obstacles(&self.catalog, &self.observed, ServerId(line.number(1)));
                writeln!(out, "{}", if obstacles.is_empty() { "safe".to_owned() } else { obstacles.join("; ") })
                    .unwrap();
            }
            "check" => {
                let found = check::check(&self.catalog, &self.observed, self.now).findings;
                found.iter().for_each(|finding| writeln!(out, "{}: {}", finding.kind, finding.what).unwrap());
                if found.is_empty() {
                    writeln!(out, "no findings").unwrap();
                }
            }
            "copies" => {
                let short = copies::short(&self.catalog, &self.observed, self.now);
                let issues = copies::issues(&short, self.catalog.replication());
                issues.iter().for_each(|issue| writeln!(out, "{}: {}", issue.kind.name(), issue.what).unwrap());
                if issues.is_empty() {
                    writeln!(out, "whole").unwrap();
                }
            }
            "repair" => {
                let lost = recovery::without_majority(&self.catalog, &self.observed, self.now).len();
                let grace = Duration::from_secs(300);
                let sight = repair::Sight::of(&self.catalog, &self.observed, self.now, grace, lost);
                self.repair.look(&sight, self.now);
                let obstacles = planner::obstacles(&self.world());
                match self.repair.info(&sight, &obstacles, self.now) {
                    None => writeln!(out, "every group is whole").unwrap(),
                    Some(info) => writeln!(
                        out,
                        "{} of {} groups whole for {} ms, left {} ms, {} of {} bytes ({})",
                        info.whole,
                        info.groups,
                        info.since_ms,
                        info.left_ms,
                        info.copied_bytes,
                        info.bytes,
                        info.waits_for
                    )
                    .unwrap(),
                }
            }
            "may-drain" => said(intents::check_drain(&self.world(), ServerId(line.number(1))), out),
            "may-decommission" => {
                let server = ServerId(line.number(1));
                said(intents::check_decommission(&self.catalog, &self.world(), server), out);
            }
            "may-replicate" => {
                let replication = u32::try_from(line.number(1)).unwrap();
                said(intents::check_replication(&self.world(), replication), out);
            }
            "resolve" => said(intents::resolve(self.catalog.servers(), line.words[1]).map(drop), out),
            "cancel" => {
                let edit = intents::cancellation(&self.catalog, line.words[1]);
                let shown = edit.as_ref().map(|edit| format!("{edit:?}"));
                writeln!(out, "{}", shown.unwrap_or_else(|refused| format!("refused: {refused}"))).unwrap();
            }
            "show" => line.words[1..].iter().for_each(|part| scripts::show(&self.catalog, part, out)),
            _ => scripts::apply(&mut self.catalog, &scripts::edit(&line), 1, &mut String::new()),
        }
    }
}

fn said(answer: Result<(), Error>, out: &mut String) {
    writeln!(out, "{}", answer.map_or_else(|refused| format!("refused: {refused}"), |()| "yes".to_owned())).unwrap();
}

/// `9@s2`, with `:behind` (in its log), `:unapplied`, `:learner` or `:silent`.
fn member(text: &str) -> MemberSeen {
    let mut parts = text.split(':');
    let (replica, server) = parts.next().and_then(|member| member.split_once('@')).expect("REPLICA@SERVER");
    let marks: Vec<&str> = parts.collect();
    MemberSeen {
        voter: !marks.contains(&"learner"),
        matched: if marks.contains(&"behind") { 10 } else { 1_000 },
        applied: if marks.contains(&"unapplied") { 10 } else { 1_000 },
        alive: !marks.contains(&"silent"),
        ..MemberSeen::voting(number(replica), number(server), 1_000)
    }
}

#[test]
fn scenes() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/fleet/testdata"), || {
        let mut scene = Scene::new();
        move |text: &str, out: &mut String| scene.command(text, out)
    });
}
