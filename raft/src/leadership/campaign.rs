//! How long members leave a candidate to itself before the next one stands.
//!
//! A silent leader is noticed within an election timeout, and the first candidate stands at once. From then on its vote has to
//! be synced here and at the voters. Where that takes longer than another election timeout, members that stood again after
//! each of them would end every election before its votes are in. So a member that has voted, for itself or for another, does
//! not stand until the vote has had the time that syncs take here. What they take elsewhere is not known; elections that come
//! to nothing show it, so each further one gets twice as long.
//!
//! Where syncs are quick, the first two elections are left as they are: the waits are shorter than the timeout.
//!
//! Decided from the votes and the times that are passed in; without I/O.

use std::time::Duration;

use terrane_types::ReplicaId;
use tokio::time::Instant;

/// A vote is synced by the candidate and by the voter, at each behind one sync that is under way already.
const SYNCS_PER_VOTE: u32 = 4;
/// The most that slow syncs here are allowed for.
const SYNCS_MAX: Duration = Duration::from_secs(4);
/// Elections without a leader that follow each other before the next one gets longer...
const QUICK_ELECTIONS: u32 = 2;
/// ...than this at first...
const WAIT_LEAST: Duration = Duration::from_millis(500);
/// ...and this at last.
const WAIT_MOST: Duration = Duration::from_secs(2);

/// The elections of one group since it last had a leader, as its local replica saw them.
#[derive(Debug, Default)]
pub(crate) struct Campaigns {
    /// The term and candidate of the present vote, and since when it is known.
    present: Option<(u64, ReplicaId, Instant)>,
    count: u32,
}

impl Campaigns {
    /// Looks at the vote of this replica, `own`, for a term and a candidate; `is_leader`: that is the leader of the term. Says
    /// whether the candidate is still to be left to itself, where a sync takes `sync` of late.
    pub(crate) fn is_under_way(
        &mut self,
        own: ReplicaId,
        (term, candidate, is_leader): (u64, ReplicaId, bool),
        sync: Duration,
        now: Instant,
    ) -> bool {
        if is_leader || term == 0 {
            *self = Campaigns::default();
            return false;
        }
        let since = match self.present {
            Some((known, of, since)) if (known, of) == (term, candidate) => since,
            _ => {
                self.count += 1;
                self.present = Some((term, candidate, now));
                now
            }
        };
        now.duration_since(since) < self.patience(own, term, sync)
    }

    fn patience(&self, own: ReplicaId, term: u64, sync: Duration) -> Duration {
        let syncs = (sync * SYNCS_PER_VOTE).min(SYNCS_MAX);
        let further = self.count.saturating_sub(QUICK_ELECTIONS);
        let wait = match further {
            0 => Duration::ZERO,
            further => WAIT_MOST.min(WAIT_LEAST * (1 << (further - 1).min(8))),
        };
        let least = syncs.max(wait);
        // Members that all wait for so long would stand at the same moment, and again after the next wait.
        least + least * turn(own, term) / TURNS
    }
}

/// Members stand at different moments within half the wait.
const TURNS: u32 = 16;

/// A member's place among [`TURNS`] / 2, another one in each term.
fn turn(own: ReplicaId, term: u64) -> u32 {
    let mixed = (own.0 ^ term.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    u32::try_from(mixed >> 61).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// - `vote at=MS term=T for=REPLICA [sync=MS]`: replica 1 has voted; `leader at=MS term=T of=REPLICA`: a leader is known
    fn start() -> impl FnMut(&str, &mut String) {
        let (mut campaigns, begun) = (Campaigns::default(), Instant::now());
        move |line, out| {
            let line = Line::new(line);
            let now = begun + line.ms("at").expect("at=");
            let (candidate, is_leader) = match line.command() {
                "vote" => (line.need("for"), false),
                "leader" => (line.need("of"), true),
                other => panic!("unknown command {other}"),
            };
            let vote = (line.need("term"), ReplicaId(candidate), is_leader);
            let under_way = campaigns.is_under_way(ReplicaId(1), vote, line.ms("sync").unwrap_or_default(), now);
            writeln!(out, "{}", if under_way { "waits" } else { "may stand" }).unwrap();
        }
    }

    #[test]
    fn scripts() {
        check("leadership/campaign", start);
    }
}
