//! Files written elsewhere, files copied elsewhere, and files shared by two regions that merge again.

use std::path::PathBuf;
use std::sync::Arc;

use terrane_engine::{BackendKind, DurablePoint, Engine, Error, IngestFile, Options, SplitDaughter, StoreFileBuilder};
use terrane_env::fs::{self, Disk};
use terrane_types::schema::FamilyStorage;
use terrane_types::{CellRef, FamilyRules, KeyRange, Projection, RegionId};

use crate::support::fixture::{one_region, put};
use crate::support::scanning::Scan;
use crate::support::world::{World, backends, name, range};

async fn built(dir: &std::path::Path, number: u64, rows: &[&[u8]]) -> PathBuf {
    let mut builder = StoreFileBuilder::create(&Disk::os(), dir, number, FamilyStorage::default()).await.unwrap();
    for row in rows {
        builder.add(row, CellRef::put(b"f", b"q", 1_000, b"ingested")).await.unwrap();
    }
    builder.finish().await.unwrap()
}

/// The directory reopened, without the log.
async fn opened_anew(world: &mut World) -> Arc<Engine> {
    world.close();
    Engine::open(Options::new(world.dir.path().to_owned(), BackendKind::Lsm, 1 << 20)).await.unwrap()
}

fn rows(region: &terrane_engine::Region) -> Vec<(Vec<u8>, Vec<u8>)> {
    let scan = Scan { range: KeyRange::all(), reverse: false, projection: Projection::all(), now: 2_000 };
    let rows = scan.run(region, &region.snapshot(), usize::MAX);
    rows.into_iter().map(|(row, cells)| (row, cells[0].3.clone())).collect()
}

fn pair(row: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (row.into(), value.into())
}

#[tokio::test]
async fn an_ingested_file_counts_as_one_mutation_after_all_before_it() {
    let (mut world, id) = one_region(BackendKind::Lsm).await;
    put(&mut world, id, b"a", "older");
    put(&mut world, id, b"b", "kept");
    let elsewhere = tempfile::tempdir().unwrap();
    let path = built(elsewhere.path(), 77, &[b"a", b"c"]).await;
    let region = world.live[&id].clone();
    let before = region.snapshot();
    let mut point = world.point(&region, world.index() + 1);
    point.sequence += 1;
    let files = vec![IngestFile { family: name("f"), path }];
    let early = world.engine().ingest(&region, files.clone(), point.clone()).await.unwrap_err();
    assert!(early.to_string().contains("not frozen"), "{early}");
    world.freeze(id);
    world.engine().ingest(&region, files, point).await.unwrap();
    let expected = [pair("a", "ingested"), pair("b", "kept"), pair("c", "ingested")];
    assert_eq!(rows(&region), expected);
    let scan = Scan { range: KeyRange::all(), reverse: true, projection: Projection::all(), now: 2_000 };
    assert_eq!(scan.run(&region, &before, usize::MAX).len(), 2, "an older snapshot does not see it");
    drop(before);
    // A compaction writes the cells with the sequence number of the ingest.
    world.try_compact_all(id).await.unwrap();
    assert_eq!(rows(&region), expected);
    drop(region);
    let engine = opened_anew(&mut world).await;
    assert_eq!(rows(&engine.regions()[0]), expected);
}

#[tokio::test]
async fn unsuitable_files_are_refused_by_name() {
    let (world, id) = one_region(BackendKind::Lsm).await;
    world.freeze(id);
    let elsewhere = tempfile::tempdir().unwrap();
    let region = world.live[&id].clone();
    let point = world.point(&region, world.index());
    let ingest = |family: &str, path: PathBuf| {
        let (engine, region, point) = (world.engine().clone(), region.clone(), point.clone());
        let file = IngestFile { family: name(family), path };
        async move { engine.ingest(&region, vec![file], point).await.unwrap_err() }
    };
    let path = built(elsewhere.path(), 1, &[b"a"]).await;
    assert!(matches!(ingest("g", path.clone()).await, Error::NotIngested { .. }));
    assert!(matches!(ingest("f", elsewhere.path().join("LOCK")).await, Error::NotIngested { .. }));
    let file = fs::File::open_rw(&path).await.unwrap();
    file.write_all_at(&[0xFF], 3).await.unwrap();
    assert!(matches!(ingest("f", path).await, Error::Corruption { .. }));
    let renamed = elsewhere.path().join("0000000000000009.tbl");
    let whole = built(elsewhere.path(), 2, &[b"a"]).await;
    fs::rename(&whole, &renamed).await.unwrap();
    assert!(matches!(ingest("f", renamed).await, Error::Corruption { .. }), "a file under another's name");
    assert!(rows(&region).is_empty());
}

#[tokio::test]
async fn a_checkpoint_keeps_its_files_until_it_is_dropped() {
    let (mut world, id) = one_region(BackendKind::Lsm).await;
    put(&mut world, id, b"a", "1");
    world.freeze(id);
    world.flush(id).await;
    let region = world.live[&id].clone();
    let checkpoint = world.engine().checkpoint(&region).await.unwrap();
    assert_eq!(checkpoint.files().len(), 1);
    put(&mut world, id, b"b", "2");
    world.freeze(id);
    world.flush(id).await;
    world.try_compact_all(id).await.unwrap();
    let file = &checkpoint.files()[0];
    assert_eq!(fs::read(&file.path).await.unwrap().len() as u64, file.size);
    let (dir, path) = (checkpoint.dir().to_owned(), file.path.clone());
    drop(checkpoint);
    put(&mut world, id, b"c", "3");
    world.freeze(id);
    world.flush(id).await;
    world.try_compact_all(id).await.unwrap();
    assert!(!fs::exists(&path).await.unwrap() && !fs::exists(&dir).await.unwrap());
}

fn merged(world: &World, left: u64, right: u64, into: u64) -> Result<Arc<terrane_engine::Region>, Error> {
    let (left, right) = (world.live[&left].clone(), world.live[&right].clone());
    let sequence = left.sequence().max(right.sequence());
    let point = DurablePoint { sequence, ..world.point(&left, world.index() + 1) };
    world.engine().merge(&left, &right, SplitDaughter { region: RegionId(into), point })
}

#[tokio::test]
async fn two_halves_merge_into_one_region() {
    let (mut world, id) = one_region(BackendKind::Lsm).await;
    for row in [b"a", b"b", b"x", b"y"] {
        put(&mut world, id, row, "1");
    }
    world.freeze(id);
    world.flush(id).await;
    let (left, right) = world.split(id, b"m").await;
    put(&mut world, left, b"a", "2");
    put(&mut world, right, b"x", "2");
    world.finish_split(left).await;
    let region = merged(&world, left, right, 90).unwrap();
    let expected = [pair("a", "2"), pair("b", "1"), pair("x", "2"), pair("y", "1")];
    assert_eq!(region.range(), &range(b"", b""));
    assert_eq!(rows(&region), expected);
    world.engine().flush(&region).await.unwrap();
    assert_eq!(rows(&region), expected);
    world.engine().request_compaction(&region);
    while world.try_compact_one().await.unwrap() {}
    assert_eq!(rows(&region), expected);
    drop(region);
    let engine = opened_anew(&mut world).await;
    let regions = engine.regions();
    assert_eq!(regions.iter().map(|region| region.id().0).collect::<Vec<_>>(), [90]);
    assert_eq!(rows(&regions[0]), expected);
}

#[tokio::test]
async fn only_neighbours_whose_own_origin_is_recorded_are_merged() {
    let (mut world, id) = one_region(BackendKind::Lsm).await;
    put(&mut world, id, b"a", "1");
    let (left, right) = world.split(id, b"m").await;
    assert!(matches!(merged(&world, left, right, 90), Err(Error::SplitPending { .. })));
    world.finish_split(left).await;
    assert!(matches!(merged(&world, right, left, 90), Err(Error::NotMerged { .. })));
    assert!(matches!(merged(&world, left, left, 90), Err(Error::NotMerged { .. })));
    assert_eq!(rows(&world.live[&left]).len(), 1);
}

/// Two neighbours number their writes on their own. After an alter each has the change at another number, and what the old
/// rules hid stays hidden on both sides.
#[tokio::test]
async fn each_side_keeps_what_its_rules_were() {
    for backend in backends() {
        let (mut world, id) = one_region(backend).await;
        let (left, right) = world.split(id, b"m").await;
        for round in 0..5 {
            put(&mut world, right, b"x", &format!("right {round}"));
        }
        put(&mut world, left, b"a", "left");
        world.alter("f", Some(FamilyRules { versions: 5, ..FamilyRules::default() }));
        put(&mut world, left, b"a", "left again");
        put(&mut world, right, b"x", "right again");
        let into = world.try_merge(left, right).await.unwrap();
        world.check_all();
        put(&mut world, into, b"a", "merged");
        put(&mut world, into, b"x", "merged");
        world.reopen().await;
        world.check_all();
        world.freeze(into);
        world.flush(into).await;
        world.check_all();
        world.reopen().await;
        world.check_all();
        world.alter("f", Some(FamilyRules { versions: 2, ..FamilyRules::default() }));
        world.check_all();
        world.try_compact_all(into).await.unwrap();
        world.check_all();
        let (left, _) = world.split(into, b"c").await;
        world.check_all();
        world.finish_split(left).await;
        world.reopen().await;
        world.check_all();
    }
}

/// The middle one of three has rewritten its part of a file, which the outer two still share.
#[tokio::test]
async fn a_file_whose_middle_was_rewritten_is_merged_in_two_parts() {
    for backend in backends() {
        let (mut world, id) = one_region(backend).await;
        for row in [b"a", b"g", b"x"] {
            put(&mut world, id, row, "1");
        }
        world.freeze(id);
        world.flush(id).await;
        let (left, rest) = world.split(id, b"f").await;
        world.finish_split(left).await;
        let (middle, right) = world.split(rest, b"m").await;
        put(&mut world, middle, b"g", "2");
        world.freeze(middle);
        world.flush(middle).await;
        // What was requested comes before the other regions' parts are tidied up.
        world.engine().request_compaction(&world.live[&middle]);
        world.try_compact_one().await.unwrap();
        let lower = world.try_merge(left, middle).await.unwrap();
        world.check_all();
        let all = world.try_merge(lower, right).await.unwrap();
        world.check_all();
        world.flush(all).await;
        world.check_all();
        world.reopen().await;
        world.check_all();
        world.try_compact_all(all).await.unwrap();
        world.check_all();
    }
}
