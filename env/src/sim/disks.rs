//! The disk of each host: how fast it is, and what goes wrong with it.
//!
//! Every host has a [`MemoryDisk`] of its own, which knows what is durable. Here are the parts that need simulated time, the
//! seed or the name of a host: delays, planned faults with a filter, damage, and what a power cut leaves. A planned fault is
//! handed to the disk right before the operation that it strikes, so the disk does the failing.
//!
//! Faults below the file system (lost and misdirected writes, damage) change what is on the platter and report success. They
//! break the promise of the disk, so an engine must find them by checksum.

use std::rc::Rc;
use std::time::Duration;

use rand::RngCore;
use rand::rngs::StdRng;

use super::{HostId, State, rng_of, with_state};
use crate::memory_disk::{Fault, MemoryDisk, Tear};

/// The unit in which disks address.
const SECTOR_BYTES: u64 = 512;
/// The capacity of a disk without a limit.
const TOTAL_BYTES_UNLIMITED: u64 = 1 << 40;

/// How fast a disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpeed {
    /// An ordinary sync takes at least this long...
    pub sync_min: Duration,
    /// ...and at most this long.
    pub sync_max: Duration,
    /// One sync in so many stalls; 0 means never.
    pub stall_one_in: u64,
    /// The longest stall.
    pub stall_max: Duration,
    /// The longest read or write. Half of them take no time, and each further millisecond is half as likely.
    pub access_max: Duration,
}

impl DiskSpeed {
    /// A disk without any delay.
    pub const INSTANT: DiskSpeed = DiskSpeed {
        sync_min: Duration::ZERO,
        sync_max: Duration::ZERO,
        stall_one_in: 0,
        stall_max: Duration::ZERO,
        access_max: Duration::ZERO,
    };

    /// One of three kinds: fast, slow, or fast with long stalls. Disks vary on purpose: with one fixed speed the worst bugs
    /// ("acknowledged before it was synced") stay hidden.
    fn drawn(rng: &mut StdRng) -> DiskSpeed {
        let any = DiskSpeed { access_max: Duration::from_millis(5), ..DiskSpeed::INSTANT };
        match rng.next_u64() % 3 {
            0 => DiskSpeed { sync_max: Duration::from_millis(2), ..any },
            1 => DiskSpeed {
                sync_min: Duration::from_millis(5),
                sync_max: Duration::from_millis(10 + rng.next_u64() % 55),
                ..any
            },
            _ => DiskSpeed {
                sync_max: Duration::from_millis(3),
                stall_one_in: 10 + rng.next_u64() % 30,
                stall_max: Duration::from_millis(50 + rng.next_u64() % 350),
                ..any
            },
        }
    }

    /// The same disk, slower by this factor, and no operation without delay: a disk that is about to fail.
    #[must_use]
    pub fn slowed(self, factor: u32) -> DiskSpeed {
        let sync_max = self.sync_max * factor;
        DiskSpeed {
            sync_min: (self.sync_min * factor).max(sync_max / 4),
            sync_max,
            stall_one_in: self.stall_one_in,
            stall_max: self.stall_max * factor,
            access_max: self.access_max * factor,
        }
    }
}

type Filter = Box<dyn Fn(&str, &str) -> bool>;

struct PlannedFault {
    /// So many matching operations still succeed.
    after: u64,
    /// So many strikes are left.
    times: u64,
    kind: Kind,
    matching: Filter,
}

#[derive(Clone)]
enum Kind {
    Fails(Fault),
    LosesWrite,
    /// To a file whose path matches.
    MisdirectsWrite(Rc<dyn Fn(&str) -> bool>),
}

/// The disk of a host.
pub(super) struct DiskState {
    disk: MemoryDisk,
    /// The speed that the seed drew, and the one in force.
    drawn: DiskSpeed,
    speed: DiskSpeed,
    stalled_until: Duration,
    limited: bool,
    faults: Vec<PlannedFault>,
    /// The path and offset of the last write that did not reach its place.
    missed: Option<(String, u64)>,
}

impl DiskState {
    pub(super) fn new(seed: u64, host: &str) -> DiskState {
        let speed = DiskSpeed::drawn(&mut rng_of(seed, host));
        DiskState {
            disk: MemoryDisk::untraced(),
            drawn: speed,
            speed,
            stalled_until: Duration::ZERO,
            limited: false,
            faults: Vec::new(),
            missed: None,
        }
    }

    /// What strikes the next operation, if anything.
    fn strike(&mut self, verb: &str, path: &str) -> Option<Kind> {
        let mut struck = None;
        for fault in &mut self.faults {
            if (fault.matching)(verb, path) {
                if fault.after > 0 {
                    fault.after -= 1;
                } else if struck.is_none() && fault.times > 0 {
                    fault.times -= 1;
                    struck = Some(fault.kind.clone());
                }
            }
        }
        self.faults.retain(|fault| fault.times > 0);
        struck
    }
}

// What the harness does.

/// How fast the disk of a host is.
pub fn disk_speed(host: &'static str) -> DiskSpeed {
    with_state(|state| state.named(host).disk.speed)
}

/// Replaces the speed that the seed drew for the host.
pub fn set_disk_speed(host: &'static str, speed: DiskSpeed) {
    with_state(|state| state.named(host).disk.speed = speed);
}

/// Makes every sync of the host's disk take from `sync` to a quarter more, for the rest of the run: [`heal_disk`] does not change
/// that.
pub fn slow_disk_down(host: &'static str, sync: Duration) {
    with_state(|state| {
        let disk = &mut state.named(host).disk;
        let slow = DiskSpeed { sync_min: sync, sync_max: sync + sync / 4, stall_one_in: 0, ..disk.drawn };
        (disk.drawn, disk.speed) = (slow, slow);
    });
}

/// Makes every operation of the host's disk wait until this simulated time (as `turmoil::Sim::elapsed` counts it).
pub fn stall_disk(host: &'static str, until: Duration) {
    with_state(|state| state.named(host).disk.stalled_until = until);
}

/// Sets how many bytes the host may still write; `None` removes the limit. The disk is as large as what it holds plus that.
pub fn set_free_space(host: &'static str, bytes: Option<u64>) {
    with_state(|state| {
        let disk = &mut state.named(host).disk;
        disk.limited = bytes.is_some();
        disk.disk.set_free_space(bytes);
    });
}

/// Plans faults of a host's disk: after `after` more operations that match, the next `times` of them fail.
///
/// `matching` gets the verb and the path of each operation. Verbs are `create`, `open_rw`, `open`, `read`, `file_len`, `len`,
/// `list`, `exists`, `node`, `free_space`, `write`, `set_len`, `allocate`, `sync`, `create_dir_all`, `rename`, `link`, `remove`,
/// `remove_dir_all` and `sync_dir`. The path of `rename` and `link` is the old name, that of an open file the name under
/// which it was opened. `matching` must not call this module.
pub fn fail_disk(
    host: &'static str,
    after: u64,
    times: u64,
    fault: Fault,
    matching: impl Fn(&str, &str) -> bool + 'static,
) {
    plan(host, after, times, Kind::Fails(fault), Box::new(matching));
}

/// Plans a lost write: the next write to a path that matches is reported as done and never happens. Like
/// [`misdirect_write`], it extends the file.
pub fn lose_write(host: &'static str, matching: impl Fn(&str) -> bool + 'static) {
    let matching = move |verb: &str, path: &str| verb == "write" && matching(path);
    plan(host, 0, 1, Kind::LosesWrite, Box::new(matching));
}

/// Plans a misdirected write: the next write to a path that matches is reported as done, but lands at another place of the
/// file or in another file that matches. Where it belongs, the old bytes stay, or zeros.
pub fn misdirect_write(host: &'static str, matching: impl Fn(&str) -> bool + 'static) {
    let target = Rc::new(matching);
    let matching = target.clone();
    let matching = move |verb: &str, path: &str| verb == "write" && matching(path);
    plan(host, 0, 1, Kind::MisdirectsWrite(target), Box::new(matching));
}

fn plan(host: &'static str, after: u64, times: u64, kind: Kind, matching: Filter) {
    with_state(|state| state.named(host).disk.faults.push(PlannedFault { after, times, kind, matching }));
}

/// Removes the planned faults, the stall and the limit of a host's disk, and restores its speed. What was damaged remains.
pub fn heal_disk(host: &'static str) {
    let faults = with_state(|state| {
        let disk = &mut state.named(host).disk;
        disk.disk.set_free_space(None);
        (disk.limited, disk.speed, disk.stalled_until) = (false, disk.drawn, Duration::ZERO);
        std::mem::take(&mut disk.faults)
    });
    drop(faults);
}

/// Bit rot: flips a random bit of the durable content of a file whose path matches, and returns that path. `None` if no such
/// file has any.
pub fn damage(host: &'static str, matching: impl Fn(&str) -> bool) -> Option<String> {
    let disk = with_state(|state| state.named(host).disk.disk.clone());
    let files: Vec<_> =
        disk.durable_files().into_iter().filter(|(path, length)| *length > 0 && matching(path)).collect();
    with_state(|state| {
        let (path, length) = files.get(state.below(files.len().max(1) as u64) as usize)?;
        let (offset, bit) = (state.below(*length), state.below(8) as u8);
        disk.damage(path.as_ref(), offset, bit).ok()?;
        state.count("a bit of a file is damaged");
        tracing::debug!(host, path, offset, bit, "damaged");
        Some(path.clone())
    })
}

/// Bit rot at a chosen place: flips a random bit of the durable content of a file below `end`. Returns the offset of its byte,
/// `None` if there is no such byte.
pub fn damage_below(host: &'static str, path: &str, end: u64) -> Option<u64> {
    let disk = with_state(|state| state.named(host).disk.disk.clone());
    with_state(|state| {
        let (offset, bit) = (state.below(end.max(1)), state.below(8) as u8);
        disk.damage(path.as_ref(), offset, bit).ok()?;
        state.count("a bit of a file is damaged");
        tracing::debug!(host, path, offset, bit, "damaged");
        Some(offset)
    })
}

/// Whether the durable content of a file begins with these bytes.
pub fn durably_begins(host: &'static str, path: &str, with: &[u8]) -> bool {
    with_state(|state| state.named(host).disk.disk.clone()).durably_begins(path.as_ref(), with)
}

/// Lost sectors: the durable content of a file turns into zeros from the last place on that begins with these bytes. Returns
/// that place, `None` if there is none.
pub fn lose_end(host: &'static str, path: &str, from_last: &[u8]) -> Option<u64> {
    let disk = with_state(|state| state.named(host).disk.disk.clone());
    let offset = disk.lose_end(path.as_ref(), from_last)?;
    with_state(|state| state.count("the end of a file is lost"));
    tracing::debug!(host, path, offset, "lost the end");
    Some(offset)
}

/// The path of every file of a host's disk, each with the number of its durable bytes, without reserved ones at the end.
pub fn durable_files(host: &'static str) -> Vec<(String, u64)> {
    with_state(|state| state.named(host).disk.disk.clone()).durable_files()
}

/// Where the last write belongs that was lost or misdirected, once. One that would have changed nothing does not count.
pub fn missed_write(host: &'static str) -> Option<(String, u64)> {
    with_state(|state| state.named(host).disk.missed.take())
}

/// What a power cut leaves of a host's disk. Call it right after the crash of the host. Limits, speed and planned faults stay.
pub fn power_cut(host: &'static str, tear: Tear) {
    with_state(|state| {
        let disk = &mut state.named(host).disk;
        let outstanding = disk.disk.outstanding();
        let after = disk.disk.crash(tear);
        if disk.limited {
            let total = disk.disk.used().saturating_add(disk.disk.free());
            after.set_free_space(Some(total.saturating_sub(after.used())));
        }
        disk.disk = after;
        state.count("power is cut");
        if outstanding > 0 && tear != Tear::Kept {
            state.count("power is cut with changes that were not synced");
        }
    });
}

/// A [`Tear`] drawn from the seed: all is lost, all is kept, and mostly something between.
pub fn random_tear() -> Tear {
    with_state(|state| match state.below(8) {
        0 | 1 => Tear::Lost,
        2 => Tear::Kept,
        _ => Tear::Random(state.rng.next_u64()),
    })
}

/// Replaces the disk of a host by an empty one. Call it between the crash and the next start of the host.
pub fn wipe_disk(host: &'static str) {
    with_state(|state| {
        let disk = &mut state.named(host).disk;
        (disk.disk, disk.limited) = (MemoryDisk::untraced(), false);
        state.count("a disk is wiped");
    });
}

// What `crate::fs` asks.

/// How long an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Nothing, unless the disk stalls.
    None,
    Access,
    Sync,
}

/// The disk of a host as code on that host sees it, until the host is restarted.
#[derive(Clone, Debug)]
pub(crate) struct HostDisk {
    host: HostId,
    disk: MemoryDisk,
}

/// What happens to a write.
pub(crate) enum WriteTurn {
    Happens,
    Lost,
    /// It lands in this file at this offset.
    Misdirected {
        path: String,
        offset: u64,
    },
}

impl HostDisk {
    /// The disk of the calling host.
    pub(crate) fn current() -> HostDisk {
        with_state(|state| {
            let host = state.current_or_added();
            HostDisk { host, disk: state.host(host).disk.disk.clone() }
        })
    }

    pub(crate) fn memory(&self) -> &MemoryDisk {
        &self.disk
    }

    /// Takes the time of one operation. Never returns once the process of the host has ended itself.
    pub(crate) async fn wait(&self, delay: Delay) {
        while let Some(left) = with_state(|state| state.stall(self.host)) {
            tokio::time::sleep(left).await;
        }
        let pause = with_state(|state| state.draw_pause(self.host, delay));
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        if with_state(|state| state.has_exited(self.host)) {
            std::future::pending().await
        }
    }

    /// Decides about an operation. A failure is planned with the disk, whose next operation it strikes.
    pub(crate) fn begin(&self, verb: &'static str, path: &str) {
        self.turn(verb, path);
    }

    /// Decides about a write.
    pub(crate) fn begin_write(&self, path: &str, offset: u64) -> WriteTurn {
        match self.turn("write", path) {
            Some(Kind::LosesWrite) => self.lose(),
            Some(Kind::MisdirectsWrite(matching)) => self.misdirect(path, offset, &*matching),
            Some(Kind::Fails(_)) | None => WriteTurn::Happens,
        }
    }

    fn turn(&self, verb: &'static str, path: &str) -> Option<Kind> {
        let kind = with_state(|state| {
            let disk = &mut state.host(self.host).disk;
            if disk.faults.is_empty() { None } else { disk.strike(verb, path) }
        })?;
        if let Kind::Fails(fault) = kind {
            with_state(|state| state.count(name_of(fault)));
            self.disk.fail_at(self.disk.operations(), fault);
        }
        Some(kind)
    }

    fn lose(&self) -> WriteTurn {
        with_state(|state| state.count("a write is lost"));
        WriteTurn::Lost
    }

    /// A write has not reached the place where it belongs.
    pub(crate) fn note_missed(&self, path: &str, offset: u64) {
        with_state(|state| state.host(self.host).disk.missed = Some((path.to_owned(), offset)));
    }

    fn misdirect(&self, from: &str, belongs: u64, matching: &dyn Fn(&str) -> bool) -> WriteTurn {
        let files = self.disk.durable_files().into_iter();
        let files: Vec<_> = files.filter(|(path, length)| *length > 0 && matching(path)).collect();
        let drawn = with_state(|state| {
            let same = files.iter().position(|(path, _)| path == from).filter(|_| state.below(2) == 0);
            let any = state.below(files.len().max(1) as u64) as usize;
            let (path, length) = files.get(same.unwrap_or(any))?;
            let offset = state.below(length.div_ceil(SECTOR_BYTES)) * SECTOR_BYTES;
            Some((path.clone(), offset)).filter(|(path, offset)| path != from || *offset != belongs)
        });
        // Without another place to go, the write is lost.
        let Some((path, offset)) = drawn else { return self.lose() };
        with_state(|state| state.count("a write is misdirected"));
        tracing::debug!(from, path, offset, "misdirected a write");
        WriteTurn::Misdirected { path, offset }
    }

    /// Counts an operation that the disk refused for lack of space.
    pub(crate) fn note_full(&self) {
        with_state(|state| state.count("a disk is full"));
    }

    /// The capacity of the disk.
    pub(crate) fn total_space(&self) -> u64 {
        let limited = with_state(|state| state.host(self.host).disk.limited);
        if limited { self.disk.used().saturating_add(self.disk.free()) } else { TOTAL_BYTES_UNLIMITED }
    }
}

fn name_of(fault: Fault) -> &'static str {
    match fault {
        Fault::Error => "a disk operation fails",
        Fault::ShortWrite => "a write is cut short",
        Fault::NoSpace => "a disk operation finds no space",
    }
}

impl State {
    /// How long the disk of a host stalls from now on.
    fn stall(&mut self, host: HostId) -> Option<Duration> {
        let until = self.host(host).disk.stalled_until;
        if until.is_zero() {
            return None;
        }
        let left = until.checked_sub(turmoil::sim_elapsed()?).filter(|left| !left.is_zero())?;
        self.count("a disk operation waits for a stalled disk");
        Some(left)
    }

    fn draw_pause(&mut self, host: HostId, delay: Delay) -> Duration {
        let speed = self.host(host).disk.speed;
        match delay {
            Delay::None => Duration::ZERO,
            Delay::Access => self.draw_access(speed),
            Delay::Sync => self.draw_sync(speed),
        }
    }

    fn draw_access(&mut self, speed: DiskSpeed) -> Duration {
        if speed.access_max.is_zero() {
            return Duration::ZERO;
        }
        // The number of heads before the first tail.
        let heads = u64::from(self.rng.next_u64().trailing_ones());
        // A slow disk is one whose longest access is longer than all these.
        let unit = (speed.access_max.as_millis() as u64).div_ceil(5);
        Duration::from_millis(heads * unit).min(speed.access_max)
    }

    fn draw_sync(&mut self, speed: DiskSpeed) -> Duration {
        let stalls = speed.stall_one_in != 0 && self.below(speed.stall_one_in) == 0;
        let most = if stalls { speed.stall_max } else { speed.sync_max };
        let (least, most) = (speed.sync_min.as_millis() as u64, most.as_millis() as u64);
        Duration::from_millis(least + self.below(most.saturating_sub(least) + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::seed;

    fn speed(from: u64, host: &'static str) -> DiskSpeed {
        seed(from);
        disk_speed(host)
    }

    #[test]
    fn seeds_differ_in_their_disks_and_so_do_hosts() {
        let slow = (0..64).filter(|s| speed(*s, "a").sync_min > Duration::ZERO).count();
        let stalling = (0..64).filter(|s| speed(*s, "a").stall_one_in > 0).count();
        assert!(slow > 8 && stalling > 8 && slow + stalling < 56);
        assert!((0..64).all(|s| speed(s, "a") == speed(s, "a")));
        assert!((0..64).any(|s| speed(s, "a") != speed(s, "b")));
    }

    #[test]
    fn a_slowed_disk_has_no_quick_sync() {
        seed(1);
        let slow = DiskSpeed { sync_max: Duration::from_millis(2), ..DiskSpeed::INSTANT }.slowed(100);
        let pauses = || with_state(|state| state.draw_sync(slow));
        assert!((0..100).all(|_| (50..=200).contains(&pauses().as_millis())));
    }
}
