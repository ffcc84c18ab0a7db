//! When a copy of the active buffer is worth it: a pure decision over the inserts that each look finds.
//!
//! A buffer is still after a look that found no insert since the one before. A copy that the next insert made useless was
//! premature: the buffer must then be still for twice as many looks, so that a trickle of writes does not copy a whole
//! buffer for each of them.

/// The most looks without an insert that a copy waits for.
const LOOKS_MAX: u32 = 32;

#[derive(Debug)]
pub(super) struct IdleDetector {
    /// Inserts into the buffer at the last look; `None` before the first.
    inserts: Option<u64>,
    /// Looks since then that found no further one.
    looks: u32,
    /// How many of those a copy waits for.
    wanted: u32,
}

impl Default for IdleDetector {
    fn default() -> Self {
        Self { inserts: None, looks: 0, wanted: 1 }
    }
}

impl IdleDetector {
    /// Notes the inserts into the buffer so far, and whether a copy of it became stale since the last look. Returns whether
    /// the buffer has been still for long enough.
    pub(super) fn look(&mut self, inserts: u64, lost_copy: bool) -> bool {
        if self.inserts == Some(inserts) {
            self.looks = self.looks.saturating_add(1);
        } else {
            (self.inserts, self.looks) = (Some(inserts), 0);
        }
        if lost_copy {
            self.wanted = (self.wanted * 2).min(LOOKS_MAX);
        } else if self.looks >= LOOKS_MAX {
            self.wanted = 1;
        }
        self.looks >= self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_still_at_the_second_look_and_later_after_copies_that_were_lost() {
        let mut idle_detector = IdleDetector::default();
        assert!(!idle_detector.look(5, false), "nothing is known before the first look");
        assert!(idle_detector.look(5, false));
        assert!(!idle_detector.look(6, true));
        let waits = |idle_detector: &mut IdleDetector| (1..).find(|_| idle_detector.look(6, false)).unwrap();
        assert_eq!(waits(&mut idle_detector), 2);
        for _ in 0..10 {
            idle_detector.look(6, true);
        }
        idle_detector.look(7, false);
        idle_detector.look(6, false);
        assert_eq!(waits(&mut idle_detector), LOOKS_MAX);
        idle_detector.look(7, false);
        assert!(idle_detector.look(7, false), "a long time without writes is a new beginning");
    }
}
