//! A rate of bytes that several tasks share.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many bytes a second, in the order in which tasks ask. What was not used is not saved up.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: u64,
    next: Mutex<Instant>,
}

impl Pace {
    /// A rate; 0: as fast as it goes.
    #[must_use]
    pub fn new(bytes_per_second: u64) -> Self {
        Self { bytes_per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the turn of so many bytes.
    pub async fn wait(&self, bytes: u64) {
        if self.bytes_per_second == 0 {
            return;
        }
        let takes = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second);
        let due = {
            let mut next = self.next.lock();
            let due = (*next).max(Instant::now());
            *next = due + takes;
            due
        };
        tokio::time::sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tasks_share_the_rate_and_save_nothing_up() {
        let (pace, begun) = (Pace::new(1000), Instant::now());
        tokio::join!(pace.wait(500), pace.wait(500), pace.wait(500));
        assert_eq!(begun.elapsed(), Duration::from_secs(1), "the third one waits for the bytes of two");
        tokio::time::sleep(Duration::from_secs(10)).await;
        pace.wait(500).await;
        pace.wait(500).await;
        assert_eq!(begun.elapsed(), Duration::from_millis(11_500));
    }
}
