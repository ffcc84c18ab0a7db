//! The log of one group as it stands in memory: its vote, what was purged, and where each entry is.
//!
//! The index knows term and place of every entry that is written, in a few bytes each. The last entries have their payloads
//! in memory too: those that are not written yet, and written ones as long as the cache keeps them. Both change at once (that
//! is what openraft reads back), while the same change travels to disk through the writer's queue.
//!
//! The `serial` of a recent entry is never used twice. The writer learns an entry's place only after it was written, and by
//! then the index may have been truncated and filled again: a place is taken only for the entry whose serial it carries.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
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
    /// Term of the newest vote, readable without the lock. It is raised before the vote is synced, hence before anybody
    /// can count on it: a leader that looks here notices at once when its own replica votes for another.
    voted_term: AtomicU64,
}

#[derive(Default)]
struct State {
    vote: Option<Vote>,
    purged: Option<Mark>,
    /// The entries that are written, and where the first one is that is not.
    index: Index,
    /// The last entries of the log, with their payloads: all that are not written, and written ones while they are cached.
    recent: VecDeque<Recent>,
    /// Index of the first recent entry.
    recent_first: u64,
    next_serial: u64,
    /// Held entries below a gap, while records are replayed. A truncation further on, which held files have seen already,
    /// explains the gap: it takes away what is above.
    aside: Option<Index>,
    /// States that openraft was told about in snapshots, one of which it will purge up to.
    offered: BTreeMap<u64, Mark>,
}

struct Recent {
    term: u64,
    serial: u64,
    payload: Payload,
}

impl State {
    fn last(&self) -> Option<LogId> {
        let term = self.recent.back().map(|recent| recent.term).or_else(|| self.index.last_term());
        match term {
            Some(term) => Some(log_id(term, self.end() - 1)),
            None => self.purged.as_ref().map(|mark| mark.log_id),
        }
    }

    /// The index behind the last entry.
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

    fn recent(&self, index: u64) -> Option<&Recent> {
        self.recent.get(usize::try_from(index.checked_sub(self.recent_first)?).ok()?)
    }

    /// Adds an entry behind the last one.
    fn push(&mut self, term: u64, payload: Payload) -> u64 {
        if self.recent.is_empty() {
            self.recent_first = self.index.end();
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.recent.push_back(Recent { term, serial, payload });
        serial
    }

    fn truncate_after(&mut self, last: Option<u64>) {
        let keep = last.map_or(0, |last| last + 1).max(self.first());
        let recent = usize::try_from(keep.saturating_sub(self.recent_first)).unwrap_or(usize::MAX);
        self.recent.truncate(recent);
        self.index.truncate(keep);
    }

    fn purge(&mut self, mark: Mark) {
        let first = mark.log_id.index + 1;
        // While records are replayed the entries may begin beyond the mark; then they stay where they are.
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
        if let Some(below) = &mut self.aside {
            below.purge(first);
        }
        self.offered.retain(|index, _| *index > mark.log_id.index);
        self.purged = Some(mark);
    }
}

impl State {
    /// Makes `index` the next one while records are replayed. What is there already from held files gives way: an entry is
    /// followed by all that were written after it, so everything behind it comes again.
    fn make_way_for(&mut self, index: u64) -> Result<(), &'static str> {
        if self.is_empty() {
            // What is missing before it may be covered by a purge further on; `replayed` looks at the end.
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
            if self.aside.is_some() || !self.index.is_held_from(self.first()) {
                return Err("an entry does not follow its predecessor");
            }
            self.aside = Some(std::mem::take(&mut self.index));
            self.index.reset(index);
        }
        Ok(())
    }

    /// Takes over a truncation while records are replayed.
    fn replay_truncation(&mut self, last: Option<u64>) {
        let keep = last.map_or(0, |last| last + 1);
        if let Some(below) = self.aside.take_if(|_| keep <= self.index.first()) {
            self.recent.clear();
            self.index = below;
        }
        self.truncate_after(last);
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
        (!state.is_empty()).then_some(state.first())
    }

    /// Puts entries into memory.
    pub(crate) fn append(&self, entries: &[Entry]) -> io::Result<Appended> {
        let mut state = self.state.lock();
        if state.is_empty() {
            let first = state.next_index();
            state.index.reset(first);
        }
        let appended = Appended { first_index: state.next_index(), first_serial: state.next_serial };
        for entry in entries {
            if entry.log_id.index != state.end() {
                return Err(io::Error::other(format!("entry {} does not follow the log", entry.log_id)));
            }
            state.push(term_of(&entry.log_id), entry.payload.clone());
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
            let (index, serial) = (appended.first_index + at, appended.first_serial + at);
            let term = state.recent(index).filter(|recent| recent.serial == serial).map(|recent| recent.term);
            if let Some(term) = term.filter(|_| state.index.end() == index) {
                state.index.push(term, *place);
            }
        }
    }

    /// Drops the payload of an entry that can be read back. The cache names entries in the order in which they were written,
    /// so of those that are still there it is the first one.
    pub(crate) fn evict(&self, index: u64, serial: u64) {
        let mut state = self.state.lock();
        let written = state.recent_first == index && index < state.index.end();
        if written && state.recent.front().is_some_and(|recent| recent.serial == serial) {
            state.recent.pop_front();
            state.recent_first += 1;
        }
    }

    /// Bytes of all entries that are written.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().index.bytes()
    }

    /// About how many of these bytes are of entries up to `last`.
    pub(crate) fn bytes_through(&self, last: u64) -> u64 {
        self.state.lock().index.bytes_through(last)
    }

    /// See [`Index::in_the_way`].
    pub(crate) fn in_the_way(&self, before: u64, small: Option<u64>, bytes: u64) -> Vec<(u64, u64, Place)> {
        self.state.lock().index.in_the_way(before, small, bytes)
    }

    /// The last entry that is in a held file.
    pub(crate) fn last_held(&self) -> Option<u64> {
        self.state.lock().index.last_held()
    }

    /// Entries were copied to other places. False, and nothing is changed, when some of them are no longer what was copied.
    pub(crate) fn relocate(&self, moved: &[Moved]) -> bool {
        self.state.lock().index.relocate(moved)
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

    /// What to read for `range`, taken under one lock so that it is one moment's view of the log.
    fn locate(&self, range: Range<u64>, bytes_max: usize) -> Vec<(LogId, Source)> {
        let state = self.state.lock();
        let mut found = Vec::new();
        let mut bytes = 0;
        for index in range.start.max(state.first())..range.end.min(state.end()) {
            let (term, source) = match state.recent(index) {
                Some(recent) => (recent.term, Source::Memory(recent.payload.clone())),
                None => {
                    let (term, place) = state.index.get(index).expect("what is not recent is written");
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

    /// The payload of an entry that was at `place` a moment ago; `None` when the log no longer has it.
    async fn fetch_wherever(&self, id: &LogId, mut place: Place) -> io::Result<Option<Payload>> {
        loop {
            let error = match self.fetch(id, place).await {
                Ok(payload) => return Ok(Some(payload)),
                Err(error) => error,
            };
            // Its file may have been removed meanwhile, with what nobody needs or what was copied elsewhere.
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
                state.make_way_for(index)?;
                let term = term_of(&entry.log_id);
                let serial = state.push(term, crate::codec::detached(entry.payload));
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
        }
    }

    /// Takes over an entry of a held file, before the records of the segments. Their payloads stay on disk.
    pub(crate) fn replay_held(&self, id: &LogId, place: Place) -> Result<(), &'static str> {
        let mut state = self.state.lock();
        if !state.is_empty() && id.index > state.end() {
            // A file of entries that were purged while they were copied. If they were not, `replayed` finds them missing.
            state.index.reset(id.index);
        }
        state.make_way_for(id.index)?;
        state.index.push(term_of(id), place);
        Ok(())
    }

    /// The last entry that is in held file `number`.
    pub(crate) fn last_in(&self, number: u64) -> Option<u64> {
        self.state.lock().index.last_in(number)
    }

    /// All records were replayed: the entries must go on where the purge left off.
    pub(crate) fn replayed(&self) -> Result<(), &'static str> {
        let state = self.state.lock();
        let expected = state.purged.as_ref().map_or(0, |mark| mark.log_id.index + 1);
        let whole = state.aside.as_ref().is_none_or(Index::is_empty);
        if state.is_empty() || (whole && state.first() == expected) {
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

/// About what a recent entry takes beside its bytes.
const SLOT_BYTES: usize = 96;
