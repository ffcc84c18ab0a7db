//! Merges: what a replica restores of them, and that nothing is lost or applied twice through splits and merges at random.

use std::collections::BTreeMap;

use terrane_types::cell::Cells;
use terrane_types::{FamilyRules, ReadModifyWrite, ReadModifyWriteKind};

use super::*;
use crate::operation::Merge;

impl Replica {
    async fn merge(&mut self, left: (u64, u64), right: (u64, u64), into: u64) -> Reply {
        let merge = Merge {
            left: RegionId(left.0),
            left_epoch: RegionEpoch(left.1),
            right: RegionId(right.0),
            right_epoch: RegionEpoch(right.1),
            into: RegionId(into),
        };
        self.apply(encoded(|out| merge.encode(out))).await
    }

    /// A replica with regions 2, up to `c`, and 3, both on disk.
    async fn of_two() -> Self {
        let mut replica = Self::new().await;
        replica.put(1, 1, "a").await;
        replica.put(1, 1, "m").await;
        replica.split(1, 1, "c", 2, 3).await;
        for region in [2, 3] {
            replica.machine.flush(RegionId(region)).await.unwrap();
        }
        replica
    }
}

#[tokio::test]
async fn a_merge_that_is_not_on_disk_is_replayed() {
    let mut replica = Replica::of_two().await;
    replica.put(2, 2, "b").await;
    assert!(matches!(replica.merge((2, 2), (3, 2), 4).await, Reply::Merged { .. }));
    replica.put(4, 3, "z").await;
    assert_eq!(replica.shown(), "r4[a b m z]");
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r4[a b m z]");
}

#[tokio::test]
async fn a_merge_that_is_on_disk_is_not_made_again_and_still_forwards() {
    let mut replica = Replica::of_two().await;
    replica.merge((2, 2), (3, 2), 4).await;
    replica.machine.flush(RegionId(4)).await.unwrap();
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r4[a m]");
    for gone in [2, 3] {
        let successors = replica.machine.successors(RegionId(gone));
        assert_eq!(successors.iter().map(|region| region.region.0).collect::<Vec<_>>(), [4]);
    }
}

#[tokio::test]
async fn a_crash_after_the_group_was_recorded_and_before_the_merge_was_loses_nothing() {
    let mut replica = Replica::of_two().await;
    replica.put(3, 2, "z").await;
    replica.merge((2, 2), (3, 2), 4).await;
    replica.put(4, 3, "b").await;
    replica.machine.record().await.unwrap();
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r4[a b m z]");
}

#[tokio::test]
async fn a_merge_waits_until_the_splits_of_its_parents_are_on_disk() {
    let mut replica = Replica::new().await;
    replica.put(1, 1, "a").await;
    replica.split(1, 1, "c", 2, 3).await;
    replica.put(3, 2, "m").await;
    replica.merge((2, 2), (3, 2), 4).await;
    let (split, log) = (replica.shown(), replica.log.len());
    assert_eq!((split.as_str(), log), ("r4[a m]", 5));
    replica.split(4, 3, "k", 5, 6).await;
    replica.merge((5, 4), (6, 4), 7).await;
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r7[a m]");
}

#[tokio::test]
async fn a_refused_merge_leaves_both_as_they_are() {
    let mut replica = Replica::of_two().await;
    assert!(matches!(replica.merge((3, 2), (2, 2), 4).await, Reply::Invalid { .. }));
    assert!(matches!(replica.merge((2, 2), (3, 1), 4).await, Reply::Stale { .. }));
    let replica = replica.crash_and_replay().await;
    assert_eq!(replica.shown(), "r2[a] r3[m]");
}

#[tokio::test]
async fn a_retry_after_a_merge_is_answered_whichever_side_applied_it() {
    let mut replica = Replica::of_two().await;
    replica.mutate(2, 2, 1, "a", Some(increment())).await;
    replica.mutate(3, 2, 2, "m", Some(increment())).await;
    replica.merge((2, 2), (3, 2), 4).await;
    for replayed in [false, true] {
        if replayed {
            replica = replica.crash_and_replay().await;
        }
        for (number, row) in [(1, "a"), (2, "m")] {
            replica.mutate(4, 3, number, row, Some(increment())).await;
            assert_eq!(replica.count(row), 1, "number {number} again, replayed: {replayed}");
        }
    }
}

fn increment() -> RowRequest {
    let (family, qualifier) = (FamilyName::new("f").unwrap(), Bytes::from_static(b"n"));
    let increment = ReadModifyWrite { family, qualifier, what: ReadModifyWriteKind::Increment(1) };
    RowRequest { read_modify_writes: vec![increment], ..RowRequest::default() }
}

impl Replica {
    /// The region that has a row, with its epoch.
    fn at(&self, row: &str) -> (u64, u64) {
        let hosted = self.machine.hosted();
        let states = hosted.iter().map(|hosted| hosted.state());
        let holders: Vec<_> = states.filter(|state| state.descriptor.range.contains(row.as_bytes())).collect();
        assert_eq!(holders.len(), 1, "row {row} is in one region");
        (holders[0].descriptor.region.0, holders[0].descriptor.epoch.0)
    }

    /// What a counter says; 0: it is not there.
    fn count(&self, row: &str) -> u64 {
        let region = self.at(row).0;
        let hosted = self.machine.hosted().into_iter().find(|hosted| hosted.region == RegionId(region)).unwrap();
        let (snapshot, mut out) = (hosted.engine.snapshot(), Vec::new());
        let (all, patience) = (Projection::all(), Patience::MayBlock);
        hosted.engine.get(&snapshot, row.as_bytes(), &all, 2_000, patience, &mut out).unwrap();
        let counter = Cells::new(&out).find(|cell| cell.qualifier == b"n");
        counter.map_or(0, |cell| u64::from_be_bytes(cell.value.try_into().expect("a counter has 8 bytes")))
    }
}

/// A small generator (xorshift), so that a seed says everything.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).unwrap()
    }
}

const ROWS: [&str; 12] = ["a", "b", "c", "d", "e", "f", "k", "m", "p", "s", "w", "z"];

/// Counters in all regions, retries of everything, and the map changing all the time: at its end every counter has counted each
/// number once.
async fn splits_and_merges_at_random(seed: u64) {
    eprintln!("seed {seed}");
    let mut dice = Seeded(seed * 0x9E37_79B9 + 1);
    let mut replica = Replica::new().await;
    let mut applied: Vec<&str> = Vec::new();
    let (mut next_region, mut version) = (10, 1);
    for _ in 0..160 {
        let row = ROWS[dice.below(ROWS.len())];
        let (region, epoch) = replica.at(row);
        match dice.below(20) {
            0..8 => {
                applied.push(row);
                replica.mutate(region, epoch, applied.len() as u64, row, Some(increment())).await;
            }
            8..11 if !applied.is_empty() => {
                let number = dice.below(applied.len());
                let row = applied[number];
                let (region, epoch) = replica.at(row);
                replica.mutate(region, epoch, number as u64 + 1, row, Some(increment())).await;
            }
            11..14 => {
                let split = replica.split(region, epoch, row, next_region, next_region + 1).await;
                assert!(matches!(split, Reply::Split { .. } | Reply::Invalid { .. }), "{split:?}");
                next_region += 2;
            }
            14..17 => {
                let hosted = replica.machine.hosted();
                let here = hosted.iter().find(|hosted| hosted.region == RegionId(region)).unwrap().state();
                let end = here.descriptor.range.end.clone();
                let next = hosted.iter().map(|hosted| hosted.state()).find(|state| state.descriptor.range.start == end);
                if let Some(next) = next.filter(|_| !end.is_empty()) {
                    let right = (next.descriptor.region.0, next.descriptor.epoch.0);
                    let merged = replica.merge((region, epoch), right, next_region).await;
                    assert!(matches!(merged, Reply::Merged { .. }), "{merged:?}");
                    next_region += 1;
                }
            }
            17 => replica.machine.flush(RegionId(region)).await.unwrap(),
            18 => {
                version += 1;
                let mut altered = schema(version);
                altered.families[0].rules =
                    FamilyRules { versions: 1 + dice.below(4) as u32, ..altered.families[0].rules };
                replica.alter(altered).await;
            }
            _ if dice.below(3) == 0 => {
                replica.machine.record().await.unwrap();
            }
            _ => replica = replica.crash_and_replay().await,
        }
    }
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    applied.iter().for_each(|row| *expected.entry(row).or_default() += 1);
    for row in ROWS {
        assert_eq!(replica.count(row), expected.get(row).copied().unwrap_or_default(), "row {row}");
    }
    let replica = replica.crash_and_replay().await;
    for row in ROWS {
        assert_eq!(replica.count(row), expected.get(row).copied().unwrap_or_default(), "row {row}, replayed");
    }
}

#[tokio::test]
async fn counters_count_each_number_once_through_splits_merges_and_crashes() {
    let seed = std::env::var("TERRANE_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seeds = if std::env::var("TERRANE_FULL").is_ok() { 200 } else { 12 };
    for seed in seed.map_or(1..=seeds, |seed| seed..=seed) {
        splits_and_merges_at_random(seed).await;
    }
}
