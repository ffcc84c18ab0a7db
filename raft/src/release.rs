//! Up to where the log need not be kept for other members: the leader's decision.
//!
//! A member that is behind catches up from the log, which is cheap, or from a copy of the group, which is not. So the log is
//! kept for members that are behind, but it never grows to its limit because of them: a member that is silent for long and
//! lacks much, or one that holds a log over its budget, gets a copy instead.
//!
//! Where the state machine cannot be copied, the log is kept for all members.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ReplicaId;
use tokio::time::Instant;

/// A member that has not answered for this many seconds is not waited for, if it lacks more than [`LACKS_BYTES_MAX`].
const SILENT_SECONDS_MAX: u64 = 60;
/// Bytes that are kept for a silent member: less than a copy of a group of any size would take.
const LACKS_BYTES_MAX: u64 = 16 << 20;

/// What the leader knows of a member's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLog {
    pub(crate) replica: ReplicaId,
    /// The last entry it is known to have.
    pub(crate) matched: u64,
    /// It has been silent for long, and lacks much.
    pub(crate) lost: bool,
}

/// What the log asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// The last committed entry.
    pub(crate) committed: u64,
    /// The log is over its budget, and this group holds it back: the last entry that must go.
    pub(crate) wanted: Option<u64>,
    /// The log is full here, or at a member that keeps up.
    pub(crate) full: bool,
    /// A copy that is being sent needs the entries after this one.
    pub(crate) sending: Option<u64>,
}

/// The last entry that is not kept for members. `can_copy`: those that lack entries get a copy.
pub(crate) fn released(members: &[MemberLog], pressure: Pressure, can_copy: bool) -> u64 {
    let least = |members: &mut dyn Iterator<Item = &MemberLog>| members.map(|member| member.matched).min();
    let by_all = least(&mut members.iter()).unwrap_or(0);
    if !can_copy {
        return by_all;
    }
    let waited_for = least(&mut members.iter().filter(|member| !member.lost)).unwrap_or(by_all);
    let Pressure { committed, wanted, full, sending } = pressure;
    let forced = if full { committed } else { wanted.unwrap_or(0) };
    let released = waited_for.max(forced).min(committed);
    // While there is room, a copy on its way is not made useless.
    let released = if full { released } else { sending.map_or(released, |after| released.min(after)) };
    released.max(by_all)
}

/// When each member was last heard.
#[derive(Default)]
pub(crate) struct Silence {
    heard: BTreeMap<ReplicaId, Instant>,
}

impl Silence {
    /// Notes whether a member is alive now, and returns whether it has been silent for long. A new leader waits for everybody
    /// at first.
    pub(crate) fn is_long(&mut self, replica: ReplicaId, alive: bool, now: Instant) -> bool {
        let last = self.heard.entry(replica).or_insert(now);
        if alive {
            *last = now;
        }
        let max = terrane_env::limit!("seconds a silent member is waited for", SILENT_SECONDS_MAX, 1..=8);
        now.duration_since(*last) > Duration::from_secs(max)
    }

    /// Forgets everything: this replica does not lead.
    pub(crate) fn forget(&mut self) {
        self.heard.clear();
    }
}

/// Whether a silent member that lacks so many bytes is waited for no longer.
pub(crate) fn is_lost(silent_for_long: bool, lacks_bytes: u64) -> bool {
    silent_for_long && lacks_bytes > terrane_env::limit!("bytes kept for a silent member", LACKS_BYTES_MAX, 0..=16384)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};

    /// - `members I...`: the last entry of each; `I!` for one that is lost
    /// - `pressure [committed=I] [wanted=I] [full=1] [sending=I] [copies=0]`: prints what is released
    fn start() -> impl FnMut(&str, &mut String) {
        let mut members: Vec<MemberLog> = Vec::new();
        move |line, out| {
            let line = Line::new(line);
            match line.command() {
                "members" => {
                    members = (1..)
                        .zip(line.words())
                        .map(|(replica, word)| MemberLog {
                            replica: ReplicaId(replica),
                            matched: word.trim_end_matches('!').parse().unwrap(),
                            lost: word.ends_with('!'),
                        })
                        .collect();
                }
                "pressure" => {
                    let pressure = Pressure {
                        committed: line.need("committed"),
                        wanted: line.get("wanted"),
                        full: line.get::<u8>("full").is_some(),
                        sending: line.get("sending"),
                    };
                    let copies = line.get::<u8>("copies") != Some(0);
                    writeln!(out, "released up to {}", released(&members, pressure, copies)).unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("release", start);
    }

    #[test]
    fn a_member_is_lost_only_after_a_long_silence_and_while_it_lacks_much() {
        let (mut silence, began) = (Silence::default(), Instant::now());
        let member = ReplicaId(1);
        assert!(!silence.is_long(member, false, began), "a new leader waits for it");
        let longest = Duration::from_secs(SILENT_SECONDS_MAX);
        assert!(!silence.is_long(member, false, began + longest));
        let later = began + longest + Duration::from_millis(1);
        assert!(silence.is_long(member, false, later));
        assert!(!silence.is_long(member, true, later), "it is back");
        assert!(!is_lost(true, LACKS_BYTES_MAX) && is_lost(true, LACKS_BYTES_MAX + 1));
        assert!(!is_lost(false, u64::MAX));
    }
}
