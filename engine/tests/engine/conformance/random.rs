//! Random steps on an engine and its model.

use terrane_engine::BackendKind;
use terrane_env::fs::MemoryDisk;

use crate::support::amount::seeds;
use crate::support::dice::Dice;
use crate::support::steps::{any_settings, check, fill_gaps, step, two_at_once};
use crate::support::world::{Home, World, backends};

async fn run(backend: BackendKind, seed: u64, steps: usize, racing: bool) {
    let mut dice = Dice::new(seed);
    let settings = any_settings(&mut dice);
    // Sled opens its own files.
    let in_memory = backend.name() != "sled" && dice.one_in(2);
    let home = if in_memory {
        Home::in_memory(&MemoryDisk::new()).await
    } else {
        Home::Temporary(tempfile::tempdir().unwrap())
    };
    let mut world = World::empty(home, backend, settings);
    world.reopen().await;
    fill_gaps(&mut world);
    for _ in 0..steps {
        if racing && dice.one_in(3) {
            two_at_once(&mut dice, &mut world).await.unwrap();
        } else {
            step(&mut dice, &mut world).await.unwrap();
        }
        check(&mut dice, &world).unwrap();
    }
    world.check_all();
    world.reopen().await;
    world.check_all();
}

/// Names the seed when the test unwinds.
struct Seed(BackendKind, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("engine {} failed with TERRANE_SEED={}", self.0, self.1);
        }
    }
}

async fn run_seeds(backend: BackendKind, seeds: std::ops::Range<u64>, steps: usize, racing: bool) {
    for seed in seeds {
        let _seed = Seed(backend, seed);
        run(backend, seed, steps, racing).await;
    }
}

#[tokio::test]
async fn memory_reads_match_the_model() {
    run_seeds(BackendKind::Memory, seeds(20, 60), 120, false).await;
}

#[tokio::test]
async fn lsm_reads_match_the_model() {
    run_seeds(BackendKind::Lsm, seeds(40, 120), 150, false).await;
}

#[tokio::test]
async fn lsm_reads_match_the_model_during_compactions() {
    run_seeds(BackendKind::Lsm, seeds(25, 80), 150, true).await;
}

#[tokio::test]
async fn reads_of_the_other_backends_match_the_model() {
    let tested = [BackendKind::Memory, BackendKind::Lsm];
    for backend in backends().into_iter().filter(|backend| !tested.contains(backend)) {
        run_seeds(backend, seeds(4, 8), 100, false).await;
    }
}
