//! Who is right where the replicas of a region differ.

use std::collections::{BTreeMap, BTreeSet};

use terrane_types::ReplicaId;

use crate::region::cell_digest::RegionDigest;

/// What the voters of a group hold of a region, as of one entry; `None` for one that could not say.
pub type Answers = BTreeMap<ReplicaId, Option<RegionDigest>>;

/// What the answers amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All hold the same.
    Equal(RegionDigest),
    /// A majority of the voters holds the same, these others do not.
    Odd { expected: RegionDigest, odd: BTreeSet<ReplicaId> },
    /// They differ, and no majority agrees.
    Divided,
    /// Too few have answered.
    Incomplete,
}

/// Judges the answers of all voters. Those that answered decide nothing about those that did not.
pub fn judge(answers: &Answers) -> Verdict {
    let mut counts: Vec<(RegionDigest, usize)> = Vec::new();
    for digest in answers.values().flatten() {
        match counts.iter_mut().find(|(known, _)| known == digest) {
            Some((_, count)) => *count += 1,
            None => counts.push((*digest, 1)),
        }
    }
    let answered: usize = counts.iter().map(|(_, count)| count).sum();
    let Some(&(expected, most)) = counts.iter().max_by_key(|(_, count)| *count) else { return Verdict::Incomplete };
    if terrane_env::planted!("replicas that differ are taken for equal") || most == answers.len() {
        return Verdict::Equal(expected);
    }
    if most == answered {
        return Verdict::Incomplete;
    }
    if most > answers.len() / 2 {
        let is_odd = |(_, digest): &(&ReplicaId, &Option<RegionDigest>)| digest.is_some_and(|own| own != expected);
        let odd = answers.iter().filter(is_odd).map(|(replica, _)| *replica).collect();
        return Verdict::Odd { expected, odd };
    }
    // One that has not answered may make a majority.
    if answered < answers.len() { Verdict::Incomplete } else { Verdict::Divided }
}

/// What two comparisons in a row amount to, of which the first found a difference: one that does not repeat was not on a disk
/// or in a memtable, and nothing is replaced for it.
pub fn confirmed(first: &Verdict, second: Verdict) -> Verdict {
    match (first, second) {
        (_, equal @ Verdict::Equal(_)) => equal,
        (Verdict::Odd { odd: before, .. }, Verdict::Odd { expected, odd }) if *before == odd => {
            Verdict::Odd { expected, odd }
        }
        (Verdict::Divided, Verdict::Divided) => Verdict::Divided,
        _ => Verdict::Incomplete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(crc: u32) -> RegionDigest {
        RegionDigest { crc, rows: 1, bytes: 1 }
    }

    /// Judges answers by their checksums; 0: none.
    fn judged(answers: &[u32]) -> Verdict {
        let answer = |(replica, crc): (u64, &u32)| (ReplicaId(replica), (*crc != 0).then(|| digest(*crc)));
        judge(&(1..).zip(answers).map(answer).collect())
    }

    fn odd(crc: u32, replicas: &[u64]) -> Verdict {
        Verdict::Odd { expected: digest(crc), odd: replicas.iter().copied().map(ReplicaId).collect() }
    }

    #[test]
    fn a_majority_of_the_voters_is_right() {
        assert_eq!(judged(&[7, 7, 7]), Verdict::Equal(digest(7)));
        assert_eq!(judged(&[7, 8, 7]), odd(7, &[2]));
        assert_eq!(judged(&[8, 7, 7]), odd(7, &[1]));
        assert_eq!(judged(&[7, 7, 7, 8, 9]), odd(7, &[4, 5]));
    }

    #[test]
    fn without_a_majority_none_is_right() {
        assert_eq!(judged(&[7, 8, 9]), Verdict::Divided);
        assert_eq!(judged(&[7, 8]), Verdict::Divided);
        assert_eq!(judged(&[7, 7, 8, 8, 9]), Verdict::Divided);
    }

    #[test]
    fn a_voter_that_does_not_answer_is_neither_equal_nor_odd() {
        assert_eq!(judged(&[0, 0, 0]), Verdict::Incomplete);
        assert_eq!(judged(&[7, 7, 0]), Verdict::Incomplete);
        assert_eq!(judged(&[7, 8, 0]), Verdict::Incomplete);
        assert_eq!(judged(&[7, 7, 7, 8, 0]), odd(7, &[4]));
    }

    #[test]
    fn a_difference_counts_when_it_repeats() {
        assert_eq!(confirmed(&odd(7, &[2]), odd(9, &[2])), odd(9, &[2]));
        assert_eq!(confirmed(&odd(7, &[2]), odd(7, &[3])), Verdict::Incomplete);
        assert_eq!(confirmed(&odd(7, &[2]), Verdict::Equal(digest(7))), Verdict::Equal(digest(7)));
        assert_eq!(confirmed(&Verdict::Divided, odd(7, &[2])), Verdict::Incomplete);
        assert_eq!(confirmed(&Verdict::Divided, Verdict::Divided), Verdict::Divided);
    }
}
