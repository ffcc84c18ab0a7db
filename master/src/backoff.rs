//! How long to wait before trying again: doubling, bounded, and spread so that many do not come back at one moment.

use std::time::Duration;

/// Waits of one retried action.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Begins with about `first`, and never waits longer than `max`.
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// The next wait, between half and all of the present step; the step doubles.
    pub fn next_wait(&mut self) -> Duration {
        let step = self.next.min(self.max);
        self.next = (step * 2).min(self.max);
        let micros = u64::try_from(step.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(terrane_env::rand::range(micros / 2..micros.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_bound() {
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
