//! Which writes a read is guaranteed to see, and as of when its answer is complete.

/// Which writes a read is guaranteed to see, and what that costs.
///
/// The first two are linearizable: they return every write that was acknowledged before the read began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The leader answers: alone while its lease holds, otherwise after a quorum round. The default.
    #[default]
    Linearizable,
    /// Linearizable without relying on clock speed: the leader always runs a quorum round first. Costs one round between
    /// servers for each batch of reads.
    Strict,
    /// Any member of the group answers from what it has applied, so reads spread over servers and continue without a
    /// leader. The answer may lack the newest writes; it says as of when it is complete ([`AsOf`]).
    Stale,
}

/// An answer, and the time as of which it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf<T> {
    /// What was read.
    pub value: T,
    /// The answer includes every write acknowledged before this time, in milliseconds since 1970 by the cluster's clock.
    /// `None` for a linearizable read: it includes every write acknowledged before it began.
    pub as_of_ms: Option<u64>,
}

/// The time as of which two answers together are complete: the older of the two. `None` is linearizable, so no bound.
pub(crate) fn older(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_answers_are_complete_as_of_the_oldest() {
        let pairs = [(None, None), (None, Some(5)), (Some(4), Some(5)), (Some(6), Some(5)), (Some(6), None)];
        assert_eq!(pairs.map(|(one, other)| older(one, other)), [None, Some(5), Some(4), Some(5), Some(6)]);
    }
}
