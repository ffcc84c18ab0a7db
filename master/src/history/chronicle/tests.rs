//! Tests of which reports count as load.

use terrane_proto::v1;
use terrane_types::{GroupId, RegionDescriptor, ServerId};

use super::*;
use crate::catalog::scripts::{must_apply, region};
use crate::servers::inventory::{GroupSeen, Inventory, RegionSeen, Report, ServerLoad};
use crate::servers::liveness::Liveness;

struct Scene {
    catalog: Catalog,
    observed: Observations,
}

impl Scene {
    /// A table of one region, in a group that server 1 leads.
    fn new() -> Self {
        let mut catalog = Catalog::default();
        for line in [
            "bootstrap replication=3",
            "add-server a:1",
            "add-server b:1",
            "add-server c:1",
            "add-groups first=g1 s1,s2,s3",
            "open-group g1",
            "create-table t",
            "enable-table t1",
        ] {
            must_apply(&mut catalog, line);
        }
        let liveness = Liveness::new(Duration::from_secs(3), Moment(0));
        Self { catalog, observed: Observations { liveness, inventory: Inventory::default() } }
    }

    /// A report by which a server leads, or no server does.
    fn report(&mut self, at_ms: u64, server: u64, term: u64, leader: Option<u64>) {
        let server = ServerId(server);
        let leader = leader.map(ServerId);
        self.observed.liveness.live(server, 1, Moment(at_ms)).unwrap();
        let groups = vec![GroupSeen { group: GroupId(1), term, leader, ..GroupSeen::default() }];
        let led = |descriptor: RegionDescriptor| RegionSeen {
            load: v1::RegionLoad { rows_read: 0, rows_written: 70, bytes: 0 },
            ..RegionSeen::open(descriptor, 0, term)
        };
        let regions = if leader == Some(server) { vec![led(region("r1@1[,)"))] } else { Vec::new() };
        self.observed.inventory.absorb(Report { server, groups, regions, load: ServerLoad::default() });
    }

    /// The rows written per second that count.
    fn written(&self, at_ms: u64) -> u64 {
        rates(&self.catalog, &self.observed, Moment(at_ms)).values().flatten().map(|region| region.rates[1]).sum()
    }
}

#[test]
fn the_load_of_a_leader_that_no_longer_reports_does_not_go_on() {
    let mut scene = Scene::new();
    scene.report(1_000, 1, 1, Some(1));
    assert_eq!(scene.written(1_500), 70);
    scene.report(4_000, 2, 1, Some(1));
    assert_eq!(scene.written(4_000), 0);
    scene.report(4_100, 1, 1, Some(1));
    assert_eq!(scene.written(4_100), 70);
}

#[test]
fn the_load_of_a_leader_that_stepped_down_does_not_go_on() {
    let mut scene = Scene::new();
    scene.report(1_000, 1, 1, Some(1));
    scene.report(1_500, 1, 1, None);
    assert_eq!(scene.written(1_500), 0);
    scene.report(2_000, 2, 2, Some(2));
    assert_eq!(scene.written(2_000), 70);
    // Late, and deposed.
    scene.report(2_100, 1, 1, Some(1));
    assert_eq!(scene.written(2_100), 70);
}
