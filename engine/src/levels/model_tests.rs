//! Regions that are split, merged and rewritten at random: the files of each row stay the same, in the same order.
//!
//! A failure prints its seed; `TERRANE_SEED=n` runs that seed alone.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::script_tests::file;
use super::{FileRef, Levels};
use crate::manifest::FileRecord;
use crate::row_range::RowRange;

const SEEDS: u64 = 300;
const STEPS: usize = 60;
const ROWS: std::ops::RangeInclusive<u8> = b'a'..=b'z';

/// Neighbours that cover all rows: where each begins, and its files.
type Regions = Vec<(u8, Levels)>;

/// Level and file of everything that has a row, in the order in which readers take it.
fn files_of(levels: &Levels, row: u8) -> Vec<(u8, u64)> {
    assert!(levels.are_in_order(), "readers search for the file that has a row: {levels:?}");
    let level0 = levels.level0.iter().rev();
    let all = level0.chain(levels.below.iter().flatten()).filter(|file| file.record.holds(&[row]));
    all.map(|file| (file.record.level, file.record.id)).collect()
}

fn files_of_all(regions: &Regions) -> Vec<Vec<(u8, u64)>> {
    let region_of = |row: u8| &regions.iter().rfind(|(start, _)| *start <= row).expect("the first has the first row").1;
    ROWS.map(|row| files_of(region_of(row), row)).collect()
}

fn bounds(regions: &Regions, at: usize) -> RowRange {
    let start = if at == 0 { Vec::new() } else { vec![regions[at].0] };
    RowRange { start, end: regions.get(at + 1).map_or_else(Vec::new, |(next, _)| vec![*next]) }
}

/// A file of a region with all rows, of which only those of the region are there.
fn new_file(id: u64, level: u8, bounds: RowRange) -> FileRef {
    let whole = file(&id.to_string(), &level.to_string(), "a-z", "260");
    FileRef { record: Arc::new(FileRecord { bounds, ..(*whole.record).clone() }), ..whole }
}

fn split(regions: &mut Regions, at: usize, row: u8) {
    let whole = bounds(regions, at);
    if !whole.contains(&[row]) || row <= regions[at].0 {
        return;
    }
    let levels = regions[at].1.clone();
    let left = levels.within(&RowRange { end: vec![row], ..whole.clone() });
    let right = levels.within(&RowRange { start: vec![row], ..whole });
    regions[at].1 = left;
    regions.insert(at + 1, (row, right));
}

fn merge(regions: &mut Regions, at: usize, next_id: &mut u64) {
    if at + 1 >= regions.len() {
        return;
    }
    let right = regions.remove(at + 1).1;
    let mut merged = regions[at].1.joined(&right);
    // As an engine does, which knows files by id.
    for part in merged.doubles() {
        *next_id += 1;
        let record = Arc::new(FileRecord { id: *next_id, ..(*part.record).clone() });
        merged.replace(&part, Some(&FileRef { record, source: Arc::clone(&part.source) }));
    }
    regions[at].1 = merged;
}

fn run(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut regions, mut next_id): (Regions, u64) = (vec![(*ROWS.start(), Levels::default())], 0);
    for _ in 0..STEPS {
        let at = rng.random_range(0..regions.len());
        let before = files_of_all(&regions);
        match rng.random_range(0..5) {
            0 => split(&mut regions, at, rng.random_range(ROWS)),
            1 => {
                let ids = next_id;
                merge(&mut regions, at, &mut next_id);
                let counts = |files: &[Vec<(u8, u64)>]| files.iter().map(Vec::len).collect::<Vec<_>>();
                let after = files_of_all(&regions);
                assert_eq!(counts(&before), counts(&after), "seed {seed}");
                // A further part of a file has another name; all else is as it was.
                for (before, after) in before.iter().flatten().zip(after.iter().flatten()) {
                    assert!(before == after || (before.0 == after.0 && after.1 > ids), "seed {seed}");
                }
                continue;
            }
            kind => {
                next_id += 1;
                let level = if kind == 2 { 0 } else { 6 };
                let added = new_file(next_id, level, bounds(&regions, at));
                // A flush; or a rewrite of everything.
                let kept: Vec<FileRef> = regions[at].1.iter().filter(|_| level == 0).cloned().collect();
                regions[at].1 = Levels::new(kept.into_iter().chain([added]));
                continue;
            }
        }
        assert_eq!(before, files_of_all(&regions), "seed {seed}");
    }
}

#[test]
fn splits_and_merges_keep_the_files_of_every_row() {
    match std::env::var("TERRANE_SEED") {
        Ok(seed) => run(seed.parse().expect("TERRANE_SEED is a number")),
        Err(_) => (0..SEEDS).for_each(run),
    }
}
