//! The clocks of each host: its wall clock may be wrong, and all its clocks may run at a wrong rate.
//!
//! A host has one oscillator, so drift moves the wall clock and the two clocks that cannot be set alike: the distance between
//! them changes only when the wall clock is set or the machine is suspended, as on a real machine. Tokio's timers keep
//! simulated time. Within a host they therefore fire early or late by the drift, which stays below their resolution for the
//! drifts of real machines (some hundred parts per million) and is visible beyond.
//!
//! Leases compare durations of tokio's clock on different hosts. They cannot see this drift, and need not: their safety
//! margin is a third of their length, a hundred times what an oscillator is off.

use std::time::Duration;

use super::with_state;

const NS_PER_MS: i64 = 1_000_000;

/// What a host's clocks show, relative to simulated time.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// What drift has added up to, as of `seen`.
    drifted_ns: i64,
    drift_ppm: i64,
    /// The wall clock's distance from simulated time without `drifted_ns`.
    wall_ns: i64,
    suspended: Duration,
    /// When all clocks stood still: from this simulated time up to that one, if that is over.
    still: Vec<(Duration, Option<Duration>)>,
    /// How often the hypervisor has said that the machine was disrupted.
    disruptions: u64,
    /// Simulated time as the host last saw it, for destructors that run outside of all hosts.
    seen: Duration,
    seen_epoch: Duration,
}

impl Clock {
    /// Moves on to the simulated time that the calling host sees.
    fn look(&mut self) {
        if let (Some(elapsed), Some(epoch)) = (turmoil::sim_elapsed(), turmoil::since_epoch()) {
            let passed = i64::try_from(elapsed.saturating_sub(self.seen).as_nanos()).unwrap_or(i64::MAX);
            if self.drift_ppm != 0 {
                self.drifted_ns += (i128::from(passed) * i128::from(self.drift_ppm) / 1_000_000) as i64;
            }
            (self.seen, self.seen_epoch) = (elapsed.max(self.seen), epoch.max(self.seen_epoch));
        }
    }

    fn now_ns(&self) -> u64 {
        nanoseconds(self.seen).saturating_add_signed(self.drifted_ns)
    }

    fn wall_ms(&self) -> u64 {
        let wall = nanoseconds(self.seen_epoch).saturating_add_signed(self.drifted_ns.saturating_add(self.wall_ns));
        wall / NS_PER_MS as u64
    }
}

/// Sets the wall clock of a host: ahead of simulated time by so much (behind it, if negative), and all its clocks running
/// fast by so many parts per million (slow, if negative). `(0, 0)` makes it right again.
///
/// Real machines drift apart by less than 500 parts per million, which is what the production code assumes.
pub fn set_clock(host: &'static str, skew_ms: i64, drift_ppm: i64) {
    with_state(|state| {
        let clock = &mut state.named(host).clock;
        clock.drift_ppm = drift_ppm.clamp(-500_000, 500_000);
        clock.wall_ns = skew_ms.saturating_mul(NS_PER_MS).saturating_sub(clock.drifted_ns);
        state.count("a clock is set");
    });
}

/// How far the wall clock of a host is ahead of simulated time, in milliseconds, when the host last looked.
#[must_use]
pub fn clock_error_ms(host: &'static str) -> i64 {
    with_state(|state| {
        let clock = &state.named(host).clock;
        clock.drifted_ns.saturating_add(clock.wall_ns) / NS_PER_MS
    })
}

/// Whether a host was ever suspended. Its clocks then show more passed time than passed for the other hosts.
#[must_use]
pub fn was_suspended(host: &'static str) -> bool {
    with_state(|state| state.hosts.suspended > Duration::ZERO || state.named(host).clock.suspended > Duration::ZERO)
}

/// Moves the clock that counts suspended time ahead on every machine, as if all had been suspended. Leases must notice.
pub fn suspend(by: Duration) {
    with_state(|state| {
        state.hosts.suspended += by;
        state.count("all machines are suspended");
    });
}

/// Like [`suspend`], for one host. Its wall clock stays right, as that of a machine which was set while it woke up.
pub fn suspend_host(host: &'static str, by: Duration) {
    with_state(|state| {
        state.named(host).clock.suspended += by;
        state.count("a machine is suspended");
    });
}

/// Stops the clocks of a host at this simulated time, as when its own host pauses the machine. Timers go on: the harness holds
/// what the host sends and receives. With `told`, the hypervisor has a VMClock that tells the guest of it.
pub fn stop_clocks(host: &'static str, now: Duration, told: bool) {
    with_state(|state| {
        let clock = &mut state.named(host).clock;
        if clock.still.last().is_none_or(|(_, to)| to.is_some()) {
            clock.still.push((now, None));
            clock.disruptions += u64::from(told);
            state.count("a machine is paused");
        }
    });
}

/// Lets the clocks of a host go on.
pub fn start_clocks(host: &'static str, now: Duration) {
    with_state(|state| {
        if let Some((_, to @ None)) = state.named(host).clock.still.last_mut() {
            *to = Some(now);
        }
    });
}

/// For how much of the last `age` the clocks of the calling host stood still.
pub(crate) fn paused_for(age: Duration) -> Duration {
    with_clock(|clock| {
        let since = clock.seen.saturating_sub(age);
        let overlap = |(from, to): &(Duration, Option<Duration>)| {
            let to = to.map_or(clock.seen, |to| to.min(clock.seen));
            to.saturating_sub((*from).max(since))
        };
        clock.still.iter().map(overlap).sum()
    })
}

/// What the hypervisor of the calling host says of disruptions.
#[derive(Debug)]
pub(crate) struct VmClock(u64);

impl VmClock {
    pub(crate) fn open() -> Self {
        Self(with_clock(|clock| clock.disruptions))
    }

    /// Whether the machine was disrupted since the last call.
    pub(crate) fn was_disrupted(&mut self) -> bool {
        let now = with_clock(|clock| clock.disruptions);
        std::mem::replace(&mut self.0, now) != now
    }
}

fn with_clock<T>(act: impl FnOnce(&mut Clock) -> T) -> T {
    with_state(|state| {
        let id = state.current_or_added();
        let clock = &mut state.host(id).clock;
        clock.look();
        act(clock)
    })
}

pub(crate) fn suspended_ns() -> u64 {
    let all = with_state(|state| state.hosts.suspended);
    nanoseconds(all + with_clock(|clock| clock.suspended))
}

pub(crate) fn wall_ms() -> u64 {
    with_clock(|clock| clock.wall_ms())
}

pub(crate) fn now_ns() -> u64 {
    with_clock(|clock| clock.now_ns())
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("simulations end within centuries")
}
