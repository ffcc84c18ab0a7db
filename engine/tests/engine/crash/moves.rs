//! Regions that move from one group to another: crashes at every disk operation, damaged files, and both groups on one server.

use std::path::Path;
use std::sync::Arc;

use terrane_engine::{BackendKind, DurablePoint, Engine, Error, GroupPoint, Region, RegionContents, RegionCopy};
use terrane_env::fs::{Disk, Tear};
use terrane_types::GroupId;

use super::workload::{BACKENDS, Op, Scene, Start, Stretch, files_of, run_all};
use crate::support::scanning::{SeenRows, read};
use crate::support::world::{GROUP, World};

const TEARS: [Tear; 4] = [Tear::Lost, Tear::Kept, Tear::Random(1), Tear::Random(2)];
/// The group that the region moves into.
const OTHER: GroupId = GroupId(8);
const FETCHED: &str = "/fetched";

/// A server with the region to be moved, all of it in files, which it has fetched as if from elsewhere: it is in both groups.
struct Scenario {
    start: Start,
    rows: SeenRows,
}

impl Scenario {
    async fn new(backend: BackendKind) -> Self {
        let start = Start::filled(backend).await;
        let (world, _) = Self::begin(&start).await;
        let rows = read(&in_group(world.engine(), GROUP).unwrap());
        Self { start, rows }
    }

    async fn begin(start: &Start) -> (World, RegionCopy) {
        let mut world = start.world();
        run_all(&mut world, &[Op::Reopen, Op::Write, Op::Flush, Op::Delete, Op::Flush]).await;
        let region = in_group(world.engine(), GROUP).unwrap();
        let copy = world.engine().copy_region(GROUP, region.id()).await.unwrap().unwrap();
        let (disk, dir) = (Disk::from(world.dir.memory()), Path::new(FETCHED));
        disk.create_dir_all(dir).await.unwrap();
        for file in copy.contents().files() {
            let bytes = disk.read(copy.path(file.id).unwrap()).await.unwrap();
            let fetched = disk.create_new(&dir.join(Engine::fetched_name(file.id))).await.unwrap();
            fetched.write_all_at(&bytes, 0).await.unwrap();
            fetched.sync_all().await.unwrap();
        }
        disk.sync_dir(dir).await.unwrap();
        disk.sync_dir(Path::new("/")).await.unwrap();
        (world, copy)
    }
}

fn in_group(engine: &Engine, group: GroupId) -> Option<Arc<Region>> {
    engine.regions().into_iter().find(|region| region.point().group == group)
}

async fn adopt(world: &World, copy: &RegionCopy) -> Result<Arc<Region>, Error> {
    // As it arrives from the network.
    let contents = RegionContents::decode(&copy.contents().encode()).expect("both are of one build");
    let point = DurablePoint { group: OTHER, index: 3, ..contents.point().clone() };
    let staged = world.engine().stage_region(contents, Path::new(FETCHED), None).await?;
    world.engine().adopt_region(staged, point).await
}

#[tokio::test]
async fn a_region_is_in_both_groups_until_the_first_drops_it() {
    for backend in BACKENDS {
        let scenario = Scenario::new(backend).await;
        let (mut world, copy) = Scenario::begin(&scenario.start).await;
        let adopted = adopt(&world, &copy).await.unwrap();
        drop(copy);
        assert_eq!(read(&adopted), scenario.rows);
        world.close();
        world.try_open().await.unwrap();
        let (left, adopted) = [GROUP, OTHER].map(|group| in_group(world.engine(), group).unwrap()).into();
        assert_eq!(
            (left.id(), read(&left), read(&adopted)),
            (adopted.id(), scenario.rows.clone(), scenario.rows.clone())
        );
        let point = GroupPoint { index: 99, ..GroupPoint::default() };
        world.engine().drop_regions(&[left.id()], GROUP, point).await.unwrap();
        assert!(in_group(world.engine(), GROUP).is_none());
        assert_eq!(read(&adopted), scenario.rows);
        world.close();
        world.try_open().await.unwrap();
        assert!(in_group(world.engine(), GROUP).is_none());
        assert_eq!(read(&in_group(world.engine(), OTHER).unwrap()), scenario.rows);
    }
}

#[tokio::test]
async fn an_interrupted_adoption_leaves_the_whole_region_or_nothing() {
    for backend in BACKENDS {
        let scenario = Scenario::new(backend).await;
        let (whole, copy) = Scenario::begin(&scenario.start).await;
        let stretch = Stretch::of_entry(&whole, async || drop(adopt(&whole, &copy).await.unwrap())).await;
        for number in stretch.changes() {
            let (mut world, copy) = Scenario::begin(&scenario.start).await;
            let memory = world.dir.memory().clone();
            memory.crash_at(number);
            let met = adopt(&world, &copy).await.map(drop);
            let _scene = Scene { text: format!("{backend}, crashed at {number}: {met:?}"), disk: &memory };
            assert!(memory.crashed(), "the same operations come in the same order");
            world.close();
            for tear in TEARS {
                let mut again = scenario.start.world_on(&world.known, memory.crash(tear));
                again.try_open().await.unwrap();
                assert_eq!(read(&in_group(again.engine(), GROUP).unwrap()), scenario.rows, "{tear:?}: it stays");
                let adopted = match in_group(again.engine(), OTHER) {
                    Some(adopted) => adopted,
                    None => adopt(&again, &copy).await.unwrap(),
                };
                assert_eq!(read(&adopted), scenario.rows, "{tear:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_refused_adoption_changes_nothing_and_can_be_repeated() {
    for backend in BACKENDS {
        let scenario = Scenario::new(backend).await;
        let (whole, copy) = Scenario::begin(&scenario.start).await;
        let stretch = Stretch::of_entry(&whole, async || drop(adopt(&whole, &copy).await.unwrap())).await;
        for (number, fault) in stretch.faults() {
            let (world, copy) = Scenario::begin(&scenario.start).await;
            let memory = world.dir.memory().clone();
            memory.fail_at(number, fault);
            let met = adopt(&world, &copy).await.map(drop);
            let _scene = Scene { text: format!("{backend}, {fault:?} at {number}: {met:?}"), disk: &memory };
            if met.is_err() {
                assert!(in_group(world.engine(), OTHER).is_none());
                adopt(&world, &copy).await.unwrap();
            }
            assert_eq!(read(&in_group(world.engine(), OTHER).unwrap()), scenario.rows);
        }
    }
}

#[tokio::test]
async fn a_staged_region_that_is_not_adopted_leaves_nothing_behind() {
    let scenario = Scenario::new(BackendKind::Lsm).await;
    let (mut world, copy) = Scenario::begin(&scenario.start).await;
    let before = files_of(&world).await;
    let contents = RegionContents::decode(&copy.contents().encode()).unwrap();
    let staged = world.engine().stage_region(contents, Path::new(FETCHED), None).await.unwrap();
    assert!(files_of(&world).await.len() > before.len());
    drop(staged);
    world.try_drop_nothing().await.unwrap();
    assert_eq!(files_of(&world).await, before);
}

/// The group has let the region go, which is not recorded yet, when the region returns.
#[tokio::test]
async fn a_region_that_comes_back_replaces_what_it_was_before() {
    for backend in BACKENDS {
        let scenario = Scenario::new(backend).await;
        let (mut world, copy) = Scenario::begin(&scenario.start).await;
        let former = in_group(world.engine(), GROUP).unwrap();
        run_all(&mut world, &[Op::Write]).await;
        assert_ne!(read(&former), scenario.rows);
        let contents = RegionContents::decode(&copy.contents().encode()).unwrap();
        let index = world.engine().group_point(GROUP).map_or(0, |point| point.index).max(former.point().index) + 50;
        let point = DurablePoint { index, ..contents.point().clone() };
        let staged = world.engine().stage_region(contents, Path::new(FETCHED), None).await.unwrap();
        let returned = world.engine().adopt_region(staged, point).await.unwrap();
        // What still runs on its former self ends without a change.
        world.engine().request_compaction(&former);
        let next = world.engine().next_compaction();
        assert!(next.is_none_or(|compaction| Arc::ptr_eq(compaction.region(), &returned)));
        former.freeze(DurablePoint { index: index - 1, ..former.point() });
        world.engine().flush(&former).await.unwrap();
        assert_eq!(read(&returned), scenario.rows);
        drop((former, returned, copy));
        world.close();
        world.try_open().await.unwrap();
        assert_eq!(read(&in_group(world.engine(), GROUP).unwrap()), scenario.rows);
    }
}
