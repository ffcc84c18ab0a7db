//! Clocks. Timers (`sleep`, `timeout`, `interval`, `tokio::time::Instant`) come from tokio directly, also in the simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

#[cfg(feature = "sim")]
use crate::sim::VmClock;
#[cfg(not(feature = "sim"))]
use crate::vm_clock::VmClock;

/// How far the clock that counts suspended time may run ahead of the other before [`ClockWatch`] reports it: more than a
/// preemption between two readings causes, far less than a lease.
const APART_TOLERANCE: Duration = Duration::from_millis(10);

/// Fault injection: milliseconds by which this process's wall clock is wrong, for tests of a cluster with one wrong clock.
/// Read once, at the first use of the clock. A data directory written under it keeps the wrong times.
#[cfg(not(feature = "sim"))]
const SKEW_VARIABLE: &str = "TERRANE_TEST_CLOCK_SKEW_MS";

/// Milliseconds since 1970 on this machine's wall clock. It may jump; order comes from logs, never from here.
#[cfg(not(feature = "sim"))]
pub fn wall_ms() -> u64 {
    let ms = since_1970().as_millis();
    u64::try_from(ms).unwrap_or(u64::MAX).saturating_add_signed(process_skew_ms())
}

/// Nanoseconds since 1970 on this machine's wall clock, for what people compare with other machines' records.
#[cfg(not(feature = "sim"))]
pub fn wall_ns() -> u64 {
    u64::try_from(since_1970().as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds since 1970 on the simulated clock.
#[cfg(feature = "sim")]
pub fn wall_ns() -> u64 {
    wall_ms().saturating_mul(1_000_000)
}

#[cfg(not(feature = "sim"))]
fn since_1970() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}

#[cfg(not(feature = "sim"))]
fn process_skew_ms() -> i64 {
    static SKEW_MS: std::sync::OnceLock<i64> = std::sync::OnceLock::new();
    *SKEW_MS.get_or_init(|| {
        // Anything but a number means no skew: only tests set it.
        let skew = std::env::var(SKEW_VARIABLE).ok().and_then(|skew| skew.parse().ok()).unwrap_or(0);
        if skew != 0 {
            tracing::warn!(skew_ms = skew, "{SKEW_VARIABLE} makes this process's wall clock wrong on purpose");
        }
        skew
    })
}

/// Milliseconds since 1970 on the simulated clock.
#[cfg(feature = "sim")]
pub fn wall_ms() -> u64 {
    crate::sim::wall_ms()
}

/// Nanoseconds on a clock that never goes back and does not count the time the machine was suspended.
#[cfg(not(feature = "sim"))]
pub fn now_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Monotonic))
}

/// Nanoseconds of simulated time.
#[cfg(feature = "sim")]
pub fn now_ns() -> u64 {
    crate::sim::now_ns()
}

/// Nanoseconds on a clock that never goes back and counts the time the machine was suspended, where the system has one;
/// elsewhere the same as [`now_ns`]. The wall clock keeps a constant distance from it until it is set.
#[cfg(all(not(feature = "sim"), any(target_os = "linux", target_os = "android")))]
pub fn elapsed_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Boottime))
}

/// The same as [`now_ns`]: there is no clock here that counts suspended time.
#[cfg(all(not(feature = "sim"), not(any(target_os = "linux", target_os = "android"))))]
pub fn elapsed_ns() -> u64 {
    now_ns()
}

/// Nanoseconds of simulated time, suspensions included.
#[cfg(feature = "sim")]
pub fn elapsed_ns() -> u64 {
    now_ns().saturating_add(crate::sim::suspended_ns())
}

/// The wall clock of one server. Servers in one process share the process's clock, but tests can skew one of them.
#[derive(Clone, Debug, Default)]
pub struct WallClock {
    skew_ms: Arc<AtomicI64>,
}

impl WallClock {
    /// Milliseconds since 1970, as this server sees it.
    pub fn ms(&self) -> u64 {
        wall_ms().saturating_add_signed(self.skew_ms.load(Ordering::Relaxed))
    }

    /// Skews this clock and its clones by so much against the process's clock.
    pub fn set_skew_ms(&self, skew_ms: i64) {
        self.skew_ms.store(skew_ms, Ordering::Relaxed);
    }
}

/// CPU time of all threads of this process in nanoseconds, user and kernel mode, for benchmarks. Not in the simulation.
#[cfg(not(feature = "sim"))]
pub fn process_cpu_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime))
}

/// CPU time of the calling thread in nanoseconds.
#[cfg(not(feature = "sim"))]
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime))
}

#[cfg(not(feature = "sim"))]
fn nanoseconds(time: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// How much of the last `age`, as timers count it, this machine's clocks have seen: all of it. The simulation lets clocks stand
/// still while timers go on.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn seen_of(age: Duration) -> Duration {
    age
}

/// How much of the last `age` of simulated time the clocks of this host have seen: not the time for which they stood still.
#[cfg(feature = "sim")]
pub fn seen_of(age: Duration) -> Duration {
    age.saturating_sub(crate::sim::paused_for(age))
}

/// Detects that the machine was suspended, which no lease may survive.
///
/// Timers stand still while a machine is suspended, and meanwhile the rest of the cluster elects other leaders. The clock
/// that counts suspended time then moves away from the clock that does not; this compares the two. Where the system has no
/// such pair of clocks, every check reports a jump, so reads fall back to quorum rounds: slower, never wrong.
///
/// A machine that its host pauses sees nothing of that on these clocks. If the hypervisor has a VMClock, that tells.
#[derive(Debug)]
pub struct ClockWatch {
    /// An upper bound of the distance between the two clocks in nanoseconds, as of the last reported jump.
    apart_ns: u64,
    vm: VmClock,
}

impl ClockWatch {
    /// Starts watching from now.
    pub fn new() -> ClockWatch {
        // The smallest of several upper bounds: one reading may be wide if the thread was preempted inside it.
        let apart_ns = (0..4).map(|_| suspended_offset().most_ns).min().unwrap_or(0);
        ClockWatch { apart_ns, vm: VmClock::open() }
    }

    /// Whether the clocks moved apart since this last returned true, or since the start, or the hypervisor says that the machine
    /// was disrupted.
    pub fn moved_apart(&mut self) -> bool {
        let was_disrupted = self.vm.was_disrupted();
        self.compare(&suspended_offset()) || was_disrupted
    }

    fn compare(&mut self, apart: &SuspendedOffset) -> bool {
        if !apart.known {
            return true;
        }
        let tolerance = u64::try_from(APART_TOLERANCE.as_nanos()).expect("the tolerance is a small constant");
        let moved = apart.least_ns > self.apart_ns.saturating_add(tolerance);
        if moved {
            self.apart_ns = apart.most_ns;
        }
        moved
    }
}

impl Default for ClockWatch {
    fn default() -> ClockWatch {
        ClockWatch::new()
    }
}

/// How far the clock that counts suspended time is ahead: a range, because two clocks cannot be read at the same moment.
struct SuspendedOffset {
    least_ns: u64,
    most_ns: u64,
    known: bool,
}

#[cfg(all(not(feature = "sim"), any(target_os = "linux", target_os = "android")))]
fn suspended_offset() -> SuspendedOffset {
    let before = now_ns();
    let counting = nanoseconds(rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
    let after = now_ns();
    SuspendedOffset { least_ns: counting.saturating_sub(after), most_ns: counting.saturating_sub(before), known: true }
}

#[cfg(all(not(feature = "sim"), not(any(target_os = "linux", target_os = "android"))))]
fn suspended_offset() -> SuspendedOffset {
    SuspendedOffset { least_ns: 0, most_ns: 0, known: false }
}

#[cfg(feature = "sim")]
fn suspended_offset() -> SuspendedOffset {
    let apart = crate::sim::suspended_ns();
    SuspendedOffset { least_ns: apart, most_ns: apart, known: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn an_awake_machine_reports_no_jump() {
        let mut watch = ClockWatch::new();
        for _ in 0..1_000 {
            assert!(!watch.moved_apart());
        }
    }

    fn apart(least_ns: u64, most_ns: u64) -> SuspendedOffset {
        SuspendedOffset { least_ns, most_ns, known: true }
    }

    #[test]
    fn a_jump_is_reported_once() {
        let mut watch = ClockWatch { apart_ns: 5_000, vm: VmClock::open() };
        assert!(!watch.compare(&apart(4_000, 6_000)));
        assert!(watch.compare(&apart(1_000_000_000, 1_000_001_000)));
        assert!(!watch.compare(&apart(1_000_000_000, 1_000_001_000)));
    }

    #[test]
    fn a_preempted_reading_is_no_jump() {
        let mut watch = ClockWatch { apart_ns: 5_000, vm: VmClock::open() };
        assert!(!watch.compare(&apart(5_000, 1_000_000_000)));
    }

    #[test]
    fn unknown_clocks_always_report() {
        let mut watch = ClockWatch { apart_ns: 0, vm: VmClock::open() };
        assert!(watch.compare(&SuspendedOffset { least_ns: 0, most_ns: 0, known: false }));
    }

    #[cfg(not(feature = "sim"))]
    #[test]
    fn one_servers_clock_can_be_set_wrong() {
        let (right, wrong) = (WallClock::default(), WallClock::default());
        wrong.clone().set_skew_ms(3_600_000);
        assert!(wrong.ms() > right.ms() + 3_500_000);
        wrong.set_skew_ms(0);
        assert!(wrong.ms() < right.ms() + 1_000);
    }

    #[cfg(not(feature = "sim"))]
    #[test]
    fn work_takes_processor_time() {
        let (process, thread) = (process_cpu_ns(), thread_cpu_ns());
        assert!((0..1_000_000u64).fold(0u64, |sum, n| std::hint::black_box(sum ^ n)) < u64::MAX);
        assert!(process_cpu_ns() > process);
        assert!(thread_cpu_ns() > thread);
    }

    #[cfg(not(feature = "sim"))]
    #[test]
    fn clocks_go_forward() {
        let first = now_ns();
        assert!(now_ns() >= first);
        assert!(wall_ms() > 1_700_000_000_000, "the wall clock is before 2023");
    }
}
