//! Random operations: properties of every state of the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::chance::SplitMix64;
use super::MemoryDisk;
use crate::fs::{Disk, Tear};

const RUNS: u64 = 200;
const STEPS: usize = 60;
const DIRECTORIES: [&str; 4] = ["/", "/a", "/b", "/a/c"];

/// Every path with its content; `None` for a directory.
type Shape = BTreeMap<PathBuf, Option<Vec<u8>>>;

async fn shape(memory: &MemoryDisk) -> Shape {
    let disk = Disk::from(memory);
    let mut shape = Shape::new();
    let mut found = vec![PathBuf::from("/")];
    while let Some(path) = found.pop() {
        let content = match disk.list(&path).await {
            Ok(names) => {
                found.extend(names.iter().map(|name| path.join(name)));
                None
            }
            Err(_) => Some(disk.read(&path).await.expect("what is no directory is a file")),
        };
        shape.insert(path, content);
    }
    shape
}

fn path(chance: &mut SplitMix64) -> PathBuf {
    let directory = Path::new(DIRECTORIES[chance.below(DIRECTORIES.len())]);
    directory.join(["a", "b", "c", "f", "g"][chance.below(5)])
}

/// One operation; a refusal is as good as any other outcome.
async fn step(disk: &Disk, chance: &mut SplitMix64) {
    let (one, other) = (path(chance), path(chance));
    let result = match chance.below(12) {
        0 => disk.create_dir_all(&one).await,
        1 => disk.remove_file(&one).await,
        2 => disk.remove_dir_all(&one).await,
        3 => disk.hard_link(&one, &other).await,
        4 | 5 => disk.rename(&one, &other).await,
        6 => disk.sync_dir(Path::new(DIRECTORIES[chance.below(DIRECTORIES.len())])).await,
        7 => disk.write_durable(&one, &[chance.below(256) as u8; 20]).await,
        kind => match disk.open_rw(&one).await {
            Ok(file) if kind == 8 => file.set_len(chance.below(50) as u64).await,
            Ok(file) if kind == 9 => file.sync_data().await,
            Ok(file) => file.write_all_at(&vec![kind as u8; chance.below(30)], chance.below(40) as u64).await,
            Err(error) => Err(error),
        },
    };
    drop(result);
}

async fn sync_everything(disk: &Disk, shape: &Shape) {
    for (path, content) in shape {
        match content {
            None => disk.sync_dir(path).await.unwrap(),
            Some(_) => disk.open_rw(path).await.unwrap().sync_all().await.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_crash_that_keeps_all_changes_nothing() {
    for seed in 0..RUNS {
        let memory = MemoryDisk::new();
        let mut chance = SplitMix64::new(seed);
        for _ in 0..STEPS {
            step(&Disk::from(&memory), &mut chance).await;
            assert_eq!(
                shape(&memory.crash(Tear::Kept)).await,
                shape(&memory).await,
                "seed {seed}: {:#?}",
                memory.trace()
            );
        }
    }
}

#[tokio::test]
async fn what_is_synced_survives_every_crash_whatever_was_done_before() {
    for seed in 0..RUNS {
        let memory = MemoryDisk::new();
        let disk = Disk::from(&memory);
        let mut chance = SplitMix64::new(seed);
        for round in 0..3 {
            for _ in 0..STEPS / 3 {
                step(&disk, &mut chance).await;
            }
            let synced = shape(&memory).await;
            sync_everything(&disk, &synced).await;
            for tear in [Tear::Lost, Tear::Kept, Tear::Random(seed)] {
                let back = shape(&memory.crash(tear)).await;
                assert_eq!(back, synced, "seed {seed}, round {round}, {tear:?}: {:#?}", memory.trace());
            }
        }
    }
}

#[tokio::test]
async fn a_disk_that_came_back_is_whole_and_takes_the_next_crash() {
    for seed in 0..RUNS {
        let mut memory = MemoryDisk::new();
        let mut chance = SplitMix64::new(seed);
        for life in 0..4 {
            memory.crash_at(chance.below(STEPS * 2) as u64);
            for _ in 0..STEPS {
                step(&Disk::from(&memory), &mut chance).await;
            }
            memory = memory.crash(Tear::Random(seed + life));
            let back = shape(&memory).await;
            assert_eq!(shape(&memory.crash(Tear::Lost)).await, back, "seed {seed}: what came back is durable");
        }
    }
}
