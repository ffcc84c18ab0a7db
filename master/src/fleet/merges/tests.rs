//! Which neighbours are brought together, and what follows.

use std::time::Duration;

use terrane_types::{GroupId, ServerId};

use super::*;
use crate::catalog::{CatalogEdit, scripts};
use crate::fleet::loads::LoadAverages;
use crate::fleet::world::World;
use crate::servers::inventory::{GroupSeen, Inventory, MemberSeen, RegionSeen, Report};
use crate::servers::liveness::{Liveness, Moment};

const NOW_MS: u64 = 10_000_000;

/// One table of two regions, in two groups on two servers.
struct Scene {
    catalog: Catalog,
    observed: Observations,
}

/// What the leader reports of a region.
#[derive(Clone, Copy)]
struct Reported {
    kib: u64,
    age_ms: u64,
    planned_at: &'static str,
}

const SMALL: Reported = Reported { kib: 100, age_ms: NOW_MS, planned_at: "" };

impl Scene {
    fn new(reported: [Reported; 2]) -> Self {
        let mut scene = Self {
            catalog: Catalog::default(),
            observed: Observations {
                liveness: Liveness::new(Duration::from_secs(3), Moment(0)),
                inventory: Inventory::default(),
            },
        };
        ["bootstrap replication=1", "add-server s1:1", "add-server s2:1", "add-groups first=g1 s1 s2", "open-group g1"]
            .iter()
            .chain(&["open-group g2", "create-table t split=m groups=g1,g2", "enable-table t1"])
            .for_each(|text| scene.apply(text));
        scene.report(reported);
        scene
    }

    fn apply(&mut self, text: &str) {
        scripts::must_apply(&mut self.catalog, text);
    }

    fn report(&mut self, reported: [Reported; 2]) {
        let regions: Vec<_> = self.catalog.regions().iter().map(|entry| entry.descriptor.clone()).collect();
        for number in 1..=2 {
            let (server, group) = (ServerId(number), GroupId(number));
            self.observed.liveness.live(server, 1, Moment(0)).expect("the first boot");
            let replica = *self.catalog.groups().get(group).expect("a group").members.keys().next().expect("a member");
            let seen =
                regions.iter().zip(reported).filter(|(region, _)| region.group == group).map(|(region, reported)| {
                    let shape = v1::RegionShape {
                        planned_start: reported.planned_at.as_bytes().to_vec().into(),
                        age_ms: reported.age_ms,
                        ..v1::RegionShape::default()
                    };
                    RegionSeen { shape: Some(shape), ..RegionSeen::open(region.clone(), reported.kib << 10, 1) }
                });
            let group = GroupSeen {
                group,
                replica,
                term: 1,
                leader: Some(server),
                members: vec![MemberSeen::voting(replica.0, number, 1)],
                ..GroupSeen::default()
            };
            let report = Report { server, groups: vec![group], regions: seen.collect(), ..Report::default() };
            self.observed.inventory.absorb(report);
        }
    }

    fn plan(&self) -> Option<RegionStep> {
        // Long after the servers joined.
        let world = World::of(&self.catalog, &self.observed, Moment(60_000), Duration::from_secs(300));
        let spread = shares::spread(&self.catalog, &self.observed, &LoadAverages::default(), &world, NOW_MS);
        assert_eq!(spread.hold, None);
        plan(&self.catalog, &self.observed, &spread, NOW_MS)
    }
}

#[test]
fn the_smaller_of_two_small_neighbours_moves_and_then_they_merge() {
    let mut scene = Scene::new([SMALL, Reported { kib: 50, ..SMALL }]);
    let step = scene.plan().expect("a move");
    assert_eq!((step.region, step.to.0, step.merge_with), (RegionId(2), GroupId(1), Some(RegionId(1))));
    assert!(step.why.contains("150 KiB"), "{}", step.why);
    scene.apply("begin-move r2@1 to=g1 reason=merge with=r1");
    assert_eq!(scene.plan(), None, "one pair at a time");
    assert_eq!(due(&scene.catalog, 2).count(), 0);
    scene.apply("end-move m1 moved=r2@2[m,):g1");
    let pairs: Vec<_> = due(&scene.catalog, 2).map(|(one, other)| (one.region, other.region)).collect();
    assert_eq!(pairs, [(RegionId(2), RegionId(1))]);
    assert_eq!(due(&scene.catalog, NOW_MS).count(), 0, "long ago");
    let merged = CatalogEdit::IndexRegions {
        regions: vec![RegionDescriptor { epoch: terrane_types::RegionEpoch(3), ..scene.region(1, "", "") }],
    };
    scene.catalog.apply(&merged, 3);
    assert_eq!((scene.catalog.regions().len(), due(&scene.catalog, 3).count()), (1, 0));
}

impl Scene {
    fn region(&self, region: u64, start: &'static str, end: &'static str) -> RegionDescriptor {
        let known = self.catalog.regions().get(RegionId(region)).expect("a region").descriptor.clone();
        RegionDescriptor { range: terrane_types::KeyRange::new(start, end).expect("a range"), ..known }
    }
}

#[test]
fn regions_that_are_large_young_or_apart_by_plan_stay() {
    let large = Reported { kib: 4 << 20, ..SMALL };
    let young = Reported { age_ms: 1_000, ..SMALL };
    let planned = Reported { planned_at: "m", ..SMALL };
    for (what, shape) in [("large", large), ("young", young), ("created apart", planned)] {
        assert_eq!(Scene::new([SMALL, shape]).plan(), None, "{what}");
    }
}
