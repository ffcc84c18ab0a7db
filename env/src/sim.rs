//! The controls of the simulation: the seed, the disk's behaviour, fault points and clocks.
//!
//! One seed per process. The state belongs to the one thread that runs the simulation; call [`seed`] before anything else,
//! then steer with the rest. Disks vary with the seed on purpose: with one fixed speed the worst bugs ("acknowledged before
//! it was synced") stay hidden.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};

/// One in so many fault points is active in a run.
const POINTS_PER_ACTIVE: u64 = 4;

thread_local! {
    static STATE: RefCell<State> = RefCell::new(State::new(0));
}

struct State {
    rng: StdRng,
    disk: Disk,
    faults: bool,
    /// For each fault point reached so far: it fires once in so many passes; 0 means never.
    points: BTreeMap<&'static str, u64>,
    /// Fault points whose rate the harness has set.
    aimed: BTreeMap<&'static str, u64>,
    /// The planted bug, if any.
    planted: Option<String>,
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
            faults: false,
            points: BTreeMap::new(),
            aimed: BTreeMap::new(),
            planted: None,
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

/// Turns the fault points of `buggify!` on or off. They start off.
pub fn set_fault_points(on: bool) {
    with_state(|state| state.faults = on);
}

/// Makes the named fault point fire once in so many passes (0: never), whatever the seed drew.
pub fn aim_fault_point(name: &'static str, one_in: u64) {
    with_state(|state| state.aimed.insert(name, one_in));
}

/// Switches the named bug on (see [`crate::planted!`]).
pub fn plant(name: &str) {
    with_state(|state| state.planted = Some(name.to_owned()));
}

pub(crate) fn bug_is_planted(name: &'static str) -> bool {
    with_state(|state| state.planted.as_deref() == Some(name))
}

pub(crate) fn fault_point(name: &'static str) -> bool {
    with_state(|state| {
        if let Some(&one_in) = state.aimed.get(name) {
            return one_in != 0 && state.rng.next_u64().is_multiple_of(one_in);
        }
        if !state.faults {
            return false;
        }
        let rng = &mut state.rng;
        let one_in = *state.points.entry(name).or_insert_with(|| {
            let active = rng.next_u64().is_multiple_of(POINTS_PER_ACTIVE);
            if active { 2 + rng.next_u64() % 50 } else { 0 }
        });
        one_in != 0 && state.rng.next_u64().is_multiple_of(one_in)
    })
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

    fn draws(from: u64) -> (Disk, [u8; 32], Vec<bool>) {
        seed(from);
        set_fault_points(true);
        (disk(), random_bytes(), (0..200).map(|_| fault_point("a") | fault_point("b")).collect())
    }

    #[test]
    fn a_seed_gives_the_same_draws_twice() {
        assert_eq!(draws(7), draws(7));
        assert_ne!(draws(7).1, draws(8).1);
    }

    #[test]
    fn only_the_bug_that_was_planted_is_made() {
        seed(1);
        assert!(!bug_is_planted("a"));
        plant("a");
        assert!(bug_is_planted("a") && !bug_is_planted("b"));
    }

    #[test]
    fn seeds_differ_in_their_disks() {
        let slow = (0..64).filter(|s| draws(*s).0.sync_min > Duration::ZERO).count();
        let stalling = (0..64).filter(|s| draws(*s).0.stall_one_in > 0).count();
        assert!(slow > 8 && stalling > 8 && slow + stalling < 56);
    }

    #[test]
    fn fault_points_fire_in_some_runs_only() {
        let firing = (0..64).filter(|s| draws(*s).2.contains(&true)).count();
        assert!(firing > 4 && firing < 60, "{firing} of 64 runs fired");
    }
}
