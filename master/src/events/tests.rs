//! Tests of the events: scripts of catalogs and reports, each look's events as text.

use std::time::Duration;

use terrane_proto::v1;

use super::*;
use crate::catalog::scripts::{self, Line};
use crate::inventory::{GroupSeen, Inventory, RegionSeen, Report, ServerLoad};
use crate::liveness::Liveness;

struct Scene {
    catalog: Catalog,
    observed: Observations,
    events: Events,
    now_ms: u64,
}

impl Scene {
    fn new() -> Self {
        let liveness = Liveness::new(Duration::from_secs(3), Moment(0));
        let observed = Observations { liveness, inventory: Inventory::default() };
        let mut scene = Self { catalog: Catalog::default(), observed, events: Events::default(), now_ms: 0 };
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
        let edit = scripts::edit(&Line::of(text)).unwrap();
        let outcome = self.catalog.apply(&edit, 1);
        assert!(!matches!(outcome, crate::catalog::Outcome::Refused(_)), "{text}: {outcome:?}");
    }

    fn at(&self) -> (Moment, u64) {
        (Moment(self.now_ms), 1_000_000 + self.now_ms)
    }

    /// A report of a server, by which this server leads group 1.
    fn report(&mut self, server: u64, leader: u64, term: u64) {
        let server = ServerId(server);
        self.observed.liveness.heard(server, 1, Moment(self.now_ms)).unwrap();
        let group = GroupSeen { group: GroupId(1), term, leader: Some(ServerId(leader)), ..GroupSeen::default() };
        let regions = self.catalog.regions().iter().map(|entry| RegionSeen {
            descriptor: entry.descriptor.clone(),
            bytes: 3 << 20,
            state: "open".to_owned(),
            term,
            load: v1::RegionLoad { rows_read: 40, rows_written: 2, bytes: 9 },
            shape: None,
        });
        let regions = if server.0 == leader { regions.collect() } else { Vec::new() };
        let report = Report { server, groups: vec![group], regions, load: ServerLoad::default() };
        let absorbed = self.observed.inventory.absorb(report);
        self.events.elected(&self.catalog, &self.observed, &absorbed.elections, self.at());
    }

    fn look(&mut self) {
        let wall_ms = self.at().1;
        self.events.look(&self.catalog, &self.observed, wall_ms);
    }

    /// The events since the last call, oldest first.
    fn news(&mut self) -> Vec<String> {
        self.look();
        let line = |event: &Event| match &event.reason[..] {
            "" => format!("{}: {}", event.kind, event.what),
            reason => format!("{}: {}; {reason}", event.kind, event.what),
        };
        self.events.events.drain(..).map(|event| line(&event)).collect()
    }
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
    assert_eq!(scene.news(), ["election: server 2 leads group 1 after server 1, in term 2"]);
    scene.edit("drain s2");
    scene.report(3, 3, 3);
    let news = scene.news();
    assert_eq!(news[0], "handover: server 3 leads group 1 after server 2, in term 3; server 2 is drained");
    assert_eq!(news[1], "drain: server 2 is drained; asked by an administrator");
    assert!(scene.events.failovers.is_empty());
}

#[test]
fn the_ring_keeps_the_newest_events_and_pages_through_them() {
    let mut events = Events::default();
    events.lead(1, "m:1", 1);
    for number in 0..EVENTS_MAX as u64 + 5 {
        events.note(number, "table", format!("event {number}"), String::new(), Vec::new());
    }
    assert_eq!(events.events.len(), EVENTS_MAX);
    let newest = events.newest(0, 2);
    let older = events.newest(newest[1].number, 1);
    assert_eq!(newest[1].number - older[0].number, 1);
}
