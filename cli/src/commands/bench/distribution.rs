//! How rows are chosen: YCSB's request distributions.
//!
//! They follow YCSB's `ZipfianGenerator` (the method of Gray et al., "Quickly generating billion-record synthetic
//! databases", SIGMOD 1994), `ScrambledZipfianGenerator`, `SkewedLatestGenerator` and `UniformLongGenerator`, so that
//! figures are comparable with YCSB's. Two things differ, and neither changes what is drawn by more than rounding: the
//! random numbers are SplitMix64, and the zeta function of many items is a sum of its first terms and an integral for the
//! rest, so that a table of a billion rows does not take a minute to begin with, and one that grows costs nothing.

use crate::args::bench::run::Distribution;
use crate::random::Random;

/// The skew of YCSB's zipfian distributions.
pub const THETA: f64 = 0.99;
/// The items over which the scrambled distribution draws ranks, as in YCSB; ranks are then hashed to rows.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// Terms of the zeta function that are summed; the rest is an integral with an error below 1e-12.
const TERMS_SUMMED: u64 = 10_000;

/// A number in `0..1` with 53 random bits.
pub fn unit(random: &mut Random) -> f64 {
    (random.draw() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// YCSB's 64-bit FNV hash of a number, made positive as there.
pub fn hashed(number: u64) -> u64 {
    const PRIME: u64 = 1_099_511_628_211;
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for octet in number.to_le_bytes() {
        hash = (hash ^ u64::from(octet)).wrapping_mul(PRIME);
    }
    hash.cast_signed().unsigned_abs()
}

/// The sum of `1 / i^theta` for `i` in `1..=items`.
fn zeta(items: u64, theta: f64) -> f64 {
    let summed = items.min(TERMS_SUMMED);
    let sum: f64 = (1..=summed).map(|i| (i as f64).powf(-theta)).sum();
    if items <= summed {
        return sum;
    }
    // Euler and Maclaurin, from the last term summed to the last of all.
    let (a, b) = (summed as f64, items as f64);
    let term = |x: f64| x.powf(-theta);
    let slope = |x: f64| -theta * x.powf(-theta - 1.0);
    let integral = (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta);
    sum + integral + (term(b) - term(a)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

/// Ranks in `0..items`, of which rank `i` has a share proportional to `1 / (i + 1)^theta`.
#[derive(Clone, Debug)]
pub struct Zipfian {
    items: u64,
    zeta: f64,
    eta: f64,
    alpha: f64,
    second: f64,
}

impl Zipfian {
    /// The distribution over at least one item.
    pub fn new(items: u64) -> Zipfian {
        let items = items.max(1);
        let zeta_items = zeta(items, THETA);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta(2, THETA) / zeta_items);
        Zipfian { items, zeta: zeta_items, eta, alpha: 1.0 / (1.0 - THETA), second: 1.0 + 0.5f64.powf(THETA) }
    }

    /// The next rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        let uniform = unit(random);
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < self.second {
            return 1.min(self.items - 1);
        }
        let rank = self.items as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

/// Chooses among rows `0..rows`, where `rows` may grow from call to call.
#[derive(Clone, Debug)]
pub enum Chooser {
    /// A few rows are popular, and they are spread over the table.
    Zipfian(Zipfian),
    /// The last rows are popular: the last most, and so on back.
    Latest(Zipfian),
    /// All rows alike.
    Uniform,
}

impl Chooser {
    /// The chooser for a table that begins with this many rows.
    pub fn new(distribution: Distribution, rows: u64) -> Chooser {
        match distribution {
            Distribution::Zipfian => Chooser::Zipfian(Zipfian::new(SCRAMBLED_ITEMS)),
            Distribution::Latest => Chooser::Latest(Zipfian::new(rows)),
            Distribution::Uniform => Chooser::Uniform,
        }
    }

    /// A row below `rows`.
    pub fn choose(&mut self, random: &mut Random, rows: u64) -> u64 {
        let rows = rows.max(1);
        match self {
            Chooser::Zipfian(ranks) => hashed(ranks.draw(random)) % rows,
            Chooser::Latest(ranks) => {
                // A few rows more hardly change the shares: the sum is computed again when the table grew by a hundredth.
                if rows < ranks.items || rows - ranks.items > ranks.items / 100 {
                    *ranks = Zipfian::new(rows);
                }
                rows - 1 - ranks.draw(random)
            }
            Chooser::Uniform => random.below(rows),
        }
    }
}

/// The random numbers of a worker: its own, and the same whatever the timing.
pub fn stream(seed: u64, worker: usize) -> Random {
    // Adjacent seeds would give overlapping streams; the generator's own output does not.
    Random::new(Random::new(seed).draw() ^ Random::new(worker as u64).draw())
}

/// A row among those of this worker; any row if there are too few for all workers.
pub fn row_of(random: &mut Random, rows: u64, worker: usize, workers: usize) -> u64 {
    let (worker, workers) = (worker as u64, workers as u64);
    if rows < workers { random.below(rows) } else { random.below(rows / workers) * workers + worker }
}

/// A start row with at least `count` rows from it on.
pub fn scan_start(random: &mut Random, rows: u64, count: u64) -> u64 {
    random.below(rows.saturating_sub(count) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws of each test; shares are then known to about 0.1 %.
    const DRAWS: u32 = 400_000;
    const SEED: u64 = 20_261_124;

    fn shares(rows: u64, mut draw: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        println!("seed {SEED}");
        let mut random = Random::new(SEED);
        let mut counts = vec![0u32; usize::try_from(rows).expect("few rows")];
        for _ in 0..DRAWS {
            counts[usize::try_from(draw(&mut random)).expect("a row")] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / f64::from(DRAWS)).collect()
    }

    /// Five standard deviations of a share.
    fn tolerance(share: f64) -> f64 {
        5.0 * (share * (1.0 - share) / f64::from(DRAWS)).sqrt()
    }

    #[test]
    fn the_hash_is_that_of_ycsb() {
        // FNV-1a over the eight octets, the lowest first: of 0 it is the offset basis multiplied eight times.
        let mut zero: u64 = 0xcbf2_9ce4_8422_2325;
        for _ in 0..8 {
            zero = zero.wrapping_mul(0x100_0000_01b3);
        }
        assert_eq!(hashed(0), zero.cast_signed().unsigned_abs());
        assert_eq!(hashed(0), 6_284_781_860_667_377_211, "the first key of a YCSB load is user6284781860667377211");
        assert!((0..10_000).all(|number| hashed(number) <= 1 << 63));
    }

    #[test]
    fn zeta_of_many_items_is_the_value_that_ycsb_has_precomputed() {
        assert!((zeta(SCRAMBLED_ITEMS, THETA) - 26.469_028_201_783_02).abs() < 1e-7);
        let plain: f64 = (1..=50_000u32).map(|i| f64::from(i).powf(-THETA)).sum();
        assert!((zeta(50_000, THETA) - plain).abs() < 1e-10);
    }

    #[test]
    fn ranks_have_the_shares_of_the_law() {
        let rows = 1_000;
        let zipfian = Zipfian::new(rows);
        let shares = shares(rows, |random| zipfian.draw(random));
        let sum = zeta(rows, THETA);
        // The method is exact for the first two ranks, and approximates the others.
        for rank in [0, 1] {
            let law = 1.0 / f64::from(rank + 1).powf(THETA) / sum;
            let found = shares[rank as usize];
            assert!((found - law).abs() < tolerance(law), "rank {rank}: {found}, by the law {law}");
        }
        // The others follow the integral of the law, which gives the ranks 2 to 9 a tenth too much.
        let below = |rank: usize| {
            let scaled = (rank as f64 / rows as f64).powf(1.0 - THETA);
            (scaled - 1.0 + zipfian.eta) / zipfian.eta
        };
        for (from, to) in [(3usize, 10), (10, 100), (100, 1_000)] {
            let found: f64 = shares[from..to].iter().sum();
            let integral = below(to) - below(from);
            assert!((found - integral).abs() < tolerance(integral), "ranks {from}..{to}: {found}, not {integral}");
            let law: f64 = (from + 1..=to).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>() / sum;
            assert!((found / law - 1.0).abs() < 0.12, "ranks {from}..{to}: {found}, by the law {law}");
        }
    }

    #[test]
    fn popular_rows_are_spread_over_the_table() {
        let rows = 1_000;
        let mut chooser = Chooser::new(Distribution::Zipfian, rows);
        let shares = shares(rows, |random| chooser.choose(random, rows));
        let mut order: Vec<usize> = (0..shares.len()).collect();
        order.sort_by(|one, other| shares[*other].total_cmp(&shares[*one]));
        assert_eq!(order[0] as u64, hashed(0) % rows, "the most popular row is the hash of the first rank");
        let first = 1.0 / zeta(SCRAMBLED_ITEMS, THETA);
        assert!(shares[order[0]] >= first && shares[order[0]] < first + 0.01, "{}", shares[order[0]]);
        let in_lower_half = order[..20].iter().filter(|row| **row < 500).count();
        assert!((4..=16).contains(&in_lower_half), "{in_lower_half} of the 20 most popular rows");
        assert!(shares.iter().filter(|share| **share > 0.0).count() > 990, "all rows are drawn");
    }

    #[test]
    fn the_latest_rows_are_the_most_popular_while_the_table_grows() {
        let mut chooser = Chooser::new(Distribution::Latest, 100);
        for rows in [100, 101, 150, 1_000] {
            let shares = shares(rows, |random| chooser.choose(random, rows));
            let law = 1.0 / zeta(rows, THETA);
            let last = *shares.last().expect("rows");
            // The table may have grown by a hundredth since the shares were computed.
            assert!((last - law).abs() < tolerance(law) + 0.002, "{rows} rows: {last}, by the law {law}");
            assert!(shares[shares.len() - 2] < last);
        }
    }

    #[test]
    fn uniform_rows_have_equal_shares() {
        let mut chooser = Chooser::new(Distribution::Uniform, 50);
        let shares = shares(50, |random| chooser.choose(random, 50));
        for (row, share) in shares.iter().enumerate() {
            assert!((share - 0.02).abs() < tolerance(0.02), "row {row}: {share}");
        }
    }

    #[test]
    fn a_table_of_one_row_has_only_that() {
        for distribution in Distribution::ALL {
            let mut chooser = Chooser::new(*distribution, 1);
            let mut random = Random::new(SEED);
            assert!((0..1_000).all(|_| chooser.choose(&mut random, 1) == 0), "{distribution}");
        }
    }

    #[test]
    fn workers_choose_differently_and_each_the_same_again() {
        let rows = |worker| {
            let mut random = stream(SEED, worker);
            (0..20).map(|_| random.below(1_000)).collect::<Vec<_>>()
        };
        assert_eq!(rows(1), rows(1));
        assert_ne!(rows(1), rows(2));
    }

    #[test]
    fn workers_have_rows_of_their_own_where_there_are_enough() {
        let rows = |worker, of| {
            let mut random = stream(SEED, worker);
            (0..500).map(|_| row_of(&mut random, of, worker, 4)).collect::<std::collections::BTreeSet<u64>>()
        };
        assert!(rows(3, 10).is_disjoint(&rows(1, 10)));
        assert_eq!(rows(3, 10), [3, 7].into());
        assert_eq!(rows(3, 2), [0, 1].into());
    }

    #[test]
    fn scans_start_where_all_their_rows_exist() {
        let mut random = Random::new(SEED);
        let starts: std::collections::BTreeSet<u64> = (0..2_000).map(|_| scan_start(&mut random, 100, 90)).collect();
        assert_eq!(starts, (0..=10).collect());
        assert_eq!(scan_start(&mut random, 5, 100), 0);
    }
}
