//! Faults of one machine: its disk and its clocks.

use std::time::Duration;

use terrane_env::fs::Fault as DiskError;
use terrane_env::sim;

use super::draw::{ClockFault, Damage, DiskFault};
use crate::trace;

/// How many operations of the kind fail: a disk that fails once often fails again.
const ERRORS: u64 = 3;

/// Bits that decay at once: files that are damaged alone may be removed before anything reads them.
const ROTTEN_BITS: u32 = 8;

/// Begins a fault of the disk of `host`.
pub fn strike_disk(host: &'static str, what: DiskFault, until: Duration) {
    match what {
        DiskFault::Stall => sim::stall_disk(host, until),
        DiskFault::Slow { factor } => sim::set_disk_speed(host, sim::disk_speed(host).slowed(factor)),
        DiskFault::Full { free_bytes } => sim::set_free_space(host, Some(free_bytes)),
        DiskFault::Error { on, after } => {
            // A process that meets one ends itself; that is what it should do.
            sim::allow_exits(true);
            sim::fail_disk(host, after, ERRORS, DiskError::Error, move |verb, _| on.verbs().contains(&verb));
        }
    }
}

/// Ends all faults of the disk of `host`. What was damaged remains.
pub fn heal_disk(host: &'static str) {
    sim::heal_disk(host);
}

/// Damages the disk of `host`, but not its log; whether there was anything to damage.
pub fn damage(host: &'static str, what: Damage) -> bool {
    // A process that finds damage may end itself.
    sim::allow_exits(true);
    match what {
        Damage::BitRot => return rot(host),
        Damage::MisdirectedWrite => sim::misdirect_write(host, is_store_file),
        Damage::LostWrite => sim::lose_write(host, is_store_file),
        Damage::WipedDisk => sim::wipe_disk(host),
        // See `staged`.
        Damage::LogBitRot | Damage::LogMisdirectedWrite | Damage::LogLostWrite | Damage::LogLostEnd => {}
    }
    true
}

fn rot(host: &'static str) -> bool {
    let rotten = (0..ROTTEN_BITS).filter_map(|_| sim::damage(host, is_store_file));
    rotten.inspect(|path| trace::note(format_args!("BIT ROT in {path} of {host}"))).count() > 0
}

fn is_store_file(path: &str) -> bool {
    path.ends_with(".tbl")
}

/// Begins a fault of the clocks of `host`.
pub fn strike_clock(host: &'static str, what: ClockFault) {
    match what {
        ClockFault::Jump { by_ms } => sim::set_clock(host, by_ms, 0),
        ClockFault::Drift { ppm } => sim::set_clock(host, 0, ppm),
        ClockFault::Suspend { ms } => sim::suspend_host(host, Duration::from_millis(ms)),
    }
}

/// Sets the clocks of `host` right.
pub fn heal_clock(host: &'static str) {
    sim::set_clock(host, 0, 0);
}

/// How a host crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// The disk forgets what was not synced. If it is silent, peers see no closed connections.
    PowerCut { silent: bool },
    /// The process ends; the disk keeps everything.
    Kill,
}

impl Crash {
    pub fn strike(self, sim: &mut turmoil::Sim<'static>, host: &'static str) {
        sim.crash(host);
        if matches!(self, Crash::PowerCut { .. }) {
            terrane_env::sim::power_cut(host, terrane_env::sim::random_tear());
        }
    }
}
