//! What a replica remembers of handovers of its leadership, and what follows from it.
//!
//! Without this memory, two rules contradict each other. A leader with a soft reason hands over to a willing member at
//! once; an order (from a master) hands a leadership to the member that is to have it, soft reason or not. The member would
//! hand back before anything else happens, and the order would be repeated for as long as the reason holds. So a leadership
//! that was handed to a replica stays there for [`KEPT_FOR`] in spite of soft reasons.
//!
//! openraft disables a leader that was ordered to hand over until another member is elected, in whatever time that takes. So
//! an order lapses here ([`Handovers::lapses`]): as soon as the successor refuses, or after [`LAPSES_AFTER`].
//!
//! Invariant: only soft reasons are overruled. A leadership that a firm reason forbids is never kept.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ReplicaId;
use tokio::time::Instant;

/// A soft reason does not end a leadership that was handed to this replica until so long after: enough for the change of
/// members that a handover is usually part of.
const KEPT_FOR: Duration = Duration::from_secs(10);

/// A leader that was ordered to hand over and still leads after this resigns. A successor needs one round trip and one
/// election.
const LAPSES_AFTER: Duration = Duration::from_secs(3);

/// A member that refused a leadership gets none by order for so long.
const DECLINED_FOR: Duration = Duration::from_secs(10);

/// The first words of the answer of a member that refuses a leadership.
pub(crate) const DECLINED: &str = "this server refuses leadership at present";

/// The handovers of one group, as its local replica saw them.
#[derive(Debug, Default)]
pub(crate) struct Handovers {
    /// When a leader last handed its leadership to this replica.
    given: Option<Instant>,
    /// The last term in which this replica was ordered to hand over, and when that began.
    ordered: Option<(u64, Instant)>,
    /// The members that refused this replica's leadership, and when.
    declined: BTreeMap<ReplicaId, Instant>,
    /// The order of the present term was refused.
    refused: bool,
}

impl Handovers {
    /// A leader hands its leadership to this replica.
    pub(crate) fn given(&mut self, now: Instant) {
        self.given = Some(now);
    }

    /// Whether a soft reason must not end a leadership of this replica yet.
    pub(crate) fn keeps(&self, now: Instant) -> bool {
        self.given.is_some_and(|given| now.duration_since(given) < KEPT_FOR)
    }

    /// This leader is ordered to hand over.
    pub(crate) fn ordered(&mut self, term: u64, now: Instant) {
        self.refused = false;
        if self.ordered.is_none_or(|(before, _)| before != term) {
            self.ordered = Some((term, now));
        }
    }

    /// A member refuses the leadership.
    pub(crate) fn declined(&mut self, replica: ReplicaId, now: Instant) {
        self.declined.insert(replica, now);
        self.refused = true;
    }

    /// Whether a member refused a leadership recently.
    pub(crate) fn has_declined(&self, replica: ReplicaId, now: Instant) -> bool {
        self.declined.get(&replica).is_some_and(|at| now.duration_since(*at) < DECLINED_FOR)
    }

    /// Whether the order to hand over, given in this term, has come to nothing, so that the leader of the term should resign.
    /// True once; if the leader is still there, again after a while.
    pub(crate) fn lapses(&mut self, term: u64, now: Instant) -> bool {
        let lapses = self
            .ordered
            .is_some_and(|(ordered, at)| ordered == term && (self.refused || now.duration_since(at) >= LAPSES_AFTER));
        if lapses {
            (self.ordered, self.refused) = (Some((term, now)), false);
        }
        lapses
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// - `given at=MS`: a leader hands over to this replica
    /// - `order at=MS term=T`, `declined REPLICA at=MS`: this leader is ordered to hand over, a member refuses
    /// - `look at=MS term=T [REPLICA]`: what follows, and whether the replica counts as refusing
    fn start() -> impl FnMut(&str, &mut String) {
        let (mut handovers, begun) = (Handovers::default(), Instant::now());
        move |line, out| {
            let line = Line::new(line);
            let now = begun + line.ms("at").expect("at=");
            match line.command() {
                "given" => handovers.given(now),
                "order" => handovers.ordered(line.need("term"), now),
                "declined" => handovers.declined(ReplicaId(line.word(0)), now),
                "look" => {
                    let keeps = if handovers.keeps(now) { "keeps" } else { "may hand over" };
                    let lapsed = if handovers.lapses(line.need("term"), now) { ", resigns" } else { "" };
                    let refuses = |replica: &str| handovers.has_declined(ReplicaId(replica.parse().unwrap()), now);
                    let refusing: Vec<_> = line.words().filter(|replica| refuses(replica)).collect();
                    write!(out, "{keeps}{lapsed}").unwrap();
                    refusing.iter().for_each(|replica| write!(out, ", not to {replica}").unwrap());
                    writeln!(out).unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("leadership/handover", start);
    }
}
