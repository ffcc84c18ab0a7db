//! How long to wait before a retry: doubling, bounded, and jittered so that many callers do not retry at once.

use std::ops::Range;
use std::time::Duration;

/// The waits between the tries of one action.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts with about `first` and never waits longer than `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// The next wait.
    pub fn next_wait(&mut self) -> Duration {
        Duration::from_micros(terrane_env::rand::range(self.next_range()))
    }

    /// The microseconds that the next wait is drawn from, half to all of the present step; the step then doubles.
    fn next_range(&mut self) -> Range<u64> {
        let step = self.next.min(self.max);
        self.next = (step * 2).min(self.max);
        let micros = u64::try_from(step.as_micros()).unwrap_or(u64::MAX);
        micros / 2..micros.max(1)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::catalog::scripts::Line;

    #[test]
    fn waits() {
        terrane_testscript::check_scripts(concat!(env!("CARGO_MANIFEST_DIR"), "/src/backoff/testdata"), || {
            let mut backoff = Backoff::new(Duration::ZERO, Duration::ZERO);
            move |text, out| {
                let line = Line::of(text);
                let millis =
                    |name| Duration::from_millis(line.argument(name).map(|text| text.parse().unwrap()).unwrap());
                match line.words[0] {
                    "start" => backoff = Backoff::new(millis("first"), millis("max")),
                    "wait" => {
                        let Range { start, end } = backoff.next_range();
                        writeln!(out, "{start}..{end} us").unwrap();
                    }
                    other => panic!("no such command: {other}"),
                }
            }
        });
    }

    #[test]
    fn a_wait_lies_in_its_range() {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_millis(100));
        for step in [20, 40, 80, 100, 100] {
            let wait = backoff.next_wait();
            assert!(
                wait >= Duration::from_millis(step / 2) && wait <= Duration::from_millis(step),
                "{wait:?} of {step}"
            );
        }
    }
}
