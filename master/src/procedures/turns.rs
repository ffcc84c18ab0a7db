//! Which intents get a procedure now, and how many procedures may run.
//!
//! Procedures that wait for a server or a leader cost a task and a retry per second, and may wait for hours. Only those
//! that make progress count against the limit of concurrent procedures, so that a group without a leader delays its own
//! tables and no others. The total is bounded as well; beyond it, a change is refused before it becomes an intent.

use std::collections::BTreeSet;
use std::mem::discriminant;

use crate::context::{Subject, UNFINISHED_MAX};

/// Concurrent procedures of one kind, not counting those that wait; further intents wait in the catalog for their turn.
pub const RUNNING_MAX: usize = 64;

/// Whether `subject` gets a procedure in addition to the existing ones. `waits` says which of them wait.
pub fn may_start<'a>(subject: Subject, existing: impl Iterator<Item = &'a Subject>, waits: &BTreeSet<Subject>) -> bool {
    let (mut all, mut running) = (0, 0);
    for other in existing {
        if *other == subject {
            return false;
        }
        // Counted by kind: groups that wait for a dead server must not prevent tables from being created.
        if discriminant(other) == discriminant(&subject) {
            all += 1;
            running += usize::from(!waits.contains(other));
        }
    }
    running < RUNNING_MAX && all < UNFINISHED_MAX
}

#[cfg(test)]
mod tests {
    use terrane_types::{GroupId, TableId};

    use super::*;

    fn tables(count: usize) -> Vec<Subject> {
        (0..count as u64).map(|table| Subject::Table(TableId(table))).collect()
    }

    fn waiting(subjects: &[Subject]) -> BTreeSet<Subject> {
        subjects.iter().copied().collect()
    }

    const NEXT: Subject = Subject::Table(TableId(1 << 40));

    #[test]
    fn procedures_that_wait_do_not_delay_others() {
        let there = tables(RUNNING_MAX);
        assert!(!may_start(NEXT, there.iter(), &BTreeSet::new()), "all of them make progress");
        assert!(may_start(NEXT, there.iter(), &waiting(&there)));
        assert!(may_start(NEXT, there.iter(), &waiting(&there[..1])), "one place is free");
    }

    #[test]
    fn waiting_procedures_are_bounded_and_kinds_are_counted_separately() {
        let there = tables(UNFINISHED_MAX);
        assert!(!may_start(NEXT, there.iter(), &waiting(&there)));
        assert!(may_start(NEXT, there[1..].iter(), &waiting(&there)));
        assert!(may_start(Subject::Group(GroupId(1)), there.iter(), &BTreeSet::new()));
    }

    #[test]
    fn a_subject_with_a_procedure_gets_no_second() {
        assert!(!may_start(NEXT, [NEXT].iter(), &waiting(&[NEXT])));
    }
}
