//! Starts the calls of an open loop when they are due.
//!
//! The runtime's timers have a resolution of a millisecond, which is several times the latency of a get. So one thread
//! waits for the due times and hands out permits, in groups when calls follow each other closely. A worker that is free
//! takes a permit and with it the next number of the schedule; if all are busy, permits pile up and their calls start late,
//! which counts in their latencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::schedule::Schedule;

/// The shortest pause between two groups of calls: each wakes a thread, which costs as much as a call.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// The longest one: the thread ends within this time after the run.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// The calls that are due.
pub struct Pace {
    schedule: Schedule,
    started: Instant,
    due: Semaphore,
    taken: AtomicU64,
    stop: AtomicBool,
}

impl Pace {
    /// Starts to hand out calls.
    pub fn start(schedule: Schedule) -> Arc<Pace> {
        let pace = Pace {
            schedule,
            started: Instant::now(),
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let pace = Arc::new(pace);
        let thread = Arc::clone(&pace);
        tokio::spawn(terrane_env::task::run_blocking(move || thread.hand_out()));
        pace
    }

    /// The time at which the next call is due, once it is; `None` after the end.
    pub async fn next(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.started + self.schedule.due(self.taken.fetch_add(1, Ordering::Relaxed)))
    }

    /// Hands out no more calls. Returns how many were due and not taken.
    pub fn stop(&self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.due.close();
        let due = self.schedule.due_by(self.started.elapsed());
        due.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    fn hand_out(&self) {
        let mut handed_out = 0;
        // Relaxed is enough: the thread sees the end within a pause.
        while !self.stop.load(Ordering::Relaxed) {
            let due = self.schedule.due_by(self.started.elapsed());
            let more = usize::try_from(due - handed_out).unwrap_or(usize::MAX);
            let room = Semaphore::MAX_PERMITS - self.due.available_permits();
            let more = more.min(room);
            self.due.add_permits(more);
            handed_out += more as u64;
            let next = self.schedule.due(handed_out).saturating_sub(self.started.elapsed());
            std::thread::park_timeout(next.clamp(PAUSE_MIN, PAUSE_MAX));
        }
    }
}
