//! What holds back the log, and what a flush records.

use terrane_env::fs;
use terrane_types::{FamilyRules, KeyRange};

use crate::support::fixture::{one_region, put};
use crate::support::world::backends;

#[tokio::test]
async fn a_region_holds_back_the_log_from_its_first_entry_that_is_not_durable() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        let unflushed = |world: &crate::support::world::World| world.live[&region].unflushed_from();
        assert_eq!(unflushed(&world), Some(1), "its creation is not durable");
        put(&mut world, region, b"a", "1");
        assert_eq!(unflushed(&world), Some(1));
        world.freeze(region);
        put(&mut world, region, b"b", "2");
        assert_eq!(unflushed(&world), Some(1), "frozen is not durable");
        world.flush(region).await;
        assert_eq!(unflushed(&world), Some(3), "what came after the freeze");
        world.freeze(region);
        world.flush(region).await;
        assert_eq!(unflushed(&world), None, "an idle region holds back nothing");
        world.alter("f", Some(FamilyRules { versions: 3, ..FamilyRules::default() }));
        assert_eq!(unflushed(&world), Some(4), "a change of rules is not durable");
    }
}

#[tokio::test]
async fn both_daughters_hold_back_what_the_parent_did_until_the_split_is_recorded() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        world.freeze(region);
        world.flush(region).await;
        put(&mut world, region, b"a", "1");
        let (left, right) = world.split(region, b"m").await;
        assert_eq!([left, right].map(|id| world.live[&id].unflushed_from()), [Some(2), Some(2)]);
        put(&mut world, right, b"x", "2");
        world.finish_split(left).await;
        assert_eq!([left, right].map(|id| world.live[&id].unflushed_from()), [None, Some(4)]);
        assert_eq!(world.live[&left].point().index, 3);
        assert_eq!(world.live[&right].sequence(), 2, "a daughter goes on counting where the parent was");
    }
}

#[tokio::test]
async fn a_flush_without_cells_records_its_point_and_writes_no_file() {
    let (mut world, region) = one_region(terrane_engine::BackendKind::Memory).await;
    world.freeze(region);
    world.flush(region).await;
    assert_eq!(fs::list(&world.dir.path().join("cells")).await.unwrap(), Vec::<String>::new());
    let expected = world.point(&world.live[&region], 1);
    assert_eq!(world.live[&region].point(), expected);
    world.reopen().await;
    assert_eq!(world.live[&region].point(), expected);
}

/// Two changes of the rules after a freeze: the record must not have them, because the replay applies both again.
#[tokio::test]
async fn rules_changed_after_a_freeze_are_replayed() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        put(&mut world, region, b"a", "1");
        world.freeze(region);
        for versions in [3, 1] {
            world.alter("f", Some(FamilyRules { versions, ..FamilyRules::default() }));
            put(&mut world, region, b"a", "later");
        }
        world.flush(region).await;
        world.reopen().await;
        world.check_all();
    }
}

#[tokio::test]
async fn a_family_that_is_added_again_starts_empty() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        put(&mut world, region, b"a", "of the first");
        world.freeze(region);
        world.flush(region).await;
        world.alter("f", None);
        world.alter("f", Some(FamilyRules::default()));
        world.check_all();
        put(&mut world, region, b"b", "of the second");
        world.freeze(region);
        world.flush(region).await;
        world.reopen().await;
        world.check_all();
        assert_eq!(world.models[&region].rows(&KeyRange::all()).len(), 1);
    }
}

#[tokio::test]
async fn a_split_halves_the_size() {
    for backend in backends() {
        let (mut world, region) = one_region(backend).await;
        for row in 0..400u32 {
            put(&mut world, region, &row.to_be_bytes(), "a value of some length");
        }
        world.freeze(region);
        world.flush(region).await;
        let whole = world.live[&region].size_bytes();
        let at = world.live[&region].split_point(&|row| Some(row.to_vec())).unwrap();
        let (left, right) = world.split(region, &at).await;
        for half in [left, right].map(|id| world.live[&id].size_bytes()) {
            assert!(half.abs_diff(whole / 2) < whole / 8, "{backend}: {half} of {whole}");
        }
    }
}
