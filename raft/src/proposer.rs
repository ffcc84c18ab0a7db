//! One per group replica: packs queued proposals into entries while the replica leads.
//!
//! Entries of a term are numbered; an entry takes effect only if exactly those before it did (`entry.rs`). So when openraft
//! refuses one, or accepts it under another term than it was packed in, the ones after it are skipped everywhere, and all
//! their proposals come back here. They had no effect: they are packed again, in their old order, as soon as nothing is in
//! flight, with numbers that continue from what was applied. Only an entry whose fate openraft does not know is answered
//! `Uncertain`.
//!
//! Proposals are packed only while the first entry of the term is applied here, so the state machine that prepares them sees
//! all earlier entries. What is packed may differ from what was proposed, because the leader decides things for all
//! members. So proposals are kept while their entry is in flight, and those that come back are prepared again.
//!
//! A proposal may have to wait: for what is in flight to land, or for something to be read. It stays at the front of the
//! queue and nothing passes it, so operations take effect in the order in which they were submitted. One that waits for
//! time to pass is put aside for a millisecond instead, a few times at most; others pass it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use openraft::type_config::alias::WatchReceiverOf;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::entry::{Header, Packer};
use crate::erased::Machine;
use crate::replica::Replica;
use crate::submission::{Inbox, Pending};
use crate::types::{Answer, Applied, Packed, Types, until_stopped};
use crate::{BoxFuture, Packing, Prepared, ProposeError};

/// Bytes in one entry; a larger operation gets an entry to itself.
const ENTRY_BYTES_MAX: usize = 1 << 20;
/// Operations in one entry.
const ENTRY_OPERATIONS_MAX: usize = 4096;
/// Entries in flight. A second one is sent only if it is worth an entry: otherwise waiting makes the next one fuller, which
/// is what throughput comes from.
const IN_FLIGHT_MAX: usize = 2;
const SECOND_ENTRY_OPERATIONS_MIN: usize = 64;
const SECOND_ENTRY_BYTES_MIN: usize = 64 << 10;

/// How often ready tasks may run first before an entry is sent that is smaller than the last.
const GATHER_TURNS: u32 = 3;

/// Proposals taken from the queue ahead of being packed.
const WAITING_PROPOSALS_MAX: usize = 2 * ENTRY_OPERATIONS_MAX;

/// Proposals put aside at once; more are answered `Busy`.
const ASIDE_PROPOSALS_MAX: usize = 1024;
/// How long one is put aside...
const ASIDE_TIME: Duration = Duration::from_millis(1);
/// ...and how often, before it is answered `Busy`.
const ASIDE_TIMES_MAX: u32 = 4;

/// A leader without a quorum's answer is asked again after this...
const LEASE_RETRY: Duration = Duration::from_millis(5);
/// ...and given up after this.
const LEASE_WAIT_MAX: Duration = Duration::from_millis(1_500);
/// How long proposals are kept after a handover, to be redirected to the successor by name.
const SUCCESSOR_WAIT_MAX: Duration = Duration::from_millis(300);
/// Entries in flight that do not land within this time mean that no quorum takes them: what waits after them is told to look
/// elsewhere.
const STALLED_MAX: Duration = Duration::from_secs(3);

/// An entry in flight.
struct Flight {
    ordinal: u64,
    /// What was packed into it.
    proposals: Vec<Pending>,
    /// Taken when the outcome is reported.
    landed: Option<mpsc::Sender<Landed>>,
}

/// How an entry in flight ended.
enum Landed {
    /// It took effect, and all its proposals are answered.
    Applied,
    /// All its proposals are answered, but it is unknown whether it took effect.
    Lost,
    /// It had no effect; its proposals are to be packed again. Refused: openraft did not take it at this moment.
    Back { ordinal: u64, proposals: Vec<Pending>, refused: bool },
}

impl Flight {
    /// Runs where the outcome became known, as a rule in the task that applied the entry.
    fn land(mut self, outcome: ClientWriteResult<Types>) {
        match outcome {
            Ok(response) => match response.data {
                Applied::Answered(mut answers) => {
                    self.proposals.drain(..).for_each(|pending| pending.answer(&mut answers));
                    self.report(Landed::Applied);
                }
                Applied::Skipped => self.come_back(false),
            },
            // Refused before it was appended.
            Err(ClientWriteError::ForwardToLeader(_)) => self.come_back(true),
            // It was appended and then gave way to another leader's log; it may have been committed all the same. The drop
            // reports that.
            Err(_) => {}
        }
    }

    fn come_back(&mut self, refused: bool) {
        let proposals = std::mem::take(&mut self.proposals);
        self.report(Landed::Back { ordinal: self.ordinal, proposals, refused });
    }

    fn report(&mut self, landed: Landed) {
        let Some(sender) = self.landed.take() else {
            return;
        };
        // The channel holds all that may be in flight, so this fails only when the proposer has ended.
        if let Err(error) = sender.try_send(landed)
            && let Landed::Back { proposals, .. } = error.into_inner()
        {
            proposals.into_iter().for_each(|pending| pending.fail(ProposeError::Stopped));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        for pending in self.proposals.drain(..) {
            pending.fail(ProposeError::Uncertain);
        }
        self.report(Landed::Lost);
    }
}

/// Returns when what is being read is there; never if nothing is.
async fn read(reading: Option<&mut BoxFuture<'static, ()>>) {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

/// The task that packs.
pub(crate) struct Proposer {
    replica: Arc<Replica>,
    machine: Arc<dyn Machine>,
    inbox: Inbox,
    /// Changes of leadership: they are rarer than changes of the metrics.
    leadership: WatchReceiverOf<Types, openraft::metrics::RaftServerMetrics<Types>>,
    landed_sender: mpsc::Sender<Landed>,
    landed: mpsc::Receiver<Landed>,
    waiting: VecDeque<Pending>,
    waiting_bytes: usize,
    /// Put aside, and until when, ordered by that. Counted among the queued bytes.
    aside: VecDeque<(Instant, Pending)>,
    in_flight: usize,
    /// When something was last sent or landed.
    moved_at: Instant,
    /// Came back and wait until nothing is in flight.
    back: Vec<(u64, Vec<Pending>)>,
    /// The fate of an entry is unknown: nothing is packed on the assumption that it took effect.
    lost: bool,
    /// Nothing is packed until nothing is in flight.
    until_landed: bool,
    /// What the proposal at the front waits for. Dropped together with the proposal.
    reading: Option<BoxFuture<'static, ()>>,
    hint: bool,
    /// The term in which this replica leads, as far as is known here. A stale view is harmless: the entry says in which term
    /// it was packed.
    leads: Option<u64>,
    next_ordinal: u64,
    /// Proposals in the entry sent last.
    last_proposals: usize,
    last_stamp: u64,
    /// Since when proposals wait for this leader to become sure of itself.
    unsure_since: Option<Instant>,
    /// A refused entry is proposed again no earlier than this.
    retry_at: Option<Instant>,
}

impl Proposer {
    pub(crate) fn new(replica: Arc<Replica>, machine: Arc<dyn Machine>, inbox: Inbox) -> Proposer {
        let (landed_sender, landed) = mpsc::channel(IN_FLIGHT_MAX + 1);
        let leadership = replica.raft.server_metrics();
        Proposer {
            replica,
            machine,
            inbox,
            leadership,
            landed_sender,
            landed,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            aside: VecDeque::new(),
            in_flight: 0,
            moved_at: Instant::now(),
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

    pub(crate) async fn run(mut self) {
        let mut stopped = self.replica.stopped.clone();
        loop {
            tokio::select! {
                biased;
                () = until_stopped(&mut stopped) => break,
                woken = self.wake() => if !woken { break },
            }
            self.look_at_leadership();
            self.gather().await;
            self.dispatch().await;
        }
        self.stop();
    }

    /// Waits for something to do.
    async fn wake(&mut self) -> bool {
        let room = WAITING_PROPOSALS_MAX.saturating_sub(self.waiting.len());
        let unsure = self.unsure_since.is_some() && self.has_work();
        // A retry time that has passed while something else held the entry back is no reason to look at once: looking
        // without a pause would keep that something from ever being done.
        let now = Instant::now();
        let look_again = self.retry_at.filter(|at| *at > now).unwrap_or(now + LEASE_RETRY);
        let stalled = self.in_flight > 0 && !self.waiting.is_empty();
        let stalled_at = self.moved_at + STALLED_MAX;
        let aside_until = self.aside.front().map_or(now, |(until, _)| *until);
        let mut taken = Vec::new();
        tokio::select! {
            biased;
            // This end holds a sender too, so the channel is never closed.
            Some(landed) = self.landed.recv() => self.take_landed(landed),
            changed = self.leadership.changed() => return changed.is_ok(),
            () = self.replica.standing.term_applied.notified() => {}
            () = self.inbox.hint.notified() => self.hint = true,
            count = self.inbox.proposals.recv_many(&mut taken, room), if room > 0 => {
                if count == 0 {
                    return false;
                }
            }
            () = read(self.reading.as_mut()) => self.reading = None,
            () = tokio::time::sleep_until(aside_until), if !self.aside.is_empty() => {}
            () = tokio::time::sleep_until(look_again), if unsure => {}
            () = tokio::time::sleep_until(stalled_at), if stalled => self.give_up_waiting(),
        }
        self.take_proposals(taken);
        if !self.aside.is_empty() {
            self.take_aside_until(Instant::now());
        }
        true
    }

    /// Takes the proposal at the front of the queue out of the way of the others.
    fn put_aside(&mut self) {
        let mut pending = self.next_waiting();
        pending.times_aside += 1;
        if pending.times_aside > ASIDE_TIMES_MAX || self.aside.len() >= ASIDE_PROPOSALS_MAX {
            return pending.fail(ProposeError::Busy);
        }
        self.inbox.bytes.fetch_add(pending.bytes, Ordering::Relaxed);
        self.aside.push_back((Instant::now() + ASIDE_TIME, pending));
    }

    /// Moves what was put aside until then to the front of the queue.
    fn take_aside_until(&mut self, now: Instant) {
        let due = self.aside.iter().take_while(|(until, _)| *until <= now).count();
        for (_, pending) in self.aside.drain(..due).rev() {
            self.waiting_bytes += pending.bytes;
            self.waiting.push_front(pending);
        }
    }

    /// Lets ready tasks run first while an entry would be smaller than the last one. When an entry lands, the callers it
    /// answered propose again one after another: sent at once, the first of them would get an entry to itself, and all
    /// others would wait for it to land. On an idle machine a turn takes no time; on a busy one full entries pay for it.
    async fn gather(&mut self) {
        for _ in 0..GATHER_TURNS {
            if self.leads.is_none() || self.in_flight > 0 || self.waiting.is_empty() {
                return;
            }
            if self.waiting.len() >= self.last_proposals {
                return;
            }
            tokio::task::yield_now().await;
            while self.waiting.len() < WAITING_PROPOSALS_MAX
                && let Ok(pending) = self.inbox.proposals.try_recv()
            {
                self.waiting_bytes += pending.bytes;
                self.waiting.push_back(pending);
            }
        }
    }

    fn has_work(&self) -> bool {
        self.hint || !self.waiting.is_empty() || !self.back.is_empty()
    }

    fn take_proposals(&mut self, taken: Vec<Pending>) {
        for pending in taken {
            self.waiting_bytes += pending.bytes;
            self.waiting.push_back(pending);
        }
    }

    fn take_landed(&mut self, landed: Landed) {
        self.in_flight -= 1;
        self.moved_at = Instant::now();
        match landed {
            Landed::Applied => self.unsure_since = None,
            Landed::Lost => self.lost = true,
            Landed::Back { ordinal, proposals, refused } => {
                self.back.push((ordinal, proposals));
                // A fresh leader refuses until a quorum has answered it. One that hands over or was deposed will be known as
                // such in a moment, and then turns the proposals away.
                if refused {
                    self.be_unsure();
                    self.retry_at = Some(Instant::now() + LEASE_RETRY);
                }
            }
        }
    }

    fn be_unsure(&mut self) {
        self.unsure_since.get_or_insert_with(Instant::now);
    }

    fn look_at_leadership(&mut self) {
        let leads = {
            let now = self.leadership.borrow_and_update();
            (now.state == ServerState::Leader).then(|| now.vote.leader_id.term)
        };
        if leads == self.leads {
            return;
        }
        if self.leads.is_some() {
            self.machine.lost_leadership();
        }
        self.leads = leads;
        self.unsure_since = None;
    }

    async fn dispatch(&mut self) {
        if self.in_flight == 0 {
            self.until_landed = false;
            if self.lost || !self.back.is_empty() {
                self.machine.came_back();
                self.lost = false;
                self.take_back();
            }
        }
        let Some(term) = self.leads else {
            return self.turn_away();
        };
        if self.replica.standing.applied_term() != term || self.replica.time_ms().is_none() {
            // A new leader whose first entry is not applied yet, or one that knows too few clocks to set a stamp.
            if self.has_work() {
                self.be_unsure();
                self.give_up_if_unsure_for_long();
            }
            return;
        }
        self.give_up_if_unsure_for_long();
        while self.may_send() {
            if !self.send(term).await {
                return;
            }
        }
    }

    /// Moves what came back to the front of the queue, in its old order.
    fn take_back(&mut self) {
        let mut back = std::mem::take(&mut self.back);
        back.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        for pending in back.into_iter().flat_map(|(_, proposals)| proposals.into_iter().rev()) {
            self.waiting_bytes += pending.bytes;
            self.inbox.bytes.fetch_add(pending.bytes, Ordering::Relaxed);
            self.waiting.push_front(pending);
        }
    }

    fn may_send(&self) -> bool {
        let nothing = !self.hint && self.waiting.is_empty();
        if nothing || !self.back.is_empty() || self.lost || self.until_landed || self.reading.is_some() {
            return false;
        }
        if self.retry_at.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        match self.in_flight {
            0 => true,
            IN_FLIGHT_MAX.. => false,
            _ => self.waiting.len() >= SECOND_ENTRY_OPERATIONS_MIN || self.waiting_bytes >= SECOND_ENTRY_BYTES_MIN,
        }
    }

    /// Packs and proposes one entry. False when openraft is gone.
    async fn send(&mut self, term: u64) -> bool {
        let (entry, proposals, ordinal) = self.pack(term);
        let hint = std::mem::take(&mut self.hint);
        if proposals.is_empty() && !hint {
            // Every proposal was answered when it was prepared, or the first one waits.
            return true;
        }
        self.next_ordinal = ordinal + 1;
        self.last_proposals = proposals.len();
        self.retry_at = None;
        let flight = Flight { ordinal, proposals, landed: Some(self.landed_sender.clone()) };
        self.in_flight += 1;
        self.moved_at = Instant::now();
        let answer = Answer::new(move |outcome| flight.land(outcome));
        self.replica.raft.client_write_ff(Packed(entry), Some(answer)).await.is_ok()
    }

    fn pack(&mut self, term: u64) -> (Bytes, Vec<Pending>, u64) {
        let sequence = self.replica.standing.sequence();
        if self.in_flight == 0 {
            // All that was proposed in this term has landed, so only what is applied counts.
            self.next_ordinal = sequence.last_ordinal(term) + 1;
        }
        assert!(
            self.next_ordinal > sequence.last_ordinal(term),
            "entry {} of term {term} was to be packed again after entry {} of that term had been applied",
            self.next_ordinal,
            sequence.last_ordinal(term)
        );
        // Only as far as the members' clocks confirm the own clock: a stamp cannot be taken back.
        let time = self.replica.look_at_clocks().map_or(0, |bounds| self.replica.clocks.within(bounds));
        self.last_stamp = self.last_stamp.max(sequence.stamp).max(time);
        let header = Header {
            term,
            ordinal: self.next_ordinal,
            stamp: self.last_stamp,
            time: self.replica.clocks.floor_ms(&self.replica.servers),
            least_matched: self.replica.least_matched(),
        };
        // Entries land in their order, and nothing is packed after one that did not take effect until all have landed.
        let landed = (header.ordinal - 1).saturating_sub(self.in_flight as u64);
        let mut packer = Packer::new(header, self.waiting_bytes.min(ENTRY_BYTES_MAX) + 4 * self.waiting.len());
        let mut proposals = Vec::with_capacity(self.waiting.len().min(ENTRY_OPERATIONS_MAX));
        while let Some(next) = self.waiting.front() {
            let full = packer.len() + next.bytes > ENTRY_BYTES_MAX || packer.operations() >= ENTRY_OPERATIONS_MAX;
            if full && packer.operations() > 0 {
                break;
            }
            let alone = self.in_flight == 0 && packer.operations() == 0;
            let packing = Packing { term, ordinal: header.ordinal, stamp: header.stamp, landed, alone };
            let prepared = packer.push(|entry| {
                let prepared = self.machine.prepare(&packing, next.submission.proposal(), entry);
                (matches!(prepared, Prepared::Packed | Prepared::PackedAlone), prepared)
            });
            match prepared {
                Prepared::Packed => proposals.push(self.next_waiting()),
                Prepared::PackedAlone => {
                    proposals.push(self.next_waiting());
                    self.until_landed = true;
                    break;
                }
                Prepared::Refused(mut answer) => self.next_waiting().answer(&mut answer),
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
                Prepared::Later => self.put_aside(),
            }
        }
        (packer.finish(), proposals, header.ordinal)
    }

    fn next_waiting(&mut self) -> Pending {
        let pending = self.waiting.pop_front().expect("the caller looked");
        self.waiting_bytes -= pending.bytes;
        self.inbox.bytes.fetch_sub(pending.bytes, Ordering::Relaxed);
        pending
    }

    /// This replica does not lead: redirects what waits, or keeps it until the successor is known.
    fn turn_away(&mut self) {
        self.hint = false;
        if !self.waiting.is_empty() && self.replica.awaits_successor() {
            self.be_unsure();
            if self.unsure_since.is_some_and(|since| since.elapsed() < SUCCESSOR_WAIT_MAX) {
                return;
            }
        }
        self.unsure_since = None;
        if !self.waiting.is_empty() || !self.aside.is_empty() {
            let error = self.replica.not_leader();
            self.fail_waiting(&error);
        }
    }

    fn give_up_if_unsure_for_long(&mut self) {
        if self.unsure_since.is_some_and(|since| since.elapsed() > LEASE_WAIT_MAX) {
            self.give_up_waiting();
            self.hint = false;
            self.unsure_since = None;
        }
    }

    /// Fails what waits: most likely this leader is cut off, and another member leads by now.
    fn give_up_waiting(&mut self) {
        let error = ProposeError::NotLeader { term: self.leads.unwrap_or(0), leader: None };
        self.fail_waiting(&error);
    }

    fn fail_waiting(&mut self, error: &ProposeError) {
        self.reading = None;
        let aside = std::mem::take(&mut self.aside);
        self.take_proposals(aside.into_iter().map(|(_, pending)| pending).collect());
        while !self.waiting.is_empty() {
            self.next_waiting().fail(error.clone());
        }
    }

    fn stop(mut self) {
        self.inbox.proposals.close();
        while let Ok(pending) = self.inbox.proposals.try_recv() {
            pending.fail(ProposeError::Stopped);
        }
        self.fail_waiting(&ProposeError::Stopped);
        for pending in self.back.drain(..).flat_map(|(_, proposals)| proposals) {
            pending.fail(ProposeError::Stopped);
        }
        if self.leads.is_some() {
            self.machine.lost_leadership();
        }
    }
}
