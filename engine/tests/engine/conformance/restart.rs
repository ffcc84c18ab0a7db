//! Crashes: the directory as it was at some moment, opened again.

use std::path::Path;

use terrane_engine::{BackendKind, Engine, Error};
use terrane_env::fs;
use terrane_types::{CellKind, FamilyRules, KeyRange};

use crate::support::fixture::{cell, one_region, put};
use crate::support::world::{Home, World, backends, open};

async fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).await.unwrap();
    for name in fs::list(from).await.unwrap() {
        let (from, to) = (from.join(&name), to.join(&name));
        match fs::read(&from).await {
            Ok(bytes) => fs::write_durable(&to, &bytes).await.unwrap(),
            Err(_directory) => Box::pin(copy(&from, &to)).await,
        }
    }
}

/// The world restored from a copy of a directory taken earlier.
async fn restart_from(world: &mut World, dir: tempfile::TempDir) {
    world.held.clear();
    world.live.clear();
    world.gone.clear();
    world.recorded.clear();
    world.acknowledged.clear();
    world.engine = None;
    world.dir = Home::Temporary(dir);
    world.reopen().await;
}

async fn copy_of(world: &World) -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    copy(world.dir.path(), copied.path()).await;
    copied
}

async fn failure(dir: &Path, backend: BackendKind) -> Error {
    match open(dir, backend).await {
        Err(error) => error,
        Ok(_engine) => panic!("{} opened", dir.display()),
    }
}

/// The manifest of a region that was flushed, split and flushed again, truncated at many places: whatever is left, the
/// log restores the rest. (A test beside the manifest covers truncation at every byte, without a file.)
#[tokio::test]
async fn a_torn_manifest_and_the_log_restore_everything() {
    let (mut world, region) = one_region(BackendKind::Memory).await;
    let manifest = world.dir.path().join("MANIFEST");
    let made = fs::read(&manifest).await.unwrap().len();
    put(&mut world, region, b"a", "1");
    put(&mut world, region, b"x", "2");
    world.freeze(region);
    world.flush(region).await;
    let (left, right) = world.split(region, b"m").await;
    put(&mut world, left, b"a", "3");
    put(&mut world, right, b"y", "4");
    world.freeze(left);
    world.flush(left).await;
    let whole = fs::read(&manifest).await.unwrap();
    let full = copy_of(&world).await;
    // Every file stays where a crash can have cut off the record that names it; files come before records.
    for cut in (made..whole.len()).step_by(7).chain([whole.len() - 1, whole.len()]) {
        let dir = tempfile::tempdir().unwrap();
        copy(full.path(), dir.path()).await;
        fs::write_durable(&dir.path().join("MANIFEST"), &whole[..cut]).await.unwrap();
        restart_from(&mut world, dir).await;
        world.check_all();
    }
}

#[tokio::test]
async fn files_that_no_record_names_are_removed_at_the_start() {
    let (mut world, region) = one_region(BackendKind::Memory).await;
    put(&mut world, region, b"a", "1");
    let manifest = fs::read(&world.dir.path().join("MANIFEST")).await.unwrap();
    world.freeze(region);
    world.flush(region).await;
    let copied = copy_of(&world).await;
    let cells = copied.path().join("cells");
    assert_eq!(fs::list(&cells).await.unwrap().len(), 1);
    fs::write_durable(&copied.path().join("MANIFEST"), &manifest).await.unwrap();
    restart_from(&mut world, copied).await;
    assert_eq!(fs::list(&world.dir.path().join("cells")).await.unwrap(), Vec::<String>::new());
    world.check_all();
}

#[tokio::test]
async fn a_flipped_bit_in_a_file_of_cells_is_corruption() {
    let (mut world, region) = one_region(BackendKind::Memory).await;
    put(&mut world, region, b"a", "some value");
    world.freeze(region);
    world.flush(region).await;
    let name = fs::list(&world.dir.path().join("cells")).await.unwrap().remove(0);
    let bytes = fs::read(&world.dir.path().join("cells").join(&name)).await.unwrap();
    for at in 0..bytes.len() {
        let copied = copy_of(&world).await;
        let path = copied.path().join("cells").join(&name);
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write_durable(&path, &damaged).await.unwrap();
        let error = failure(copied.path(), BackendKind::Memory).await;
        assert!(matches!(&error, Error::Corruption { file, .. } if *file == path), "byte {at}: {error}");
    }
}

#[tokio::test]
async fn a_named_file_that_is_missing_is_corruption() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        put(&mut world, region, b"a", "1");
        world.freeze(region);
        world.flush(region).await;
        let copied = copy_of(&world).await;
        for kept in ["cells", "sled", "tables"] {
            let dir = copied.path().join(kept);
            if fs::exists(&dir).await.unwrap() {
                fs::remove_dir_all(&dir).await.unwrap();
            }
        }
        let error = failure(copied.path(), backend).await;
        assert!(matches!(error, Error::Corruption { .. }), "{backend}: {error}");
    }
}

#[tokio::test]
async fn a_directory_of_another_engine_is_refused_by_name() {
    for made_with in backends() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), made_with).await.unwrap());
        for asked in backends().into_iter().filter(|asked| *asked != made_with) {
            let error = failure(dir.path(), asked).await.to_string();
            assert!(error.contains(&format!("--engine {made_with}")), "{error}");
            assert!(error.contains(&format!("--engine {asked}")), "{error}");
        }
        drop(open(dir.path(), made_with).await.unwrap());
    }
}

/// The process dies with the split in memory only. It restarts with the parent, splits again, and then records the
/// split.
#[tokio::test]
async fn a_split_that_was_not_recorded_is_replayed() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        put(&mut world, region, b"a", "1");
        put(&mut world, region, b"x", "2");
        world.freeze(region);
        world.flush(region).await;
        put(&mut world, region, b"b", "3");
        let (left, right) = world.split(region, b"m").await;
        put(&mut world, left, b"a", "4");
        world.reopen().await;
        world.check_all();
        assert_eq!(world.live.keys().copied().collect::<Vec<_>>(), [left, right]);
        world.finish_split(left).await;
        world.reopen().await;
        world.check_all();
        let regions: Vec<u64> = world.engine().regions().iter().map(|region| region.id().0).collect();
        assert_eq!(regions, [left, right], "{backend}");
    }
}

/// A flush wrote its cells and died before its record. The next one, which also has a tombstone, drops put and
/// tombstone together: the put of the first attempt must not come back.
#[tokio::test]
async fn cells_of_an_unrecorded_flush_do_not_come_back() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        let before = fs::read(&world.dir.path().join("MANIFEST")).await.unwrap();
        world.write(region, vec![cell(b"a", 50, CellKind::Put, "deleted later")]);
        world.freeze(region);
        world.flush(region).await;
        close(&mut world).await;
        fs::write_durable(&world.dir.path().join("MANIFEST"), &before).await.unwrap();
        world.gone.clear();
        world.acknowledged.clear();
        world.reopen().await;
        world.write(region, vec![cell(b"a", 50, CellKind::DeleteColumn, "")]);
        world.freeze(region);
        world.flush(region).await;
        world.check_all();
        world.reopen().await;
        world.check_all();
        assert!(world.models[&region].read(b"a", &terrane_types::Projection::all(), 9, 200).is_empty());
    }
}

async fn close(world: &mut World) {
    world.live.clear();
    let engine: Option<std::sync::Arc<Engine>> = world.engine.take();
    if let Some(engine) = engine {
        engine.shutdown().await;
    }
}

#[tokio::test]
async fn dropped_regions_and_group_points_stay_as_recorded() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        put(&mut world, region, b"a", "1");
        world.freeze(region);
        world.flush(region).await;
        world.drop_region(region).await;
        world.reopen().await;
        assert!(world.engine().regions().is_empty());
        let point = world.engine().group_point(crate::support::world::GROUP).unwrap();
        assert_eq!((point.index, &*point.state), (2, &b"dropped 1"[..]));
        let again = world.create(KeyRange::all(), &[("f", FamilyRules::default())]);
        world.freeze(again);
        world.flush(again).await;
        world.check_all();
    }
}
