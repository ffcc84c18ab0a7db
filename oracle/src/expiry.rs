//! Times to live: when a cell may be seen, and when it may be missing.
//!
//! A server hides what has expired by its clock, which is within some tolerance of the time that the readers have. So around
//! the end of a cell's life both answers are right, and otherwise only one is.

use crate::verdict::Verdict;

/// How long the cells of a family live, and how far the clocks of servers may be off.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    pub ttl_ms: i64,
    pub tolerance_ms: i64,
}

/// A read of a cell: when it was called and when it returned.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub called_ms: i64,
    pub returned_ms: i64,
}

impl Lifetime {
    /// Judges a cell that was seen.
    ///
    /// # Errors
    /// If it had expired before the read was called.
    pub fn judge_seen(&self, stamp_ms: i64, window: Window) -> Verdict {
        let last = stamp_ms + self.ttl_ms + self.tolerance_ms;
        if window.called_ms <= last {
            return Ok(());
        }
        Err(format!("is seen {} ms after it expired", window.called_ms - stamp_ms - self.ttl_ms))
    }

    /// Judges a cell that was written and is missing.
    ///
    /// # Errors
    /// If it had not expired when the read returned.
    pub fn judge_missing(&self, stamp_ms: i64, window: Window) -> Verdict {
        let first = stamp_ms + self.ttl_ms - self.tolerance_ms;
        if window.returned_ms >= first {
            return Ok(());
        }
        Err(format!("is missing {} ms before it expires", stamp_ms + self.ttl_ms - window.returned_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Lifetime = Lifetime { ttl_ms: 1_000, tolerance_ms: 100 };

    fn at(ms: i64) -> Window {
        Window { called_ms: ms, returned_ms: ms }
    }

    #[test]
    fn a_cell_is_seen_until_it_expires_and_missing_afterwards() {
        LIFETIME.judge_seen(0, at(899)).unwrap();
        LIFETIME.judge_missing(0, at(899)).unwrap_err();
        LIFETIME.judge_seen(0, at(1_101)).unwrap_err();
        LIFETIME.judge_missing(0, at(1_101)).unwrap();
    }

    #[test]
    fn around_the_end_of_its_life_both_are_right() {
        for ms in [900, 1_000, 1_100] {
            LIFETIME.judge_seen(0, at(ms)).unwrap();
            LIFETIME.judge_missing(0, at(ms)).unwrap();
        }
        let long = Window { called_ms: 500, returned_ms: 1_500 };
        LIFETIME.judge_seen(0, long).unwrap();
        LIFETIME.judge_missing(0, long).unwrap();
    }
}
