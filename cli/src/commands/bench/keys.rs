//! Keys and values of the load generator.
//!
//! The key of row `n` is the number as 40 digits, so that all runs use the same keys, keys sort by number, and split
//! points can be computed. Each worker has its own seed, so that two runs make the same calls whatever the timing.

use terrane_types::Row;

use crate::random::Random;

/// Length of a key.
const KEY_BYTES: usize = 40;

/// The family and qualifier of the values.
pub const FAMILY: &str = "f";
pub const QUALIFIER: &str = "q";
/// The qualifier of counters.
pub const COUNTER: &str = "count";
/// The qualifier of the state that `cas` compares and sets.
pub const STATE: &str = "state";
/// The qualifier of the row's number, an `i64`.
pub const NUMBER: &str = "n";
/// Length of a prefix that 1,000 rows share: a key without its last three digits.
pub const PREFIX_BYTES: usize = KEY_BYTES - 3;

/// The key of a row.
pub fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        if rest == 0 {
            break;
        }
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit is below ten");
        rest /= 10;
    }
    key
}

/// Split points of a table of rows `0..rows` into regions with equal numbers of rows.
pub fn split_points(rows: u64, regions: u32) -> Vec<Row> {
    let mut points: Vec<u64> = (1..regions)
        .map(|region| u128::from(rows) * u128::from(region) / u128::from(regions))
        .map(|point| u64::try_from(point).expect("a part of the rows is no more than all of them"))
        .filter(|&point| point > 0)
        .collect();
    points.dedup();
    points.into_iter().map(|point| Row::new(key(point).to_vec()).expect("keys have 40 bytes")).collect()
}

/// A worker's stream of rows and values.
pub struct Choices {
    random: Random,
    rows: u64,
    value: Vec<u8>,
}

impl Choices {
    /// The choices of worker number `worker`.
    pub fn new(worker: usize, rows: u64, value_bytes: usize) -> Choices {
        // Adjacent seeds would give overlapping streams; the generator's own output does not.
        let seed = Random::new(u64::try_from(worker).expect("worker numbers are small")).draw();
        Choices { random: Random::new(seed), rows, value: vec![0; value_bytes] }
    }

    /// The number of a random row.
    pub fn row(&mut self) -> u64 {
        self.random.below(self.rows)
    }

    /// The number of a random row among those of this worker; any row if there are too few for all workers.
    pub fn row_of(&mut self, worker: usize, workers: usize) -> u64 {
        let (worker, workers) = (worker as u64, workers as u64);
        if self.rows < workers { self.row() } else { self.random.below(self.rows / workers) * workers + worker }
    }

    /// A random start row with at least `batch` rows from it on.
    pub fn scan_start(&mut self, batch: u64) -> u64 {
        self.random.below(self.rows.saturating_sub(batch) + 1)
    }

    /// A random value.
    pub fn value(&mut self) -> &[u8] {
        self.random.fill(&mut self.value);
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_number() {
        assert_eq!(&key(0), &[b'0'; 40]);
        assert_eq!(&key(1_234)[34..], b"001234");
        assert_eq!(&key(u64::MAX)[20..], b"18446744073709551615");
        let numbers = [0, 1, 9, 10, 99, 100, 12_345, u64::MAX];
        assert!(numbers.map(key).is_sorted());
    }

    #[test]
    fn regions_are_of_one_size() {
        let numbers: Vec<_> = split_points(100, 4).iter().map(|row| row.to_vec()).collect();
        assert_eq!(numbers, [25, 50, 75].map(|number| key(number).to_vec()));
        assert!(split_points(100, 1).is_empty());
        assert_eq!(split_points(3, 10).len(), 2, "no region is empty, none begins at the first row");
        assert!(split_points(u64::MAX, 3).is_sorted());
    }

    #[test]
    fn workers_choose_differently_and_each_the_same_again() {
        let rows = |worker| {
            let mut choices = Choices::new(worker, 1_000, 8);
            (0..20).map(|_| choices.row()).collect::<Vec<_>>()
        };
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1), rows(2));
        assert!(rows(3).iter().all(|&row| row < 1_000));
    }

    #[test]
    fn workers_have_rows_of_their_own_where_there_are_enough() {
        let rows = |worker, of| {
            let mut choices = Choices::new(worker, of, 0);
            (0..500).map(|_| choices.row_of(worker, 4)).collect::<std::collections::BTreeSet<u64>>()
        };
        assert!(rows(3, 10).is_disjoint(&rows(1, 10)));
        assert_eq!(rows(3, 10), [3, 7].into());
        assert_eq!(rows(3, 2), [0, 1].into());
    }

    #[test]
    fn prefixes_hold_a_thousand_rows() {
        let prefix = |number| key(number)[..PREFIX_BYTES].to_vec();
        assert_eq!(prefix(0), prefix(999));
        assert_ne!(prefix(0), prefix(1_000));
    }

    #[test]
    fn scans_start_where_all_their_rows_exist() {
        let mut choices = Choices::new(0, 100, 0);
        let starts: std::collections::BTreeSet<u64> = (0..2_000).map(|_| choices.scan_start(90)).collect();
        assert_eq!(starts, (0..=10).collect());
        assert_eq!(Choices::new(0, 5, 0).scan_start(100), 0);
    }
}
