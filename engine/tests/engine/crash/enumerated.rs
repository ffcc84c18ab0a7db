//! Every crash of every short workload.

use std::collections::BTreeSet;

use terrane_engine::{BackendKind, Error};
use terrane_env::fs::Tear;

use crate::support::amount::thorough;

use super::workload::{BACKENDS, Op, Scene, Start, Stretch, run_all, state_of, verify, workloads};

/// The operations that touch the disk: only these can be cut off by a crash.
const ON_DISK: [Op; 7] = [Op::Flush, Op::Split, Op::Merge, Op::Compact, Op::Drop, Op::RecordGroup, Op::Reopen];

const TEARS: [Tear; 5] = [Tear::Lost, Tear::Kept, Tear::Random(1), Tear::Random(2), Tear::Random(3)];

/// Counts the cases, so that a suite that checks nothing is noticed.
#[derive(Debug, Default)]
struct Tally {
    workloads: u64,
    crashes: u64,
    states: u64,
}

/// Cuts the power at every change that the last operation makes. Those before it are covered by shorter workloads.
async fn crash_everywhere(start: &Start, workload: &[Op], tally: &mut Tally) {
    let (last, begin) = workload.split_last().expect("a workload has an operation");
    let mut world = start.world();
    world_begun(&mut world, begin).await;
    let stretch = Stretch::of(&mut world, *last).await;
    tally.workloads += 1;
    let mut seen = BTreeSet::new();
    for number in stretch.changes() {
        let mut world = start.world();
        world_begun(&mut world, begin).await;
        world.dir.memory().crash_at(number);
        let met = last.run(&mut world).await;
        let memory = world.dir.memory().clone();
        let _scene = Scene { text: format!("{workload:?}, crashed at {number}: {met:?}"), disk: &memory };
        assert!(memory.crashed(), "the same operations come in the same order");
        assert!(matches!(met, Ok(()) | Err(Error::Io { .. })));
        world.close();
        for tear in TEARS {
            tally.crashes += 1;
            let mut after = start.world_on(&world.known, memory.crash(tear));
            if !seen.insert(state_of(&after).await) {
                continue;
            }
            tally.states += 1;
            let after_disk = after.dir.memory().clone();
            let _scene = Scene { text: format!("{tear:?}, and then"), disk: &after_disk };
            verify(&mut after).await;
        }
    }
}

/// A world that has run all of a workload but the last operation. The first operation opens an empty one.
async fn world_begun(world: &mut crate::support::world::World, begin: &[Op]) {
    if world.index() > 0 {
        Op::Reopen.run(world).await.unwrap();
    }
    run_all(world, begin).await;
}

async fn crash_all(backend: BackendKind, length: usize) {
    let start = Start::filled(backend).await;
    let mut tally = Tally::default();
    // Coprime to the numbers of operations, so that every operation comes in every position.
    let step = if length < 3 || thorough() { 1 } else { 5 };
    for workload in workloads(length, &ON_DISK).iter().step_by(step) {
        crash_everywhere(&start, workload, &mut tally).await;
    }
    eprintln!("{backend}: {tally:?}");
    assert!(tally.states > tally.workloads, "crashes leave states to look at");
}

#[tokio::test]
async fn a_new_directory_survives_a_crash_at_any_operation() {
    for backend in BACKENDS {
        let start = Start::empty(backend).await;
        let mut tally = Tally::default();
        crash_everywhere(&start, &[Op::Reopen], &mut tally).await;
        for workload in workloads(2, &ON_DISK) {
            crash_everywhere(&start, &[&[Op::Reopen], workload.as_slice()].concat(), &mut tally).await;
        }
        eprintln!("{backend}: {tally:?}");
    }
}

#[tokio::test]
async fn workloads_of_one_and_two_operations_survive_a_crash_at_any_operation() {
    for backend in BACKENDS {
        crash_all(backend, 1).await;
        crash_all(backend, 2).await;
    }
}

#[tokio::test]
async fn workloads_of_three_operations_survive_a_crash_at_any_operation_on_lsm() {
    crash_all(BackendKind::Lsm, 3).await;
}

#[tokio::test]
async fn workloads_of_three_operations_survive_a_crash_at_any_operation_in_memory() {
    crash_all(BackendKind::Memory, 3).await;
}
