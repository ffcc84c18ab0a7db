//! The lineages of a group that was recovered: its own, and that of the members which the recovery has lost.
//!
//! A recovery skips so many terms that no election of the lost members reaches the group's. So a term says which lineage it
//! belongs to, without a record of its own that could be missing after a restart.

/// By how many terms a recovered group is ahead of the members that it has lost, at least.
pub const RECOVERY_TERMS: u64 = 1 << 20;

/// Whether a replica that is at one term is one that a recovered group, which is at the other, has lost.
pub fn is_lost(term: u64, group: u64) -> bool {
    // Half of them: the lost members have held some elections since.
    group.saturating_sub(term) >= RECOVERY_TERMS / 2
}

/// Which of the lineages of a group a term belongs to.
pub const fn lineage(term: u64) -> u64 {
    term / RECOVERY_TERMS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_that_a_recovery_has_lost_are_far_behind() {
        let recovered = 7 + RECOVERY_TERMS;
        assert!(is_lost(7, recovered + 1) && is_lost(7_000, recovered));
        assert!(!is_lost(recovered - 40, recovered) && !is_lost(recovered + 3, recovered));
        assert!(!is_lost(0, 40), "a group that was never recovered");
        assert_ne!(lineage(7), lineage(recovered));
    }
}
