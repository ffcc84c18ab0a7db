//! Registers with one writer each: what a read may return, given the earlier writes and reads.
//!
//! Every key has one writer, which writes the numbers 1, 2, 3, ..., each after the previous one was acknowledged.
//! Linearizability then takes two comparisons per read. The result is not older than the newest number that was
//! acknowledged to the writer or shown to a reader before the read started, and not newer than the newest number
//! attempted when it ended. An absent key reads as 0. At the end, the same history says which keys must exist and which
//! may.
//!
//! The number is also the cell's timestamp. A retried write whose first try arrives late therefore cannot hide newer
//! ones, so that every violation is a fault of the cluster and none is due to the limited exactly-once window.

use std::collections::BTreeMap;

use terrane_types::KeyRange;

use crate::verdict::Violation;

/// The writes and reads of all keys so far.
#[derive(Debug, Default)]
pub struct History {
    keys: BTreeMap<Vec<u8>, Marks>,
    acknowledged: u64,
    reads: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    attempted: u64,
    acknowledged: u64,
    seen: u64,
}

/// A read that has started, with the oldest value it may return.
#[derive(Clone, Debug)]
#[must_use = "a read that began has to be judged when it ends"]
pub struct Read {
    key: Vec<u8>,
    floor: u64,
}

impl Read {
    /// A read of a key that had never been written when the read started.
    pub fn of_unwritten(key: &[u8]) -> Read {
        Read { key: key.to_vec(), floor: 0 }
    }
}

impl History {
    /// Starts a write of `key`; returns its number.
    pub fn attempt(&mut self, key: &[u8]) -> u64 {
        let marks = self.keys.entry(key.to_vec()).or_default();
        marks.attempted += 1;
        marks.attempted
    }

    /// The write of `number` was acknowledged.
    pub fn acknowledge(&mut self, key: &[u8], number: u64) {
        let marks = self.keys.entry(key.to_vec()).or_default();
        assert!(number <= marks.attempted, "a write is acknowledged after it was attempted");
        marks.acknowledged = marks.acknowledged.max(number);
        self.acknowledged += 1;
    }

    /// Starts a read of `key`.
    pub fn begin_read(&self, key: &[u8]) -> Read {
        Read { key: key.to_vec(), floor: self.marks(key).floor() }
    }

    /// Starts reads of all keys of `range` written so far, as a scan does; by key.
    #[must_use]
    pub fn begin_scan(&self, range: &KeyRange) -> BTreeMap<Vec<u8>, Read> {
        let keys = self.keys.keys().filter(|key| range.contains(key));
        keys.map(|key| (key.clone(), self.begin_read(key))).collect()
    }

    /// Ends a read that returned `got`; 0 means that the key is absent.
    ///
    /// # Errors
    /// If that is impossible.
    pub fn end_read(&mut self, read: Read, got: u64) -> Result<(), Violation> {
        self.reads += 1;
        let ceiling = self.marks(&read.key).attempted;
        let floor = read.floor;
        if got < floor {
            let what = format!("reads {got}, but {floor} was acknowledged or read before (attempted: {ceiling})");
            return Err(Violation::new(&read.key, what));
        }
        self.judge_stale(&read.key, got)?;
        if let Some(marks) = self.keys.get_mut(&read.key) {
            marks.seen = marks.seen.max(got);
        }
        Ok(())
    }

    /// Judges a read that may be older than acknowledged writes: only what was written can be read. It says nothing about
    /// later reads either: a member may apply a write before the leader does, which acknowledges it.
    ///
    /// # Errors
    /// If it was not written.
    pub fn judge_stale(&self, key: &[u8], got: u64) -> Result<(), Violation> {
        let ceiling = self.marks(key).attempted;
        if got <= ceiling {
            return Ok(());
        }
        Err(Violation::new(key, format!("reads {got}, but nothing above {ceiling} was ever written")))
    }

    /// All keys ever attempted, in order.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }

    /// The number of keys that must exist, because a write of them was acknowledged or read.
    #[must_use]
    pub fn certain_keys(&self) -> u64 {
        self.keys.values().filter(|marks| marks.floor() > 0).count() as u64
    }

    /// The number of acknowledged writes.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// The number of checked reads.
    #[must_use]
    pub const fn reads(&self) -> u64 {
        self.reads
    }

    fn marks(&self, key: &[u8]) -> Marks {
        self.keys.get(key).copied().unwrap_or_default()
    }
}

impl Marks {
    fn floor(self) -> u64 {
        self.acknowledged.max(self.seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(acknowledged: u64, attempted: u64) -> History {
        let mut history = History::default();
        for number in 1..=attempted {
            assert_eq!(history.attempt(b"k"), number);
            if number <= acknowledged {
                history.acknowledge(b"k", number);
            }
        }
        history
    }

    #[test]
    fn a_read_may_answer_what_was_acknowledged_or_is_under_way() {
        for got in [2, 3] {
            let mut history = written(2, 3);
            let read = history.begin_read(b"k");
            history.end_read(read, got).unwrap();
        }
    }

    #[test]
    fn a_lost_write_is_a_violation() {
        let mut history = written(2, 3);
        let read = history.begin_read(b"k");
        let violation = history.end_read(read, 1).unwrap_err();
        assert!(violation.to_string().starts_with("k reads 1, but 2 was acknowledged"), "{violation}");
    }

    #[test]
    fn a_value_from_nowhere_is_a_violation() {
        let mut history = written(2, 3);
        let read = history.begin_read(b"k");
        assert!(history.end_read(read, 4).unwrap_err().to_string().contains("nothing above 3"));
        let read = history.begin_read(b"other");
        history.end_read(read, 1).unwrap_err();
    }

    #[test]
    fn a_read_may_overlap_the_acknowledgement() {
        let mut history = written(0, 1);
        let read = history.begin_read(b"k");
        history.acknowledge(b"k", 1);
        history.end_read(read, 0).unwrap();
        let read = history.begin_read(b"k");
        history.end_read(read, 0).unwrap_err();
    }

    #[test]
    fn what_was_read_once_stays() {
        let mut history = written(0, 1);
        let (first, late) = (history.begin_read(b"k"), history.begin_read(b"k"));
        history.end_read(first, 1).unwrap();
        let next = history.begin_read(b"k");
        history.end_read(next, 0).unwrap_err();
        // It started before the write was visible to anyone.
        history.end_read(late, 0).unwrap();
        assert_eq!(history.certain_keys(), 1);
    }

    #[test]
    fn a_stale_read_shows_what_was_written_and_binds_no_other() {
        let mut history = written(1, 2);
        let read = history.begin_read(b"k");
        history.judge_stale(b"k", 0).unwrap();
        history.judge_stale(b"k", 2).unwrap();
        history.judge_stale(b"k", 3).unwrap_err();
        history.end_read(read, 1).unwrap();
    }

    #[test]
    fn a_scan_is_judged_by_when_it_began() {
        let mut history = written(1, 1);
        let mut scan = history.begin_scan(&KeyRange::all());
        assert!(history.begin_scan(&KeyRange::prefix(b"l")).is_empty());
        history.attempt(b"new");
        assert_eq!(scan.keys().collect::<Vec<_>>(), [b"k"]);
        let read = scan.remove(&b"k"[..]).unwrap();
        history.end_read(read, 0).unwrap_err();
    }
}
