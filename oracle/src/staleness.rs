//! Stale reads: whether an answer includes every write acknowledged before the time as of which it claims to be complete.
//!
//! As in [`rows`](crate::rows), every key has one writer, which writes 1, 2, 3, ... That the value was
//! written at all, and what other reads may show, is checked there.

use std::collections::BTreeMap;

use crate::verdict::{Verdict, Violation};

/// The acknowledgements of all keys with their times, in milliseconds of the cluster's clock.
#[derive(Debug, Default)]
pub struct Acknowledgements {
    keys: BTreeMap<Vec<u8>, Vec<(u64, u64)>>,
}

impl Acknowledgements {
    /// A write was acknowledged at the given time, or a little before.
    pub fn add(&mut self, key: &[u8], number: u64, at_ms: u64) {
        self.keys.entry(key.to_vec()).or_default().push((at_ms, number));
    }

    /// The newest write of a key that was acknowledged before the given time; 0: none.
    #[must_use]
    pub fn newest_before(&self, key: &[u8], time_ms: u64) -> u64 {
        let acknowledged = self.keys.get(key).into_iter().flatten();
        acknowledged.filter(|(at, _)| *at < time_ms).map(|(_, number)| *number).max().unwrap_or_default()
    }

    /// Judges an answer that claims to be complete as of a time.
    ///
    /// # Errors
    /// If it lacks a write that was acknowledged before.
    pub fn judge(&self, key: &[u8], got: u64, as_of_ms: u64) -> Verdict<Violation> {
        let least = self.newest_before(key, as_of_ms);
        if got >= least {
            return Ok(());
        }
        let what = format!("reads {got} as of {as_of_ms}, but {least} was acknowledged before that");
        Err(Violation::new(key, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_includes_what_was_acknowledged_before_its_time() {
        let mut acknowledgements = Acknowledgements::default();
        acknowledgements.add(b"k", 1, 100);
        acknowledgements.add(b"k", 2, 200);
        assert_eq!([100, 101, 200, 201].map(|time| acknowledgements.newest_before(b"k", time)), [0, 1, 1, 2]);
        acknowledgements.judge(b"k", 1, 200).unwrap();
        acknowledgements.judge(b"k", 3, 900).unwrap();
        let wrong = acknowledgements.judge(b"k", 1, 201).unwrap_err();
        assert!(wrong.what.contains("reads 1 as of 201, but 2 was"), "{wrong}");
        acknowledgements.judge(b"other", 0, 900).unwrap();
    }
}
