//! Crashes and refusals during ingests and region merges: log entries whose work is on the disk. Either all of it is
//! recorded, or the region's point does not cover the entry, which is then applied again.

use std::path::{Path, PathBuf};

use terrane_engine::{BackendKind, DurablePoint, Engine, Error, IngestFile, SplitDaughter, StoreFileBuilder};
use terrane_env::fs::{Disk, MemoryDisk, Tear};
use terrane_types::schema::FamilyStorage;
use terrane_types::{CellRef, RegionId};

use super::workload::{Op, Scene, Start, Stretch, run_all};
use crate::support::scanning::read_all;
use crate::support::world::{World, name};

const TEARS: [Tear; 4] = [Tear::Lost, Tear::Kept, Tear::Random(1), Tear::Random(2)];

/// An entry that the engine carries out on the disk.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Ingest,
    Merge,
}

const INTO: RegionId = RegionId(90);

impl Entry {
    /// A world just before the entry, and the index of the entry.
    async fn begun(self, start: &Start) -> (World, u64) {
        let mut world = start.world();
        run_all(&mut world, &[Op::Reopen]).await;
        match self {
            Self::Ingest => {
                let (disk, dir) = (Disk::from(world.dir.memory()), Path::new("/elsewhere"));
                disk.create_dir_all(dir).await.unwrap();
                let mut builder = StoreFileBuilder::create(&disk, dir, 77, FamilyStorage::default()).await.unwrap();
                for row in [b"c", b"d"] {
                    builder.add(row, CellRef::put(b"one", b"q", 1_000, b"ingested")).await.unwrap();
                }
                builder.finish().await.unwrap();
                disk.sync_dir(dir).await.unwrap();
                disk.sync_dir(Path::new("/")).await.unwrap();
            }
            Self::Merge => run_all(&mut world, &[Op::Split, Op::Write, Op::Flush, Op::Write]).await,
        }
        let index = world.index() + 1;
        (world, index)
    }

    async fn run(self, world: &World, index: u64) -> Result<(), Error> {
        let regions: Vec<_> = world.live.values().cloned().collect();
        let engine = world.engine();
        let mut point = DurablePoint { sequence: 0, ..world.point(&regions[0], index) };
        for region in &regions {
            if matches!(self, Self::Ingest) {
                world.freeze(region.id().0);
            }
            point.sequence = point.sequence.max(region.sequence());
        }
        match self {
            Self::Ingest => {
                point.sequence += 1;
                let path = PathBuf::from("/elsewhere/0000000000000077.tbl");
                engine.ingest(&regions[0], vec![IngestFile { family: name("one"), path }], point).await
            }
            Self::Merge => {
                // In memory at once, and tried again only on the disk.
                let known = engine.regions().into_iter().find(|region| region.id() == INTO);
                let merged = match known {
                    Some(merged) => merged,
                    None => {
                        let into = SplitDaughter { region: INTO, point };
                        engine.merge(&regions[0], &regions[1], into)?
                    }
                };
                engine.flush(&merged).await
            }
        }
    }
}

/// Whether the entry is recorded. If it is not, no region's point may cover it.
fn is_recorded(engine: &Engine, entry: Entry, index: u64) -> bool {
    let regions = engine.regions();
    match entry {
        Entry::Ingest => regions[0].point().index >= index,
        Entry::Merge => {
            let merged = regions.iter().any(|region| region.id() == INTO);
            let covered = regions.iter().filter(|region| region.point().index >= index).count();
            assert_eq!(covered, usize::from(merged), "an entry that was not carried out is applied again");
            merged
        }
    }
}

async fn crash_everywhere(entry: Entry) {
    let start = Start::filled(BackendKind::Lsm).await;
    // From another world: reading what is cached afterwards would change the disk operations.
    let before = read_all(entry.begun(&start).await.0.engine());
    let (world, index) = entry.begun(&start).await;
    let stretch = Stretch::of_entry(&world, async || entry.run(&world, index).await.unwrap()).await;
    let after = read_all(world.engine());
    for number in stretch.changes() {
        let (mut world, index) = entry.begun(&start).await;
        let memory: MemoryDisk = world.dir.memory().clone();
        memory.crash_at(number);
        let met = entry.run(&world, index).await;
        let _scene = Scene { text: format!("{entry:?}, crashed at {number}: {met:?}"), disk: &memory };
        assert!(memory.crashed(), "the same operations come in the same order");
        assert!(matches!(met, Ok(()) | Err(Error::Io { .. })));
        world.close();
        for tear in TEARS {
            let mut again = start.world_on(&world.known, memory.crash(tear));
            again.try_open().await.unwrap();
            if is_recorded(again.engine(), entry, index) {
                assert_eq!(read_all(again.engine()), after, "{tear:?}");
                continue;
            }
            again.replay();
            assert_eq!(read_all(again.engine()), before, "{tear:?}");
            entry.run(&again, index).await.unwrap();
            assert_eq!(read_all(again.engine()), after, "{tear:?}, and done again");
            again.close();
            again.try_open().await.unwrap();
            assert!(is_recorded(again.engine(), entry, index));
            assert_eq!(read_all(again.engine()), after, "{tear:?}, done again and opened");
        }
    }
}

async fn fail_everywhere(entry: Entry) {
    let start = Start::filled(BackendKind::Lsm).await;
    // From another world: reading what is cached afterwards would change the disk operations.
    let before = read_all(entry.begun(&start).await.0.engine());
    let (world, index) = entry.begun(&start).await;
    let stretch = Stretch::of_entry(&world, async || entry.run(&world, index).await.unwrap()).await;
    let after = read_all(world.engine());
    for (number, fault) in stretch.faults() {
        let (mut world, index) = entry.begun(&start).await;
        let memory: MemoryDisk = world.dir.memory().clone();
        memory.fail_at(number, fault);
        let met = entry.run(&world, index).await;
        let _scene = Scene { text: format!("{entry:?}, {fault:?} at {number}: {met:?}"), disk: &memory };
        assert!(memory.operations() > number, "the same operations come in the same order");
        assert!(matches!(met, Ok(()) | Err(Error::Io { .. })), "{met:?}");
        if met.is_err() {
            assert_eq!(read_all(world.engine()), before);
            entry.run(&world, index).await.unwrap();
        }
        assert_eq!(read_all(world.engine()), after);
        world.close();
        world.try_open().await.unwrap();
        assert!(is_recorded(world.engine(), entry, index));
        assert_eq!(read_all(world.engine()), after);
    }
}

#[tokio::test]
async fn an_ingest_is_recorded_or_applied_again_after_a_crash_at_any_operation() {
    crash_everywhere(Entry::Ingest).await;
}

#[tokio::test]
async fn a_merge_is_recorded_or_applied_again_after_a_crash_at_any_operation() {
    crash_everywhere(Entry::Merge).await;
}

#[tokio::test]
async fn ingests_and_merges_survive_any_disk_error() {
    fail_everywhere(Entry::Ingest).await;
    fail_everywhere(Entry::Merge).await;
}
