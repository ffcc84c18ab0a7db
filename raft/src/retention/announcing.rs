//! When a leader writes an entry only to announce up to which index it has released the log: keeps it for no member.
//!
//! Followers learn from entries what they may purge. While a group writes, its next entry carries the index; an idle group
//! needs an entry without operations. That entry is itself one more that will be released, so a single unannounced entry
//! must not always cause the next one, or an idle group would never fall silent.

use std::cmp::Ordering;
use std::time::Duration;

/// The pause before a single unannounced entry is announced, at first and at most: it doubles each time, so that an idle
/// group falls silent all the same.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(3_600);

/// Decides when one group's leader announces.
#[derive(Debug)]
pub(crate) struct Announcer {
    /// The log's newest segment at the last announcement.
    segment: u64,
    /// When the pause began.
    since_ns: u64,
    pause: Duration,
}

impl Announcer {
    pub(crate) fn new(now_ns: u64) -> Announcer {
        Announcer { segment: 0, since_ns: now_ns, pause: PAUSE_MIN }
    }

    /// Whether to announce now. Entries have said that the log is released up to `said`; it is up to `released`.
    /// `segment` is the log's newest; `has_to_go` is the last index that must be purged, if this group holds back a log over
    /// its budget.
    pub(crate) fn is_due(
        &mut self,
        said: u64,
        released: u64,
        segment: u64,
        has_to_go: Option<u64>,
        now_ns: u64,
    ) -> bool {
        let any = released > said;
        // While other groups write, the last entries of an idle one hold back an ever older segment. So even a single entry
        // is announced once per segment.
        let idle_for_a_segment = any && self.segment < segment;
        // A full log accepts no writes that could announce it, and no new segment begins: a single unannounced entry would
        // keep the log full forever. Once the entries that have to go are announced, no more are needed.
        let holds_back = any && has_to_go.is_some_and(|last| last > said);
        // A member whose log is full knows which entry is in its way; a leader whose own log has space does not. So even a
        // single entry is announced in the end, after ever longer pauses.
        let rested = match released.cmp(&said.saturating_add(1)) {
            Ordering::Less => false,
            Ordering::Equal => self.pause_is_over(now_ns),
            Ordering::Greater => {
                // Something was written, and what follows may be wanted soon.
                (self.since_ns, self.pause) = (now_ns, PAUSE_MIN);
                true
            }
        };
        let due = rested || idle_for_a_segment || holds_back;
        if due {
            self.segment = segment;
        }
        due
    }

    /// Whether the pause is over; the next one is twice as long then.
    fn pause_is_over(&mut self, now_ns: u64) -> bool {
        if u128::from(now_ns.saturating_sub(self.since_ns)) < self.pause.as_nanos() {
            return false;
        }
        (self.since_ns, self.pause) = (now_ns, (self.pause * 2).min(PAUSE_MAX));
        true
    }
}

#[cfg(test)]
mod tests;
