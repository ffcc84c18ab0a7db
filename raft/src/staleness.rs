//! Reads from what a replica has applied, whoever leads, and the time up to which they are complete.
//!
//! Such a read waits for nobody. What it shows may be old, but the answer says how old at most: it shows everything that
//! was acknowledged before `as_of`. Time here is the median of the members' clocks (`clock.rs`), since the clock of one
//! leader may be wrong. Leaders give a time that this median had certainly reached. A replica has two ways to know:
//!
//! **When its last applied entry was packed.** Leaders pack only when they have applied everything of earlier terms, and one
//! entry after another. So an entry that is not applied here was packed after the last one that is, and acknowledged after
//! that. The header of an entry tells the time of packing (`entry.rs`). Its stamp does not: stamps never go back, so behind
//! a stamp that ran ahead come others that are acknowledged long before the clocks reach them.
//!
//! **What the leader says.** In an idle group no entry comes, and the last one grows old though nothing is missing. So each
//! heartbeat carries a [`Bound`]: a time, and the index the leader had applied when it looked *after* that, if it held its
//! lease at that moment. Nobody else acknowledged anything then, and it acknowledges only what it has applied: whatever had
//! been acknowledged at that time is at or below the index. A replica that has applied the index takes over the time. It
//! costs 16 bytes a heartbeat, and no entry.
//!
//! Both are taken over less [`CLOCK_DIFFERENCE_MAX_MS`]: the median moves when a member's clock is set, and members that do
//! not know all clocks see another one. The leader itself answers under its lease for the present moment.
//!
//! A replica that is behind by more than a heartbeat learns nothing from bounds until it has caught up with the first one
//! that it waits for, then with another one: meanwhile entries come, with their times.

use crate::ProposeError;
use crate::completeness::{Bound, complete_until};
use crate::replica::Replica;
use crate::status::StalePoint;

impl Replica {
    /// What this replica may tell the others, if it leads under its lease.
    pub(crate) fn leading_bound(&self) -> Option<Bound> {
        // The time before the index: what was acknowledged by then is applied when the index is looked at.
        let time_ms = self.clocks.floor_ms(&self.servers);
        let point = self.read_under_lease()?;
        (time_ms > 0).then_some(Bound { time_ms, index: point.index })
    }

    /// A point to read at without waiting for anybody, and the time up to which it is complete.
    pub(crate) fn stale_point(&self) -> Result<StalePoint, ProposeError> {
        if let Some(bound) = self.leading_bound() {
            // It still holds, less the margin, when this replica has ceased to lead.
            self.heard.note(bound, bound.index);
            let stamp = self.standing.stamp();
            return Ok(StalePoint { index: bound.index, stamp, as_of_ms: bound.time_ms });
        }
        // All three before anything is read: the state that is read then is of this index or later.
        let packed_at = self.standing.packed_at();
        let stamp = self.standing.stamp();
        let index = self.standing.applied_index();
        let proven = self.heard.proven_ms(index);
        let complete = complete_until(proven, packed_at, self.standing.has_applied(), self.clocks.wall_ms());
        complete.map(|as_of_ms| StalePoint { index, stamp, as_of_ms }).ok_or(ProposeError::NotReady)
    }
}
