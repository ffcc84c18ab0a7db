//! Which of its numbers a client still waits for, when that is not simply all from its lowest one on.
//!
//! A client sends this with a request now and then while its lowest number lags behind. It goes through the log of the
//! region's group as an operation of its own, and it holds at whichever moment it is applied: a settled number stays
//! settled, and nothing is said about numbers that the client has not issued yet.

use crate::record::Malformed;

/// Ranges in one report; a client that waits for more sends none.
const RANGES_MAX: usize = 8192;

/// All numbers below `below` are settled except those in the ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// Nothing is said about numbers from here on.
    pub below: u64,
    /// Inclusive, ascending, below `below`; neither touching nor overlapping.
    ranges: Vec<(u64, u64)>,
}

impl UnderWay {
    /// # Errors
    /// `Malformed` for too many ranges, or ranges that do not ascend.
    pub fn new(below: u64, ranges: Vec<(u64, u64)>) -> Result<Self, Malformed> {
        if ranges.len() > RANGES_MAX {
            return Err(Malformed("a client waits for more than 8192 ranges of numbers"));
        }
        let ascend = ranges.windows(2).all(|pair| pair[0].1.saturating_add(1) < pair[1].0);
        if !ascend || ranges.iter().any(|(first, last)| first > last || *last >= below) {
            return Err(Malformed("the numbers that a client waits for do not ascend"));
        }
        Ok(Self { below, ranges })
    }

    pub fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= number);
        at > 0 && self.ranges[at - 1].1 >= number
    }

    /// The settled numbers from `from` on: those between the ranges and after the last one.
    pub fn settled_from(&self, from: u64) -> Vec<(u64, u64)> {
        let (mut settled, mut next) = (Vec::with_capacity(self.ranges.len() + 1), from);
        for (first, last) in self.ranges.iter().filter(|(_, last)| *last >= from) {
            if *first > next {
                settled.push((next, first - 1));
            }
            // No overflow: `last` is below `below`.
            next = last + 1;
        }
        if next < self.below {
            settled.push((next, self.below - 1));
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_waited_for_is_settled() {
        let under_way = UnderWay::new(20, vec![(3, 3), (7, 9)]).unwrap();
        assert_eq!(under_way.settled_from(1), [(1, 2), (4, 6), (10, 19)]);
        assert_eq!(under_way.settled_from(3), [(4, 6), (10, 19)]);
        assert_eq!(under_way.settled_from(8), [(10, 19)]);
        assert_eq!(under_way.settled_from(30), []);
        assert_eq!(UnderWay::new(5, vec![(1, 4)]).unwrap().settled_from(1), []);
        assert!(under_way.contains(8) && !under_way.contains(4) && !under_way.contains(20));
    }

    #[test]
    fn numbers_that_do_not_ascend_are_refused() {
        assert!(UnderWay::new(20, vec![(7, 9), (3, 3)]).is_err());
        assert!(UnderWay::new(20, vec![(3, 3), (4, 5)]).is_err(), "they touch");
        assert!(UnderWay::new(20, vec![(9, 7)]).is_err());
        assert!(UnderWay::new(9, vec![(7, 9)]).is_err(), "not below the bound");
        let many = |count: u64| UnderWay::new(u64::MAX, (0..count).map(|at| (2 * at, 2 * at)).collect());
        assert!(many(RANGES_MAX as u64).is_ok() && many(RANGES_MAX as u64 + 1).is_err());
    }
}
