//! Copies that members ask for because they cannot apply an entry that they have ([`crate::applying`]).
//!
//! openraft sends a copy to a member that lacks entries of the log, and this member does not. So the leader sends one of its own
//! accord, over the same lane and under the same bounds, as of a moment that covers the entry. The member's log goes on after
//! it, and nothing of its vote or log changes.

use std::sync::Arc;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use terrane_types::ReplicaId;
use tokio::time::Instant;

use super::sending::{NotSent, Target};
use crate::log::Mark;
use crate::peer::{Lane, Peers};
use crate::replica::Replica;
use crate::types::{Vote, spawn, until_stopped};

impl Replica {
    /// Sends copies to the members that ask for one, if this replica leads. Returns at once.
    pub(crate) fn send_asked_copies(self: &Arc<Replica>, peers: &Arc<Peers>) {
        let vote = {
            let metrics = self.metrics.borrow_watched();
            if metrics.state != ServerState::Leader || !self.machine.can_be_copied() {
                return;
            }
            metrics.vote
        };
        let under_way = self.sending.progress();
        for (to, covers) in self.applied.due(Instant::now()) {
            if under_way.contains_key(&to) {
                continue;
            }
            let durable = self.machine.durable().index;
            let mark = self.standing.mark_at_most(durable).filter(|mark| mark.log_id.index >= covers);
            let Some(mark) = mark else {
                // Once that is in files, there is a copy.
                self.machine.relieve(covers.min(self.standing.applied_index()));
                continue;
            };
            self.applied.tried(to, Instant::now());
            let (replica, peers) = (self.clone(), peers.clone());
            spawn(async move {
                let mut stopped = replica.stop.subscribe();
                tokio::select! {
                    biased;
                    () = until_stopped(&mut stopped) => {}
                    () = replica.send_asked_copy(&peers, to, vote, mark) => {}
                }
            });
        }
    }

    async fn send_asked_copy(&self, peers: &Peers, to: ReplicaId, vote: Vote, mark: Mark) {
        let Some(server) = self.server_of(&self.metrics.borrow_watched(), to) else { return };
        let (group, index) = (self.spec.group, mark.log_id.index);
        let target = Target {
            group,
            replica: to,
            link: &peers.link(server, Lane::Copies),
            machine: self.machine.as_ref(),
            copies: &self.copies,
            sending: &self.sending,
        };
        match target.send(vote, mark).await {
            Ok(_) => {
                self.failing_copies.succeeded(to);
                tracing::info!(%group, replica = %to, index, "sent a copy to a member that could not apply an entry");
            }
            Err(NotSent::NoTurn) => {}
            Err(NotSent::Failed(what)) => {
                if self.failing_copies.failed(to, &what) {
                    tracing::info!(%group, replica = %to, what, "a copy was not sent; trying again");
                }
            }
        }
        self.applied.tried(to, Instant::now());
    }
}
