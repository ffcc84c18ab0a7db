//! How far the members of a group have applied, and what follows when one of them does not get on.
//!
//! An entry in a member's log is not enough to apply it: it may name files that only other members have. So members say with
//! every answer to an append what they have applied, and the leader keeps log and files by that ([`crate::retention::release`]), hands its
//! leadership to members that have applied ([`crate::leadership::abstain`]), and names them to the master.
//!
//! A replica that applies nothing for a while ([`crate::HostConfig::stuck_after`]) although committed entries wait is *stuck*. It
//! says so, hands over its leaderships, and stands for election only when no leader was heard for long. If what it lacks is on
//! no member that it reaches, it asks its leader for a copy of the group ([`crate::copies`]), which covers the entry.
//!
//! A number of entries says little about the time that they take: to apply one that takes a region in, a slow disk needs
//! seconds. So a replica is also watched for how long it has lagged ([`Lag`]), and one that lags leads only where no other can.
//!
//! Unknown is not applied: a new leader keeps everything until it has heard each member.
//!
//! A member that misses an entry which it has acknowledged to this very leader has lost it: its disk did not keep what it had
//! synced, or an older state of the disk was restored. openraft takes that for a bug and would end the leader, so it never
//! hears of it ([`Members::has_lost`]). The member gets a copy, as if it had asked for one.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_types::ReplicaId;
use tokio::time::Instant;

use crate::Progress;
use crate::types::{LogId, Vote};

/// How long a member that asked for a copy waits for the next one, after the last one was sent or was not.
const COPY_EVERY: Duration = Duration::from_secs(2);

/// A replica that has had an entry for longer and has not applied it could not serve at once: several heartbeats, since a
/// member learns with one that an entry is committed, and tells with the next that it has applied it.
pub(crate) const LAG_MAX: Duration = Duration::from_millis(500);

/// A member that lacks at most this many entries, in its log or in what it has applied, catches up within a round trip or two.
pub(crate) const CAUGHT_UP_ENTRIES: u64 = 256;

/// An entry that a replica had and had not applied yet, and since when that has been known.
#[derive(Clone, Copy, Debug, Default)]
struct Lag(Option<(u64, Instant)>);

impl Lag {
    /// The replica has the entries up to `last`, and has applied those up to `applied`.
    fn note(&mut self, applied: u64, last: u64, now: Instant) {
        if self.0.is_none_or(|(entry, _)| entry <= applied) {
            self.0 = (applied < last).then_some((last, now));
        }
    }

    /// For how long it has lagged behind a replica that has applied the entries up to `upto`.
    fn behind(&self, upto: u64, now: Instant) -> Duration {
        self.0.filter(|(entry, _)| *entry <= upto).map_or(Duration::ZERO, |(_, since)| now.duration_since(since))
    }
}

/// What a member says with its answer to an append.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applying {
    /// The last entry that it has applied.
    pub(crate) applied: u64,
    /// It lacks what this entry needs; 0: nothing that it knows of.
    pub(crate) lacks_for: u64,
    /// It has lacked that for long, and asks for a copy of the group that covers the entry.
    pub(crate) asks: bool,
}

/// What the members have said to their leader.
#[derive(Default)]
pub(crate) struct Members {
    followers: Mutex<BTreeMap<ReplicaId, FollowerProgress>>,
}

#[derive(Default)]
struct FollowerProgress {
    /// `None`: it has not answered yet.
    applying: Option<Applying>,
    lag: Lag,
    /// When a copy that it asked for was last tried.
    tried: Option<Instant>,
    /// Up to where it has acknowledged the entries of a leader, whose vote this is.
    acknowledged: Option<(Vote, LogId)>,
    /// It has lost entries that it had acknowledged, of which this is the last one.
    lost: Option<u64>,
}

impl Members {
    /// A member has answered.
    pub(crate) fn heard(&self, replica: ReplicaId, applying: Applying) {
        self.followers.lock().entry(replica).or_default().applying = Some(applying);
    }

    /// A member has every entry up to this one, says its answer to the leader with this vote.
    pub(crate) fn acknowledged(&self, replica: ReplicaId, vote: &Vote, last: LogId, now: Instant) {
        let mut followers = self.followers.lock();
        let follower = followers.entry(replica).or_default();
        match &mut follower.acknowledged {
            // Heartbeats and appends are answered side by side.
            Some((of, upto)) if of == vote => *upto = (*upto).max(last),
            other => *other = Some((*vote, last)),
        }
        follower.lost.take_if(|lost| *lost <= last.index);
        if let Some(applying) = follower.applying {
            follower.lag.note(applying.applied, last.index, now);
        }
    }

    /// For how long a member has not applied an entry that it has, as has its leader, which has applied those up to `upto`.
    pub(crate) fn lag(&self, replica: ReplicaId, upto: u64, now: Instant) -> Duration {
        self.followers.lock().get(&replica).map_or(Duration::ZERO, |follower| follower.lag.behind(upto, now))
    }

    /// Whether a member that says to the leader with this vote that it misses an entry has acknowledged that entry to it
    /// before. Until it has it again, it is due for a copy.
    pub(crate) fn has_lost(&self, replica: ReplicaId, vote: &Vote, missing: LogId) -> bool {
        let mut followers = self.followers.lock();
        let Some(follower) = followers.get_mut(&replica) else { return false };
        let acknowledged = follower.acknowledged.as_ref().filter(|(of, upto)| of == vote && *upto >= missing);
        let Some((_, upto)) = acknowledged else { return false };
        if follower.lost.replace(upto.index).is_none() {
            tracing::warn!(%replica, missing = missing.index, acknowledged = upto.index,
                "a member has lost entries that it had acknowledged, and gets a copy of the group: its disk does not keep what it \
                 syncs, or an older state of it was restored");
        }
        true
    }

    /// How far a member has got whose log is known to match up to `matched`.
    pub(crate) fn reached(&self, replica: ReplicaId, matched: u64) -> u64 {
        self.of(replica).applied.min(matched)
    }

    /// What a member has said last; the default before it has answered.
    pub(crate) fn of(&self, replica: ReplicaId) -> Applying {
        self.followers.lock().get(&replica).and_then(|follower| follower.applying).unwrap_or_default()
    }

    /// The members that are due for a copy, because they asked for one or have lost entries, and the entry that it has to cover.
    pub(crate) fn due(&self, now: Instant) -> Vec<(ReplicaId, u64)> {
        let followers = self.followers.lock();
        let due = followers
            .iter()
            .filter(|(_, follower)| follower.tried.is_none_or(|tried| now.duration_since(tried) >= COPY_EVERY));
        let covers = |follower: &FollowerProgress| {
            let asked_for = follower.applying.filter(|applying| applying.asks).map(|applying| applying.lacks_for);
            asked_for.max(follower.lost)
        };
        due.filter_map(|(replica, follower)| Some((*replica, covers(follower)?))).collect()
    }

    /// A copy to this member is tried, or has ended.
    pub(crate) fn tried(&self, replica: ReplicaId, now: Instant) {
        self.followers.lock().entry(replica).or_default().tried = Some(now);
    }
}

/// Looks whether a replica gets on.
#[derive(Debug)]
pub(crate) struct Watch {
    stuck_after: Duration,
    /// What was seen last, and since when it has been so.
    seen: Option<(u64, Progress, Instant)>,
    lag: Lag,
    stuck: Option<ApplyStall>,
}

/// A replica that applies nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApplyStall {
    /// The last entry that it has applied.
    pub(crate) applied: u64,
    /// The entry that it cannot apply because of what it lacks, and what that is.
    pub(crate) lacks: Option<(u64, String)>,
    /// For how long, at least.
    after: Duration,
}

impl ApplyStall {
    /// For people: a sentence without its full stop.
    pub(crate) fn reason(&self) -> String {
        let seconds = self.after.as_secs();
        let waits = match &self.lacks {
            Some((_, what)) => format!("it lacks what the next entry needs ({what}) and asks for a copy of the group"),
            None => "what it waits for is on this server: see its disk and its memtables".to_owned(),
        };
        format!(
            "it has applied nothing after entry {} for over {seconds} s, although more is committed: {waits}",
            self.applied
        )
    }
}

impl Watch {
    pub(crate) fn new(stuck_after: Duration) -> Watch {
        Watch { stuck_after, seen: None, lag: Lag::default(), stuck: None }
    }

    /// Notes how far the replica is. True if it is stuck, or is no longer, since this look.
    pub(crate) fn look(&mut self, applied: u64, committed: u64, progress: Progress, now: Instant) -> bool {
        self.lag.note(applied, committed, now);
        let lacks = progress.lacks.clone();
        let same = |seen: &(u64, Progress, Instant)| {
            seen.0 == applied && seen.1.applied == progress.applied && seen.1.steps == progress.steps
        };
        let since = self.seen.as_ref().filter(|seen| committed > applied && same(seen)).map_or(now, |seen| seen.2);
        self.seen = Some((applied, progress, since));
        let before = self.stuck.is_some();
        let after = self.stuck_after;
        self.stuck = (now.duration_since(since) >= after).then_some(ApplyStall { applied, lacks, after });
        before != self.stuck.is_some()
    }

    /// For how long a committed entry has not been applied, as of the last look.
    pub(crate) fn lag(&self, now: Instant) -> Duration {
        self.lag.behind(u64::MAX, now)
    }

    pub(crate) fn stuck(&self) -> Option<&ApplyStall> {
        self.stuck.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::script::{Line, check};
    use crate::types::log_id;

    fn vote(term: u64) -> Vote {
        Vote::new(term, ReplicaId(1))
    }

    fn entry(index: u64) -> LogId {
        log_id(1, index)
    }

    /// - `heard REPLICA applied=I [lacks=I] [asks]`: a member answers
    /// - `lag REPLICA upto=I at=MS`, `lag at=MS`: for how long a member lags behind its leader, or the replica itself
    /// - `acknowledged REPLICA term=T last=I [at=MS]`, `missing REPLICA term=T entry=I`: a member has an entry of a leader, or misses it
    /// - `reached REPLICA matched=I`, `due at=MS`, `tried REPLICA at=MS`: what its leader knows and does
    /// - `look at=MS applied=I committed=I [steps=N] [lacks=I]`: a replica looks at itself
    fn start() -> impl FnMut(&str, &mut String) {
        let (members, mut watch, begun) = (Members::default(), Watch::new(Duration::from_secs(10)), Instant::now());
        move |line, out| {
            let line = Line::new(line);
            let now = begun + line.ms("at").unwrap_or_default();
            let replica = || ReplicaId(line.word(0));
            match line.command() {
                "heard" => {
                    let lacks_for = line.get("lacks").unwrap_or(0);
                    let applied = line.need("applied");
                    members.heard(replica(), Applying { applied, lacks_for, asks: line.has("asks") });
                }
                "acknowledged" => {
                    members.acknowledged(replica(), &vote(line.need("term")), entry(line.need("last")), now);
                }
                "lag" => {
                    let own = || watch.lag(now);
                    let lag = line.get("upto").map_or_else(own, |upto| members.lag(replica(), upto, now));
                    writeln!(out, "{} ms", lag.as_millis()).unwrap();
                }
                "missing" => {
                    let has_lost = members.has_lost(replica(), &vote(line.need("term")), entry(line.need("entry")));
                    writeln!(out, "{}", if has_lost { "it has lost it" } else { "it never had it" }).unwrap();
                }
                "reached" => {
                    let reached = members.reached(replica(), line.need("matched"));
                    writeln!(out, "up to {reached}").unwrap();
                }
                "due" => {
                    for (to, entry) in members.due(now) {
                        writeln!(out, "a copy to {to} that covers entry {entry}").unwrap();
                    }
                }
                "tried" => members.tried(replica(), now),
                "look" => {
                    let lacks = line.get("lacks").map(|entry: u64| (entry, "the files of a load".to_owned()));
                    let steps = line.get("steps").unwrap_or(0);
                    let progress = Progress { steps, lacks, ..Progress::default() };
                    let changed = watch.look(line.need("applied"), line.need("committed"), progress, now);
                    let state = watch.stuck().map_or_else(|| "gets on".to_owned(), ApplyStall::reason);
                    writeln!(out, "{}{state}", if changed { "now: " } else { "" }).unwrap();
                }
                other => panic!("unknown command {other}"),
            }
        }
    }

    #[test]
    fn scripts() {
        check("members/applying", start);
    }
}
