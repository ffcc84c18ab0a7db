//! The log of one group in memory: its vote, what was purged, and where each entry is.
//!
//! The index has term and place of every written entry, in a few bytes each. The most recent entries have their payloads in
//! memory too: those that are not written yet, and written ones while the cache keeps them. Memory changes at once (openraft
//! reads it back), while the same change travels to disk through the writer's queue.
//!
//! Each recent entry has a unique `serial`. The writer learns an entry's place only after writing it, and by then the log may
//! have been truncated and filled again: a place is accepted only for the entry with the same serial.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use terrane_env::sync::atomic::{AtomicU64, Ordering};
use terrane_env::sync::{Mutex, is_planted};
use terrane_types::GroupId;

use super::files::Files;
use super::index::{Index, Moved};
use super::place::Place;
use super::record::{self, Mark, Record};
use crate::GroupSpec;
use crate::types::{Entry, LogId, Payload, Vote, log_id, term_of};

/// The log of one group.
pub(crate) struct GroupLog {
    spec: GroupSpec,
    files: Arc<Files>,
    state: Mutex<State>,
    /// Term of the newest vote, readable without the lock. It is raised before the vote is synced, hence before any other
    /// member can count on the vote: a leader that looks here notices at once that its own replica votes for another.
    voted_term: AtomicU64,
    /// What is wrong with an entry that was read back.
    damage: OnceLock<String>,
}

#[derive(Default)]
struct State {
    vote: Option<Vote>,
    purged: Option<Mark>,
    /// The written entries. Its end is the first entry that is not written.
    index: Index,
    /// The last entries of the log with their payloads: all unwritten ones, and written ones while they are cached.
    recent: VecDeque<CachedEntry>,
    /// Index of the first recent entry.
    recent_first: u64,
    next_serial: u64,
    /// Held entries below a gap, while records are replayed. A later truncation, which the held files reflect already,
    /// explains the gap: it removes the entries above it.
    below_gap: Option<Index>,
    /// States that were given to openraft as snapshots; it will purge up to one of them.
    offered: BTreeMap<u64, Mark>,
    /// The replica was removed.
    removed: bool,
}

struct CachedEntry {
    term: u64,
    serial: u64,
    payload: Payload,
}

impl State {
    fn last(&self) -> Option<LogId> {
        match self.last_entry_term() {
            Some(term) => Some(log_id(term, self.end() - 1)),
            None => self.purged.as_ref().map(|mark| mark.log_id),
        }
    }

    /// The index after the last entry.
    fn end(&self) -> u64 {
        if self.recent.is_empty() { self.index.end() } else { self.recent_first + self.recent.len() as u64 }
    }

    fn first(&self) -> u64 {
        if self.index.is_empty() && !self.recent.is_empty() { self.recent_first } else { self.index.first() }
    }

    fn is_empty(&self) -> bool {
        self.index.is_empty() && self.recent.is_empty()
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    fn recent(&self, index: u64) -> Option<&CachedEntry> {
        self.recent.get(usize::try_from(index.checked_sub(self.recent_first)?).ok()?)
    }

    /// Adds the entry `index`, which must follow the last one, and returns its serial.
    fn push(&mut self, index: u64, term: u64, payload: Payload) -> u64 {
        assert_eq!(index, self.end(), "the log is not contiguous: entry {index} appended at {}", self.end());
        if self.recent.is_empty() {
            self.recent_first = self.index.end();
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.recent.push_back(CachedEntry { term, serial, payload });
        serial
    }

    /// Term of the last entry; `None` if the log has none.
    fn last_entry_term(&self) -> Option<u64> {
        self.recent.back().map(|recent| recent.term).or_else(|| self.index.last_term())
    }

    fn truncate_after(&mut self, last: Option<u64>) {
        let keep = last.map_or(0, |last| last + 1).max(self.first());
        let recent = usize::try_from(keep.saturating_sub(self.recent_first)).unwrap_or(usize::MAX);
        self.recent.truncate(recent);
        self.index.truncate(keep);
    }

    fn purge(&mut self, mark: Mark) {
        let first = mark.log_id.index + 1;
        // While records are replayed, the entries may begin after the mark; then they stay where they are.
        if self.is_empty() {
            self.index.reset(first);
        } else {
            while self.recent_first < first && self.recent.pop_front().is_some() {
                self.recent_first += 1;
            }
            self.index.purge(first);
            if self.is_empty() {
                self.index.reset(first);
            }
        }
        if let Some(below) = &mut self.below_gap {
            below.purge(first);
        }
        self.offered.retain(|index, _| *index > mark.log_id.index);
        self.purged = Some(mark);
    }
}

impl State {
    /// Makes `index` the next one while records are replayed. Entries from held files give way: a segment that holds an
    /// entry also holds everything written after it, so all later entries follow in the segments.
    fn truncate_held_from(&mut self, index: u64) -> Result<(), &'static str> {
        if self.is_empty() {
            // A later purge may cover what is missing before it; `replayed` checks that at the end.
            self.index.reset(index);
        } else if index < self.end() {
            if !self.index.is_held_from(index) {
                return Err("an entry does not follow its predecessor");
            }
            if index < self.first() {
                self.index.reset(index);
            } else {
                self.index.truncate(index);
            }
            self.recent.clear();
        } else if index > self.end() {
            if self.below_gap.is_some() || !self.index.is_held_from(self.first()) {
                return Err("an entry does not follow its predecessor");
            }
            self.below_gap = Some(std::mem::take(&mut self.index));
            self.index.reset(index);
        }
        Ok(())
    }

    /// Applies a truncation while records are replayed.
    fn replay_truncation(&mut self, last: Option<u64>) {
        let keep = last.map_or(0, |last| last + 1);
        if let Some(below) = self.below_gap.take_if(|_| keep <= self.index.first()) {
            self.recent.clear();
            self.index = below;
        }
        self.truncate_after(last);
    }
}

/// Whether a vote may follow another: in an order of terms, and of voting for a leader and knowing one.
fn may_replace(before: Option<Vote>, vote: &Vote) -> bool {
    before.is_none_or(|before| before <= *vote)
}

/// Identifies the entries of one append: index and serial of the first. The writer reports their places with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) first_index: u64,
    pub(crate) first_serial: u64,
}

impl GroupLog {
    pub(crate) fn new(spec: GroupSpec, files: Arc<Files>) -> GroupLog {
        GroupLog { spec, files, state: Mutex::default(), voted_term: AtomicU64::new(0), damage: OnceLock::new() }
    }

    pub(crate) fn group(&self) -> GroupId {
        self.spec.group
    }

    pub(crate) fn spec(&self) -> &GroupSpec {
        &self.spec
    }

    pub(crate) fn vote(&self) -> Option<Vote> {
        self.state.lock().vote
    }

    pub(crate) fn voted_term(&self) -> u64 {
        self.voted_term.load(Ordering::SeqCst)
    }

    pub(crate) fn set_vote(&self, vote: Vote) {
        // Raised first: see the field.
        self.voted_term.fetch_max(vote.leader_id.term, Ordering::SeqCst);
        let before = self.state.lock().vote.replace(vote);
        assert!(may_replace(before, &vote), "the vote regressed from {before:?} to {vote}");
    }

    /// The state that represents everything that was purged.
    pub(crate) fn purged(&self) -> Option<Mark> {
        self.state.lock().purged.clone()
    }

    /// Last purged and last log id.
    pub(crate) fn ends(&self) -> (Option<LogId>, Option<LogId>) {
        let state = self.state.lock();
        (state.purged.as_ref().map(|mark| mark.log_id), state.last())
    }

    /// Index of the first entry; `None` if the log has none.
    pub(crate) fn first_index(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.is_empty()).then_some(state.first())
    }

    /// Appends entries in memory. They must follow the last one and each other.
    pub(crate) fn append(&self, entries: &[Entry]) -> Appended {
        let mut state = self.state.lock();
        if state.is_empty() {
            let first = state.next_index();
            state.index.reset(first);
        }
        let appended = Appended { first_index: state.next_index(), first_serial: state.next_serial };
        for entry in entries {
            let (index, term) = (entry.log_id.index, term_of(&entry.log_id));
            let last_term = state.last_entry_term().unwrap_or(0);
            assert!(term >= last_term, "the term regressed from {last_term} to {term} at entry {index}");
            state.push(index, term, entry.payload.clone());
        }
        appended
    }

    /// Drops the entries after `last`, or all of them.
    pub(crate) fn truncate_after(&self, last: Option<u64>) {
        let mut state = self.state.lock();
        let purged = state.purged.as_ref().map(|mark| mark.log_id.index);
        assert!(last >= purged, "a truncation after {last:?} removes entries purged up to {purged:?}");
        state.truncate_after(last);
    }

    /// Queues a record, unless the replica was removed: its removal is queued after every record that this has let pass.
    pub(crate) fn unless_removed(&self, queue: impl FnOnce()) -> io::Result<()> {
        let state = self.state.lock();
        if state.removed {
            return Err(io::Error::other("the replica was removed"));
        }
        queue();
        drop(state);
        Ok(())
    }

    /// The replica is removed: copies of its entries that are under way come to nothing. Its last tasks may still read.
    pub(crate) fn set_removed(&self) {
        self.state.lock().removed = true;
    }

    /// Records a state that openraft may purge up to.
    pub(crate) fn offer(&self, mark: Mark) {
        self.state.lock().offered.insert(mark.log_id.index, mark);
    }

    /// Drops the entries up to `id` and returns the state that represents them; `None` if that was done before.
    pub(crate) fn purge(&self, id: &LogId) -> io::Result<Option<Mark>> {
        let mut state = self.state.lock();
        if state.purged.as_ref().is_some_and(|mark| mark.log_id == *id) {
            return Ok(None);
        }
        let mark = state.offered.get(&id.index).filter(|mark| mark.log_id == *id).cloned();
        // Without that state the replica could not decide whether its next entry takes effect.
        let mark = mark.ok_or_else(|| io::Error::other(format!("purge up to {id}, which no snapshot covered")))?;
        let purged = state.purged.as_ref().map(|mark| mark.log_id.index);
        assert!(purged <= Some(id.index), "purging regressed from {purged:?} to {}", id.index);
        state.purge(mark.clone());
        Ok(Some(mark))
    }

    /// The entries of one append were written at `places`.
    pub(crate) fn placed(&self, appended: Appended, places: &[Place]) {
        let mut state = self.state.lock();
        for (at, place) in (0..).zip(places) {
            let (index, serial) = (appended.first_index + at, appended.first_serial + at);
            let is_it =
                |recent: &&CachedEntry| recent.serial == serial || is_planted("a place is taken for another entry");
            let term = state.recent(index).filter(is_it).map(|recent| recent.term);
            if let Some(term) = term.filter(|_| state.index.end() == index) {
                state.index.push(term, *place);
            }
        }
    }

    /// Drops the payload of a written entry. The cache evicts entries in the order in which they were written, so the entry
    /// is the first of those still in memory.
    pub(crate) fn evict(&self, index: u64, serial: u64) {
        let mut state = self.state.lock();
        let written = state.recent_first == index && index < state.index.end();
        if written && state.recent.front().is_some_and(|recent| recent.serial == serial) {
            state.recent.pop_front();
            state.recent_first += 1;
        }
    }

    /// Bytes of all written entries.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().index.bytes()
    }

    /// Bytes of the written entries up to `last`, approximately.
    pub(crate) fn bytes_through(&self, last: u64) -> u64 {
        self.state.lock().index.bytes_through(last)
    }

    /// See [`Index::in_segments_before`].
    pub(crate) fn in_segments_before(&self, before: u64, small: Option<u64>, bytes: u64) -> Vec<(u64, u64, Place)> {
        let state = self.state.lock();
        if state.removed { Vec::new() } else { state.index.in_segments_before(before, small, bytes) }
    }

    /// The last entry that is in a held file.
    pub(crate) fn last_held(&self) -> Option<u64> {
        self.state.lock().index.last_held()
    }

    /// Moves entries to the places they were copied to. Returns false, and changes nothing, if some of them are no longer the
    /// ones that were copied.
    pub(crate) fn relocate(&self, moved: &[Moved]) -> bool {
        let mut state = self.state.lock();
        !state.removed && state.index.relocate(moved)
    }

    /// The entries of `range` that the log has, in order. Ends early once `bytes_max` is exceeded, but never before the
    /// first.
    pub(crate) async fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let found = self.locate(range, bytes_max);
        let mut entries = Vec::with_capacity(found.len());
        let mut bytes = 0;
        for (id, source) in found {
            let payload = match source {
                Source::Memory(payload) => payload,
                Source::Disk(place) => match self.fetch_wherever(&id, place).await? {
                    Some(payload) => payload,
                    None => break,
                },
            };
            bytes += payload_bytes(&payload);
            entries.push(Entry { log_id: id, payload });
            if bytes > bytes_max {
                break;
            }
        }
        Ok(entries)
    }

    /// Where to read the entries of `range`: a consistent view, taken under one lock.
    pub(super) fn locate(&self, range: Range<u64>, bytes_max: usize) -> Vec<(LogId, Source)> {
        let state = self.state.lock();
        let mut found = Vec::new();
        let mut bytes = 0;
        for index in range.start.max(state.first())..range.end.min(state.end()) {
            let (term, source) = match state.recent(index) {
                Some(recent) => (recent.term, Source::Memory(recent.payload.clone())),
                None => {
                    let (term, place) = state.index.get(index).expect("an entry is recent or written");
                    (term, Source::Disk(place))
                }
            };
            bytes += source.bytes();
            found.push((log_id(term, index), source));
            if bytes > bytes_max {
                break;
            }
        }
        found
    }

    /// The payload of an entry that was at `place` a moment ago; `None` if the log no longer has the entry.
    async fn fetch_wherever(&self, id: &LogId, mut place: Place) -> io::Result<Option<Payload>> {
        loop {
            let error = match self.fetch(id, place).await {
                Ok(payload) => return Ok(Some(payload)),
                Err(error) => error,
            };
            // Its file may have been removed meanwhile, because the entry was purged or copied elsewhere.
            let now = self.state.lock().index.get(id.index).filter(|(term, _)| *term == term_of(id));
            match now {
                None => return Ok(None),
                Some((_, now)) if now != place => place = now,
                Some(_) => return Err(error),
            }
        }
    }

    async fn fetch(&self, id: &LogId, place: Place) -> io::Result<Payload> {
        let bytes = self.files.read(place).await?;
        match record::read(&bytes) {
            Ok((group, Record::Entry(entry), _)) if group == self.spec.group && entry.log_id == *id => {
                Ok(entry.payload)
            }
            Ok(_) => Err(self.damaged(place, "another record is where an entry was written")),
            Err(error) => Err(self.damaged(place, error.what)),
        }
    }

    fn damaged(&self, place: Place, what: &str) -> io::Error {
        let error = self.files.damaged(place, what);
        self.damage.get_or_init(|| error.to_string());
        error
    }

    /// The damage that was found when entries were read back. It stops the replica.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.get().map(String::as_str)
    }

    /// Applies a record during recovery. `Err` says why the records cannot have been written in this order.
    pub(crate) fn replay(&self, record: Record, place: Place) -> Result<Option<(u64, u64)>, &'static str> {
        let mut state = self.state.lock();
        match record {
            Record::Created(spec) if spec == self.spec => Ok(None),
            Record::Created(_) => Err("a group was created twice, with different members"),
            Record::Vote(vote) if !may_replace(state.vote, &vote) => Err("a vote that is older than the one before it"),
            Record::Vote(vote) => {
                self.voted_term.fetch_max(vote.leader_id.term, Ordering::SeqCst);
                state.vote = Some(vote);
                Ok(None)
            }
            Record::Entry(entry) => {
                let index = entry.log_id.index;
                state.truncate_held_from(index)?;
                let term = term_of(&entry.log_id);
                // A predecessor in a held file may be of a later term: held files reflect a truncation that the
                // segments have yet to replay, and until then they still hold the entries that it removed.
                if state.index.last_term_in_segments().is_some_and(|last| term < last) {
                    return Err("an entry of an earlier term than its predecessor");
                }
                let serial = state.push(index, term, crate::codec::detached(entry.payload));
                state.index.push(term, place);
                Ok(Some((index, serial)))
            }
            Record::Truncated(last) => {
                state.replay_truncation(last);
                Ok(None)
            }
            Record::Purged(mark) => {
                if state.purged.as_ref().is_none_or(|purged| purged.log_id.index <= mark.log_id.index) {
                    state.purge(mark);
                }
                Ok(None)
            }
            Record::Removed(replica) if replica == self.spec.replica => Ok(None),
            Record::Removed(_) => Err("the removal of a replica that is not the one that was created"),
        }
    }

    /// Applies an entry of a held file, before the records of the segments. The payload stays on disk.
    pub(crate) fn replay_held(&self, id: &LogId, place: Place) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if !state.is_empty() && id.index > state.end() {
            // The entries in between were purged while these were copied. If not, `replayed` finds them missing.
            state.index.reset(id.index);
        }
        state.truncate_held_from(id.index)?;
        state.index.push(term_of(id), place);
        Ok(())
    }

    /// The last entry that is in held file `number`.
    pub(crate) fn last_in(&self, number: u64) -> Option<u64> {
        self.state.lock().index.last_in(number)
    }

    /// All records are replayed: the entries must begin right after the purged ones.
    pub(crate) fn replayed(&self) -> Result<(), &'static str> {
        let state = self.state.lock();
        let expected = state.purged.as_ref().map_or(0, |mark| mark.log_id.index + 1);
        let whole = state.below_gap.as_ref().is_none_or(Index::is_empty);
        if state.is_empty() || (whole && state.first() == expected) {
            Ok(())
        } else {
            Err("entries between the purged part and the rest are missing")
        }
    }
}

/// Where the payload of an entry is.
pub(super) enum Source {
    Memory(Payload),
    Disk(Place),
}

impl Source {
    fn bytes(&self) -> usize {
        match self {
            Source::Memory(payload) => payload_bytes(payload),
            Source::Disk(place) => usize::try_from(place.length).unwrap_or(usize::MAX),
        }
    }
}

/// The memory that a payload takes, approximately.
pub(crate) fn payload_bytes(payload: &Payload) -> usize {
    match payload {
        openraft::EntryPayload::Normal(packed) => packed.0.len() + SLOT_BYTES,
        _ => SLOT_BYTES,
    }
}

/// The memory that a recent entry takes in addition to its bytes, approximately.
const SLOT_BYTES: usize = 96;

#[cfg(test)]
mod tests;
