//! The catalogue of faults, and how a seed draws from it.
//!
//! Every run has at least [`FAULTS_MIN`] faults. They start at random times, may overlap, and are all healed when the first
//! phase of the run ends. Faults that no protocol survives on several servers at once (a lost disk, decayed bytes) hit one
//! server only, the run's victim, in one of several runs; that server stays down when everything else is healed.

use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};

/// The least number of faults in a run.
pub const FAULTS_MIN: usize = 8;
const FAULTS_MAX: usize = 14;
/// As many more are planned, because some never strike: what they wait for does not happen.
const MISSED_MAX: usize = 2;
/// No fault starts earlier: until then the cluster starts and the tables are created.
const FIRST_AFTER_MS: u64 = 1_500;

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// It starts at this time of the run, or, if it is aimed, as soon as what it is aimed at happens after that.
    pub at: Duration,
    pub lasts: Duration,
    pub fault: Fault,
}

/// The server that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The server with this index.
    Server(usize),
    /// The server that leads the most groups when the fault starts.
    Leader,
    /// A server that leads fewer groups than another when the fault starts.
    Follower,
}

/// The moment at which a crash strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At its time.
    Time,
    /// At the next acknowledgement that a client receives: what was not durable by then is lost.
    Acknowledgement,
    /// When a leadership next moves.
    Election,
    /// When a server next flushes.
    Flush,
    /// In the middle of a step of a procedure, which is held up there (`terrane_env::buggify_pause!`): one of the next so
    /// many steps that any node reaches.
    Step(u64),
}

/// What happens on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFault {
    /// All packets are dropped in both directions.
    Drop,
    /// All packets in one direction are dropped.
    DropOneWay,
    /// All packets are delayed until the link is repaired, and then arrive in any order.
    Hold,
}

/// What a disk does. Each ends when the fault is healed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// No operation ends.
    Stall,
    /// Operations take so many times as long. A drawn disk stalls for up to 400 ms by itself: ten times that is as long as an
    /// operation under way may outlast the end of the fault.
    Slow { factor: u32 },
    /// So many more bytes fit.
    Full { free_bytes: u64 },
    /// One of the next operations of this kind fails, whichever comes so many later.
    Error { on: DiskCall, after: u64 },
}

/// A kind of disk operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskCall {
    Write,
    Sync,
    Read,
}

impl DiskCall {
    /// The operations, as the simulated disk names them.
    #[must_use]
    pub const fn verbs(self) -> &'static [&'static str] {
        match self {
            DiskCall::Write => &["write", "set_len", "allocate", "create", "rename", "remove"],
            DiskCall::Sync => &["sync", "sync_dir"],
            DiskCall::Read => &["read", "open"],
        }
    }
}

/// A file whose content a server relies on as soon as it is synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncedFile {
    /// The newest segment of the log.
    Log,
    /// The engine's manifest.
    Manifest,
}

/// What makes the disk of the victim return other bytes than were written, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A bit of a file flips.
    BitRot,
    /// A write lands elsewhere.
    MisdirectedWrite,
    /// A write is reported as done and never happens.
    LostWrite,
    /// The server loses power and comes back with an empty disk.
    WipedDisk,
    /// A bit of the log flips, below what the log says was synced; then the server crashes.
    LogBitRot,
    /// A write of the log lands elsewhere in the log. The server crashes once the log says that the write was synced.
    LogMisdirectedWrite,
    /// A write of the log never happens. The server crashes once the log says that the write was synced.
    LogLostWrite,
    /// The last batch of a segment of the log reads as zeros as soon as the segment has a successor; then the server crashes.
    LogLostEnd,
}

impl Damage {
    /// Whether it damages the log.
    #[must_use]
    pub const fn is_of_log(self) -> bool {
        matches!(self, Damage::LogBitRot | Damage::LogMisdirectedWrite | Damage::LogLostWrite | Damage::LogLostEnd)
    }
}

/// What a wall clock does, in milliseconds and parts per million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockFault {
    /// It jumps.
    Jump { by_ms: i64 },
    /// It runs fast or slow: two machines differ by less than 500 ppm, as leases and clock comparisons assume.
    Drift { ppm: i64 },
    /// The machine was suspended: the clocks that count suspended time jump.
    Suspend { ms: u64 },
}

/// A kind of fault with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A server loses power: its process ends and its disk forgets what was not synced.
    PowerCut { target: Target, aim: Trigger, silent: bool },
    /// A server's process is killed; its disk keeps everything written.
    Kill { target: Target, aim: Trigger },
    /// Several servers lose power at once.
    SeveralPowerCuts { servers: Vec<usize> },
    /// All servers and masters lose power at once.
    Blackout,
    /// The leading master loses power.
    MasterPowerCut { aim: Trigger },
    /// A server is isolated from all others, and from the masters too if `from_master`; one client reaches it, and only it.
    Isolation { target: Target, from_master: bool },
    /// The leading master is isolated from the others, and from the servers too if `from_servers`.
    MasterIsolation { from_servers: bool },
    /// A link between two nodes is broken.
    Cut { between: (usize, usize), how: LinkFault },
    /// A link breaks and heals again and again.
    Flapping { between: (usize, usize), period: Duration },
    /// Many links break one by one and heal one by one in another order.
    Swizzle { links: Vec<(usize, usize)> },
    /// A link loses packets now and then.
    Loss { between: (usize, usize), per_mille: u32 },
    /// A link is slow.
    SlowLink { between: (usize, usize), latency: Duration },
    /// A client hears nothing from a server, which hears the client.
    Deaf { server: usize, client: usize },
    /// The disk of a server.
    Disk { target: Target, what: DiskFault },
    /// The next sync of a file fails and loses its bytes for good, although they read back. The process ends itself or is
    /// killed, and soon after its restart the power is cut.
    LostSync { target: Target, of: SyncedFile, kill: bool },
    /// The disk of the victim, which stays down in the end.
    Damage { victim: usize, what: Damage },
    /// The clock of a server.
    Clock { server: usize, what: ClockFault },
    /// A server's machine is paused by its host: its clocks stand still, and what is sent to it and by it waits. Clients reach it
    /// before the other servers do.
    Pause { target: Target },
}

/// The number of the leading master in links; servers have the numbers below.
pub const MASTER_NODE: usize = usize::MAX;

impl Fault {
    /// The name under which occurrences are counted.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::PowerCut { aim, .. } => match aim {
                Trigger::Time => "power cut",
                Trigger::Acknowledgement => "power cut at an acknowledgement",
                Trigger::Election => "power cut at an election",
                Trigger::Flush => "power cut at a flush",
                Trigger::Step(_) => "power cut in a step",
            },
            Fault::Kill { aim: Trigger::Step(_), .. } => "kill in a step",
            Fault::Kill { .. } => "kill",
            Fault::SeveralPowerCuts { .. } => "power cut of several",
            Fault::Blackout => "power cut of all",
            Fault::MasterPowerCut { .. } => "power cut of the master",
            Fault::Isolation { .. } => "isolation",
            Fault::MasterIsolation { .. } => "isolation of the leading master",
            Fault::Cut { how, .. } => match how {
                LinkFault::Drop => "cut link",
                LinkFault::DropOneWay => "cut link one way",
                LinkFault::Hold => "held link",
            },
            Fault::Flapping { .. } => "flapping link",
            Fault::Swizzle { .. } => "swizzle",
            Fault::Loss { .. } => "lossy link",
            Fault::SlowLink { .. } => "slow link",
            Fault::Deaf { .. } => "deaf client",
            Fault::Disk { target, what } => match (what, target) {
                (DiskFault::Stall, _) => "stalled disk",
                (DiskFault::Slow { .. }, _) => "slow disk",
                (DiskFault::Full { .. }, Target::Leader) => "full disk of a leader",
                (DiskFault::Full { .. }, _) => "full disk",
                (DiskFault::Error { on: DiskCall::Write, .. }, _) => "failed write",
                (DiskFault::Error { on: DiskCall::Sync, .. }, _) => "failed sync",
                (DiskFault::Error { on: DiskCall::Read, .. }, _) => "failed read",
            },
            Fault::Damage { what, .. } => match what {
                Damage::BitRot => "bit rot",
                Damage::MisdirectedWrite => "misdirected write",
                Damage::LostWrite => "lost write",
                Damage::WipedDisk => "wiped disk",
                Damage::LogBitRot => "bit rot of the log",
                Damage::LogMisdirectedWrite => "misdirected write of the log",
                Damage::LogLostWrite => "lost write of the log",
                Damage::LogLostEnd => "lost end of a segment of the log",
            },
            Fault::LostSync { of: SyncedFile::Log, .. } => "lost sync of the log",
            Fault::LostSync { of: SyncedFile::Manifest, .. } => "lost sync of the manifest",
            Fault::Clock { what, .. } => match what {
                ClockFault::Jump { .. } => "clock jump",
                ClockFault::Drift { .. } => "clock drift",
                ClockFault::Suspend { .. } => "suspended machine",
            },
            Fault::Pause { .. } => "paused machine",
        }
    }
}

/// The names of all kinds of faults. In a long run each must strike.
pub const NAMES: &[&str] = &[
    "power cut",
    "power cut at an acknowledgement",
    "power cut at an election",
    "power cut at a flush",
    "power cut in a step",
    "kill",
    "kill in a step",
    "power cut of several",
    "power cut of all",
    "power cut of the master",
    "isolation",
    "isolation of the leading master",
    "cut link",
    "cut link one way",
    "held link",
    "flapping link",
    "swizzle",
    "lossy link",
    "slow link",
    "deaf client",
    "stalled disk",
    "slow disk",
    "full disk",
    "full disk of a leader",
    "failed write",
    "failed sync",
    "failed read",
    "bit rot",
    "misdirected write",
    "lost write",
    "wiped disk",
    "bit rot of the log",
    "misdirected write of the log",
    "lost write of the log",
    "lost end of a segment of the log",
    "lost sync of the log",
    "lost sync of the manifest",
    "clock jump",
    "clock drift",
    "suspended machine",
    "paused machine",
];

/// Draws the faults of a run with so many servers, whose first phase ends at `until`.
pub fn faults(rng: &mut StdRng, servers: usize, until: Duration) -> Vec<PlannedFault> {
    let count = rng.random_range(FAULTS_MIN + MISSED_MAX..=FAULTS_MAX);
    let until_ms = u64::try_from(until.as_millis()).expect("a run lasts seconds");
    let mut planned: Vec<PlannedFault> = (0..count)
        .map(|_| {
            let fault = fault(rng, servers);
            let lasts = Duration::from_millis(lasts_ms(rng, &fault));
            let latest =
                until_ms.saturating_sub(u64::try_from(lasts.as_millis()).expect("seconds")).max(FIRST_AFTER_MS + 1);
            PlannedFault { at: Duration::from_millis(rng.random_range(FIRST_AFTER_MS..latest)), lasts, fault }
        })
        .collect();
    if rng.random_range(0..RUNS_PER_DAMAGE) == 0 {
        let kinds = [
            Damage::BitRot,
            Damage::MisdirectedWrite,
            Damage::LostWrite,
            Damage::WipedDisk,
            Damage::LogBitRot,
            Damage::LogBitRot,
            Damage::LogMisdirectedWrite,
            Damage::LogLostWrite,
            Damage::LogLostEnd,
        ];
        let what = *kinds.choose(rng).expect("not empty");
        planned.push(damage(rng, servers, until, what));
    }
    planned.sort_by_key(|planned| planned.at);
    planned
}

/// One in so many runs has a victim.
const RUNS_PER_DAMAGE: u32 = 4;

/// A sync of some server that fails, and a power cut soon after.
pub fn lost_sync(rng: &mut StdRng, servers: usize, until: Duration, of: SyncedFile) -> PlannedFault {
    let fault = Fault::LostSync { target: target(rng, servers), of, kill: rng.random_bool(0.5) };
    let lasts = Duration::from_millis(lasts_ms(rng, &fault));
    let until_ms = u64::try_from(until.saturating_sub(lasts).as_millis()).expect("a run lasts seconds");
    PlannedFault { at: Duration::from_millis(rng.random_range(FIRST_AFTER_MS..until_ms)), lasts, fault }
}

/// An isolation of the leading one of several masters.
pub fn master_isolation(rng: &mut StdRng, until: Duration) -> PlannedFault {
    let fault = Fault::MasterIsolation { from_servers: rng.random_bool(0.3) };
    let lasts = Duration::from_millis(lasts_ms(rng, &fault));
    let until_ms = u64::try_from(until.saturating_sub(lasts).as_millis()).expect("a run lasts seconds");
    PlannedFault { at: Duration::from_millis(rng.random_range(FIRST_AFTER_MS..until_ms)), lasts, fault }
}

/// A pause of the machine of the server that leads most.
pub fn pause(rng: &mut StdRng, until: Duration) -> PlannedFault {
    let fault = Fault::Pause { target: Target::Leader };
    let lasts = Duration::from_millis(lasts_ms(rng, &fault));
    let until_ms = u64::try_from(until.saturating_sub(lasts).as_millis()).expect("a run lasts seconds");
    PlannedFault { at: Duration::from_millis(rng.random_range(FIRST_AFTER_MS..until_ms)), lasts, fault }
}

/// Damage to the disk of some server.
pub fn damage(rng: &mut StdRng, servers: usize, until: Duration, what: Damage) -> PlannedFault {
    let fault = Fault::Damage { victim: rng.random_range(0..servers), what };
    let until_ms = u64::try_from(until.as_millis()).expect("a run lasts seconds");
    // Late damage is found by the comparison at the end, because nothing has overwritten it yet.
    let at = Duration::from_millis(rng.random_range(FIRST_AFTER_MS * 2..until_ms - 1_000));
    PlannedFault { at, lasts: Duration::from_millis(rng.random_range(100..1_500)), fault }
}

fn lasts_ms(rng: &mut StdRng, fault: &Fault) -> u64 {
    match fault {
        // Longer than leases and elections, so that a new leader accepts writes while the old one receives reads.
        Fault::Isolation { .. } | Fault::MasterIsolation { .. } | Fault::Pause { .. } => rng.random_range(1_500..5_000),
        Fault::Deaf { .. } => rng.random_range(200..1_500),
        Fault::Blackout | Fault::SeveralPowerCuts { .. } => rng.random_range(50..1_500),
        // From the failure to the power cut: the process is back after 300 ms.
        Fault::LostSync { .. } => rng.random_range(400..1_500),
        _ => rng.random_range(200..4_000),
    }
}

fn fault(rng: &mut StdRng, servers: usize) -> Fault {
    match rng.random_range(0..40) {
        0..=6 => Fault::PowerCut { target: target(rng, servers), aim: aim(rng), silent: rng.random_bool(0.5) },
        7 => Fault::SeveralPowerCuts { servers: some(rng, servers, 2..=servers) },
        8 => Fault::Blackout,
        9 | 10 => Fault::MasterPowerCut { aim: aim(rng) },
        11 | 12 => Fault::Isolation { target: Target::Leader, from_master: rng.random_bool(0.5) },
        13..=15 => {
            let how = *[LinkFault::Drop, LinkFault::DropOneWay, LinkFault::Hold].choose(rng).expect("not empty");
            Fault::Cut { between: link(rng, servers), how }
        }
        16 => {
            let period = Duration::from_millis(rng.random_range(100..800));
            Fault::Flapping { between: link(rng, servers), period }
        }
        17 => {
            let mut links = all_links(servers);
            links.shuffle(rng);
            links.truncate(rng.random_range(2..=links.len()));
            Fault::Swizzle { links }
        }
        18 => Fault::Loss { between: link(rng, servers), per_mille: rng.random_range(5..150) },
        19 => {
            let latency = Duration::from_millis(rng.random_range(30..250));
            Fault::SlowLink { between: link(rng, servers), latency }
        }
        20 | 21 => Fault::Deaf { server: rng.random_range(0..servers), client: rng.random_range(0..CLIENTS_DEAF) },
        22 => Fault::Kill { target: target(rng, servers), aim: Trigger::Time },
        23 | 24 => Fault::Kill { target: target(rng, servers), aim: Trigger::Step(rng.random_range(1..STEPS_AHEAD)) },
        25..=31 => Fault::Disk { target: target(rng, servers), what: disk_fault(rng) },
        32 | 33 => {
            let of = if rng.random_bool(0.5) { SyncedFile::Log } else { SyncedFile::Manifest };
            Fault::LostSync { target: target(rng, servers), of, kill: rng.random_bool(0.7) }
        }
        38 | 39 => Fault::Pause { target: Target::Leader },
        _ => Fault::Clock { server: rng.random_range(0..servers), what: clock_fault(rng) },
    }
}

/// A crash in a step strikes in one of so many next steps.
const STEPS_AHEAD: u64 = 12;

fn disk_fault(rng: &mut StdRng) -> DiskFault {
    match rng.random_range(0..8) {
        0 => DiskFault::Stall,
        1 | 2 => DiskFault::Slow { factor: rng.random_range(3..10) },
        3 | 4 => DiskFault::Full { free_bytes: rng.random_range(0..256 << 10) },
        5 => DiskFault::Error { on: DiskCall::Write, after: rng.random_range(0..40) },
        6 => DiskFault::Error { on: DiskCall::Sync, after: rng.random_range(0..20) },
        _ => DiskFault::Error { on: DiskCall::Read, after: rng.random_range(0..10) },
    }
}

fn clock_fault(rng: &mut StdRng) -> ClockFault {
    const HOUR_MS: i64 = 3_600_000;
    match rng.random_range(0..4) {
        0 | 1 => {
            let by = [HOUR_MS * 24, HOUR_MS, 10_000, 1_000, 300];
            let by_ms = *by.choose(rng).expect("not empty");
            ClockFault::Jump { by_ms: if rng.random_bool(0.5) { by_ms } else { -by_ms } }
        }
        2 => ClockFault::Drift { ppm: rng.random_range(-250..=250) },
        _ => ClockFault::Suspend { ms: rng.random_range(100..20_000) },
    }
}

/// Clients with these indices may be deaf.
const CLIENTS_DEAF: usize = 2;

fn aim(rng: &mut StdRng) -> Trigger {
    let step = Trigger::Step(rng.random_range(1..STEPS_AHEAD));
    let aims = [
        Trigger::Time,
        Trigger::Acknowledgement,
        Trigger::Acknowledgement,
        Trigger::Election,
        Trigger::Flush,
        step,
        step,
    ];
    *aims.choose(rng).expect("not empty")
}

fn target(rng: &mut StdRng, servers: usize) -> Target {
    match rng.random_range(0..4) {
        0 => Target::Leader,
        1 => Target::Follower,
        _ => Target::Server(rng.random_range(0..servers)),
    }
}

fn some(rng: &mut StdRng, servers: usize, count: std::ops::RangeInclusive<usize>) -> Vec<usize> {
    let mut all: Vec<usize> = (0..servers).collect();
    all.shuffle(rng);
    all.truncate(rng.random_range(count));
    all
}

fn all_links(servers: usize) -> Vec<(usize, usize)> {
    let between = (0..servers).flat_map(|a| (a + 1..servers).map(move |b| (a, b)));
    between.chain((0..servers).map(|server| (server, MASTER_NODE))).collect()
}

fn link(rng: &mut StdRng, servers: usize) -> (usize, usize) {
    let (a, b) = *all_links(servers).choose(rng).expect("there are servers");
    if b != MASTER_NODE && rng.random_bool(0.5) { (b, a) } else { (a, b) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn seeds_draw_every_kind_of_fault_and_no_other() {
        let until = Duration::from_secs(20);
        let plan = |seed| {
            let rng = &mut StdRng::seed_from_u64(seed);
            let mut planned = faults(rng, 3, until);
            planned.push(master_isolation(rng, until));
            planned
        };
        let drawn: BTreeSet<&str> =
            (0..1_000).flat_map(plan).map(|planned: PlannedFault| planned.fault.name()).collect();
        assert_eq!(drawn, NAMES.iter().copied().collect());
    }
}
