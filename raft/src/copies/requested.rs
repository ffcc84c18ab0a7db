//! Copies that members ask for because they cannot apply an entry that they have ([`crate::members::applying`]).
//!
//! openraft sends a copy to a member that lacks entries of the log, and this member does not. So the leader sends one of its own
//! accord, over the same lane and under the same bounds, as of a moment that covers the entry. The member's log goes on after
//! it, and nothing of its vote or log changes.

use std::sync::Arc;

use openraft::ServerState;
use terrane_types::ReplicaId;
use tokio::sync::watch;
use tokio::time::Instant;

use super::sending::{NotSent, Target};
use super::share::Copies;
use crate::groups::group_view::GroupView;
use crate::log::Mark;
use crate::peer::{Lane, Peers};
use crate::proposals::erased::Machine;
use crate::types::{Vote, spawn, until_stopped};

/// Sends the copies that members of one group ask for.
pub(crate) struct RequestedCopies {
    view: Arc<GroupView>,
    machine: Arc<dyn Machine>,
    /// What all copies share that this process sends.
    copies: Arc<Copies>,
    /// The replica stops.
    stopped: watch::Receiver<bool>,
}

impl RequestedCopies {
    pub(crate) fn new(
        view: Arc<GroupView>,
        machine: Arc<dyn Machine>,
        copies: Arc<Copies>,
        stopped: watch::Receiver<bool>,
    ) -> RequestedCopies {
        RequestedCopies { view, machine, copies, stopped }
    }

    /// Sends copies to the members that ask for one, if this replica leads. Returns at once.
    pub(crate) fn send(self: &Arc<Self>, peers: &Arc<Peers>) {
        let vote = {
            let metrics = self.view.metrics();
            if metrics.state != ServerState::Leader || !self.machine.can_be_copied() {
                return;
            }
            metrics.vote
        };
        let (applied_state, followers) = (self.view.applied_state(), self.view.followers());
        let under_way = followers.sending.progress();
        for (to, covers) in followers.applied.due(Instant::now()) {
            if under_way.contains_key(&to) {
                continue;
            }
            let durable = self.machine.durable().index;
            let mark = applied_state.mark_at_most(durable).filter(|mark| mark.log_id.index >= covers);
            let Some(mark) = mark else {
                // Once that is in files, there is a copy.
                self.machine.relieve(covers.min(applied_state.applied_index()));
                continue;
            };
            followers.applied.tried(to, Instant::now());
            let (asked, peers) = (self.clone(), peers.clone());
            spawn(async move {
                let mut stopped = asked.stopped.clone();
                tokio::select! {
                    biased;
                    () = until_stopped(&mut stopped) => {}
                    () = asked.send_to(&peers, to, vote, mark) => {}
                }
            });
        }
    }

    async fn send_to(&self, peers: &Peers, to: ReplicaId, vote: Vote, mark: Mark) {
        let Some(server) = self.view.server_of(&self.view.metrics(), to) else { return };
        let (group, index) = (self.view.group(), mark.log_id.index);
        let followers = self.view.followers();
        let target = Target {
            group,
            replica: to,
            link: &peers.link(server, Lane::Copies),
            machine: self.machine.as_ref(),
            copies: &self.copies,
            sending: &followers.sending,
        };
        match target.send(vote, mark).await {
            Ok(_) => {
                followers.failing_copies.succeeded(to);
                tracing::info!(%group, replica = %to, index, "sent a copy to a member that could not apply an entry");
            }
            Err(NotSent::NoTurn) => {}
            Err(NotSent::Failed(what)) => {
                if followers.failing_copies.failed(to, &what) {
                    tracing::info!(%group, replica = %to, what, "a copy was not sent; trying again");
                }
            }
        }
        followers.applied.tried(to, Instant::now());
    }
}
