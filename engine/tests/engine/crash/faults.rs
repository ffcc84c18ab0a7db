//! Every disk operation of every short workload, refused once.

use terrane_engine::{BackendKind, Error};
use terrane_env::fs::{Fault, Tear};

use super::workload::{BACKENDS, Op, Scene, Start, Stretch, files_of, run_all, verify, verify_open, workloads};
use crate::support::amount::thorough;
use crate::support::world::World;

/// What comes after the fault.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The operation is tried again.
    Again,
    /// The engine is closed and opened.
    Reopen,
    /// The power fails.
    Crash(Tear),
}

const THEN: [Then; 4] = [Then::Again, Then::Reopen, Then::Crash(Tear::Lost), Then::Crash(Tear::Random(1))];

async fn fail_everywhere(start: &Start, workload: &[Op], faults: &mut u64) {
    let (last, begin) = workload.split_last().expect("a workload has an operation");
    let mut world = begun(start, begin).await;
    let stretch = Stretch::of(&mut world, *last).await;
    for (number, fault) in stretch.faults() {
        for then in THEN {
            *faults += 1;
            let world = begun(start, begin).await;
            fail_once(start, world, *last, (number, fault), then, workload).await;
        }
    }
}

async fn begun(start: &Start, begin: &[Op]) -> World {
    let mut world = start.world();
    if world.index() > 0 {
        Op::Reopen.run(&mut world).await.unwrap();
    }
    run_all(&mut world, begin).await;
    world
}

async fn fail_once(start: &Start, mut world: World, last: Op, at: (u64, Fault), then: Then, workload: &[Op]) {
    let (number, fault) = at;
    let memory = world.dir.memory().clone();
    memory.fail_at(number, fault);
    let met = last.run(&mut world).await;
    let _scene = Scene { text: format!("{workload:?}, {fault:?} at {number}, then {then:?}: {met:?}"), disk: &memory };
    assert!(memory.operations() > number, "the same operations come in the same order");
    assert!(matches!(met, Ok(()) | Err(Error::Io { .. })), "a refusal of the disk is told as one");
    // Whatever was refused, everything in memory and in files is still there.
    world.check_all();
    match then {
        Then::Again => {
            if met.is_err() {
                last.run(&mut world).await.unwrap();
            }
            world.check_all();
            verify_open(&mut world).await;
        }
        Then::Reopen => verify(&mut world).await,
        Then::Crash(tear) => {
            world.close();
            let mut after = start.world_on(&world.known, memory.crash(tear));
            let after_disk = after.dir.memory().clone();
            let _scene = Scene { text: "after the crash".to_owned(), disk: &after_disk };
            verify(&mut after).await;
        }
    }
}

async fn fail_all(backend: BackendKind, length: usize) {
    let start = Start::filled(backend).await;
    let mut faults = 0;
    // Coprime to the number of operations, so that every operation comes in every position.
    let step = if length < 2 || thorough() { 1 } else { 4 };
    for workload in workloads(length, &Op::ALL).iter().step_by(step) {
        fail_everywhere(&start, workload, &mut faults).await;
    }
    eprintln!("{backend}: {faults} faults");
    assert!(faults > 0);
}

#[tokio::test]
async fn a_new_directory_survives_any_disk_error() {
    for backend in BACKENDS {
        let start = Start::empty(backend).await;
        fail_everywhere(&start, &[Op::Reopen], &mut 0).await;
        for op in Op::ALL {
            fail_everywhere(&start, &[Op::Reopen, op], &mut 0).await;
        }
    }
}

#[tokio::test]
async fn workloads_of_up_to_two_operations_survive_any_disk_error_on_lsm() {
    fail_all(BackendKind::Lsm, 1).await;
    fail_all(BackendKind::Lsm, 2).await;
    if thorough() {
        fail_all(BackendKind::Lsm, 3).await;
    }
}

#[tokio::test]
async fn workloads_of_up_to_two_operations_survive_any_disk_error_in_memory() {
    fail_all(BackendKind::Memory, 1).await;
    fail_all(BackendKind::Memory, 2).await;
    if thorough() {
        fail_all(BackendKind::Memory, 3).await;
    }
}

/// The disk is full for a while, from before an operation or from the middle of it.
async fn fill_up(start: &Start, workload: &[Op], bytes_left: u64) {
    let (last, begin) = workload.split_last().expect("a workload has an operation");
    let mut world = begun(start, begin).await;
    let memory = world.dir.memory().clone();
    let _scene = Scene { text: format!("{workload:?} with {bytes_left} bytes left"), disk: &memory };
    memory.set_free_space(Some(bytes_left));
    let mut files = None;
    for _ in 0..4 {
        let met = last.run(&mut world).await;
        if world.engine.is_none() {
            assert!(matches!(met, Err(Error::Io { .. })), "{met:?}");
            break;
        }
        world.check_all();
        match met {
            Ok(()) => break,
            Err(Error::Io { .. }) => {
                let left = files_of(&world).await;
                assert_eq!(*files.get_or_insert_with(|| left.clone()), left, "what fails leaves no files behind");
            }
            Err(other) => panic!("{other}"),
        }
    }
    memory.set_free_space(None);
    last.run(&mut world).await.unwrap();
    world.check_all();
    verify_open(&mut world).await;
}

#[tokio::test]
async fn a_full_disk_is_survived_until_there_is_space_again() {
    for backend in BACKENDS {
        let start = Start::filled(backend).await;
        let step = if thorough() { 1 } else { 4 };
        for workload in [workloads(1, &Op::ALL), workloads(2, &Op::ALL)].concat().into_iter().step_by(step) {
            for bytes_left in [0, 1, 50, 200, 350, 600, 1000, 2000, 3000] {
                fill_up(&start, &workload, bytes_left).await;
            }
        }
    }
}
