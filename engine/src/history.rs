//! What was current when: marks of log time, which determine up to where versions may be collected.
//!
//! A mark says that at some stamp of the log a sequence number was the last one published. To keep everything that was
//! current at some moment of the last `length`, a collection stops at the number of the newest mark that is at least
//! `length` old: whatever was current after that mark has this number or a higher one. Marks are the length divided by
//! [`GRAIN`] apart, so slightly more is kept than required, never less, and there are few of them however much is
//! written.
//!
//! Marks are in memory only. A restart begins with none and with snapshots closed up to the durable point; the log that
//! is applied again brings its stamps along.

use std::collections::VecDeque;

/// Marks per length.
const GRAIN: u64 = 64;

/// The most marks kept: those of one length, the one before them, and the newest.
const MARKS_MAX: usize = GRAIN as usize + 2;

/// Log times and the sequence numbers current then.
#[derive(Clone, Debug)]
pub(crate) struct History {
    length_ms: u64,
    /// Stamp and sequence number, both ascending.
    marks: VecDeque<(u64, u64)>,
    /// When the last write happened: what is published has been current since.
    last_ms: Option<u64>,
}

impl History {
    pub(crate) fn new(length_ms: u64) -> Self {
        Self { length_ms, marks: VecDeque::new(), last_ms: None }
    }

    /// A history of the same length that begins here: `sequence` is current at `stamp_ms`.
    pub(crate) fn restarted(&self, stamp_ms: u64, sequence: u64) -> Self {
        let mut history = Self::new(self.length_ms);
        history.mark(stamp_ms, sequence);
        history
    }

    /// A longer history begins with what is present: what is collected does not come back.
    pub(crate) fn set_length(&mut self, length_ms: u64) {
        self.length_ms = length_ms;
    }

    /// A write is about to happen at `stamp_ms`, and `sequence` was the last number before it.
    pub(crate) fn mark(&mut self, stamp_ms: u64, sequence: u64) {
        self.last_ms = Some(stamp_ms);
        if let Some((newest, _)) = self.marks.back()
            && stamp_ms < newest.saturating_add((self.length_ms / GRAIN).max(1))
        {
            return;
        }
        self.marks.push_back((stamp_ms, sequence));
        // Of those that are old enough only the newest is needed.
        while self.marks.len() > 2 && self.is_old(self.marks[1].0, stamp_ms) {
            self.marks.pop_front();
        }
        if self.marks.len() > MARKS_MAX {
            // Only where the length was changed: the oldest stays, as the bound, and the others become sparser.
            self.marks.remove(1);
        }
    }

    /// What was current when the kept period begins, as of `log_time_ms`, or slightly earlier; `None` when no mark is
    /// that old. `published` is the last number of all.
    pub(crate) fn current_at_begin(&self, log_time_ms: u64, published: u64) -> Option<u64> {
        if self.last_ms.is_some_and(|last| self.is_old(last, log_time_ms)) {
            return Some(published);
        }
        let old = self.marks.iter().take_while(|(stamp, _)| self.is_old(*stamp, log_time_ms));
        old.last().map(|(_, sequence)| *sequence)
    }

    fn is_old(&self, stamp_ms: u64, log_time_ms: u64) -> bool {
        stamp_ms.saturating_add(self.length_ms) <= log_time_ms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a list of all writes.
        #[test]
        fn what_was_current_within_the_length_is_kept_and_little_more(
            steps in proptest::collection::vec((0u64..400, 1u64..5), 1..300),
            length_ms in prop_oneof![1u64..50, 64u64..5_000],
        ) {
            let mut history = History::new(length_ms);
            let mut written: Vec<(u64, u64)> = Vec::new();
            let (mut stamp, mut sequence) = (1_000, 0);
            for (later, rows) in steps {
                stamp += later;
                history.mark(stamp, sequence);
                sequence += rows;
                written.push((stamp, sequence));
                let begin = stamp.saturating_sub(length_ms);
                let needed = written.iter().rev().find(|(at, _)| *at <= begin).map(|(_, sequence)| *sequence);
                let kept = history.current_at_begin(stamp, sequence);
                prop_assert!(kept.unwrap_or(0) <= needed.unwrap_or(0), "{kept:?} instead of {needed:?}");
                prop_assert!(history.marks.len() <= MARKS_MAX);
                let grain = (length_ms / GRAIN).max(1);
                let early = written.iter().rev().find(|(at, _)| *at + grain <= begin);
                if let Some((early, _)) = early {
                    // One mark represents all writes of a grain.
                    let before = written.iter().rev().find(|(at, _)| *at + grain <= *early);
                    let before = before.map_or(0, |(_, sequence)| *sequence);
                    prop_assert!(kept.is_some_and(|kept| kept >= before), "{kept:?} though {early} is old enough");
                }
            }
        }
    }

    #[test]
    fn time_without_writes_ends_history_too() {
        let mut history = History::new(100);
        history.mark(1_000, 5);
        assert_eq!(history.current_at_begin(1_099, 6), None);
        assert_eq!(history.current_at_begin(1_100, 6), Some(6));
    }
}
