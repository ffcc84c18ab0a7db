//! Long random workloads, with crashes and refusals at random operations.

use terrane_engine::{BackendKind, Error};
use terrane_env::fs::{Fault, MemoryDisk, Tear};

use super::workload::Scene;
use crate::support::amount::seeds;
use crate::support::dice::Dice;
use crate::support::steps::{any_settings, check, fill_gaps, step, two_at_once};
use crate::support::world::{Home, World};

/// How many times one seed crashes or fails.
const ROUNDS: usize = 8;

fn any_tear(dice: &mut Dice) -> Tear {
    match dice.below(6) {
        0 => Tear::Lost,
        1 => Tear::Kept,
        _ => Tear::Random(dice.next()),
    }
}

async fn any_world(dice: &mut Dice, backend: BackendKind) -> World {
    let settings = any_settings(dice);
    World::empty(Home::in_memory(&MemoryDisk::new()).await, backend, settings)
}

/// Opens the engine and continues until the steps are done or the disk fails.
async fn go_on(dice: &mut Dice, world: &mut World, steps: usize, racing: bool) -> Result<(), Error> {
    if world.engine.is_none() {
        world.try_reopen().await?;
        fill_gaps(world);
        world.try_check_all()?;
    }
    for _ in 0..steps {
        if racing && dice.one_in(3) {
            two_at_once(dice, world).await?;
        } else {
            step(dice, world).await?;
        }
        check(dice, world)?;
    }
    Ok(())
}

async fn crash_again_and_again(backend: BackendKind, seed: u64, racing: bool) {
    let mut dice = Dice::new(seed);
    let mut world = any_world(&mut dice, backend).await;
    for _ in 0..ROUNDS {
        let memory = world.dir.memory().clone();
        let _scene = Scene { text: format!("{backend}, TERRANE_SEED={seed}"), disk: &memory };
        // Occasionally while it recovers.
        let operations = if dice.one_in(4) { 25 } else { 400 };
        memory.crash_at(memory.operations() + dice.next() % operations);
        let met = go_on(&mut dice, &mut world, 150, racing).await;
        assert!(met.is_ok() || memory.crashed(), "nothing was wrong with the disk: {met:?}");
        assert!(matches!(met, Ok(()) | Err(Error::Io { .. })), "{met:?}");
        world.close();
        let Home::Memory(disk, _) = &mut world.dir else { unreachable!("it is in memory") };
        *disk = memory.crash(any_tear(&mut dice));
    }
    go_on(&mut dice, &mut world, 20, racing).await.unwrap();
    world.reopen().await;
    world.check_all();
}

async fn fail_again_and_again(backend: BackendKind, seed: u64, racing: bool) {
    let mut dice = Dice::new(seed);
    let mut world = any_world(&mut dice, backend).await;
    let memory = world.dir.memory().clone();
    let _scene = Scene { text: format!("{backend}, TERRANE_SEED={seed}"), disk: &memory };
    for _ in 0..ROUNDS {
        let mut at = memory.operations();
        for _ in 0..=dice.below(3) {
            at += dice.next() % 100;
            memory.fail_at(at, dice.pick(&[Fault::Error, Fault::ShortWrite, Fault::NoSpace]));
        }
        let mut met = go_on(&mut dice, &mut world, 100, racing).await;
        // A drop with an unknown outcome is the one thing that must be repeated. Each attempt meets one fault.
        while met.is_err() {
            assert!(matches!(met, Err(Error::Io { .. })), "{met:?}");
            met = world.end_doubt().await;
        }
        if world.engine.is_some() {
            fill_gaps(&mut world);
        }
    }
    // Faults that are still planned occur here, one at a time.
    while let Err(met) = world.try_reopen().await {
        assert!(matches!(met, Error::Io { .. }), "{met:?}");
    }
    while let Err(met) = world.try_check_all() {
        assert!(matches!(met, Error::Io { .. }), "{met:?}");
    }
}

#[tokio::test]
async fn lsm_survives_crash_after_crash() {
    for seed in seeds(40, 150) {
        crash_again_and_again(BackendKind::Lsm, seed, false).await;
    }
}

#[tokio::test]
async fn memory_survives_crash_after_crash() {
    for seed in seeds(20, 60) {
        crash_again_and_again(BackendKind::Memory, seed, false).await;
    }
}

#[tokio::test]
async fn lsm_survives_fault_after_fault() {
    for seed in seeds(30, 100) {
        fail_again_and_again(BackendKind::Lsm, seed, false).await;
    }
}

#[tokio::test]
async fn memory_survives_fault_after_fault() {
    for seed in seeds(20, 40) {
        fail_again_and_again(BackendKind::Memory, seed, false).await;
    }
}

#[tokio::test]
async fn lsm_survives_crash_after_crash_during_compactions() {
    for seed in seeds(30, 100) {
        crash_again_and_again(BackendKind::Lsm, seed, true).await;
    }
}

#[tokio::test]
async fn lsm_survives_fault_after_fault_during_compactions() {
    for seed in seeds(30, 100) {
        fail_again_and_again(BackendKind::Lsm, seed, true).await;
    }
}
