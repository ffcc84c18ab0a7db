//! Which writes a read is guaranteed to see, and as of when its answer is complete.

use terrane_proto::v1;

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

impl From<Consistency> for v1::Consistency {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Linearizable => Self::Linearizable,
            Consistency::Strict => Self::Strict,
            Consistency::Stale => Self::Stale,
        }
    }
}

/// An answer, and as of when it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOf<T> {
    /// What was read.
    pub value: T,
    /// Everything acknowledged before this time is shown: milliseconds since 1970, by the cluster's clock. `None`: the read
    /// was linearizable, so that it shows everything acknowledged before it began.
    pub as_of_ms: Option<u64>,
}

/// The bound of two answers together; 0 on the wire is no bound.
pub(crate) fn older(known: Option<u64>, as_of_ms: u64) -> Option<u64> {
    match (known, as_of_ms) {
        (known, 0) => known,
        (None, heard) => Some(heard),
        (Some(known), heard) => Some(known.min(heard)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_several_answers_is_the_oldest() {
        assert_eq!(
            [(None, 0), (None, 5), (Some(4), 5), (Some(6), 5), (Some(6), 0)].map(|(known, heard)| older(known, heard)),
            [None, Some(5), Some(4), Some(5), Some(6)]
        );
    }
}
