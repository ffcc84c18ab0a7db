//! Reads from what a replica has applied, whichever replica leads, and the time up to which they are complete.
//!
//! Such a read does not wait. It may return old data, but the answer says how old at most: it includes everything that was
//! acknowledged before `as_of`. Time here is the median of the members' clocks (`clock.rs`), because a single leader's clock
//! may be wrong; leaders announce a time that this median had certainly reached. A replica knows its time in two ways:
//!
//! **By its last applied entry.** Leaders pack only after applying everything of earlier terms, and one entry after another.
//! So an entry that is not applied here was packed after the last one that is, and acknowledged after that. The header of an
//! entry has the time of packing (`entry.rs`). Its stamp does not help: stamps never regress, so after a stamp that ran ahead
//! follow others that are acknowledged long before the clocks reach them.
//!
//! **By the leader's heartbeats.** An idle group has no new entries, so the last one ages although nothing is missing. So
//! each heartbeat carries a [`Bound`]: a time, and the index that the leader had applied when it looked *after* that time. The
//! time is that of the question which a quorum answered last: until then no other replica acknowledged anything, and the
//! leader acknowledges only what it has applied, so everything acknowledged by that time is at or below the index. A replica
//! that has applied the index adopts the time. This costs 16 bytes per heartbeat and no entry.
//!
//! The time of that question, and not the present one, although a leader has a lease: a virtual machine that was paused
//! believes in its lease for a while when others have long been writing. What a quorum answered cannot be taken back.
//!
//! The difference between members' clocks ([`complete_until`]) is subtracted from both: the median moves when a member's
//! clock is set, and members that do not know all clocks compute another one. The leader itself answers for the time of that
//! question, which is a heartbeat ago at most while it leads undisturbed.
//!
//! A replica that lags by more than a heartbeat learns nothing from bounds until it has caught up with the one it waits for;
//! meanwhile it has the times of the entries it applies.

use std::sync::Arc;

use openraft_rt::Instant as _;

use crate::ProposeError;
use crate::groups::group_view::GroupView;
use crate::reads::barrier::Reads;
use crate::reads::completeness::{Bound, ReceivedBounds, TimeSamples, complete_until};
use crate::status::StalePoint;
use crate::time::group_time::GroupTime;
use crate::types::LeaseInstant;

/// Reads of what a replica has applied.
pub(crate) struct StaleReads {
    view: Arc<GroupView>,
    time: Arc<GroupTime>,
    reads: Arc<Reads>,
    /// The bounds received from leaders.
    heard: ReceivedBounds,
    /// The times of late, while this replica leads.
    moments: TimeSamples,
}

impl StaleReads {
    pub(crate) fn new(view: Arc<GroupView>, time: Arc<GroupTime>, reads: Arc<Reads>) -> StaleReads {
        StaleReads { view, time, reads, heard: ReceivedBounds::default(), moments: TimeSamples::default() }
    }

    /// A leader announces a bound.
    pub(crate) fn note_bound(&self, bound: Bound) {
        self.heard.note(bound, self.view.applied_state().applied_index());
    }

    /// The bound that this replica may announce, if it leads under its lease.
    pub(crate) fn leading_bound(&self) -> Option<Bound> {
        // Read the time before the index: what was acknowledged by that time is applied when the index is read.
        let present_ms = self.time.floor_ms();
        self.moments.note(LeaseInstant::now(), present_ms);
        let (point, asked) = self.reads.lease()?;
        let asked = asked.filter(|_| !terrane_env::planted!("a stale read is complete up to the present"));
        // A clock that was set back since counts.
        let time_ms = asked.map_or(Some(present_ms), |asked| self.moments.time_ms(asked))?.min(present_ms);
        (time_ms > 0).then_some(Bound { time_ms, index: point.index })
    }

    /// A point at which to read without waiting, and the time up to which it is complete.
    pub(crate) fn stale_point(&self) -> Result<StalePoint, ProposeError> {
        if let Some(bound) = self.leading_bound() {
            // The bound still holds, less the margin, once this replica no longer leads.
            self.heard.note(bound, bound.index);
            let stamp = self.view.applied_state().stamp();
            return Ok(StalePoint { index: bound.index, stamp, as_of_ms: bound.time_ms });
        }
        // Read all three before any data: the data is then of this index or later.
        let applied_state = self.view.applied_state();
        let packed_at = applied_state.packed_at();
        let stamp = applied_state.stamp();
        let index = applied_state.applied_index();
        let own_clock = terrane_env::planted!("a follower claims its own clock").then(|| self.time.wall_ms());
        let proven = own_clock.or_else(|| self.heard.proven_ms(index));
        let complete = complete_until(proven, packed_at, self.time.wall_ms());
        complete.map(|as_of_ms| StalePoint { index, stamp, as_of_ms }).ok_or(ProposeError::NotReady)
    }
}
