//! Between openraft and the group's state machine: decides which entries take effect, and records where the group stands.
//!
//! The state machine sees every index exactly once and in order, as an [`AppliedEntry`]. Entries without operations (a
//! leader's first entry, memberships) and skipped entries reach it without any, so that its durable point can pass them.
//!
//! After a restart the applied state is that of the purge record, and everything after it is applied again.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use openraft::storage::{ApplyResponder, EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{EntryPayload, OptionalSend};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::log::store::Store;
use crate::log::{GroupLog, Mark};
use crate::members::lineage::lineage;
use crate::metrics::Metrics;
use crate::proposals::entry::{self, Sequence};
use crate::proposals::erased::{Answers, Machine};
use crate::types::{Applied, Entry, LogId, StoredMembership, Types, term_of};
use crate::{AppliedEntry, StagedCopy};

/// In what entries are compared by, the number of the lineage is above the id of the group.
const LINEAGE_SHIFT: u32 = 40;

/// Entries handed to the state machine in one call.
const APPLY_ENTRIES_MAX: usize = 256;
/// Bytes of entries in one call; above this no entry is added.
const APPLY_BYTES_MAX: usize = 4 << 20;

/// A state is recorded at least every so many entries, so that a purge can come close to what it may reach.
const MARK_ENTRIES: u64 = 1024;
/// States recorded per group; above this every other one is dropped.
const MARKS_MAX: usize = 4096;

/// Where the group stands, shared with all readers of it.
pub(crate) struct AppliedState {
    state: Mutex<State>,
    /// The same as in `state`, for readers that must not wait. Written after the state machine has applied, index before
    /// term; so a reader of term, then index, never sees an index that is not applied.
    applied_index: AtomicU64,
    applied_term: AtomicU64,
    stamp: AtomicU64,
    time: AtomicU64,
    /// The first entry of a term was applied.
    pub(crate) term_applied: Notify,
    /// A simulated fault: what this leader has proposed when it hands over is applied late.
    stalls: AtomicBool,
    /// The newest format of entries that this process reads.
    entry_format: u8,
}

struct State {
    applied: Option<LogId>,
    membership: StoredMembership,
    sequence: Sequence,
    /// What the members' clocks had reached when the last entry that took effect was packed; 0 if that is not known.
    time: u64,
    /// States as of earlier indexes, oldest first.
    marks: VecDeque<Mark>,
    /// What was offered to openraft last as a snapshot.
    snapshot: Option<Mark>,
}

/// How long a simulated leader that hands over applies nothing. It may be out of its group by then.
const STALL: Duration = Duration::from_secs(2);
/// In this time before the handover, proposals arrive that are not applied.
const BEFORE_HANDOVER: Duration = Duration::from_millis(50);

impl AppliedState {
    /// A leader is about to hand over.
    pub(crate) async fn hands_over(&self) {
        if terrane_env::buggify!("a leader that hands over applies late") {
            self.stalls.store(true, Ordering::SeqCst);
            tokio::time::sleep(BEFORE_HANDOVER).await;
        }
    }

    async fn stall(&self) {
        if self.stalls.load(Ordering::Relaxed) && self.stalls.swap(false, Ordering::SeqCst) {
            tokio::time::sleep(STALL).await;
        }
    }

    /// `level` is the newest feature level that this process works at.
    pub(crate) fn new(purged: Option<Mark>, level: u32) -> AppliedState {
        let applied = purged.as_ref().map(|mark| mark.log_id);
        let sequence = purged.as_ref().map(|mark| mark.sequence).unwrap_or_default();
        let state = State {
            applied,
            membership: purged.as_ref().map(|mark| mark.membership.clone()).unwrap_or_default(),
            sequence,
            time: 0,
            marks: VecDeque::new(),
            snapshot: purged,
        };
        AppliedState {
            state: Mutex::new(state),
            applied_index: AtomicU64::new(applied.map_or(0, |id| id.index)),
            applied_term: AtomicU64::new(applied.as_ref().map_or(0, term_of)),
            stamp: AtomicU64::new(sequence.stamp),
            time: AtomicU64::new(0),
            term_applied: Notify::new(),
            stalls: AtomicBool::new(false),
            entry_format: entry::format_at(level),
        }
    }

    /// Term of the last applied entry.
    pub(crate) fn applied_term(&self) -> u64 {
        self.applied_term.load(Ordering::Acquire)
    }

    pub(crate) fn applied_index(&self) -> u64 {
        self.applied_index.load(Ordering::Acquire)
    }

    pub(crate) fn stamp(&self) -> u64 {
        self.stamp.load(Ordering::Acquire)
    }

    /// A time that the members' clocks had reached when the last applied entry was packed.
    pub(crate) fn packed_at(&self) -> u64 {
        self.time.load(Ordering::Acquire)
    }

    pub(crate) fn sequence(&self) -> Sequence {
        self.state.lock().sequence
    }

    /// The newest recorded state at or below `index`, including the present one.
    pub(crate) fn mark_at_most(&self, index: u64) -> Option<Mark> {
        let mut state = self.state.lock();
        state.record();
        state.marks.iter().rev().find(|mark| mark.log_id.index <= index).cloned()
    }

    /// Makes `mark` the state that the next snapshot represents.
    pub(crate) fn offer(&self, mark: Mark) {
        let mut state = self.state.lock();
        state.marks.retain(|kept| kept.log_id.index > mark.log_id.index);
        state.snapshot = Some(mark);
    }

    /// The index that was last offered to openraft to purge up to.
    pub(crate) fn offered(&self) -> Option<u64> {
        self.state.lock().snapshot.as_ref().map(|mark| mark.log_id.index)
    }

    /// The state machine is in the state of `mark`, whatever it was before.
    fn install(&self, mark: Mark) {
        let (index, term, stamp) = (mark.log_id.index, term_of(&mark.log_id), mark.sequence.stamp);
        {
            let mut state = self.state.lock();
            let applied = state.applied.map(|id| id.index);
            assert!(applied <= Some(index), "a copy as of entry {index} replaces a state as of entry {applied:?}");
            *state = State {
                applied: Some(mark.log_id),
                membership: mark.membership.clone(),
                sequence: mark.sequence,
                time: 0,
                marks: VecDeque::new(),
                snapshot: Some(mark),
            };
        }
        self.stamp.store(stamp, Ordering::Release);
        self.time.store(0, Ordering::Release);
        self.applied_index.store(index, Ordering::Release);
        if self.applied_term.swap(term, Ordering::AcqRel) != term {
            self.term_applied.notify_one();
        }
    }

    /// Decides, in log order, whether an entry takes effect.
    fn admit(&self, entry: &Entry) -> Admitted {
        let mut state = self.state.lock();
        let term = term_of(&entry.log_id);
        if let Some(applied) = &state.applied {
            assert!(
                entry.log_id.index == applied.index + 1 && term >= term_of(applied),
                "entry {} was to be applied after entry {applied}: the log has a gap or went back",
                entry.log_id
            );
        }
        let operations = match &entry.payload {
            EntryPayload::Blank => Some(Vec::new()),
            EntryPayload::Membership(membership) => {
                state.membership = StoredMembership::new(Some(entry.log_id), membership.clone());
                Some(Vec::new())
            }
            // The leader packed something else, for the level of the cluster keeps builds apart that cannot read each
            // other's entries. Applying it in any way would make the replicas differ.
            EntryPayload::Normal(packed) => match entry::unpack(&packed.0, self.entry_format) {
                Ok((header, operations)) => {
                    let accepted = state.sequence.accept(term, &header);
                    if accepted {
                        // Not the highest of all: a wrong time must not outlast the correction of the clocks.
                        state.time = header.time;
                    }
                    accepted.then_some(operations)
                }
                Err(error) => return Admitted::Damaged(error.to_string()),
            },
        };
        state.applied = Some(entry.log_id);
        if entry.log_id.index.is_multiple_of(terrane_env::limit!("entries between two marks", MARK_ENTRIES, 1..=64)) {
            state.record();
        }
        let skipped = operations.is_none();
        let applied = AppliedEntry {
            term,
            index: entry.log_id.index,
            stamp: state.sequence.stamp,
            operations: operations.unwrap_or_default(),
        };
        Admitted::Entry(applied, skipped)
    }

    /// The state machine has applied everything up to `last`.
    fn reached(&self, last: &AppliedEntry) {
        self.stamp.store(last.stamp, Ordering::Release);
        // Nothing is admitted between the last entry of a chunk and this.
        self.time.store(self.state.lock().time, Ordering::Release);
        self.applied_index.store(last.index, Ordering::Release);
        if self.applied_term.swap(last.term, Ordering::AcqRel) != last.term {
            self.term_applied.notify_one();
        }
    }
}

impl State {
    fn record(&mut self) {
        let Some(log_id) = self.applied else {
            return;
        };
        let newest = self.marks.back().or(self.snapshot.as_ref()).map(|mark| mark.log_id.index);
        if newest.is_some_and(|newest| newest >= log_id.index) {
            return;
        }
        if self.marks.len() >= terrane_env::limit!("marks of a group", MARKS_MAX, 2..=16) {
            let mut keep = false;
            self.marks.retain(|_| {
                keep = !keep;
                keep
            });
        }
        let mark = Mark { log_id, membership: self.membership.clone(), sequence: self.sequence };
        self.marks.push_back(mark);
    }
}

enum Admitted {
    /// The entry as the state machine sees it, and whether it is skipped.
    Entry(AppliedEntry, bool),
    /// It is not what the leader packed.
    Damaged(String),
}

/// openraft's view of the state machine.
#[derive(Clone)]
pub(crate) struct Adapter {
    machine: Arc<dyn Machine>,
    applied_state: Arc<AppliedState>,
    log: Arc<GroupLog>,
    store: Store,
    metrics: Arc<Metrics>,
}

/// Entries that go to the state machine together, and the responders that wait for them.
#[derive(Default)]
struct Chunk {
    entries: Vec<AppliedEntry>,
    waiting: Vec<(Option<ApplyResponder<Types>>, bool)>,
    bytes: usize,
}

impl Chunk {
    fn full(&self) -> bool {
        self.entries.len() >= terrane_env::limit!("entries applied at once", APPLY_ENTRIES_MAX, 1..=4)
            || self.bytes >= APPLY_BYTES_MAX
    }
}

impl Adapter {
    pub(crate) fn new(
        machine: Arc<dyn Machine>,
        applied_state: Arc<AppliedState>,
        log: Arc<GroupLog>,
        store: Store,
        metrics: Arc<Metrics>,
    ) -> Adapter {
        Adapter { machine, applied_state, log, store, metrics }
    }

    /// Applies the entries of a chunk. After an error, which stops the replica, those before the damaged one are applied.
    async fn apply_chunk(&self, chunk: &mut Chunk) -> Result<(), io::Error> {
        let Chunk { entries, waiting, .. } = std::mem::take(chunk);
        if entries.is_empty() {
            return Ok(());
        }
        for entry in &entries {
            // Entries of members that a recovered group has lost are not the group's.
            let of = lineage(entry.term) << LINEAGE_SHIFT | self.log.group().0;
            terrane_env::witness!("a group's entry", [of, entry.index], digest(entry));
        }
        self.applied_state.stall().await;
        let began_ns = terrane_env::time::now_ns();
        let answers = self.machine.apply(&entries).await;
        let apply_ns = terrane_env::time::now_ns().saturating_sub(began_ns);
        self.metrics.apply.observe_ns(apply_ns);
        let (answered, count) = (answers.len(), entries.len());
        let damage = self.machine.damage().filter(|_| answered < count);
        assert!(answered == count || damage.is_some(), "the state machine answered {answered} of {count} entries");
        if let Some(last) = answered.checked_sub(1) {
            self.applied_state.reached(&entries[last]);
        }
        for ((entry, answers), (responder, skipped)) in entries.iter().zip(answers).zip(waiting) {
            if let Some(responder) = responder {
                responder.send(outcome(entry, answers, skipped, apply_ns));
            }
        }
        damage.map_or(Ok(()), |what| Err(io::Error::other(what)))
    }

    /// This replica stops before an entry, and is to be replaced.
    fn damaged_at(&self, id: &LogId, what: &str) -> io::Error {
        let what = format!("entry {id} of its log is not what the leader packed: {what}");
        self.machine.note_damage(&what);
        io::Error::other(what)
    }

    fn snapshot(&self) -> Option<SnapshotOf<Types, StateAt>> {
        let mark = self.applied_state.state.lock().snapshot.clone()?;
        // Before openraft knows of it: it may purge up to this at any time from then on.
        self.log.offer(mark.clone());
        let meta = SnapshotMetaOf::<Types> { last_log_id: Some(mark.log_id), last_membership: mark.membership.clone() };
        Some(SnapshotOf::<Types, StateAt> { meta, snapshot: StateAt { mark, staged: None } })
    }
}

/// What an entry says, for comparison with the other members.
fn digest(entry: &AppliedEntry) -> u64 {
    let content = entry.operations.iter().fold(0, |crc, operation| crc32c::crc32c_append(crc, operation));
    let place = [entry.term, entry.stamp, entry.operations.len() as u64].map(u64::to_le_bytes).concat();
    u64::from(crc32c::crc32c(&place)) << 32 | u64::from(content)
}

fn outcome(entry: &AppliedEntry, answers: Answers, skipped: bool, apply_ns: u64) -> Applied {
    if skipped {
        return Applied::Skipped;
    }
    let (answered, count) = (answers.len(), entry.operations.len());
    assert_eq!(answered, count, "the state machine answered {answered} of {count} operations of entry {}", entry.index);
    Applied::Answered { answers, apply_ns }
}

/// openraft's handle to one replica.
pub(crate) type Raft = openraft::Raft<Types, Adapter>;

/// What openraft passes on as a snapshot's data.
pub(crate) struct StateAt {
    pub(crate) mark: Mark,
    /// The data, if it came from another member. Of the own state, copies are taken when they are sent.
    pub(crate) staged: Option<Box<dyn StagedCopy>>,
}

impl RaftSnapshotBuilder<Types> for Adapter {
    type SnapshotData = StateAt;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, StateAt>, io::Error> {
        self.snapshot().ok_or_else(|| io::Error::other("nothing of this group is in synced files yet"))
    }
}

impl RaftStateMachine<Types> for Adapter {
    type SnapshotData = StateAt;
    type SnapshotBuilder = Adapter;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        let state = self.applied_state.state.lock();
        Ok((state.applied, state.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + OptionalSend,
    {
        let mut chunk = Chunk::default();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            match self.applied_state.admit(&entry) {
                Admitted::Entry(mut applied, skipped) => {
                    if responder.is_none() && terrane_env::planted!("a follower loses the end of an entry") {
                        let kept = applied.operations.len().div_ceil(2);
                        applied.operations.truncate(kept);
                    }
                    chunk.bytes += applied.operations.iter().map(Bytes::len).sum::<usize>();
                    chunk.entries.push(applied);
                    chunk.waiting.push((responder, skipped));
                }
                Admitted::Damaged(what) => {
                    self.apply_chunk(&mut chunk).await?;
                    return Err(self.damaged_at(&entry.log_id, &what));
                }
            }
            if chunk.full() {
                self.apply_chunk(&mut chunk).await?;
            }
        }
        self.apply_chunk(&mut chunk).await
    }

    async fn try_create_snapshot_builder(&mut self, _force: bool) -> Option<Adapter> {
        // There is nothing to build from: openraft then keeps the log, as it must.
        self.applied_state.state.lock().snapshot.as_ref()?;
        Some(self.clone())
    }

    async fn get_snapshot_builder(&mut self) -> Adapter {
        self.clone()
    }

    async fn install_snapshot(&mut self, _: &SnapshotMetaOf<Types>, snapshot: StateAt) -> Result<(), io::Error> {
        let StateAt { mark, staged } = snapshot;
        let staged = staged.ok_or_else(|| io::Error::other("a snapshot to be installed has no data"))?;
        staged.install(mark.log_id.index).await?;
        // openraft answers for the copy's entries once this returns. It lets nothing be appended until then.
        self.store.begin_after(mark.clone()).await?;
        self.applied_state.install(mark);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Types, StateAt>>, io::Error> {
        Ok(self.snapshot())
    }
}

#[cfg(test)]
mod tests;
