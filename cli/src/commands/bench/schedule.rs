//! When the calls of an open loop are due: evenly, at a fixed rate, whatever the cluster answers.
//!
//! A closed loop waits for an answer before it asks again, so a stall of a second delays the calls of that second, and they
//! are never measured: the histogram shows one slow call per worker instead of thousands ("coordinated omission"). In an
//! open loop each call has a time at which it is due, and its latency counts from then, also if it was made later because
//! all calls in flight were busy. Due times are computed from the number of the call, so that no error adds up.

use std::time::Duration;

/// Calls at a fixed rate. Call `n` is due `n / rate` seconds after the start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    rate: f64,
}

impl Schedule {
    /// A schedule of this many calls per second, more than 0.
    pub fn new(rate: f64) -> Schedule {
        Schedule { rate }
    }

    /// When this call is due, after the start.
    pub fn due(&self, call: u64) -> Duration {
        Duration::try_from_secs_f64(call as f64 / self.rate).unwrap_or(Duration::MAX)
    }

    /// How many calls are due at this time after the start, or were before.
    pub fn due_by(&self, elapsed: Duration) -> u64 {
        let mut calls = (elapsed.as_secs_f64() * self.rate) as u64 + 1;
        // Rounding may put the estimate one off; the due times decide.
        while calls > 0 && self.due(calls - 1) > elapsed {
            calls -= 1;
        }
        while self.due(calls) <= elapsed {
            calls += 1;
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_due_evenly_and_the_first_at_once() {
        let schedule = Schedule::new(1_000.0);
        assert_eq!([0, 1, 1_500].map(|call| schedule.due(call)), [0, 1, 1_500].map(Duration::from_millis));
        assert_eq!(schedule.due_by(Duration::ZERO), 1);
        assert_eq!(schedule.due_by(Duration::from_micros(999)), 1);
        assert_eq!(schedule.due_by(Duration::from_millis(1)), 2);
    }

    #[test]
    fn a_call_is_due_exactly_from_its_time_on_at_any_rate() {
        for rate in [0.5, 3.0, 333.3, 7_001.0, 999_999.0, 10_000_000.0] {
            let schedule = Schedule::new(rate);
            for call in [0, 1, 2, 999, 1_000_003, 40_000_000_001] {
                let due = schedule.due(call);
                let by = schedule.due_by(due);
                assert!(by > call && by - call <= 2, "{rate}/s: by {due:?} {by} calls are due, and call {call}");
                let before = due.saturating_sub(Duration::from_nanos(1));
                assert!(call == 0 || schedule.due_by(before) <= call, "{rate}/s: call {call} is due before its time");
            }
        }
    }

    #[test]
    fn a_stall_leaves_no_call_out() {
        // Asked at any times, the numbers of due calls add up to the same.
        let schedule = Schedule::new(1_234.5);
        let mut taken = 0;
        for at in [1u64, 2, 3, 1_500, 1_501, 9_000, 60_000].map(Duration::from_millis) {
            let due = schedule.due_by(at);
            assert!(due >= taken);
            taken = due;
        }
        assert_eq!(taken, 74_071, "60 s of 1,234.5 calls, and the one at the start");
    }
}
