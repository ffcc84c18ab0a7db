//! Overlapping flushes and splits, paused at the critical moment.

use std::time::Duration;

use terrane_types::{CellRef, FamilyName, FamilySchema, KeyRange, LATEST, PackedCells, Projection, TableId, cell};

use super::*;
use crate::backend::memory::FILES_MAX;
use crate::family_reader::Patience;
use crate::options::BackendKind;
use crate::region::SplitDaughter;
use crate::region::tests::AT_SEAL;
use crate::scan::{ScanSpec, Step};

const GROUP: GroupId = GroupId(1);

async fn open(dir: &std::path::Path) -> Arc<Engine> {
    Engine::open(Options::new(dir.to_owned(), BackendKind::Memory, 0)).await.unwrap()
}

fn family() -> FamilyName {
    FamilyName::new("f").unwrap()
}

fn put(region: &Region, index: u64, row: &str) {
    let mut packed = Vec::new();
    cell::pack(&mut packed, CellRef::put(b"f", b"q", LATEST - 1, row.as_bytes()));
    let cells = PackedCells::validate(packed.into()).unwrap();
    region.apply(index, region.sequence() + 1, row.as_bytes(), &cells);
}

fn point(region: &Region, index: u64) -> DurablePoint {
    DurablePoint { group: GROUP, index, sequence: region.sequence(), ..DurablePoint::default() }
}

fn rows(region: &Arc<Region>) -> Vec<String> {
    let spec = ScanSpec::new(KeyRange::all(), Projection::all(), LATEST - 1);
    let mut scanner = region.scan(region.snapshot(), spec);
    let mut block = Vec::new();
    while let Step::Row = scanner.next(&mut block, usize::MAX, Patience::MayBlock).unwrap() {}
    terrane_types::PackedRows::new(block.into())
        .map(|row| String::from_utf8(row.unwrap().row.to_vec()).unwrap())
        .collect()
}

/// A region with so many files that its next flush rewrites them all as one.
async fn region_of_many_files(engine: &Arc<Engine>) -> Arc<Region> {
    let spec = RegionSpec {
        region: RegionId(1),
        table: TableId(1),
        group: GROUP,
        range: KeyRange::all(),
        families: vec![FamilySchema::new(family())],
    };
    let region = engine.create(spec, 1);
    for (index, row) in (2..).zip(["a", "b", "c", "x", "y"].into_iter().take(FILES_MAX - 1)) {
        put(&region, index, row);
        region.freeze(point(&region, index));
        engine.flush(&region).await.unwrap();
    }
    region
}

/// Waits until an operation of the engine waits for the manifest: only its append holds another reference.
async fn until_it_waits_for(manifest: &Arc<tokio::sync::Mutex<Manifest>>) {
    let waits = async {
        while Arc::strong_count(manifest) == 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waits).await.unwrap();
}

/// A region is split between its flush's last check and the flush's record. The flush rewrote the region's files as
/// one, and the record names only that one; the daughters still hold the old ones.
#[tokio::test]
async fn a_split_during_a_flush_keeps_the_files_of_its_daughters() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).await;
    let region = region_of_many_files(&engine).await;
    put(&region, 20, "m");
    region.freeze(point(&region, 20));

    let manifest = engine.manifest.lock().await;
    let flush = tokio::spawn({
        let (engine, region) = (engine.clone(), region.clone());
        async move { engine.flush(&region).await }
    });
    // The flush has made its last check.
    until_it_waits_for(&engine.manifest).await;
    let side = |id: u64| SplitDaughter { region: RegionId(id), point: point(&region, 21) };
    let (left, right) = engine.split(&region, b"m", side(2), side(3)).unwrap();
    drop(manifest);
    flush.await.unwrap().unwrap();
    engine.finish_split(&left).await.unwrap();
    let expected = (rows(&left), rows(&right));
    assert_eq!(expected, (["a", "b", "c"].map(str::to_owned).to_vec(), ["m", "x", "y"].map(str::to_owned).to_vec()));

    engine.shutdown().await;
    drop(engine);
    let reopened = open(directory.path()).await;
    let regions = reopened.regions();
    let ids: Vec<u64> = regions.iter().map(|region| region.id().0).collect();
    assert_eq!(ids, [2, 3], "the parent does not come back");
    assert_eq!((rows(&regions[0]), rows(&regions[1])), expected);
}

/// A flush runs as soon as a split releases the parent's lock, and power fails before the split is recorded. The log is
/// applied again from the recorded point, which must therefore still precede the split.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_flush_during_a_split_does_not_record_the_parent_as_its_daughter() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).await;
    let region = region_of_many_files(&engine).await;
    put(&region, 20, "b");
    put(&region, 21, "z");
    let recorded = region.point();

    let at_split = point(&region, 22);
    let side = |id: u64| SplitDaughter { region: RegionId(id), point: at_split.clone() };
    let flushed = Arc::new(Mutex::new(None));
    AT_SEAL.set(Some(Box::new({
        let (engine, region, flushed) = (engine.clone(), region.clone(), flushed.clone());
        move || {
            let flush = tokio::spawn(async move { engine.flush(&region).await });
            while !flush.is_finished() {
                std::hint::spin_loop();
            }
            *flushed.lock() = Some(flush);
        }
    })));
    // On this thread, so that the flush has one to itself.
    let (left, right) = engine.split(&region, b"m", side(2), side(3)).unwrap();
    let flush = flushed.lock().take();
    flush.unwrap().await.unwrap().unwrap();
    assert_eq!(rows(&right), ["x", "y", "z"].map(str::to_owned));
    drop((left, right, region, engine));

    let reopened = open(directory.path()).await;
    let regions = reopened.regions();
    let points: Vec<_> = regions.iter().map(|region| (region.id(), region.point())).collect();
    assert_eq!(points, [(RegionId(1), recorded)], "the split is applied again from before it");
    // The log is applied again.
    let parent = &regions[0];
    put(parent, 20, "b");
    put(parent, 21, "z");
    let (left, right) = reopened.split(parent, b"m", side(2), side(3)).unwrap();
    reopened.finish_split(&left).await.unwrap();
    assert_eq!(rows(&left), ["a", "b", "c"].map(str::to_owned));
    assert_eq!(rows(&right), ["x", "y", "z"].map(str::to_owned));
}

/// The caller of a flush goes away while its record is being written, as a client of `admin flush` does.
#[tokio::test]
async fn a_flush_that_its_caller_gives_up_is_completed() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).await;
    let region = region_of_many_files(&engine).await;
    put(&region, 20, "m");
    region.freeze(point(&region, 20));
    let manifest = engine.manifest.lock().await;
    let caller = tokio::spawn({
        let (engine, region) = (engine.clone(), region.clone());
        async move { engine.flush(&region).await }
    });
    until_it_waits_for(&engine.manifest).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    drop(manifest);
    let installed = tokio::time::timeout(Duration::from_secs(10), async {
        while region.point().index < 20 {
            tokio::task::yield_now().await;
        }
    });
    installed.await.expect("memory follows what is on disk");
    assert_eq!(region.memtable_bytes(), 0);
    assert_eq!(rows(&region), ["a", "b", "c", "m", "x", "y"].map(str::to_owned));
}

/// Such a region stays known until the drop is recorded. A compaction of it would end without a change, and begin again.
#[tokio::test]
async fn a_region_that_is_being_dropped_is_not_compacted() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new(directory.path().to_owned(), BackendKind::Lsm, 0);
    let engine = Engine::open(options).await.unwrap();
    let region = region_of_many_files(&engine).await;
    engine.request_compaction(&region);
    assert!(engine.next_compaction().is_some(), "there is work until it leaves");
    let manifest = engine.manifest.lock().await;
    let dropping = tokio::spawn({
        let engine = engine.clone();
        async move { engine.drop_regions(&[RegionId(1)], GROUP, GroupPoint::default()).await }
    });
    until_it_waits_for(&engine.manifest).await;
    assert_eq!(engine.regions().len(), 1);
    assert!(engine.next_compaction().is_none(), "it has left");
    drop(manifest);
    dropping.await.unwrap().unwrap();
}

/// Many new regions cost one append and one sync of the manifest, not one each. A region with cells is left to its flush.
#[tokio::test]
async fn regions_without_cells_are_recorded_together() {
    let memory = terrane_env::fs::MemoryDisk::new();
    let dir = std::path::PathBuf::from("/engine");
    let disk = terrane_env::fs::Disk::from(&memory);
    disk.create_dir_all(&dir).await.unwrap();
    let options = || Options { disk: disk.clone(), ..Options::new(dir.clone(), BackendKind::Lsm, 0) };
    let engine = Engine::open(options()).await.unwrap();
    let spec = |id: u64| RegionSpec {
        region: RegionId(id),
        table: TableId(1),
        group: GROUP,
        range: KeyRange { start: vec![id as u8].into(), end: vec![id as u8 + 1].into() },
        families: vec![FamilySchema::new(family())],
    };
    let regions: Vec<_> = (1..=50).map(|id| engine.create(spec(id), 7)).collect();
    put(&regions[0], 8, "\u{1}row");
    for region in &regions {
        region.freeze(point(region, 8));
    }
    let before = memory.trace().len();
    let recorded = engine.record_empty(GROUP, regions.clone()).await.unwrap();
    assert_eq!(recorded, (2..=50).map(RegionId).collect::<Vec<_>>());
    let trace = memory.trace();
    let syncs = trace[before..].iter().filter(|line| line.contains("sync")).count();
    assert_eq!(syncs, 1, "{:?}", &trace[before..]);
    assert!(engine.record_empty(GROUP, regions.clone()).await.unwrap().is_empty(), "nothing is left to record");
    drop((engine, regions));

    let engine = Engine::open(options()).await.unwrap();
    let opened: Vec<_> = engine.regions().iter().map(|region| (region.id(), region.point().index)).collect();
    assert_eq!(opened, (2..=50).map(|id| (RegionId(id), 8)).collect::<Vec<_>>());
}
