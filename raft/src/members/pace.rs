//! Whether a member keeps pace with its leader, in time rather than in entries.
//!
//! A few entries may stand for gigabytes: those of a bulk load and of a moved region name files, which a member fetches before
//! it applies them. So a member that lacks few entries may need minutes. The leader notes what it had applied and when; a
//! member keeps pace if it has applied what the leader had applied [`BEHIND_MAX`] ago.
//!
//! Decided from the indexes and times that are passed in; without I/O.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// A member that applies everything within this keeps pace.
const BEHIND_MAX: Duration = Duration::from_secs(2);
/// How often the leader notes what it has applied, at most.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// What a leader had applied, and when.
#[derive(Debug, Default)]
pub(crate) struct LeaderProgress {
    term: u64,
    applied: VecDeque<(Instant, u64)>,
}

impl LeaderProgress {
    /// Notes what the leader of a term has applied. Returns what a member that keeps pace has applied; in the first moments of
    /// a term, that is what the leader had applied when it was looked at first.
    pub(crate) fn expected(&mut self, term: u64, applied: u64, now: Instant) -> u64 {
        if self.term != term {
            *self = Self { term, applied: VecDeque::new() };
        }
        if self.applied.back().is_none_or(|(noted, _)| now.duration_since(*noted) >= NOTE_EVERY) {
            self.applied.push_back((now, applied));
        }
        while self.applied.get(1).is_some_and(|(noted, _)| now.duration_since(*noted) >= BEHIND_MAX) {
            self.applied.pop_front();
        }
        self.applied.front().map_or(applied, |(_, applied)| *applied)
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// `look at=MS term=T applied=I`: the leader of a term has applied up to here.
    fn start() -> impl FnMut(&str, &mut String) {
        let (mut pace, begun) = (LeaderProgress::default(), Instant::now());
        move |line, out| {
            let line = Line::new(line);
            assert_eq!(line.command(), "look");
            let now = begun + line.ms("at").expect("at=");
            let expected = pace.expected(line.need("term"), line.need("applied"), now);
            writeln!(out, "members have to have applied {expected}").unwrap();
        }
    }

    #[test]
    fn scripts() {
        check("members/pace", start);
    }
}
