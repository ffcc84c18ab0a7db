//! Tests of the events: scripts of catalogs and reports, each look's events as text.

use std::fmt::Write as _;
use std::time::Duration;

use terrane_proto::v1;

use super::*;
use crate::catalog::scripts::{self, Line};
use crate::servers::inventory::{GroupSeen, Inventory, RegionSeen, Report, ServerLoad};
use crate::servers::liveness::Liveness;

struct Scene {
    catalog: Catalog,
    observed: Observations,
    events: Events,
    now_ms: u64,
    /// The boot number of the servers that report.
    boot: u64,
}

impl Scene {
    fn empty() -> Self {
        let liveness = Liveness::new(Duration::from_secs(3), Moment(0));
        let observed = Observations { liveness, inventory: Inventory::default() };
        Self { catalog: Catalog::default(), observed, events: Events::default(), now_ms: 0, boot: 1 }
    }

    fn new() -> Self {
        let mut scene = Self::empty();
        let edits = [
            "bootstrap replication=3",
            "add-server a:1",
            "add-server b:1",
            "add-server c:1",
            "add-groups first=g1 s1,s2,s3",
            "open-group g1",
        ];
        edits.iter().for_each(|edit| scene.edit(edit));
        scene.events.lead(0, "m:1", 5);
        scene
    }

    fn edit(&mut self, text: &str) {
        scripts::must_apply(&mut self.catalog, text);
    }

    fn at(&self) -> (Moment, u64) {
        (Moment(self.now_ms), 1_000_000 + self.now_ms)
    }

    /// A report as a leading master takes it: what it says of groups, then its regions, which enter the map.
    fn take(&mut self, report: Report) {
        self.observed.liveness.live(report.server, self.boot, Moment(self.now_ms)).unwrap();
        let absorbed = self.observed.inventory.absorb(report);
        self.events.elected(&self.catalog, &self.observed, &absorbed.elections, self.at());
        self.catalog.apply(&crate::catalog::CatalogEdit::IndexRegions { regions: absorbed.claims }, 1);
    }

    /// A report of a server, by which a server leads group 1.
    fn report(&mut self, server: u64, leader: u64, term: u64) {
        let group = GroupSeen { group: GroupId(1), term, leader: Some(ServerId(leader)), ..GroupSeen::default() };
        let led = self.catalog.regions().iter().filter(|_| server == leader);
        let regions = led.map(|entry| region_seen(entry.descriptor.clone(), term, 3)).collect();
        self.take(Report { server: ServerId(server), groups: vec![group], regions, load: ServerLoad::default() });
    }

    /// `serve s1 g1@2>s1 g2@3 r1@2[,m) r9@1[m,):g2 mib=64`: group 1 in term 2 under server 1, group 2 in term 3 without a
    /// leader, and the regions of the groups that the server leads.
    fn serve(&mut self, line: &Line<'_>) {
        self.boot = line.argument("boot").map_or(1, scripts::number);
        let (mut groups, mut regions) = (Vec::new(), Vec::new());
        let mib = line.argument("mib").map_or(1, scripts::number);
        for word in &line.words[2..] {
            if let Some(group) = word.strip_prefix('g') {
                let (term, leader) = group.split_once('>').map_or((group, None), |(term, leader)| (term, Some(leader)));
                let (group, term) = term.split_once('@').expect("g1@TERM>sLEADER");
                let (group, leader) = (GroupId(scripts::number(group)), leader.map(|id| ServerId(scripts::number(id))));
                groups.push(GroupSeen { group, term: scripts::number(term), leader, ..GroupSeen::default() });
            } else {
                let descriptor = scripts::region(word);
                let term = groups.iter().find(|seen| seen.group == descriptor.group).map_or(0, |seen| seen.term);
                regions.push(region_seen(descriptor, term, mib));
            }
        }
        self.take(Report { server: ServerId(line.number(1)), groups, regions, load: ServerLoad::default() });
    }

    fn look(&mut self) {
        let wall_ms = self.at().1;
        self.events.look(&self.catalog, &self.observed, wall_ms);
    }

    /// The events since the last call, oldest first.
    fn news(&mut self) -> Vec<String> {
        self.look();
        let line = |event: &EventInfo| match &event.reason[..] {
            "" => format!("{}: {}", event.kind, event.what),
            reason => format!("{}: {}; {reason}", event.kind, event.what),
        };
        self.events.events.drain(..).map(|event| line(&event)).collect()
    }

    fn command(&mut self, text: &str, out: &mut String) {
        let line = Line::of(text);
        if let Some(at) = line.argument("at") {
            self.now_ms = scripts::number(at);
        }
        match line.words[0] {
            "lead" => {
                let wall_ms = self.at().1;
                self.observed.liveness.lead(Moment(self.now_ms));
                self.events.lead(wall_ms, line.words[1], line.argument("term").map_or(5, scripts::number));
            }
            "serve" => self.serve(&line),
            "stopping" => self.observed.liveness.stopped(ServerId(line.number(1))),
            "order" => {
                let (group, to) = (GroupId(line.number(1)), ServerId(line.number(2)));
                self.events.ordered(group, to, "it leads more groups than others", Moment(self.now_ms));
            }
            "followed" => {
                let election = self.observed.inventory.handed_over(GroupId(line.number(1)), ServerId(line.number(2)));
                self.events.elected(&self.catalog, &self.observed, election.as_slice(), self.at());
            }
            "look" => {
                self.observed.liveness.tick(Moment(self.now_ms));
                self.news().iter().for_each(|event| writeln!(out, "{event}").unwrap());
            }
            "failovers" => {
                let (now, wall_ms) = self.at();
                for seen in self.events.failovers(&self.catalog, &self.observed, now, wall_ms) {
                    let to = seen.to.map_or_else(|| "none".to_owned(), |to| format!("s{to}"));
                    let blackout = seen.blackout_ms.map_or_else(|| "lasts".to_owned(), |ms| format!("{ms} ms"));
                    writeln!(out, "g{} s{} to {to} {blackout} ({} regions)", seen.group, seen.from, seen.regions)
                        .unwrap();
                }
            }
            // A change that is followed by another before the tables are looked at.
            "unseen" => self.edit(text.trim_start().trim_start_matches("unseen ")),
            _ => {
                self.edit(text);
                let wall_ms = self.at().1;
                self.events.look_at_tables(&self.catalog, wall_ms);
            }
        }
    }
}

fn region_seen(descriptor: RegionDescriptor, term: u64, mib: u64) -> RegionSeen {
    let load = v1::RegionLoad { rows_read: 40, rows_written: 2, bytes: 9 };
    RegionSeen { load, ..RegionSeen::open(descriptor, mib << 20, term) }
}

#[test]
fn events_of_reports_and_edits() {
    terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/history/events/testdata"), || {
        let mut scene = Scene::empty();
        move |text, out| scene.command(text, out)
    });
}

#[test]
fn what_a_new_leader_sees_first_is_no_event() {
    let mut scene = Scene::new();
    (1..=3).for_each(|server| scene.report(server, 1, 1));
    assert_eq!(scene.news(), ["master: the master at m:1 leads; elected in term 5"]);
    assert!(scene.news().is_empty());
}

#[test]
fn a_dead_leader_is_a_failover_with_its_blackout() {
    let mut scene = Scene::new();
    (1..=3).for_each(|server| scene.report(server, 1, 1));
    scene.news();
    scene.now_ms = 500;
    scene.report(1, 1, 1);
    scene.now_ms = 4_000;
    (2..=3).for_each(|server| scene.report(server, 1, 1));
    assert_eq!(scene.observed.liveness.tick(Moment(4_000)), [ServerId(1)]);
    let (now, wall_ms) = scene.at();
    let lasting = scene.events.failovers(&scene.catalog, &scene.observed, now, wall_ms);
    assert_eq!((lasting.len(), lasting[0].to, lasting[0].blackout_ms), (1, None, None));
    scene.now_ms = 4_250;
    scene.report(2, 2, 2);
    let (now, wall_ms) = scene.at();
    let [ended] = &scene.events.failovers(&scene.catalog, &scene.observed, now, wall_ms)[..] else {
        panic!("one ended")
    };
    assert_eq!((ended.from, ended.to, ended.blackout_ms), (ServerId(1), Some(ServerId(2)), Some(3_750)));
    assert_eq!(ended.time_ms, 1_000_500);
    assert_eq!(
        scene.news(),
        [
            "failover: server 2 leads group 1 after server 1, in term 2; server 1 no longer answered",
            "server: server 1 at a:1 is silent; its reports are overdue"
        ]
    );
    scene.report(1, 2, 2);
    assert_eq!(scene.news(), ["server: server 1 at a:1 reports again"]);
}

#[test]
fn a_leader_that_lives_on_has_handed_over_or_lost_an_election() {
    let mut scene = Scene::new();
    (1..=3).for_each(|server| scene.report(server, 1, 1));
    scene.news();
    scene.report(2, 2, 2);
    let why = "server 1 gave up the leadership, or lost it; it still reports";
    assert_eq!(scene.news(), [format!("election: server 2 leads group 1 after server 1, in term 2; {why}")]);
    scene.edit("drain s2");
    scene.report(3, 3, 3);
    let news = scene.news();
    assert_eq!(news[0], "handover: server 3 leads group 1 after server 2, in term 3; server 2 is drained");
    assert_eq!(news[1], "drain: server 2 is being drained; asked by an administrator");
    assert!(scene.events.failovers.is_empty());
}

#[test]
fn the_ring_keeps_the_newest_events_and_pages_through_them() {
    let mut events = Events::default();
    events.lead(1, "m:1", 1);
    for number in 0..EVENTS_MAX as u64 + 5 {
        events.note(number, EventKind::Table, format!("event {number}"), String::new(), Vec::new());
    }
    assert_eq!(events.events.len(), EVENTS_MAX);
    let newest = events.newest(0, 2);
    let older = events.newest(newest[1].number, 1);
    assert_eq!(newest[1].number - older[0].number, 1);
}
