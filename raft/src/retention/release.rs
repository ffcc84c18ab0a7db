//! Up to where the log need not be kept for other members: the leader's decision.
//!
//! A member that is behind catches up from the log, which is cheap, or from a copy of the group, which is not. So the log is
//! kept for members that are behind, but it never grows to its limit because of them: a member that is silent or stuck for
//! long and lacks much, or one that holds a log over its budget, gets a copy instead.
//!
//! What a member has in its log and has not applied counts as lacking: entries name files (of bulk loads, of regions that
//! move) which members keep as long as their logs have the entry, and another member may have to fetch them.
//!
//! Where the state machine cannot be copied, the log is kept for all members.

use std::collections::BTreeMap;
use std::time::Duration;

use terrane_types::ReplicaId;
use tokio::time::Instant;

/// A member that has not answered for this many seconds is not waited for, if it lacks more than [`LACKS_BYTES_MAX`].
const SILENT_SECONDS_MAX: u64 = 60;
/// Files that entries name are kept for a member for this many seconds of silence: they may take any space, and a copy of the
/// group takes time.
const FILES_SECONDS_MAX: u64 = 600;
/// Bytes that are kept for a silent member: less than a copy of a group of any size would take.
const LACKS_BYTES_MAX: u64 = 16 << 20;

/// What the leader knows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberLog {
    pub(crate) replica: ReplicaId,
    /// The last entry that it is known to have applied.
    pub(crate) applied: u64,
    /// It has been silent or stuck for long, and lacks much.
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
    let least = |members: &mut dyn Iterator<Item = &MemberLog>| members.map(|member| member.applied).min();
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
pub(crate) struct LastContact {
    heard: BTreeMap<ReplicaId, Instant>,
}

impl LastContact {
    /// Notes whether a member is alive now and gets on, and returns for how long that has not been so. A new leader waits for
    /// everybody at first.
    pub(crate) fn of(&mut self, replica: ReplicaId, alive: bool, now: Instant) -> Duration {
        let last = self.heard.entry(replica).or_insert(now);
        if alive {
            *last = now;
        }
        now.duration_since(*last)
    }

    /// Forgets everything: this replica does not lead.
    pub(crate) fn forget(&mut self) {
        self.heard.clear();
    }
}

/// Whether a member that has been silent or stuck for so long is waited for no longer. It lacks so many bytes of the log, and
/// `files` that entries name.
pub(crate) fn is_lost(silence: Duration, lacks_bytes: u64, files: bool) -> bool {
    let seconds = terrane_env::limit!("seconds a silent member is waited for", SILENT_SECONDS_MAX, 1..=8);
    let bytes = terrane_env::limit!("bytes kept for a silent member", LACKS_BYTES_MAX, 0..=16384);
    let files_seconds = terrane_env::limit!("seconds files are kept for a silent member", FILES_SECONDS_MAX, 8..=16);
    let lacks_much = silence > Duration::from_secs(seconds) && lacks_bytes > bytes;
    lacks_much || files && silence > Duration::from_secs(files_seconds)
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
                            applied: word.trim_end_matches('!').parse().unwrap(),
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
        check("retention/release", start);
    }

    #[test]
    fn a_member_is_lost_only_after_a_long_silence_and_while_it_lacks_much() {
        let (mut silence, began) = (LastContact::default(), Instant::now());
        let member = ReplicaId(1);
        assert_eq!(silence.of(member, false, began), Duration::ZERO, "a new leader waits for it");
        let longest = Duration::from_secs(SILENT_SECONDS_MAX);
        assert!(!is_lost(silence.of(member, false, began + longest), u64::MAX, false));
        let later = began + longest + Duration::from_millis(1);
        let silent = silence.of(member, false, later);
        assert!(!is_lost(silent, LACKS_BYTES_MAX, false) && is_lost(silent, LACKS_BYTES_MAX + 1, false));
        assert_eq!(silence.of(member, true, later), Duration::ZERO, "it is back");
    }

    #[test]
    fn files_are_kept_for_a_silent_member_for_ten_minutes_however_few_entries_it_lacks() {
        let longest = Duration::from_secs(FILES_SECONDS_MAX);
        assert!(!is_lost(longest, 0, true));
        assert!(is_lost(longest + Duration::from_millis(1), 0, true));
        assert!(!is_lost(longest * 2, 0, false));
    }
}
