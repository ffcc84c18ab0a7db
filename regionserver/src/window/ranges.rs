//! A set of numbers that arrive nearly in order, stored as ranges.
//!
//! The usual number is one above the highest, and costs a look at the last range. Ranges are inclusive and ascending, and
//! neither touch nor overlap.

use std::collections::VecDeque;

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    ranges: VecDeque<(u64, u64)>,
}

impl Ranges {
    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The highest number.
    pub fn last(&self) -> Option<u64> {
        self.ranges.back().map(|(_, last)| *last)
    }

    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    pub fn contains(&self, number: u64) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= number);
        at > 0 && self.ranges[at - 1].1 >= number
    }

    /// Inserts a number; false if it was present.
    pub fn insert(&mut self, number: u64) -> bool {
        match self.ranges.back_mut() {
            Some((_, last)) if *last < number => {
                if *last + 1 == number {
                    *last = number;
                } else {
                    self.ranges.push_back((number, number));
                }
                true
            }
            None => {
                self.ranges.push_back((number, number));
                true
            }
            Some(_) => !self.contains(number) && self.insert_between(number),
        }
    }

    /// Inserts an absent number below the last range.
    fn insert_between(&mut self, number: u64) -> bool {
        let at = self.ranges.partition_point(|(first, _)| *first <= number);
        let joins_left = at > 0 && self.ranges[at - 1].1 + 1 == number;
        let joins_right = self.ranges.get(at).is_some_and(|(first, _)| *first == number + 1);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = number,
            (false, true) => self.ranges[at].0 = number,
            (false, false) => self.ranges.insert(at, (number, number)),
        }
        true
    }

    /// Inserts all numbers from `first` to `last`.
    pub fn insert_range(&mut self, first: u64, last: u64) {
        let from = self.ranges.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = self.ranges.partition_point(|(start, _)| *start <= last.saturating_add(1));
        let joined = self
            .ranges
            .range(from..to.max(from))
            .fold((first, last), |joined, range| (joined.0.min(range.0), joined.1.max(range.1)));
        self.ranges.drain(from..to.max(from));
        self.ranges.insert(from, joined);
    }

    /// Inserts all numbers of these ascending ranges in one pass.
    pub fn insert_ranges(&mut self, others: Vec<(u64, u64)>) {
        let mut all: Vec<_> = self.ranges.drain(..).chain(others).collect();
        all.sort_unstable();
        for (first, last) in all {
            match self.ranges.back_mut() {
                Some((_, before)) if before.saturating_add(1) >= first => *before = last.max(*before),
                _ => self.ranges.push_back((first, last)),
            }
        }
    }

    /// Removes all numbers of these ascending ranges in one pass.
    pub fn remove_ranges(&mut self, others: &[(u64, u64)]) {
        let mut others = others.iter().peekable();
        for (mut first, last) in std::mem::take(&mut self.ranges) {
            while let Some((from, to)) = others.next_if(|(_, to)| *to < last) {
                if *from > first {
                    self.ranges.push_back((first, last.min(from - 1)));
                }
                first = first.max(to.saturating_add(1));
            }
            match others.peek() {
                Some((from, _)) if *from <= first => {}
                Some((from, _)) if *from <= last => self.ranges.push_back((first, from - 1)),
                _ => self.ranges.push_back((first, last)),
            }
        }
    }

    /// Removes all numbers below `mark`.
    pub fn remove_below(&mut self, mark: u64) {
        while let Some((first, last)) = self.ranges.front_mut() {
            if *last >= mark {
                *first = (*first).max(mark);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// The highest number of the lowest range.
    pub fn first_end(&self) -> Option<u64> {
        self.ranges.front().map(|(_, last)| *last)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_hold_what_a_set_holds(steps in proptest::collection::vec((0..6u8, 1..60u64, 0..8u64), 1..80)) {
            let (mut ranges, mut set) = (Ranges::default(), BTreeSet::new());
            for (kind, number, more) in steps {
                match kind {
                    0 | 1 => prop_assert_eq!(ranges.insert(number), set.insert(number)),
                    2 => {
                        ranges.insert_range(number, number + more);
                        set.extend(number..=number + more);
                    }
                    3 => {
                        let others = vec![(number, number + more), (number + more + 3, number + more + 9)];
                        set.extend(others.iter().flat_map(|(first, last)| *first..=*last));
                        ranges.insert_ranges(others);
                    }
                    4 => {
                        let others = [(number, number + more), (number + more + 3, number + more + 9)];
                        set.retain(|held| !others.iter().any(|(first, last)| (first..=last).contains(&held)));
                        ranges.remove_ranges(&others);
                    }
                    _ => {
                        ranges.remove_below(number / 4);
                        set = set.split_off(&(number / 4));
                    }
                }
                let held: Vec<u64> = ranges.iter().flat_map(|(first, last)| first..=last).collect();
                prop_assert_eq!(&held, &set.iter().copied().collect::<Vec<_>>());
                for probe in 0..70 {
                    prop_assert_eq!(ranges.contains(probe), set.contains(&probe));
                }
                let apart = ranges.iter().zip(ranges.iter().skip(1)).all(|(left, right)| left.1 + 1 < right.0);
                prop_assert!(apart, "{:?}", ranges);
            }
        }
    }
}
