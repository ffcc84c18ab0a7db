//! When the local replica may vote and stand for election.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::groups::group_view::GroupView;
use crate::leadership::campaign::Campaigns;

/// The elections of a group, as its local replica sees them.
pub(crate) struct Election {
    view: Arc<GroupView>,
    /// Until then this replica neither votes nor stands: before its restart it may have promised a leader not to.
    votes_from: Instant,
    /// When it last heard from a leader, or started.
    leader_heard: Mutex<Instant>,
    /// The elections since the group last had a leader.
    campaigns: Mutex<Campaigns>,
}

impl Election {
    /// The replica may have promised a leader not to vote for another one for so long.
    pub(crate) fn new(view: Arc<GroupView>, promised: Duration) -> Election {
        let now = Instant::now();
        Election { view, votes_from: now + promised, leader_heard: Mutex::new(now), campaigns: Mutex::default() }
    }

    /// Whether this replica may still be bound by a promise to a leader.
    pub(crate) fn is_bound(&self) -> bool {
        Instant::now() < self.votes_from
    }

    /// Returns when it is not bound any more.
    pub(crate) async fn until_free(&self) {
        tokio::time::sleep_until(self.votes_from).await;
    }

    /// A leader was heard.
    pub(crate) fn note_leader(&self) {
        *self.leader_heard.lock() = Instant::now();
    }

    /// For how long no leader was heard.
    pub(crate) fn leaderless(&self) -> Duration {
        self.leader_heard.lock().elapsed()
    }

    /// Whether an election is under way that needs more time.
    pub(crate) fn leaves_candidate_alone(&self) -> bool {
        // As of the moment it is handed to the log: the consensus core does nothing else until it is synced, and then stands
        // again before its metrics show the vote.
        let Some(vote) = self.view.log().vote() else { return false };
        let vote = (vote.leader_id.term, vote.leader_id.voted_for, vote.committed);
        let sync = self.view.shared_log().sync_times().recent(terrane_env::time::now_ns());
        self.campaigns.lock().is_under_way(self.view.replica(), vote, sync, Instant::now())
    }
}
