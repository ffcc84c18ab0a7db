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

mod backlog;
mod flight;

use std::sync::Arc;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::alias::WatchReceiverOf;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::backlog::{Backlog, EntryOutcome, HeaderInputs, IN_FLIGHT_MAX, PackedEntry};
use self::flight::InFlightEntry;
use crate::BoxFuture;
use crate::ProposeError;
use crate::groups::replica::Replica;
use crate::metrics::Metrics;
use crate::proposals::erased::Machine;
use crate::proposals::submission::Inbox;
use crate::types::{Answer, Packed, Types, until_stopped};

/// How often ready tasks may run first before an entry is sent that is smaller than the last.
const GATHER_TURNS: u32 = 3;

/// The task that packs. What it does next is decided in [`Backlog`].
pub(crate) struct Proposer {
    replica: Arc<Replica>,
    machine: Arc<dyn Machine>,
    inbox: Inbox,
    /// Changes of leadership: they are rarer than changes of the metrics.
    leadership: WatchReceiverOf<Types, openraft::metrics::RaftServerMetrics<Types>>,
    landed_sender: mpsc::Sender<EntryOutcome>,
    landed: mpsc::Receiver<EntryOutcome>,
    backlog: Backlog,
    /// The term in which it serves.
    serves: Option<u64>,
    metrics: Arc<Metrics>,
}

impl Proposer {
    pub(crate) fn new(
        replica: Arc<Replica>,
        machine: Arc<dyn Machine>,
        inbox: Inbox,
        metrics: Arc<Metrics>,
    ) -> Proposer {
        let (landed_sender, landed) = mpsc::channel(IN_FLIGHT_MAX + 1);
        let leadership = replica.raft.server_metrics();
        let backlog = Backlog::new(inbox.bytes.clone(), Instant::now());
        Proposer { replica, machine, inbox, leadership, landed_sender, landed, backlog, serves: None, metrics }
    }

    pub(crate) async fn run(mut self) {
        let mut stopped = self.replica.stopped();
        loop {
            tokio::select! {
                biased;
                () = until_stopped(&mut stopped) => break,
                woken = self.wake() => if !woken { break },
            }
            self.look_at_leadership();
            self.check_serving();
            self.gather().await;
            self.dispatch().await;
        }
        self.stop();
    }

    /// Waits for something to do. False when the group has stopped.
    async fn wake(&mut self) -> bool {
        let capacity = self.backlog.capacity();
        let timers = self.backlog.timers(Instant::now());
        let mut taken = Vec::new();
        tokio::select! {
            biased;
            // This end holds a sender too, so the channel is never closed.
            Some(landed) = self.landed.recv() => self.backlog.landed(landed, Instant::now()),
            changed = self.leadership.changed() => return changed.is_ok(),
            () = self.replica.view.applied_state().term_applied.notified() => {}
            () = self.inbox.hint.notified() => self.backlog.hint = true,
            count = self.inbox.proposals.recv_many(&mut taken, capacity), if capacity > 0 => {
                if count == 0 {
                    return false;
                }
            }
            () = read(self.backlog.reading.as_mut()) => self.backlog.reading = None,
            () = sleep_until(timers.aside) => {}
            () = sleep_until(timers.retry) => {}
            () = sleep_until(timers.stalled) => self.backlog.give_up_waiting(),
        }
        self.backlog.take(taken);
        self.backlog.requeue_deferred(Instant::now());
        true
    }

    fn check_serving(&mut self) {
        let serves = self.backlog.leads().filter(|term| self.replica.view.applied_state().applied_term() == *term);
        if serves.is_some() && serves != self.serves {
            self.machine.began_to_serve();
        }
        self.serves = serves;
    }

    fn look_at_leadership(&mut self) {
        let leads = {
            let now = self.leadership.borrow_and_update();
            (now.state == ServerState::Leader && !self.replica.view.is_lost()).then(|| now.vote.leader_id.term)
        };
        if let Some(term) = leads {
            let spec = self.replica.view.spec();
            terrane_env::witness!("the leader of a group's term", [spec.group.0, term], spec.replica.0);
        }
        if leads.is_some() && leads != self.backlog.leads() {
            self.metrics.leaderships.inc();
            self.machine.gained_leadership();
        }
        if self.backlog.set_leads(leads) {
            self.machine.lost_leadership();
        }
    }

    /// Lets ready tasks run first while an entry would be smaller than the last one. On an idle machine a turn takes no time;
    /// on a busy one full entries pay for it.
    async fn gather(&mut self) {
        for _ in 0..GATHER_TURNS {
            if !self.backlog.should_gather() {
                return;
            }
            tokio::task::yield_now().await;
            while self.backlog.capacity() > 0
                && let Ok(pending) = self.inbox.proposals.try_recv()
            {
                self.backlog.take([pending]);
            }
        }
    }

    async fn dispatch(&mut self) {
        if self.backlog.requeue_returned() {
            self.machine.discard_assumptions();
        }
        if self.replica.view.is_stuck() {
            return self.backlog.fail_waiting(&self.replica.view.not_leader());
        }
        let now = Instant::now();
        let Some(term) = self.backlog.leads() else {
            if self.backlog.redirect_waiting(self.replica.view.awaits_successor(), now) {
                let error = self.replica.view.not_leader();
                self.backlog.fail_waiting(&error);
            }
            return;
        };
        let is_behind = self.replica.view.applied_state().applied_term() != term
            && !terrane_env::planted!("a new leader decides before it has caught up");
        if is_behind || self.replica.time.now_ms().is_none() {
            return self.backlog.wait_to_be_ready(now);
        }
        self.backlog.expire_uncertain(now);
        while self.backlog.may_send(Instant::now()) {
            let inputs = self.header_inputs();
            if let Some(entry) = self.backlog.pack(term, &inputs, &*self.machine, Instant::now())
                && !self.send(entry).await
            {
                return;
            }
        }
    }

    fn header_inputs(&self) -> HeaderInputs {
        let replica = &self.replica;
        HeaderInputs {
            sequence: replica.view.applied_state().sequence(),
            // Only as far as the members' clocks confirm this server's clock: a stamp cannot be taken back.
            time: replica.time.confirmed_ms().unwrap_or(0),
            floor: replica.time.floor_ms(),
            released: replica.retention.least_released(),
            format: replica.entry_format(),
        }
    }

    /// Proposes an entry. False if openraft has stopped.
    async fn send(&mut self, entry: PackedEntry) -> bool {
        let PackedEntry { ordinal, bytes, proposals } = entry;
        let packed_ns = terrane_env::time::now_ns();
        for pending in &proposals {
            self.metrics.queue.observe_ns(packed_ns.saturating_sub(pending.submitted_ns));
        }
        let (metrics, landed) = (self.metrics.clone(), Some(self.landed_sender.clone()));
        let flight = InFlightEntry { ordinal, proposals, packed_ns, metrics, landed };
        let answer = Answer::new(move |outcome| flight.land(outcome));
        self.replica.raft.client_write_ff(Packed(bytes), Some(answer)).await.is_ok()
    }

    fn stop(mut self) {
        self.inbox.proposals.close();
        while let Ok(pending) = self.inbox.proposals.try_recv() {
            pending.fail(ProposeError::Stopped);
        }
        self.backlog.stop();
        if self.backlog.leads().is_some() {
            self.machine.lost_leadership();
        }
    }
}

/// Returns when the read has finished; never if there is none.
async fn read(reading: Option<&mut BoxFuture<'static, ()>>) {
    match reading {
        Some(reading) => reading.await,
        None => std::future::pending().await,
    }
}

/// Returns at that time; never if there is none.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
