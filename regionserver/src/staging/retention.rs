//! When staged files may go: one rule for the files of loads and of moves.
//!
//! # Invariants
//! - Files that an entry took in here stay until the log of that entry's group no longer has it, and it is applied here.
//!   A leader releases an entry that names files only when every member has *applied* it, or is given up and gets a copy of
//!   the group instead ([`StateMachine::keeps_files_after`](terrane_raft::StateMachine::keeps_files_after)). Before that,
//!   another member may have to fetch them.
//! - Files of a refused move go at once: no entry takes them in.
//! - Other files go when they were not used for a while and every entry that was in the logs here by then is applied: one of
//!   them may be the load or the adoption that needs them.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use terrane_types::GroupId;
use tokio::time::Instant;

use crate::operation::StagingId;

/// Files that no entry is known to have taken in go when they are not used for so long.
const IDLE_MAX: Duration = Duration::from_secs(600);

/// How far a group's log and replica are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// The first entry that the log has.
    pub first: u64,
    pub last: u64,
    pub applied: u64,
}

/// The logs of the groups here.
pub type Logs = BTreeMap<GroupId, LogRange>;

/// The entry that took files in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub group: GroupId,
    pub index: u64,
}

impl Mark {
    /// The name of a mark beside the directory of a load.
    pub(super) fn name(self, staging: StagingId) -> String {
        format!("{staging}.{}.{}", self.group, self.index)
    }

    pub(super) fn parse(name: &str) -> Option<(StagingId, Mark)> {
        let mut parts = name.split('.');
        let (staging, group, index) = (parts.next()?, parts.next()?, parts.next()?);
        let mark = Mark { group: GroupId(group.parse().ok()?), index: index.parse().ok()? };
        if parts.next().is_some() { None } else { Some((staging.parse().ok()?, mark)) }
    }
}

/// What is known here of the entry that needs files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// It is applied, or was begun to be.
    Taken(Mark),
    /// There will be none.
    Refused,
    /// There may be one.
    Unknown,
}

impl Claim {
    /// Whether a member may need the files.
    pub(super) fn needs_files(self, usage: &Usage, logs: &Logs) -> bool {
        match self {
            Claim::Taken(Mark { group, index }) => {
                logs.get(&group).is_some_and(|log| log.first <= index || log.applied < index)
            }
            Claim::Refused => false,
            Claim::Unknown => !usage.is_idle(logs),
        }
    }
}

/// When files were used last.
#[derive(Debug)]
pub(super) struct Usage {
    last: Mutex<Instant>,
    /// The last entries of the logs here when the files were first found idle.
    idle_at: Mutex<Option<BTreeMap<GroupId, u64>>>,
}

impl Default for Usage {
    fn default() -> Self {
        Self { last: Mutex::new(Instant::now()), idle_at: Mutex::default() }
    }
}

impl Usage {
    pub(super) fn note(&self) {
        *self.last.lock() = Instant::now();
    }

    pub(super) fn is_recent(&self) -> bool {
        let seconds = terrane_env::limit!("seconds that unused staged files stay", IDLE_MAX.as_secs(), 20..=30);
        self.last.lock().elapsed() < Duration::from_secs(seconds)
    }

    /// Whether they were not used for a while, and no log here has an entry from that time that is not applied.
    fn is_idle(&self, logs: &Logs) -> bool {
        let mut idle_at = self.idle_at.lock();
        if self.is_recent() {
            *idle_at = None;
            return false;
        }
        let last = idle_at.get_or_insert_with(|| logs.iter().map(|(group, log)| (*group, log.last)).collect());
        last.iter().all(|(group, last)| logs.get(group).is_none_or(|log| log.applied >= *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(7);

    fn logs(first: u64, last: u64, applied: u64) -> Logs {
        [(GROUP, LogRange { first, last, applied })].into()
    }

    #[test]
    fn a_mark_says_which_entry_a_load_belongs_to() {
        let staging = StagingId([0xab; 16]);
        let mark = Mark { group: GROUP, index: 99 };
        assert_eq!(mark.name(staging), format!("{staging}.7.99"));
        assert_eq!(Mark::parse(&mark.name(staging)), Some((staging, mark)));
        for other in [format!("{staging}"), format!("{staging}.7"), format!("{staging}.7.99.tmp"), "x.7.99".to_owned()]
        {
            assert_eq!(Mark::parse(&other), None, "{other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn files_without_an_entry_go_once_every_entry_that_may_need_them_is_applied() {
        let usage = Usage::default();
        let needed = |logs: &Logs| Claim::Unknown.needs_files(&usage, logs);
        assert!(needed(&logs(1, 9, 9)), "they were just used");
        tokio::time::advance(IDLE_MAX).await;
        assert!(needed(&logs(1, 9, 8)), "the last entry may need them");
        assert!(!needed(&logs(1, 12, 9)), "later entries came after the last use");
        usage.note();
        assert!(needed(&logs(1, 12, 12)));
    }

    #[test]
    fn files_that_were_taken_in_stay_as_long_as_the_log_has_the_entry() {
        let needed = |claim: Claim, logs: &Logs| claim.needs_files(&Usage::default(), logs);
        let taken = Claim::Taken(Mark { group: GROUP, index: 5 });
        assert!(needed(taken, &logs(5, 9, 9)), "a member may not have applied it");
        assert!(needed(taken, &logs(6, 9, 4)), "this one has not");
        assert!(!needed(taken, &logs(6, 9, 9)) && !needed(taken, &Logs::new()), "its replica left this server");
        assert!(!needed(Claim::Refused, &logs(1, 9, 9)));
    }
}
