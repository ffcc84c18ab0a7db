//! The work of a proposer: which proposals wait, are put aside, are in flight or came back, and what may be sent when.
//!
//! All decisions are made here, without tasks, channels or clocks: the time is passed in. `proposer.rs` waits, sends and
//! reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::proposals::entry::{Header, Packer, Sequence};
use crate::proposals::erased::Machine;
use crate::proposals::submission::Pending;
use crate::{BoxFuture, Packing, Prepared, ProposeError, Timing};

/// Bytes in one entry; a larger operation gets an entry to itself.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Operations in one entry.
const ENTRY_OPERATIONS_MAX: usize = 4096;
/// Entries in flight. A second one is sent only if it is worth an entry: otherwise waiting makes the next one fuller, which
/// is what throughput comes from.
pub(super) const IN_FLIGHT_MAX: usize = 2;
const SECOND_ENTRY_OPERATIONS_MIN: usize = 64;
const SECOND_ENTRY_BYTES_MIN: usize = 64 << 10;

/// Proposals taken from the queue ahead of being packed.
const WAITING_PROPOSALS_MAX: usize = 2 * ENTRY_OPERATIONS_MAX;

/// Proposals put aside at once; more are answered `Busy`.
const ASIDE_PROPOSALS_MAX: usize = 1024;
/// How long one is put aside...
const ASIDE_TIME: Duration = Duration::from_millis(1);
/// ...and how often, before it is answered `Busy`.
const ASIDE_TIMES_MAX: u32 = 4;

/// The pause before a leader without a quorum's answer is tried again...
const LEASE_RETRY: Duration = Duration::from_millis(5);
/// ...and the time after which it is given up.
const LEASE_WAIT_MAX: Duration = Duration::from_millis(1_500);
/// How long proposals are kept after a handover, to be redirected to the successor by name.
const SUCCESSOR_WAIT_MAX: Duration = Duration::from_millis(300);
/// If entries in flight do not land within this time, no quorum accepts them: the proposals that wait are redirected.
const STALLED_MAX: Duration = Duration::from_secs(3);

/// How an entry in flight ended.
pub(super) enum EntryOutcome {
    /// It took effect, and all its proposals are answered.
    Applied,
    /// All its proposals are answered, but it is unknown whether it took effect.
    Lost,
    /// It had no effect; its proposals are to be packed again. Refused: openraft did not take it at this moment.
    Back { ordinal: u64, proposals: Vec<Pending>, refused: bool },
}

/// What the header of the next entry is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderInputs {
    /// The position of the applied entries.
    pub(super) sequence: Sequence,
    /// The leader's clock as far as the members' clocks confirm it.
    pub(super) time: u64,
    /// A time that the members' clocks have certainly reached.
    pub(super) floor: u64,
    /// The index up to which the log is not kept for members.
    pub(super) released: u64,
    /// The format that the builds of all members read.
    pub(super) format: u8,
}

/// An entry to be sent.
pub(super) struct PackedEntry {
    pub(super) ordinal: u64,
    pub(super) bytes: Bytes,
    /// What was packed into it.
    pub(super) proposals: Vec<Pending>,
}

/// When the proposer has to look again though nothing happened.
pub(super) struct Timers {
    /// A proposal that was put aside is due.
    pub(super) aside: Option<Instant>,
    /// A leader that is not sure of its leadership may be by now.
    pub(super) retry: Option<Instant>,
    /// Nothing has landed for too long: see [`Backlog::give_up_waiting`].
    pub(super) stalled: Option<Instant>,
}

/// The work of a proposer.
pub(super) struct Backlog {
    /// Bytes of everything queued, waiting and put aside; shared with the queue.
    queued_bytes: Arc<AtomicUsize>,
    waiting: VecDeque<Pending>,
    waiting_bytes: usize,
    /// Put aside, and until when, ordered by that. Counted among the queued bytes.
    aside: VecDeque<(Instant, Pending)>,
    in_flight: usize,
    /// When an entry was last sent or landed.
    moved_at: Instant,
    /// Came back and wait until nothing is in flight.
    back: Vec<(u64, Vec<Pending>)>,
    /// The fate of an entry is unknown: nothing is packed on the assumption that it took effect.
    lost: bool,
    /// Nothing is packed until nothing is in flight.
    until_landed: bool,
    /// What the proposal at the front waits for. Dropped together with the proposal.
    pub(super) reading: Option<BoxFuture<'static, ()>>,
    /// An entry is wanted even without operations.
    pub(super) hint: bool,
    /// The term in which this replica leads, as far as is known here. A stale view is harmless: the entry says in which term
    /// it was packed.
    leads: Option<u64>,
    next_ordinal: u64,
    /// Proposals in the entry sent last.
    last_proposals: usize,
    last_stamp: u64,
    /// Since when proposals wait for this leader to become sure of its leadership.
    unsure_since: Option<Instant>,
    /// A refused entry is proposed again no earlier than this.
    retry_at: Option<Instant>,
}

impl Backlog {
    pub(super) fn new(queued_bytes: Arc<AtomicUsize>, now: Instant) -> Backlog {
        Backlog {
            queued_bytes,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            aside: VecDeque::new(),
            in_flight: 0,
            moved_at: now,
            back: Vec::new(),
            lost: false,
            until_landed: false,
            reading: None,
            hint: false,
            leads: None,
            next_ordinal: 1,
            last_proposals: 0,
            last_stamp: 0,
            unsure_since: None,
            retry_at: None,
        }
    }

    /// The number of proposals that may be taken from the queue.
    pub(super) fn capacity(&self) -> usize {
        WAITING_PROPOSALS_MAX.saturating_sub(self.waiting.len())
    }

    /// The term in which this replica leads.
    pub(super) fn leads(&self) -> Option<u64> {
        self.leads
    }

    /// Takes proposals from the queue.
    pub(super) fn take(&mut self, taken: impl IntoIterator<Item = Pending>) {
        for pending in taken {
            self.waiting_bytes += pending.bytes;
            self.waiting.push_back(pending);
        }
    }

    pub(super) fn timers(&self, now: Instant) -> Timers {
        let unsure = self.unsure_since.is_some() && self.has_work();
        // A retry time that has passed while something else held the entry back is no reason to look at once: looking
        // without a pause would keep that something from ever being done.
        let retry = self.retry_at.filter(|at| *at > now).unwrap_or(now + LEASE_RETRY);
        let stalled = self.in_flight > 0 && !self.waiting.is_empty();
        Timers {
            aside: self.aside.front().map(|(until, _)| *until),
            retry: unsure.then_some(retry),
            stalled: stalled.then_some(self.moved_at + STALLED_MAX),
        }
    }

    /// Takes the proposal at the front of the queue out of the way of the others.
    fn defer(&mut self, now: Instant) {
        let mut pending = self.next_waiting();
        pending.times_aside += 1;
        if pending.times_aside > ASIDE_TIMES_MAX || self.aside.len() >= ASIDE_PROPOSALS_MAX {
            return pending.fail(ProposeError::Busy);
        }
        self.queued_bytes.fetch_add(pending.bytes, Ordering::Relaxed);
        self.aside.push_back((now + ASIDE_TIME, pending));
    }

    /// Moves what was put aside until now to the front of the queue.
    pub(super) fn requeue_deferred(&mut self, now: Instant) {
        let due = self.aside.iter().take_while(|(until, _)| *until <= now).count();
        for (_, pending) in self.aside.drain(..due).rev() {
            self.waiting_bytes += pending.bytes;
            self.waiting.push_front(pending);
        }
    }

    /// Whether an entry sent now would be smaller than the last one, so that ready tasks should run first. When an entry
    /// lands, the callers it answered propose again one after another: sent at once, the first of them would get an entry to
    /// itself, and all others would wait for it to land.
    pub(super) fn should_gather(&self) -> bool {
        let idle = self.leads.is_none() || self.in_flight > 0 || self.waiting.is_empty();
        !idle && self.waiting.len() < self.last_proposals
    }

    fn has_work(&self) -> bool {
        self.hint || !self.waiting.is_empty() || !self.back.is_empty()
    }

    /// Records how an entry ended.
    pub(super) fn landed(&mut self, landed: EntryOutcome, now: Instant) {
        assert!(self.in_flight > 0, "an entry landed although none was in flight");
        self.in_flight -= 1;
        self.moved_at = now;
        match landed {
            EntryOutcome::Applied => self.unsure_since = None,
            EntryOutcome::Lost => self.lost = true,
            EntryOutcome::Back { ordinal, proposals, refused } => {
                self.back.push((ordinal, proposals));
                // A new leader refuses until a quorum has answered it. One that hands over or was deposed will be known as
                // such in a moment, and then turns the proposals away.
                if refused {
                    self.mark_uncertain(now);
                    self.retry_at = Some(now + LEASE_RETRY);
                }
            }
        }
    }

    fn mark_uncertain(&mut self, now: Instant) {
        self.unsure_since.get_or_insert(now);
    }

    /// Records in which term this replica leads. True if it led and no longer does so in that term.
    pub(super) fn set_leads(&mut self, leads: Option<u64>) -> bool {
        if leads == self.leads {
            return false;
        }
        self.unsure_since = None;
        std::mem::replace(&mut self.leads, leads).is_some()
    }

    /// Begins a turn: once nothing is in flight, moves what came back to the front of the queue, in its old order. True if
    /// the state machine has to drop its assumptions about entries that had no effect, or may have had none.
    pub(super) fn requeue_returned(&mut self) -> bool {
        if self.in_flight > 0 {
            return false;
        }
        self.until_landed = false;
        if !self.lost && self.back.is_empty() {
            return false;
        }
        self.lost = false;
        let mut back = std::mem::take(&mut self.back);
        back.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        for pending in back.into_iter().flat_map(|(_, proposals)| proposals.into_iter().rev()) {
            self.waiting_bytes += pending.bytes;
            self.queued_bytes.fetch_add(pending.bytes, Ordering::Relaxed);
            self.waiting.push_front(pending);
        }
        true
    }

    /// A leader that cannot pack yet: its first entry is not applied, or it knows too few clocks to set a stamp.
    pub(super) fn wait_to_be_ready(&mut self, now: Instant) {
        if self.has_work() {
            self.mark_uncertain(now);
            self.expire_uncertain(now);
        }
    }

    /// Whether an entry may be packed and sent now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        let nothing = !self.hint && self.waiting.is_empty();
        if nothing || !self.back.is_empty() || self.lost || self.until_landed || self.reading.is_some() {
            return false;
        }
        if self.retry_at.is_some_and(|at| now < at) {
            return false;
        }
        match self.in_flight {
            0 => true,
            IN_FLIGHT_MAX.. => false,
            _ => {
                let many = terrane_env::limit!("operations worth a second entry", SECOND_ENTRY_OPERATIONS_MIN, 1..=4);
                self.waiting.len() >= many || self.waiting_bytes >= SECOND_ENTRY_BYTES_MIN
            }
        }
    }

    /// Packs the next entry of `term`, which counts as in flight from now on. `None` if there is nothing to send: every
    /// proposal was answered when it was prepared, or the first one waits.
    pub(super) fn pack(
        &mut self,
        term: u64,
        inputs: &HeaderInputs,
        machine: &dyn Machine,
        now: Instant,
    ) -> Option<PackedEntry> {
        let header = self.next_header(term, inputs);
        let (bytes, proposals) = self.pack_proposals(&header, inputs.format, machine, now);
        let hint = std::mem::take(&mut self.hint);
        if proposals.is_empty() && !hint {
            return None;
        }
        self.next_ordinal = header.ordinal + 1;
        self.last_proposals = proposals.len();
        self.retry_at = None;
        self.in_flight += 1;
        self.moved_at = now;
        Some(PackedEntry { ordinal: header.ordinal, bytes, proposals })
    }

    fn next_header(&mut self, term: u64, inputs: &HeaderInputs) -> Header {
        let last = inputs.sequence.last_ordinal(term);
        if self.in_flight == 0 {
            // All that was proposed in this term has landed, so only what is applied counts.
            self.next_ordinal = last + 1;
        }
        let ordinal = self.next_ordinal;
        assert!(ordinal > last, "entry {ordinal} of term {term} was to be packed after entry {last} had been applied");
        // Never below an earlier one, whatever the clock shows.
        let forgets = terrane_env::planted!("stamps go back after a change of leader");
        let before = if forgets { 0 } else { self.last_stamp.max(inputs.sequence.stamp) };
        self.last_stamp = before.max(inputs.time);
        Header { term, ordinal, stamp: self.last_stamp, time: inputs.floor, released: inputs.released }
    }

    fn pack_proposals(
        &mut self,
        header: &Header,
        format: u8,
        machine: &dyn Machine,
        now: Instant,
    ) -> (Bytes, Vec<Pending>) {
        // Entries land in their order, and nothing is packed after one that did not take effect until all have landed.
        let landed = (header.ordinal - 1).saturating_sub(self.in_flight as u64);
        let capacity = self.waiting_bytes.min(ENTRY_BYTES_MAX) + 4 * self.waiting.len();
        let mut packer = Packer::new(*header, capacity, format);
        let mut proposals = Vec::with_capacity(self.waiting.len().min(ENTRY_OPERATIONS_MAX));
        while let Some(next) = self.waiting.front() {
            let operations_max = terrane_env::limit!("operations in an entry", ENTRY_OPERATIONS_MAX, 1..=16);
            let is_cut = terrane_env::buggify!("an entry ends early");
            let full = is_cut || packer.len() + next.bytes > ENTRY_BYTES_MAX || packer.operations() >= operations_max;
            if full && packer.operations() > 0 {
                break;
            }
            let alone = self.in_flight == 0 && packer.operations() == 0;
            let packing = Packing { term: header.term, ordinal: header.ordinal, stamp: header.stamp, landed, alone };
            let prepared = packer.push(|entry| {
                let prepared = machine.prepare(&packing, next.submission.proposal(), entry);
                (matches!(prepared, Prepared::Packed | Prepared::PackedAlone), prepared)
            });
            match prepared {
                Prepared::Packed => proposals.push(self.next_waiting()),
                Prepared::PackedAlone => {
                    proposals.push(self.next_waiting());
                    self.until_landed = true;
                    break;
                }
                Prepared::Refused(mut answer) => self.next_waiting().answer(&mut answer, Timing::default()),
                Prepared::WhenLanded if alone => {
                    // Nothing will ever land, so preparing it again would never end.
                    tracing::error!("a proposal waits for what is in flight, and nothing is");
                    self.next_waiting().fail(ProposeError::Busy);
                }
                Prepared::WhenLanded => {
                    self.until_landed = true;
                    break;
                }
                Prepared::NeedsDisk(reading) => {
                    self.reading = Some(reading);
                    break;
                }
                Prepared::Later => self.defer(now),
            }
        }
        (packer.finish(), proposals)
    }

    fn next_waiting(&mut self) -> Pending {
        let pending = self.waiting.pop_front().expect("the caller checked that a proposal waits");
        self.waiting_bytes -= pending.bytes;
        self.queued_bytes.fetch_sub(pending.bytes, Ordering::Relaxed);
        pending
    }

    /// This replica does not lead. True if what waits has to be redirected now; while a successor is awaited, proposals are
    /// kept until its name is known.
    pub(super) fn redirect_waiting(&mut self, awaits_successor: bool, now: Instant) -> bool {
        self.hint = false;
        if !self.waiting.is_empty() && awaits_successor {
            self.mark_uncertain(now);
            if self.unsure_since.is_some_and(|since| now.duration_since(since) < SUCCESSOR_WAIT_MAX) {
                return false;
            }
        }
        self.unsure_since = None;
        !self.waiting.is_empty() || !self.aside.is_empty()
    }

    /// Gives up on a leader that has not become sure of its leadership for long.
    pub(super) fn expire_uncertain(&mut self, now: Instant) {
        if self.unsure_since.is_some_and(|since| now.duration_since(since) > LEASE_WAIT_MAX) {
            self.give_up_waiting();
            self.hint = false;
            self.unsure_since = None;
        }
    }

    /// Fails what waits: most likely this leader is cut off, and another member leads by now.
    pub(super) fn give_up_waiting(&mut self) {
        let error = ProposeError::NotLeader { term: self.leads.unwrap_or(0), leader: None };
        self.fail_waiting(&error);
    }

    /// Fails what waits or was put aside.
    pub(super) fn fail_waiting(&mut self, error: &ProposeError) {
        self.reading = None;
        let aside = std::mem::take(&mut self.aside);
        self.take(aside.into_iter().map(|(_, pending)| pending));
        while !self.waiting.is_empty() {
            self.next_waiting().fail(error.clone());
        }
    }

    /// Fails everything, because the host is stopping.
    pub(super) fn stop(&mut self) {
        self.fail_waiting(&ProposeError::Stopped);
        for pending in self.back.drain(..).flat_map(|(_, proposals)| proposals) {
            pending.fail(ProposeError::Stopped);
        }
    }
}

#[cfg(test)]
mod tests;
