//! The comparison of a region's replicas, on one of them: the snapshot that was pinned for it, and what it came to.
//!
//! The snapshot is a guard on a sequence number, no file and no memory, but while it lives nothing that it sees is collected.
//! So it goes when the comparison ends, and after [`UNASKED_MAX`] if no leader asks for it, such as one that was replayed.

use std::time::Duration;

use parking_lot::Mutex;
use terrane_engine::Snapshot;

use super::cell_digest::RegionDigest;
use crate::operation::ComparisonId;

/// How long a snapshot waits for the leader's question, and a digest for the outcome.
const UNASKED_MAX: Duration = Duration::from_secs(60);
/// What is read is judged as of this time after the entry, and must be read before log time gets there: a cell that expires
/// meanwhile would be there on one replica and collected on another.
pub const READ_WITHIN: Duration = Duration::from_secs(3_600);

/// What a replica says of its part of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Digested {
    /// The entry is not applied here, or was forgotten.
    Unknown,
    UnderWay,
    /// What the region holds as of the entry.
    Ready(RegionDigest),
    /// The region has changed meanwhile, or cannot be read.
    Impossible(String),
}

/// A snapshot as of an entry.
#[derive(Debug)]
pub struct Pin {
    pub snapshot: Snapshot,
    /// The time by which expiry is judged.
    pub now_ms: i64,
    /// The schema as of the entry: another one hides other cells, and what it hides is collected.
    pub schema_version: u64,
}

enum State {
    Pinned(Pin),
    Done(Digested),
}

struct Known {
    id: ComparisonId,
    state: State,
    /// When it is forgotten (nanoseconds of the monotonic clock).
    until_ns: u64,
}

#[derive(Default)]
struct Inner {
    known: Option<Known>,
    /// When all replicas were last found equal, in milliseconds since 1970; 0: not known here.
    compared_ms: u64,
}

/// The last comparison of a region on this server.
#[derive(Default)]
pub struct Comparison(Mutex<Inner>);

impl Comparison {
    /// Pins a snapshot. It takes the place of the one for an earlier comparison.
    pub fn pin(&self, id: ComparisonId, pin: Pin, now_ns: u64) {
        let known = Known { id, state: State::Pinned(pin), until_ns: until(now_ns) };
        // The earlier snapshot is released outside of the lock.
        let earlier = self.0.lock().known.replace(known);
        drop(earlier);
    }

    /// What is known of a comparison, and its snapshot for the first who asks. He must tell the end.
    pub fn ask(&self, id: ComparisonId, now_ns: u64) -> (Digested, Option<Pin>) {
        let mut inner = self.0.lock();
        let Some(known) = inner.known.as_mut().filter(|known| known.id == id) else {
            return (Digested::Unknown, None);
        };
        known.until_ns = until(now_ns);
        match std::mem::replace(&mut known.state, State::Done(Digested::UnderWay)) {
            State::Pinned(pin) => (Digested::UnderWay, Some(pin)),
            State::Done(digested) => {
                known.state = State::Done(digested.clone());
                (digested, None)
            }
        }
    }

    /// What a comparison came to here.
    pub fn end(&self, id: ComparisonId, digested: Digested, now_ns: u64) {
        let mut inner = self.0.lock();
        if let Some(known) = inner.known.as_mut().filter(|known| known.id == id) {
            (known.state, known.until_ns) = (State::Done(digested), until(now_ns));
        }
    }

    /// Whether the leader still wants it: no other one has taken its place.
    pub fn is_wanted(&self, id: ComparisonId) -> bool {
        self.0.lock().known.as_ref().is_some_and(|known| known.id == id)
    }

    /// Forgets what no leader asks for.
    pub fn expire(&self, now_ns: u64) {
        let mut inner = self.0.lock();
        let gone = inner.known.take_if(|known| known.until_ns <= now_ns);
        drop(inner);
        drop(gone);
    }

    /// All replicas were equal.
    pub fn note_equal(&self, now_ms: u64) {
        let mut inner = self.0.lock();
        inner.compared_ms = inner.compared_ms.max(now_ms);
    }

    /// When all replicas were last found equal; 0: not known here.
    pub fn compared_ms(&self) -> u64 {
        self.0.lock().compared_ms
    }
}

fn until(now_ns: u64) -> u64 {
    now_ns.saturating_add(u64::try_from(UNASKED_MAX.as_nanos()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ComparisonId = ComparisonId([1; 16]);
    const OTHER: ComparisonId = ComparisonId([2; 16]);

    fn known(comparison: &Comparison, id: ComparisonId) {
        comparison.0.lock().known = Some(Known { id, state: State::Done(Digested::UnderWay), until_ns: until(0) });
    }

    #[test]
    fn the_outcome_of_another_comparison_is_not_taken_for_this_one() {
        let comparison = Comparison::default();
        known(&comparison, ID);
        comparison.end(OTHER, Digested::Ready(RegionDigest::default()), 0);
        assert_eq!(comparison.ask(ID, 0).0, Digested::UnderWay);
        assert_eq!(comparison.ask(OTHER, 0).0, Digested::Unknown);
        let digest = Digested::Ready(RegionDigest { crc: 7, rows: 1, bytes: 2 });
        comparison.end(ID, digest.clone(), 0);
        assert_eq!(comparison.ask(ID, 0).0, digest);
    }

    #[test]
    fn a_comparison_that_no_leader_asks_for_is_forgotten() {
        let comparison = Comparison::default();
        known(&comparison, ID);
        comparison.expire(until(0) - 1);
        assert!(comparison.is_wanted(ID));
        comparison.ask(ID, until(0) - 1);
        comparison.expire(until(0));
        assert!(comparison.is_wanted(ID), "it was asked for since");
        comparison.expire(until(until(0)));
        assert!(!comparison.is_wanted(ID));
    }
}
