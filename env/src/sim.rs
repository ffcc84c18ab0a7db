//! The controls of the simulation: the seed, the hosts with their disks and clocks, and the points in production code.
//!
//! One seed per process. The state belongs to the one thread that runs the simulation; call [`seed`] before anything else,
//! then steer with the rest, between two steps of the simulation.
//!
//! - Hosts ([`boot_host`], [`process`]): which runtime is which host, and processes that end themselves.
//! - Disks ([`power_cut`], [`set_disk_speed`], [`fail_disk`] and others): every host has its own, in memory.
//! - Clocks ([`set_clock`], [`suspend`]): every host has its own.
//! - Points ([`set_fault_points`], [`set_small_limits`], [`plant`]): see `points.rs` of this crate.
//!
//! Invariants:
//! - Everything is drawn from the seed. What is drawn once for a name (the speed of a host's disk, whether a fault point is
//!   active) depends on the seed and the name alone, so that it does not change with the order in which names come up.
//! - Every fault that struck is counted ([`counts`]), not every fault that was requested.

use std::cell::RefCell;
use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

mod clocks;
mod disks;
mod hosts;
mod points;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use clocks::{VmClock, now_ns, paused_for, suspended_ns, wall_ms};
pub use clocks::{clock_error_ms, set_clock, start_clocks, stop_clocks, suspend, suspend_host, was_suspended};
pub(crate) use disks::{Delay, HostDisk, WriteTurn};
pub use disks::{
    DiskSpeed, damage, damage_below, disk_speed, durable_files, durably_begins, fail_disk, heal_disk, lose_end,
    lose_write, misdirect_write, missed_write, power_cut, random_tear, set_disk_speed, set_free_space, slow_disk_down,
    stall_disk, wipe_disk,
};
use hosts::Hosts;
pub use hosts::{ProcessExit, allow_exits, boot_host, host, is_exiting, order, process, take_exits};
pub(crate) use hosts::{exit_process, has_exited, is_ordered, take_order};
use points::Points;
pub(crate) use points::{add_to_tally, bug_is_planted, compares_witnesses, fault_point, first_witness, small_limit};
pub use points::{
    aim_fault_point, aim_limit, compare_witnesses, fault_points, plant, set_fault_points, set_small_limits,
    small_limits, tally_of,
};
use steps::Steps;
pub(crate) use steps::{HOLD, reach_step};
pub use steps::{held_step, hold_step};

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::new(0));
}

/// Number of a host. Never reused within a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostId(usize);

struct State {
    seed: u64,
    rng: StdRng,
    points: Points,
    steps: Steps,
    hosts: Hosts,
    counts: BTreeMap<&'static str, u64>,
}

impl State {
    fn new(seed: u64) -> State {
        State {
            seed,
            rng: StdRng::seed_from_u64(seed),
            points: Points::default(),
            steps: Steps::default(),
            hosts: Hosts::default(),
            counts: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A number below `bound`, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.next_u64() % bound
    }
}

fn with_state<T>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| act(&mut state.borrow_mut()))
}

/// Starts over from a seed, which determines the random numbers, the disks' behaviour and the active fault points.
pub fn seed(seed: u64) {
    hosts::forget_exits();
    let old = with_state(|state| std::mem::replace(state, State::new(seed)));
    // Outside of the borrow: the filters of planned faults belong to the harness.
    drop(old);
}

/// How often each fault struck: those of disks, clocks and processes by their kind, and each fault point by its name.
pub fn counts() -> BTreeMap<&'static str, u64> {
    let mut counts = with_state(|state| state.counts.clone());
    for (name, (_, fired)) in fault_points() {
        *counts.entry(name).or_default() += fired;
    }
    counts
}

/// The generator of what a run decides once about a name.
fn rng_of(seed: u64, name: &str) -> StdRng {
    // FNV-1a: stable, unlike the hashers of the standard library.
    let hash = name
        .bytes()
        .fold(0xCBF2_9CE4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
    StdRng::seed_from_u64(seed ^ hash)
}

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    with_state(|state| state.rng.fill_bytes(&mut bytes));
    bytes
}
