//! Copies of a group, installed on a server that is behind: crashes and refusals at every disk operation, damaged files, and
//! files that the source no longer needs.

use std::path::Path;

use terrane_engine::{BackendKind, Engine, Error, GroupContents, GroupCopy};
use terrane_env::fs::{Disk, Tear};

use super::workload::{BACKENDS, Op, Scene, Start, Stretch, files_of, run_all};
use crate::support::scanning::{SeenRows, read_all};
use crate::support::world::{GROUP, World};

const TEARS: [Tear; 4] = [Tear::Lost, Tear::Kept, Tear::Random(1), Tear::Random(2)];
/// Where the receiver keeps fetched files.
const FETCHED: &str = "/fetched";

/// The ids of all regions, with their points' indexes.
fn regions(engine: &Engine) -> Vec<(u64, u64)> {
    engine.regions().iter().map(|region| (region.id().0, region.point().index)).collect()
}

/// The regions of a server and what they hold.
fn shown(world: &World) -> (Vec<(u64, u64)>, SeenRows) {
    (regions(world.engine()), read_all(world.engine()))
}

/// A server that has gone on while the receiver was away: it has split, compacted and written. Everything is flushed.
async fn source(start: &Start) -> World {
    let mut world = start.world();
    let history =
        [Op::Reopen, Op::Split, Op::Write, Op::Flush, Op::Compact, Op::Write, Op::Delete, Op::RecordGroup, Op::Flush];
    run_all(&mut world, &history).await;
    world
}

/// A source, what it starts from, and the copy that it sends.
struct Sent {
    start: Start,
    source: World,
    copy: GroupCopy,
}

impl Sent {
    async fn by(backend: BackendKind) -> Self {
        let start = Start::filled(backend).await;
        let source = source(&start).await;
        let copy = source.engine().copy_group(GROUP).await.unwrap();
        Self { start, source, copy }
    }
}

/// A server that missed all that, with the fetched files of the copy.
async fn receiver(start: &Start, source: &World, copy: &GroupCopy) -> World {
    let mut world = start.world();
    run_all(&mut world, &[Op::Reopen]).await;
    fetch(&world, source, copy).await;
    world
}

async fn fetch(world: &World, source: &World, copy: &GroupCopy) {
    let (from, to, dir) = (Disk::from(source.dir.memory()), Disk::from(world.dir.memory()), Path::new(FETCHED));
    to.create_dir_all(dir).await.unwrap();
    for file in copy.contents().files() {
        let bytes = from.read(copy.path(file.id).unwrap()).await.unwrap();
        assert_eq!(bytes.len() as u64, file.size);
        let fetched = to.create_new(&dir.join(Engine::fetched_name(file.id))).await.unwrap();
        fetched.write_all_at(&bytes, 0).await.unwrap();
        fetched.sync_all().await.unwrap();
    }
    to.sync_dir(dir).await.unwrap();
    to.sync_dir(Path::new("/")).await.unwrap();
}

/// As it arrives from the network.
fn arrived(copy: &GroupCopy) -> GroupContents {
    GroupContents::decode(&copy.contents().encode()).expect("both are of one build")
}

async fn install(world: &World, copy: &GroupCopy) -> Result<(), Error> {
    let staged = world.engine().stage_group(arrived(copy), Path::new(FETCHED), 0).await?;
    world.engine().install_group(staged).await
}

#[tokio::test]
async fn a_receiver_reads_like_the_source_also_after_a_restart() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let mut receiver = receiver(&start, &source, &copy).await;
        install(&receiver, &copy).await.unwrap();
        let expected = shown(&source);
        assert_eq!(shown(&receiver), expected);
        assert_eq!(receiver.engine().group_point(GROUP), source.engine().group_point(GROUP));
        receiver.close();
        receiver.try_open().await.unwrap();
        assert_eq!(shown(&receiver), expected);
        let named: usize = copy.contents().files().len();
        assert_eq!(files_of(&receiver).await.len(), named, "what was there before is gone");
    }
}

/// Nothing was written to a region of the source for long, so that its recorded point is old.
#[tokio::test]
async fn a_copy_counts_as_of_the_entry_up_to_which_the_source_had_everything() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let later = source.engine().group_point(GROUP).unwrap().index + 5;
        let receiver = receiver(&start, &source, &copy).await;
        let staged = receiver.engine().stage_group(arrived(&copy), Path::new(FETCHED), later).await.unwrap();
        receiver.engine().install_group(staged).await.unwrap();
        assert_eq!(receiver.engine().group_point(GROUP).unwrap().index, later);
        assert!(receiver.engine().regions().iter().all(|region| region.point().index >= later));
    }
}

/// The process ended between the installation of a copy and the log's record of it, and now another member sends an older one.
#[tokio::test]
async fn an_older_copy_replaces_what_an_interrupted_installation_left() {
    for backend in BACKENDS {
        let start = Start::filled(backend).await;
        let mut source = source(&start).await;
        let older = source.engine().copy_group(GROUP).await.unwrap();
        let expected = shown(&source);
        run_all(&mut source, &[Op::Write, Op::Flush, Op::RecordGroup]).await;
        let newer = source.engine().copy_group(GROUP).await.unwrap();
        let receiver = receiver(&start, &source, &newer).await;
        install(&receiver, &newer).await.unwrap();
        assert_ne!(read_all(receiver.engine()), expected.1);
        Disk::from(receiver.dir.memory()).remove_dir_all(Path::new(FETCHED)).await.unwrap();
        fetch(&receiver, &source, &older).await;
        install(&receiver, &older).await.unwrap();
        assert_eq!(shown(&receiver), expected);
    }
}

/// To record a split would write the memtables that the daughters inherited, on a disk that may be full.
#[tokio::test]
async fn an_installation_records_no_split_of_a_region_that_it_replaces() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let whole = receiver(&start, &source, &copy).await;
        let plain = Stretch::of_entry(&whole, async || install(&whole, &copy).await.unwrap()).await;
        let mut receiver = start.world();
        run_all(&mut receiver, &[Op::Reopen, Op::Split]).await;
        fetch(&receiver, &source, &copy).await;
        let after_split = Stretch::of_entry(&receiver, async || install(&receiver, &copy).await.unwrap()).await;
        assert_eq!(after_split.changes().len(), plain.changes().len(), "{backend}: it changes nothing else");
        let expected = shown(&source);
        assert_eq!(shown(&receiver), expected);
        receiver.close();
        receiver.try_open().await.unwrap();
        assert_eq!(shown(&receiver), expected);
    }
}

#[tokio::test]
async fn an_interrupted_installation_leaves_the_old_group_or_the_new_one() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let whole = receiver(&start, &source, &copy).await;
        let before = regions(whole.engine());
        let stretch = Stretch::of_entry(&whole, async || install(&whole, &copy).await.unwrap()).await;
        let (after, rows) = (regions(whole.engine()), read_all(source.engine()));
        for number in stretch.changes() {
            let mut world = receiver(&start, &source, &copy).await;
            let memory = world.dir.memory().clone();
            memory.crash_at(number);
            let met = install(&world, &copy).await;
            let _scene = Scene { text: format!("{backend}, crashed at {number}: {met:?}"), disk: &memory };
            assert!(memory.crashed(), "the same operations come in the same order");
            world.close();
            for tear in TEARS {
                let mut again = start.world_on(&world.known, memory.crash(tear));
                again.try_open().await.unwrap();
                if regions(again.engine()) != after {
                    assert_eq!(regions(again.engine()), before, "{tear:?}: the old regions, whole");
                    install(&again, &copy).await.unwrap();
                }
                assert_eq!(shown(&again), (after.clone(), rows.clone()));
            }
        }
    }
}

#[tokio::test]
async fn a_refused_installation_changes_nothing_and_can_be_repeated() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let whole = receiver(&start, &source, &copy).await;
        let before = regions(whole.engine());
        let stretch = Stretch::of_entry(&whole, async || install(&whole, &copy).await.unwrap()).await;
        let rows = read_all(source.engine());
        for (number, fault) in stretch.faults() {
            let world = receiver(&start, &source, &copy).await;
            let memory = world.dir.memory().clone();
            memory.fail_at(number, fault);
            let met = install(&world, &copy).await;
            let _scene = Scene { text: format!("{backend}, {fault:?} at {number}: {met:?}"), disk: &memory };
            if met.is_err() {
                assert_eq!(regions(world.engine()), before);
                install(&world, &copy).await.unwrap();
            }
            assert_eq!(read_all(world.engine()), rows);
        }
    }
}

#[tokio::test]
async fn a_damaged_file_is_not_installed() {
    for backend in BACKENDS {
        let Sent { start, source, copy } = Sent::by(backend).await;
        let world = receiver(&start, &source, &copy).await;
        let before = (regions(world.engine()), files_of(&world).await);
        let file = copy.contents().files()[0];
        let disk = Disk::from(world.dir.memory());
        let path = Path::new(FETCHED).join(Engine::fetched_name(file.id));
        let middle = file.size / 2;
        let mut byte = [0];
        let damaged = disk.open_rw(&path).await.unwrap();
        damaged.read_exact_at(&mut byte, middle).await.unwrap();
        damaged.write_all_at(&[byte[0] ^ 1], middle).await.unwrap();
        let error = install(&world, &copy).await.unwrap_err();
        assert!(matches!(error, Error::Corruption { .. }), "{error}");
        assert_eq!((regions(world.engine()), files_of(&world).await), before);
        damaged.write_all_at(&byte, middle).await.unwrap();
        install(&world, &copy).await.unwrap();
        assert_eq!(read_all(world.engine()), read_all(source.engine()));
    }
}

#[tokio::test]
async fn a_copy_keeps_its_files_until_it_is_dropped() {
    let Sent { start, mut source, copy } = Sent::by(BackendKind::Lsm).await;
    let rows = read_all(source.engine());
    run_all(&mut source, &[Op::Write, Op::Flush, Op::Compact]).await;
    let receiver = receiver(&start, &source, &copy).await;
    install(&receiver, &copy).await.unwrap();
    assert_eq!(read_all(receiver.engine()), rows);
    let kept = files_of(&source).await.len();
    drop(copy);
    source.try_drop_nothing().await.unwrap();
    assert!(files_of(&source).await.len() < kept, "the compaction's inputs were kept for the copy alone");
}

#[tokio::test]
async fn a_staged_copy_that_is_not_installed_leaves_nothing_behind() {
    let Sent { start, source, copy } = Sent::by(BackendKind::Lsm).await;
    let mut world = receiver(&start, &source, &copy).await;
    let before = (regions(world.engine()), files_of(&world).await);
    let staged = world.engine().stage_group(arrived(&copy), Path::new(FETCHED), 0).await.unwrap();
    assert!(files_of(&world).await.len() > before.1.len());
    drop(staged);
    world.try_drop_nothing().await.unwrap();
    assert_eq!((regions(world.engine()), files_of(&world).await), before);
}

#[tokio::test]
async fn an_interrupted_removal_of_a_group_leaves_it_whole_or_nothing_of_it() {
    for backend in BACKENDS {
        let start = Start::filled(backend).await;
        let untouched = source(&start).await;
        let before = shown(&untouched);
        let mut whole = source(&start).await;
        let stretch = Stretch::of_entry(&whole, async || whole.engine().remove_group(GROUP).await.unwrap()).await;
        assert!(whole.engine().regions().is_empty() && whole.engine().group_point(GROUP).is_none());
        whole.close();
        whole.try_open().await.unwrap();
        assert_eq!(files_of(&whole).await.len(), 0, "{backend}: nothing of it is left");
        for number in stretch.changes() {
            let mut world = source(&start).await;
            let memory = world.dir.memory().clone();
            memory.crash_at(number);
            let met = world.engine().remove_group(GROUP).await;
            let _scene = Scene { text: format!("{backend}, crashed at {number}: {met:?}"), disk: &memory };
            assert!(memory.crashed(), "the same operations come in the same order");
            world.close();
            for tear in TEARS {
                let mut again = start.world_on(&world.known, memory.crash(tear));
                again.try_open().await.unwrap();
                if !again.engine().regions().is_empty() {
                    assert_eq!(shown(&again), before, "{tear:?}: all of it");
                    again.engine().remove_group(GROUP).await.unwrap();
                }
                assert!(again.engine().regions().is_empty() && again.engine().group_point(GROUP).is_none());
                // A new replica of the group is a group that was never here.
                again.engine().remove_group(GROUP).await.unwrap();
                assert!(again.engine().group_points().is_empty());
            }
        }
    }
}
