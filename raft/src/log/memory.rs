//! The log of one group as it stands in memory: its vote, what was purged, and where each entry is.
//!
//! Every entry of the log has a slot with its term and place; recent ones have their payload too. Slots change at once
//! (that is what openraft reads back), while the same change travels to disk through the writer's queue.
//!
//! A slot's `serial` is never used twice. The writer learns an entry's place only after it was written, and by then the
//! index may have been truncated and filled again: a place is taken only by the slot whose serial it carries.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use terrane_types::GroupId;

use super::files::{Files, Place};
use super::record::{self, Mark, Record};
use crate::GroupSpec;
use crate::types::{Entry, LogId, Payload, Vote, log_id, term_of};

/// The log of one group.
pub(crate) struct GroupLog {
    spec: GroupSpec,
    files: Arc<Files>,
    state: Mutex<State>,
    /// Term of the newest vote, readable without the lock. It is raised before the vote is synced, hence before anybody
    /// can count on it: a leader that looks here notices at once when its own replica votes for another.
    voted_term: AtomicU64,
}

#[derive(Default)]
struct State {
    vote: Option<Vote>,
    purged: Option<Mark>,
    /// Index of the first slot.
    first: u64,
    slots: VecDeque<Slot>,
    next_serial: u64,
    /// States that openraft was told about in snapshots, one of which it will purge up to.
    offered: BTreeMap<u64, Mark>,
}

struct Slot {
    term: u64,
    serial: u64,
    payload: Option<Payload>,
    /// `None` until it is written; the payload is there as long.
    place: Option<Place>,
}

impl State {
    fn last(&self) -> Option<LogId> {
        match self.slots.back() {
            Some(slot) => Some(log_id(slot.term, self.first + self.slots.len() as u64 - 1)),
            None => self.purged.as_ref().map(|mark| mark.log_id),
        }
    }

    fn next_index(&self) -> u64 {
        self.last().map_or(0, |id| id.index + 1)
    }

    fn slot_mut(&mut self, index: u64, serial: u64) -> Option<&mut Slot> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(at).filter(|slot| slot.serial == serial)
    }

    fn push(&mut self, term: u64, payload: Option<Payload>, place: Option<Place>) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.slots.push_back(Slot { term, serial, payload, place });
        serial
    }

    fn truncate_after(&mut self, last: Option<u64>) {
        let keep = last.map_or(0, |last| last + 1).saturating_sub(self.first);
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        self.slots.truncate(keep);
    }

    fn purge(&mut self, mark: Mark) {
        let gone = (mark.log_id.index + 1).saturating_sub(self.first);
        let gone = usize::try_from(gone).unwrap_or(usize::MAX).min(self.slots.len());
        self.slots.drain(..gone);
        // While records are replayed the slots may begin beyond the mark; then they stay where they are.
        self.first = if self.slots.is_empty() { mark.log_id.index + 1 } else { self.first + gone as u64 };
        self.offered.retain(|index, _| *index > mark.log_id.index);
        self.purged = Some(mark);
    }
}

/// What an append put into memory: index and serial of the first entry, for the writer to report places by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) first_index: u64,
    pub(crate) first_serial: u64,
}

impl GroupLog {
    pub(crate) fn new(spec: GroupSpec, files: Arc<Files>) -> GroupLog {
        GroupLog { spec, files, state: Mutex::default(), voted_term: AtomicU64::new(0) }
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
        self.state.lock().vote = Some(vote);
    }

    /// The state that stands for everything that was purged.
    pub(crate) fn purged(&self) -> Option<Mark> {
        self.state.lock().purged.clone()
    }

    /// Last purged and last log id.
    pub(crate) fn ends(&self) -> (Option<LogId>, Option<LogId>) {
        let state = self.state.lock();
        (state.purged.as_ref().map(|mark| mark.log_id), state.last())
    }

    /// Index of the first entry that is still there, if any is.
    pub(crate) fn first_index(&self) -> Option<u64> {
        let state = self.state.lock();
        (!state.slots.is_empty()).then_some(state.first)
    }

    /// Puts entries into memory.
    pub(crate) fn append(&self, entries: &[Entry]) -> io::Result<Appended> {
        let mut state = self.state.lock();
        if state.slots.is_empty() {
            state.first = state.next_index();
        }
        let appended = Appended { first_index: state.next_index(), first_serial: state.next_serial };
        for entry in entries {
            if entry.log_id.index != state.next_index() {
                return Err(io::Error::other(format!("entry {} does not follow the log", entry.log_id)));
            }
            state.push(term_of(&entry.log_id), Some(entry.payload.clone()), None);
        }
        Ok(appended)
    }

    pub(crate) fn truncate_after(&self, last: Option<u64>) {
        self.state.lock().truncate_after(last);
    }

    /// Remembers a state that openraft may purge up to.
    pub(crate) fn offer(&self, mark: Mark) {
        self.state.lock().offered.insert(mark.log_id.index, mark);
    }

    /// Forgets entries up to `id` and answers the state that stands for them.
    pub(crate) fn purge(&self, id: &LogId) -> io::Result<Mark> {
        let mut state = self.state.lock();
        let mark = state.offered.get(&id.index).filter(|mark| mark.log_id == *id).cloned();
        // Anything else would leave a replica that cannot tell whether its next entry takes effect.
        let mark = mark.ok_or_else(|| io::Error::other(format!("purge up to {id}, which no snapshot covered")))?;
        state.purge(mark.clone());
        Ok(mark)
    }

    /// Entries that one call appended were written at `places`.
    pub(crate) fn placed(&self, appended: Appended, places: &[Place]) {
        let mut state = self.state.lock();
        for (at, place) in (0..).zip(places) {
            if let Some(slot) = state.slot_mut(appended.first_index + at, appended.first_serial + at) {
                slot.place = Some(*place);
            }
        }
    }

    /// Drops the payload of an entry that can be read back.
    pub(crate) fn evict(&self, index: u64, serial: u64) {
        if let Some(slot) = self.state.lock().slot_mut(index, serial).filter(|slot| slot.place.is_some()) {
            slot.payload = None;
        }
    }

    /// Entries of `range` that the log holds, in order, ending early once `bytes_max` are exceeded (never before the
    /// first).
    pub(crate) async fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<Entry>> {
        let found = self.locate(range, bytes_max);
        let mut entries = Vec::with_capacity(found.len());
        let mut bytes = 0;
        for (id, source) in found {
            let payload = match source {
                Source::Memory(payload) => payload,
                Source::Disk(place) => self.fetch(&id, place).await?,
            };
            bytes += payload_bytes(&payload);
            entries.push(Entry { log_id: id, payload });
            if bytes > bytes_max {
                break;
            }
        }
        Ok(entries)
    }

    /// What to read for `range`, taken under one lock so that it is one moment's view of the log.
    fn locate(&self, range: Range<u64>, bytes_max: usize) -> Vec<(LogId, Source)> {
        let state = self.state.lock();
        let end = range.end.min(state.first + state.slots.len() as u64);
        let mut found = Vec::new();
        let mut bytes = 0;
        for index in range.start.max(state.first)..end {
            let at = usize::try_from(index - state.first).expect("the index is below the end of the slots");
            let slot = &state.slots[at];
            let source = match (&slot.payload, slot.place) {
                (Some(payload), _) => Source::Memory(payload.clone()),
                (None, Some(place)) => Source::Disk(place),
                (None, None) => unreachable!("a payload is evicted only once its place is known"),
            };
            bytes += source.bytes();
            found.push((log_id(slot.term, index), source));
            if bytes > bytes_max {
                break;
            }
        }
        found
    }

    async fn fetch(&self, id: &LogId, place: Place) -> io::Result<Payload> {
        let bytes = self.files.read(place).await?;
        match record::read(&bytes) {
            Ok((group, Record::Entry(entry), _)) if group == self.spec.group && entry.log_id == *id => {
                Ok(entry.payload)
            }
            Ok(_) => Err(self.files.damaged(place, "another record stands where an entry was written")),
            Err(error) => Err(self.files.damaged(place, error.what)),
        }
    }

    /// Takes over a record while the log is recovered; `Err` says why the records cannot have been written in this order.
    pub(crate) fn replay(&self, record: Record, place: Place) -> Result<Option<(u64, u64)>, &'static str> {
        let mut state = self.state.lock();
        match record {
            Record::Created(spec) if spec == self.spec => Ok(None),
            Record::Created(_) => Err("a group was made twice, with different members"),
            Record::Vote(vote) => {
                self.voted_term.fetch_max(vote.leader_id.term, Ordering::SeqCst);
                state.vote = Some(vote);
                Ok(None)
            }
            Record::Entry(entry) => {
                let index = entry.log_id.index;
                if state.slots.is_empty() {
                    // What is missing before it may be covered by a purge further on; `replayed` looks at the end.
                    state.first = index;
                } else if index != state.first + state.slots.len() as u64 {
                    return Err("an entry does not follow its predecessor");
                }
                let payload = crate::codec::detached(entry.payload);
                let serial = state.push(entry.log_id.leader_id.term, Some(payload), Some(place));
                Ok(Some((index, serial)))
            }
            Record::Truncated(last) => {
                state.truncate_after(last);
                Ok(None)
            }
            Record::Purged(mark) => {
                if state.purged.as_ref().is_none_or(|purged| purged.log_id.index <= mark.log_id.index) {
                    state.purge(mark);
                }
                Ok(None)
            }
        }
    }

    /// All records were replayed: the entries must go on where the purge left off.
    pub(crate) fn replayed(&self) -> Result<(), &'static str> {
        let state = self.state.lock();
        let expected = state.purged.as_ref().map_or(0, |mark| mark.log_id.index + 1);
        if state.slots.is_empty() || state.first == expected {
            Ok(())
        } else {
            Err("entries between the purged part and the rest are missing")
        }
    }
}

enum Source {
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

/// About how much memory a payload takes.
pub(crate) fn payload_bytes(payload: &Payload) -> usize {
    match payload {
        openraft::EntryPayload::Normal(packed) => packed.0.len() + SLOT_BYTES,
        _ => SLOT_BYTES,
    }
}

/// About what an entry takes beside its bytes.
const SLOT_BYTES: usize = 64;
