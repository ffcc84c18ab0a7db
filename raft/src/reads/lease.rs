//! Whether a leader may answer a read from its applied state without asking the members: the decision, and the watch for a
//! suspended machine. `barrier.rs` explains why these conditions are enough.

use std::time::Duration;

use openraft_rt::Instant as _;
use parking_lot::Mutex;
use terrane_env::time::ClockWatch;

use crate::types::LeaseInstant;

/// A quorum's answer that is older does not count. The members' promise holds for 600 ms; the rest allows for clocks that
/// run at different speeds and for the time between the check and the read.
pub(crate) const LEASE_AGE_MAX: Duration = Duration::from_millis(400);

/// What a leader knows about its lease at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseView {
    /// The term it leads in.
    pub(crate) term: u64,
    /// It is the only voter, and needs no answers.
    pub(crate) alone: bool,
    /// Time since the question was sent that a quorum last answered. `None`: no quorum has answered yet.
    pub(crate) quorum_age: Option<Duration>,
    /// The machine was suspended after that question was sent.
    pub(crate) suspended_since: bool,
    /// Term of the last applied entry.
    pub(crate) applied_term: u64,
    /// Term of its own newest vote.
    pub(crate) voted_term: u64,
    /// The last term in which it was ordered to hand over.
    pub(crate) transferred_term: u64,
}

/// Why a leader may not answer under its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLease {
    /// No quorum has answered in this term.
    NoQuorum,
    /// The newest answer of a quorum is too old.
    Expired,
    /// The machine was suspended since: timers stood still, so the age means nothing.
    Suspended,
    /// It has applied no entry of its own term, so entries acknowledged by earlier leaders may be missing.
    BehindItsTerm,
    /// It has voted for another leader.
    VotedForAnother,
    /// It was ordered to hand over: members follow the successor in spite of the lease.
    HandedOver,
}

impl LeaseView {
    /// `Ok` if the lease holds; otherwise the reason why it does not.
    pub(crate) fn check(&self) -> Result<(), NoLease> {
        if !self.alone {
            let age = self.quorum_age.ok_or(NoLease::NoQuorum)?;
            if age >= LEASE_AGE_MAX {
                return Err(NoLease::Expired);
            }
            if self.suspended_since {
                return Err(NoLease::Suspended);
            }
        }
        if self.applied_term != self.term {
            Err(NoLease::BehindItsTerm)
        } else if self.voted_term != self.term {
            Err(NoLease::VotedForAnother)
        } else if self.transferred_term == self.term {
            Err(NoLease::HandedOver)
        } else {
            Ok(())
        }
    }
}

/// Notices that the machine was suspended, for all groups of the process.
#[derive(Default)]
pub(crate) struct LeaseClock {
    state: Mutex<(ClockWatch, Option<LeaseInstant>)>,
}

impl LeaseClock {
    /// Quorum answers to questions sent up to this moment do not count. `None`: the machine was not suspended since the start.
    pub(crate) fn not_before(&self) -> Option<LeaseInstant> {
        let mut state = self.state.lock();
        if state.0.moved_apart() {
            state.1 = Some(LeaseInstant::now());
        }
        state.1
    }
}

#[cfg(test)]
mod tests;
