//! Which member takes over a leadership: decided from what its leader knows of the members, without I/O.

use std::time::Duration;

use terrane_types::ReplicaId;

use crate::leadership::abstention::Weight;
use crate::members::applying::{CAUGHT_UP_ENTRIES, LAG_MAX};

/// A member that could lead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) replica: ReplicaId,
    /// The last entry it is known to have.
    pub(crate) matched: u64,
    /// The last of those that it is known to have applied.
    pub(crate) applied: u64,
    /// It lacks what the next one needs.
    pub(crate) lacks: bool,
    /// For how long it has not applied an entry that it has and that is applied here.
    pub(crate) lag: Duration,
    /// It answered recently.
    pub(crate) alive: bool,
    /// It has no reason not to lead, as far as is known.
    pub(crate) willing: bool,
}

impl Candidate {
    /// Whether it could serve at once: it has applied what it has, but for a few entries of the last moment.
    fn has_applied(&self) -> bool {
        if terrane_env::planted!("a successor is chosen that has not applied") {
            return true;
        }
        let few = self.matched.saturating_sub(self.applied) <= CAUGHT_UP_ENTRIES;
        few && !self.lacks && self.lag <= LAG_MAX
    }

    /// Whether it would serve.
    fn is_good(&self) -> bool {
        self.alive && self.willing && self.has_applied()
    }
}

/// Why a leadership must not be handed to `chosen` by order, if so: openraft disables the present leader at once, so an order
/// that cannot succeed would leave the group without a leader. `newest`: the last entry of the leader's log; `declined`: the
/// member refused recently.
pub(crate) fn unfit(chosen: Candidate, candidates: &[Candidate], newest: u64, declined: bool) -> Option<String> {
    let Candidate { replica, matched, alive, willing, .. } = chosen;
    if !alive {
        return Some(format!("replica {replica} does not answer"));
    }
    if declined {
        return Some(format!("replica {replica} refused the leadership a moment ago"));
    }
    if newest.saturating_sub(matched) > CAUGHT_UP_ENTRIES {
        return Some(format!("replica {replica} lacks {} entries", newest - matched));
    }
    if !chosen.has_applied() {
        return Some(format!("replica {replica} has not applied entry {}", chosen.applied + 1));
    }
    // A leader that would rather not lead is better than none: it is refused only where another member would lead.
    let better =
        candidates.iter().find(|other| other.is_good() && newest.saturating_sub(other.matched) <= CAUGHT_UP_ENTRIES);
    let better = better.filter(|_| !willing)?.replica;
    Some(format!("replica {replica} has a reason not to lead, and replica {better} has none"))
}

/// The best successor for a leadership that has to be handed over. `turn` chooses among equals.
pub(crate) fn choose(candidates: &[Candidate], weight: Weight, turn: usize) -> Option<ReplicaId> {
    let better: [fn(&Candidate) -> bool; 4] =
        [Candidate::is_good, |member| member.alive && member.willing, |member| member.alive, |_| true];
    // A soft reason does not justify a handover to a member that may be unable to lead.
    let acceptable = if weight == Weight::Firm { &better[..] } else { &better[..1] };
    let best = acceptable.iter().find_map(|accepts| {
        let accepted: Vec<_> = candidates.iter().filter(|member| accepts(member)).collect();
        (!accepted.is_empty()).then_some(accepted)
    })?;
    let most = best.iter().map(|member| member.matched).max()?;
    let caught_up: Vec<_> = best.iter().filter(|member| most - member.matched <= CAUGHT_UP_ENTRIES).collect();
    Some(caught_up[turn % caught_up.len()].replica)
}
