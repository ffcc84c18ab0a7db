//! A disk that does not sync the log in time.
//!
//! A leader whose own syncs hang can still commit through the others, but its votes, its appends as a follower and everything
//! that waits for a sync of its own hang, and a disk that hangs often fails next. So such a server hands its leaderships over
//! and says so. From then on its consensus core waits for the sync of its own vote for the successor, and cannot tell that it
//! no longer leads; so its groups refuse proposals and reads by themselves ([`GroupView::is_stuck`](crate::groups::group_view::GroupView::is_stuck)), and
//! callers turn to the others at once. The reason is soft: where all members share one slow disk, one of them leads all the
//! same, and a leadership that was handed to this server stays here for a while ([`crate::leadership::handover`]).
//!
//! Decided from how long the present write and sync have taken, and when the last slow one ended; without I/O.

use std::sync::OnceLock;
use std::time::Duration;

use terrane_env::sync::atomic::{AtomicU64, Ordering};
use terrane_metrics::Histogram;

use crate::leadership::abstention::{Abstention, Weight};

/// A sync that takes longer than this is a stall.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// A sync that takes longer than this keeps a stall from counting as over.
const SLOW_AFTER: Duration = Duration::from_millis(250);
/// Syncs that all take longer than this are worth a sentence.
const ALL_SLOW_AFTER: Duration = Duration::from_millis(200);
/// After a stall, syncs must have been quick for so long.
const QUICK_FOR: Duration = Duration::from_secs(10);

/// How a sentence about a disk begins whose syncs all take long.
pub const SLOW_SYNCS: &str = "every sync of the log takes";

/// When the writer of the log began to write and sync, and when it last was slow. All in nanoseconds of the monotonic clock.
#[derive(Default)]
pub(crate) struct SyncTimes {
    /// 0: it does neither.
    began_ns: AtomicU64,
    slow_ended_ns: AtomicU64,
    /// The longest of late: shorter ones take an eighth off each.
    longest_ns: AtomicU64,
    /// What all of late have taken at least: longer ones raise it by an eighth of the difference each.
    least_ns: AtomicU64,
    /// Where the durations are counted, once that is known.
    counted_in: OnceLock<Histogram>,
}

impl SyncTimes {
    /// Counts durations in this histogram from now on.
    pub(crate) fn count_in(&self, histogram: Histogram) {
        self.counted_in.get_or_init(|| histogram);
    }

    pub(crate) fn begin(&self, now_ns: u64) {
        self.began_ns.store(now_ns.max(1), Ordering::Relaxed);
    }

    pub(crate) fn end(&self, now_ns: u64) {
        let began = self.began_ns.swap(0, Ordering::Relaxed);
        if let Some(histogram) = self.counted_in.get() {
            histogram.observe_ns(now_ns.saturating_sub(began));
        }
        let took = now_ns.saturating_sub(began);
        let (longest, least) = (self.longest_ns.load(Ordering::Relaxed), self.least_ns.load(Ordering::Relaxed));
        self.longest_ns.store(took.max(longest - longest / 8), Ordering::Relaxed);
        self.least_ns.store(took.min(least + took.saturating_sub(least) / 8), Ordering::Relaxed);
        if took > nanos(SLOW_AFTER) {
            self.slow_ended_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// Whether the present write and sync take so long that the disk counts as stalled.
    pub(crate) fn are_stalled(&self, now_ns: u64) -> bool {
        self.taking(now_ns) > STALLED_AFTER
    }

    /// What a sync takes here of late, for those who wait for one.
    pub(crate) fn recent(&self, now_ns: u64) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed)).max(self.taking(now_ns))
    }

    /// What is wrong with a disk whose syncs all take long, for people: a sentence without its full stop.
    pub(crate) fn slowness(&self) -> Option<String> {
        let least = Duration::from_nanos(self.least_ns.load(Ordering::Relaxed));
        // Tens of milliseconds: the sentence does not change with every sync.
        let ms = least.as_millis() / 10 * 10;
        (least > ALL_SLOW_AFTER).then(|| {
            format!(
                "{SLOW_SYNCS} {ms} ms or more: writes wait for it, and so do elections; give the log a faster disk, \
                 or free this one of other load"
            )
        })
    }

    /// How long the present write and sync have taken.
    fn taking(&self, now_ns: u64) -> Duration {
        match self.began_ns.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(now_ns.saturating_sub(began)),
        }
    }
}

/// Whether the log's disk counts as stalled.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    /// The longest that a sync has taken during the present stall.
    longest: Option<Duration>,
}

impl Stall {
    /// Looks at the writer; returns why this server should lead nothing, if its disk stalls.
    pub(crate) fn look(&mut self, syncs: &SyncTimes, now_ns: u64) -> Option<Abstention> {
        let taking = syncs.taking(now_ns);
        let slow_ended = syncs.slow_ended_ns.load(Ordering::Relaxed);
        let quick = slow_ended == 0 || now_ns.saturating_sub(slow_ended) > nanos(QUICK_FOR);
        if taking > STALLED_AFTER {
            self.longest = Some(self.longest.map_or(taking, |longest| longest.max(taking)));
        } else if quick && taking < SLOW_AFTER {
            self.longest = None;
        }
        // Whole seconds: the reason is compared, and an unchanged one wakes nothing.
        let seconds = self.longest?.as_secs();
        let reason = format!(
            "a sync of the log took over {seconds} s: the disk stalls or fails; this server hands over its leaderships until \
             syncs have been quick for {} s",
            QUICK_FOR.as_secs()
        );
        Some(Abstention { reason, weight: Weight::Soft })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// - `begin at=MS`, `end at=MS`: the writer begins to write and sync, or has done so
    /// - `look at=MS`: prints the reason
    /// - `sync at=MS ms=MS [times=N]`: syncs one after another; `slow`: what is said of them; `recent at=MS`: what one takes
    fn start() -> impl FnMut(&str, &mut String) {
        let (syncs, mut stall) = (SyncTimes::default(), Stall::default());
        move |line, out| {
            let line = Line::new(line);
            let now_ns = line.get::<u64>("at").unwrap_or(0) * 1_000_000;
            match line.command() {
                "sync" => {
                    let ns = line.need::<u64>("ms") * 1_000_000;
                    for number in 0..line.get::<u64>("times").unwrap_or(1) {
                        syncs.begin(now_ns + number * ns);
                        syncs.end(now_ns + (number + 1) * ns);
                    }
                }
                "slow" => writeln!(out, "{}", syncs.slowness().unwrap_or_else(|| "nothing".to_owned())).unwrap(),
                "recent" => writeln!(out, "{} ms", syncs.recent(now_ns).as_millis()).unwrap(),
                "begin" => syncs.begin(now_ns),
                "end" => syncs.end(now_ns),
                "look" => {
                    let reason = stall.look(&syncs, now_ns).map(|abstention| abstention.reason);
                    writeln!(out, "{}", reason.unwrap_or_else(|| "leads".to_owned())).unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("leadership/stall", start);
    }
}
