//! Snapshots: a reader's guard on a sequence number.
//!
//! One mutex protects the region's published sequence number, the live snapshots, and the number up to which versions
//! have been collected. A write goes into the memtable, is published, and only then removes what it replaced: a
//! snapshot taken after that sees the write, and one taken before is taken into account ([`Retention`]).
//!
//! # History
//! Where the table keeps history, versions stay readable for a while without a live snapshot: whatever was current at
//! some moment of the last `history` milliseconds of *log time*. Memtables then drop nothing, and a flush or compaction
//! collects up to the sequence number that was current then ([`History`]), not up to what is published. That number
//! only rises, and it is determined under the mutex, in the same step that closes the past below it.
//!
//! # Views of other replicas
//! Sequence numbers come from the log, so a number names the same view on every replica of the region, as long as none has
//! collected past it. A follower does not know the snapshots of its leader, but may be told the oldest of them: it then keeps
//! everything from that number on, as with history ([`Snapshots::keep_from`]), so that readers can continue here if it leads.

use std::sync::Arc;

use terrane_env::sync::{Mutex, is_planted};

use crate::SnapshotTooOld;
use crate::history::History;
use crate::memtable::{Limits, Retention};

/// The most snapshots of a region that live on in its daughters: the newest.
const HANDED_DOWN_MAX: usize = 64;

#[derive(Debug)]
struct Held {
    published: u64,
    /// The number of live snapshots at each sequence number, by number. Most are taken at the end, and there are few: a
    /// get adds and removes one without an allocation.
    live: Vec<(u64, usize)>,
    /// Snapshots below this may miss versions that were collected.
    collected: u64,
    /// What is kept for future snapshots; `None` when nothing is.
    history: Option<History>,
    /// Everything from this number on is kept for readers of another replica. Never below `collected`.
    kept: Option<u64>,
}

impl Held {
    fn newest(&self) -> Option<u64> {
        self.live.last().map(|(sequence, _)| *sequence)
    }

    /// Whether nothing goes before a flush or compaction collects.
    fn keeps(&self) -> bool {
        self.history.is_some() || self.kept.is_some()
    }

    /// The oldest number that is being read or may still be requested as of `log_time_ms`.
    fn oldest(&self, log_time_ms: u64) -> u64 {
        let live = self.live.first().map_or(self.published, |(sequence, _)| *sequence);
        let live = self.kept.map_or(live, |kept| live.min(kept));
        match &self.history {
            // Until a mark is old enough, everything since the last collection is within the period.
            Some(history) => live.min(history.current_at_begin(log_time_ms, self.published).unwrap_or(self.collected)),
            None => live,
        }
    }

    fn publish(&mut self, sequence: u64, replaces: bool) -> Option<u64> {
        assert!(self.published <= sequence, "sequence number {sequence} is published after {}", self.published);
        self.published = sequence;
        if self.keeps() {
            // As if a snapshot lived at the last number: nothing goes before a flush collects.
            return Some(sequence);
        }
        if replaces {
            self.collected = self.collected.max(sequence);
        }
        self.newest()
    }

    fn add(&mut self, sequence: u64) {
        match self.live.last_mut() {
            Some((newest, count)) if *newest == sequence => *count += 1,
            Some((newest, _)) if *newest > sequence => match self.live.binary_search_by_key(&sequence, |(at, _)| *at) {
                Ok(at) => self.live[at].1 += 1,
                Err(at) => self.live.insert(at, (sequence, 1)),
            },
            _ => self.live.push((sequence, 1)),
        }
    }

    fn remove(&mut self, sequence: u64) {
        if let Ok(at) = self.live.binary_search_by_key(&sequence, |(at, _)| *at) {
            self.live[at].1 -= 1;
            if self.live[at].1 == 0 {
                self.live.remove(at);
            }
        }
    }
}

/// The snapshots of one region.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots(Arc<Mutex<Held>>);

impl Snapshots {
    /// Nothing before `sequence` can be read: no snapshots survive a restart.
    pub(crate) fn new(sequence: u64) -> Self {
        Self::of(Held { published: sequence, live: Vec::new(), collected: sequence, history: None, kept: None })
    }

    fn of(held: Held) -> Self {
        Self(Arc::new(Mutex::new(held)))
    }

    /// The snapshots of a daughter whose parent was split after `sequence`. Numbers continue, so what could be read of
    /// the parent's history can be read of the daughter's.
    ///
    /// Without history the past is closed: a merge of the parent's memtables, which both daughters share, may still be
    /// dropping versions below `sequence`. With history, or while views of another replica are kept, no merge drops any.
    ///
    /// Snapshots that are live on the parent are live on the daughter too, as long as the returned ones are: readers of
    /// the parent continue in the daughter. Each also holds the parent's own, so that a merge already running there
    /// keeps what it sees.
    pub(crate) fn after_split(&self, sequence: u64) -> (Self, Vec<Snapshot>) {
        let mut held = self.0.lock();
        let collected = if held.keeps() { held.collected.min(sequence) } else { sequence };
        let numbers: Vec<u64> = held.live.iter().rev().map(|(number, _)| *number).take(HANDED_DOWN_MAX).collect();
        let (history, kept) = (held.history.clone(), held.kept);
        let live = numbers.iter().rev().map(|number| (*number, 1)).collect();
        let daughter = Self::of(Held { published: sequence, live, collected, history, kept });
        let hand_down = |number: u64| {
            held.add(number);
            let parent = Snapshot { sequence: number, snapshots: self.clone(), parent: None };
            Snapshot { sequence: number, snapshots: daughter.clone(), parent: Some(Box::new(parent)) }
        };
        let handed_down = numbers.into_iter().map(hand_down).collect();
        (daughter, handed_down)
    }

    /// The snapshots of a region merged of two, whose last number is `sequence`, as of log time `stamp_ms`. Numbers below are
    /// those of one side and mean nothing for the other, so the past is closed. With history, a number that neither side
    /// has collected past is readable on both.
    pub(crate) fn after_merge(left: &Self, right: &Self, sequence: u64, stamp_ms: u64) -> Self {
        let (left, right) = (left.0.lock(), right.0.lock());
        let (collected, history) = match (&left.history, &right.history) {
            (Some(history), Some(_)) => {
                (left.collected.max(right.collected).min(sequence), Some(history.restarted(stamp_ms, sequence)))
            }
            _ => (sequence, None),
        };
        Self::of(Held { published: sequence, live: Vec::new(), collected, history, kept: None })
    }

    /// Whether a snapshot is live.
    pub(crate) fn is_any_live(&self) -> bool {
        !self.0.lock().live.is_empty()
    }

    /// Whether a snapshot is one of these.
    pub(crate) fn took(&self, snapshot: &Snapshot) -> bool {
        Arc::ptr_eq(&self.0, &snapshot.snapshots.0)
    }

    /// The numbers of live snapshots, the newest ones of many, in their order.
    pub(crate) fn live(&self) -> Vec<u64> {
        let held = self.0.lock();
        let first = held.live.len().saturating_sub(HANDED_DOWN_MAX);
        held.live[first..].iter().map(|(sequence, _)| *sequence).collect()
    }

    /// Keeps everything from a number on for readers of another replica, or from what is not collected yet; with `None` no
    /// more. What goes then goes as without.
    pub(crate) fn keep_from(&self, from: Option<u64>) {
        let mut held = self.0.lock();
        held.kept = from.map(|from| from.max(held.collected));
    }

    /// Snapshots at numbers of which everything is here: those that were live where this region comes from.
    pub(crate) fn brought(&self, numbers: impl IntoIterator<Item = u64>) -> Vec<Snapshot> {
        let mut held = self.0.lock();
        let last = held.published;
        let take = |number: u64| {
            held.add(number);
            Snapshot { sequence: number, snapshots: self.clone(), parent: None }
        };
        numbers.into_iter().filter(|number| *number <= last).map(take).collect()
    }

    /// Keeps what was current during the last `history_ms` of log time, from now on; with 0, nothing.
    pub(crate) fn set_history(&self, history_ms: u64) {
        let mut held = self.0.lock();
        match &mut held.history {
            _ if history_ms == 0 => held.history = None,
            Some(history) => history.set_length(history_ms),
            none => *none = Some(History::new(history_ms)),
        }
    }

    /// The log has come to `stamp_ms`; what follows is written at that time or later.
    pub(crate) fn advance(&self, stamp_ms: u64) {
        let mut held = self.0.lock();
        let published = held.published;
        if let Some(history) = &mut held.history {
            history.mark(stamp_ms, published);
        }
    }

    /// The oldest number at which a snapshot may be taken, and the newest.
    pub(crate) fn readable(&self) -> (u64, u64) {
        let held = self.0.lock();
        (held.collected, held.published)
    }

    /// Makes everything up to `sequence` visible, and returns the newest live snapshot. `replaces` says that older versions
    /// will be removed next: in the same step, snapshots at lower numbers are refused from now on, except where one lives.
    pub(crate) fn publish(&self, sequence: u64, replaces: bool) -> Option<u64> {
        self.0.lock().publish(sequence, replaces)
    }

    /// Publishes what the log wrote under the next numbers, from `first` to `last`. See [`Snapshots::publish`].
    pub(crate) fn publish_writes(&self, first: u64, last: u64, replaces: bool) -> Option<u64> {
        let mut held = self.0.lock();
        assert!(
            first == held.published + 1,
            "sequence number {first} is applied after {}: a write was skipped or repeated",
            held.published
        );
        held.publish(last, replaces)
    }

    pub(crate) fn published(&self) -> u64 {
        self.0.lock().published
    }

    /// Up to where a collection may go: the oldest live snapshot, or what is published, or what history keeps as of
    /// `log_time_ms`. Older snapshots are refused from here on, so that none appears while the collection runs.
    pub(crate) fn begin_collection(&self, log_time_ms: u64) -> u64 {
        let mut held = self.0.lock();
        let forgets = terrane_env::planted!("a collection forgets live snapshots");
        let oldest = if forgets { held.published } else { held.oldest(log_time_ms) };
        held.collected = held.collected.max(oldest);
        oldest
    }

    /// Up to where a collection could go as of `log_time_ms`.
    pub(crate) fn oldest(&self, log_time_ms: u64) -> u64 {
        let held = self.0.lock();
        held.oldest(log_time_ms)
    }

    pub(crate) fn take(&self) -> Snapshot {
        let mut held = self.0.lock();
        let sequence = held.published;
        if is_planted("a snapshot is counted after it is numbered") {
            drop(held);
            held = self.0.lock();
        }
        held.add(sequence);
        drop(held);
        Snapshot { sequence, snapshots: self.clone(), parent: None }
    }

    pub(crate) fn take_at(&self, sequence: u64) -> Result<Snapshot, SnapshotTooOld> {
        let mut held = self.0.lock();
        // What a live snapshot sees is not collected, so another at its number sees all of it too.
        if sequence < held.collected && held.live.binary_search_by_key(&sequence, |(at, _)| *at).is_err() {
            return Err(SnapshotTooOld { oldest: held.collected });
        }
        let sequence = sequence.min(held.published);
        held.add(sequence);
        drop(held);
        Ok(Snapshot { sequence, snapshots: self.clone(), parent: None })
    }
}

impl Retention for Snapshots {
    fn begin_drop(&self) -> Limits {
        let mut held = self.0.lock();
        if held.keeps() {
            // Nothing may go, so nothing is closed.
            return Limits { newest_snapshot: Some(held.published), published: held.published };
        }
        // From here on no snapshot below what is published is taken, except at the number of a live one.
        held.collected = held.collected.max(held.published);
        Limits { newest_snapshot: held.newest(), published: held.published }
    }
}

/// A view of a region as of a sequence number. While it lives, nothing it sees is collected.
#[derive(Debug)]
pub struct Snapshot {
    sequence: u64,
    snapshots: Snapshots,
    /// The same snapshot of the region that was split.
    parent: Option<Box<Snapshot>>,
}

impl Snapshot {
    /// The last row mutation it sees.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Another guard on the same sequence number of the same region.
    pub(crate) fn another(&self) -> Self {
        self.snapshots.0.lock().add(self.sequence);
        Self { sequence: self.sequence, snapshots: self.snapshots.clone(), parent: None }
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut held = self.snapshots.0.lock();
        held.remove(self.sequence);
        drop(held);
        // This takes the mutex of another region.
        drop(self.parent.take());
    }
}

#[cfg(test)]
mod script_tests;
