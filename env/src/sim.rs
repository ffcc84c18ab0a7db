//! The controls of the simulation: the seed, the disk's behaviour, fault points and clocks.
//!
//! One seed per process. The state belongs to the one thread that runs the simulation; call [`seed`] before anything else,
//! then steer with the rest. Disks vary with the seed on purpose: with one fixed speed the worst bugs ("acknowledged before
//! it was synced") stay hidden.

use std::cell::RefCell;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

mod points;

use points::Points;
pub use points::{aim_fault_point, fault_points, plant, set_fault_points, set_small_limits, small_limits};
pub(crate) use points::{bug_is_planted, fault_point, small_limit};

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::new(0));
}

struct State {
    rng: StdRng,
    disk: Disk,
    points: Points,
    suspended: Duration,
    /// The clocks as a host last saw them, for destructors that run outside of all hosts.
    last_since_epoch: Duration,
    last_elapsed: Duration,
}

impl State {
    fn new(seed: u64) -> State {
        let mut rng = StdRng::seed_from_u64(seed);
        let disk = Disk::drawn(&mut rng);
        State {
            rng,
            disk,
            points: Points::new(seed),
            suspended: Duration::ZERO,
            last_since_epoch: Duration::ZERO,
            last_elapsed: Duration::ZERO,
        }
    }
}

fn with_state<T>(act: impl FnOnce(&mut State) -> T) -> T {
    STATE.with(|state| act(&mut state.borrow_mut()))
}

/// Starts over from a seed, which determines the random numbers, the disk's behaviour and the active fault points.
pub fn seed(seed: u64) {
    with_state(|state| *state = State::new(seed));
}

/// How the disks of this run behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// An ordinary sync takes at least this long...
    pub sync_min: Duration,
    /// ...and at most this long.
    pub sync_max: Duration,
    /// One sync in so many stalls; 0 means never.
    pub stall_one_in: u64,
    /// The longest stall.
    pub stall_max: Duration,
    /// The free space that the disk reports.
    pub free_bytes: u64,
}

impl Disk {
    /// A disk without any delay.
    pub const INSTANT: Disk = Disk {
        sync_min: Duration::ZERO,
        sync_max: Duration::ZERO,
        stall_one_in: 0,
        stall_max: Duration::ZERO,
        free_bytes: 1 << 40,
    };

    /// One of three kinds: fast, slow, or fast with long stalls.
    fn drawn(rng: &mut StdRng) -> Disk {
        match rng.next_u64() % 3 {
            0 => Disk { sync_max: Duration::from_millis(2), ..Disk::INSTANT },
            1 => Disk {
                sync_min: Duration::from_millis(5),
                sync_max: Duration::from_millis(10 + rng.next_u64() % 55),
                ..Disk::INSTANT
            },
            _ => Disk {
                sync_max: Duration::from_millis(3),
                stall_one_in: 10 + rng.next_u64() % 30,
                stall_max: Duration::from_millis(50 + rng.next_u64() % 350),
                ..Disk::INSTANT
            },
        }
    }
}

/// Replaces the disk that the seed drew.
pub fn set_disk(disk: Disk) {
    with_state(|state| state.disk = disk);
}

/// The disk of this run.
pub fn disk() -> Disk {
    with_state(|state| state.disk)
}

/// Moves the clock that counts suspended time ahead, as if every machine had been suspended. Leases must notice.
pub fn suspend(by: Duration) {
    with_state(|state| state.suspended += by);
}

pub(crate) fn suspended_ns() -> u64 {
    nanoseconds(with_state(|state| state.suspended))
}

pub(crate) fn wall_ms() -> u64 {
    let now = turmoil::since_epoch();
    let now = with_state(|state| {
        state.last_since_epoch = now.unwrap_or(state.last_since_epoch);
        state.last_since_epoch
    });
    u64::try_from(now.as_millis()).expect("simulated time began in this century")
}

pub(crate) fn now_ns() -> u64 {
    let now = turmoil::sim_elapsed();
    nanoseconds(with_state(|state| {
        state.last_elapsed = now.unwrap_or(state.last_elapsed);
        state.last_elapsed
    }))
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("simulations end within centuries")
}

pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    with_state(|state| state.rng.fill_bytes(&mut bytes));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(from: u64) -> (Disk, [u8; 32]) {
        seed(from);
        (disk(), random_bytes())
    }

    #[test]
    fn a_seed_gives_the_same_draws_twice() {
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7).1, draws(8).1);
    }

    #[test]
    fn seeds_differ_in_their_disks() {
        let slow = (0..64).filter(|s| draws(*s).0.sync_min > Duration::ZERO).count();
        let stalling = (0..64).filter(|s| draws(*s).0.stall_one_in > 0).count();
        assert!(slow > 8 && stalling > 8 && slow + stalling < 56);
    }
}
