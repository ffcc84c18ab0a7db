//! Which rows of a region are read and written most, from sampled accesses: a sketch of bounded size, without I/O.
//!
//! Rows are counted with the Space-Saving algorithm (Metwally and others, 2005), reads and writes apart: [`ROWS_MAX`]
//! counters, of which a row without one takes the lowest and inherits its count as a possible error. A row's count less that
//! error is never more than what was sampled of it, so that no cold row is called hot; a row with more than one part in
//! `ROWS_MAX` of the accesses always has a counter.
//!
//! A second part keeps [`SPREAD_MAX`] of the sampled accesses at random, by which a region can be cut where its load is
//! halved. The counters could not say that: they know the hot rows, not where all the others are.
//!
//! Both forget by half every [`HALF_LIFE`]. Newer accesses weigh more instead of older ones less ("forward decay"), so that
//! nothing is done while time passes. The sketch draws its own pseudorandom numbers, which need not be secret, so that the same
//! accesses give the same answer.

use std::time::Duration;

use bytes::Bytes;
use xxhash_rust::xxh3::xxh3_64;

use super::sample::Sample;

/// Rows counted, for reads and writes each.
pub const ROWS_MAX: usize = 32;
/// Accesses kept to cut the load in half.
pub const SPREAD_MAX: usize = 128;
/// A longer row is never named; of it, this prefix says where the load is.
pub const ROW_BYTES_MAX: usize = 1 << 10;
/// After this time an access counts half.
pub const HALF_LIFE: Duration = Duration::from_secs(30);
/// Accesses older than this do not say any more where the load is.
const SPREAD_AGE_MAX: Duration = Duration::from_secs(120);
/// With fewer samples, after decay, no row is named.
const SAMPLES_MIN: f64 = 8.0;
/// A row with fewer samples of its own, after decay, is not named: that may be chance.
const ROW_SAMPLES_MIN: f64 = 4.0;
/// With fewer writes among them, the kept accesses do not say whether the keys grow.
const GROWTH_SAMPLES_MIN: usize = 16;
/// Of the newer writes, so many lie beyond so many of the older ones if the keys grow, in percent. With rows anywhere it is the
/// rest of the second figure.
const GROWTH_NEWER_PERCENT: usize = 80;
const GROWTH_OLDER_PERCENT: usize = 90;
/// Weights grow by this power of two before they are scaled down.
const RESCALE_AT: f64 = 64.0;

/// What is done to a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// A row that has a considerable share of the accesses of a region.
#[derive(Clone, Debug, PartialEq)]
pub struct HotRow {
    pub row: Bytes,
    /// Its share of the region's reads, or of its writes, from 0 to 1: at least so much was sampled.
    pub share: f64,
}

/// What was sampled of one access to a region.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'r> {
    pub access: Access,
    /// The row; `None`: not known.
    pub row: Option<&'r [u8]>,
    /// Whether just this row was asked for. Otherwise it only says where the load is.
    pub is_exact: bool,
    /// The accesses that this one stands for.
    pub weight: f64,
    /// What they cost: rows and KiB.
    pub units: f64,
}

/// The sketch of one region.
#[derive(Debug)]
pub struct HotRows {
    /// Weights are relative to this time.
    since_ns: u64,
    last_ns: u64,
    reads: Counters,
    writes: Counters,
    spread: Vec<Kept>,
    /// The place with the lowest priority, once all are taken.
    lowest: Option<usize>,
    random: u64,
}

/// Counters of rows, by access.
#[derive(Debug, Default)]
struct Counters {
    rows: Vec<Counter>,
    total: f64,
    samples: f64,
}

#[derive(Debug)]
struct Counter {
    /// Of the row, so that most others are told apart without a look at their bytes.
    hash: u64,
    row: Bytes,
    count: f64,
    /// What of the count may belong to other rows.
    error: f64,
}

/// An access that is kept to cut the load in half.
#[derive(Debug)]
struct Kept {
    row: Bytes,
    access: Access,
    at_ns: u64,
    /// Those with the highest priority are kept.
    priority: f64,
}

impl HotRows {
    /// An empty sketch.
    pub fn new(now_ns: u64) -> Self {
        Self {
            since_ns: now_ns,
            last_ns: now_ns,
            reads: Counters::default(),
            writes: Counters::default(),
            spread: Vec::new(),
            lowest: None,
            random: 0,
        }
    }

    /// Counts a sampled access.
    pub fn note(&mut self, now_ns: u64, sampled: Sampled<'_>) {
        self.last_ns = self.last_ns.max(now_ns);
        let mut age = self.half_lives(now_ns);
        if age > RESCALE_AT {
            let factor = (-age).exp2();
            self.reads.scale(factor);
            self.writes.scale(factor);
            (self.since_ns, age) = (now_ns, 0.0);
        }
        let growth = age.exp2();
        let named = sampled.row.filter(|row| sampled.is_exact && row.len() <= ROW_BYTES_MAX);
        let counters = match sampled.access {
            Access::Read => &mut self.reads,
            Access::Write => &mut self.writes,
        };
        counters.note(named, sampled.weight * growth, growth);
        if let Some(row) = sampled.row {
            self.keep(now_ns, (sampled.access, row), sampled.units);
        }
    }

    /// The rows with the greatest shares of the accesses, the hottest first.
    pub fn hottest(&self, access: Access, now_ns: u64) -> Vec<HotRow> {
        let counters = match access {
            Access::Read => &self.reads,
            Access::Write => &self.writes,
        };
        let growth = self.half_lives(now_ns.max(self.last_ns)).exp2();
        let samples = counters.samples / growth;
        if samples < SAMPLES_MIN {
            return Vec::new();
        }
        let share = |counter: &Counter| (counter.count - counter.error) / counters.total;
        let found = counters.rows.iter().filter(|counter| share(counter) * samples >= ROW_SAMPLES_MIN);
        let mut found: Vec<HotRow> =
            found.map(|counter| HotRow { row: counter.row.clone(), share: share(counter) }).collect();
        found.sort_by(|one, other| other.share.total_cmp(&one.share).then_with(|| one.row.cmp(&other.row)));
        found
    }

    /// Accesses of the last minute or two, each as likely as it was costly and recent: where the load is.
    pub fn spread(&self, now_ns: u64) -> Vec<Sample> {
        let oldest = now_ns.saturating_sub(nanos(SPREAD_AGE_MAX));
        let kept = self.spread.iter().filter(|kept| kept.at_ns >= oldest);
        kept.map(|kept| Sample { row: kept.row.clone(), units: 1 }).collect()
    }

    /// Whether the keys grow: most of the load are writes, and each lies beyond those before it, at the upper or the lower end. The
    /// next rows then go to one side of any boundary, wherever the load was.
    pub fn grows(&self, now_ns: u64) -> bool {
        let oldest = now_ns.saturating_sub(nanos(SPREAD_AGE_MAX));
        let kept = self.spread.iter().filter(|kept| kept.at_ns >= oldest);
        let mut writes: Vec<&Kept> = kept.clone().filter(|kept| kept.access == Access::Write).collect();
        if writes.len() < GROWTH_SAMPLES_MIN || writes.len() * 2 < kept.count() {
            return false;
        }
        writes.sort_by_key(|kept| kept.at_ns);
        let (older, newer) = writes.split_at(writes.len() / 2);
        let mut older: Vec<&Bytes> = older.iter().map(|kept| &kept.row).collect();
        older.sort_unstable();
        let beyond = older.len() * GROWTH_OLDER_PERCENT / 100;
        let (high, low) = (older[beyond], older[older.len() - 1 - beyond]);
        let most = |count: usize| count * 100 >= newer.len() * GROWTH_NEWER_PERCENT;
        most(newer.iter().filter(|kept| kept.row > *high).count())
            || most(newer.iter().filter(|kept| kept.row < *low).count())
    }

    /// Whether nothing in it counts any more.
    pub fn is_cold(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.last_ns) > nanos(SPREAD_AGE_MAX)
    }

    /// How many accesses to let pass until the next sample: `stride` on average. At random, so that clients that go through
    /// some rows in turn are not sampled at the same row every time.
    pub fn gap(&mut self, stride: u64) -> u64 {
        1 + self.draw() % (2 * stride - 1).max(1)
    }

    #[allow(clippy::cast_precision_loss, reason = "half-lives of some seconds, as a fraction")]
    fn half_lives(&self, now_ns: u64) -> f64 {
        now_ns.saturating_sub(self.since_ns) as f64 / nanos(HALF_LIFE) as f64
    }

    /// Keeps an access with a chance that follows its units and halves with the half-life: of all accesses, those with the
    /// greatest sum of the logarithm of their weight and a Gumbel-distributed number are a sample by weight.
    #[allow(clippy::cast_precision_loss, reason = "a random number in (0, 1), and a time as a fraction")]
    fn keep(&mut self, now_ns: u64, (access, row): (Access, &[u8]), units: f64) {
        let uniform = ((self.draw() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        let half_lives = now_ns as f64 / nanos(HALF_LIFE) as f64;
        let priority = units.max(1.0).ln() + half_lives * std::f64::consts::LN_2 - (-uniform.ln()).ln();
        if self.lowest.is_some_and(|place| self.spread[place].priority >= priority) {
            return;
        }
        let row = Bytes::copy_from_slice(&row[..row.len().min(ROW_BYTES_MAX)]);
        let kept = Kept { row, access, at_ns: now_ns, priority };
        match self.lowest {
            Some(place) => self.spread[place] = kept,
            None => self.spread.push(kept),
        }
        if self.spread.len() >= SPREAD_MAX {
            let by_priority =
                |(_, one): &(usize, &Kept), (_, other): &(usize, &Kept)| one.priority.total_cmp(&other.priority);
            self.lowest = self.spread.iter().enumerate().min_by(by_priority).map(|(place, _)| place);
        }
    }

    /// The next number of the sequence `SplitMix64`.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

impl Counters {
    /// Counts an access to a row, or to one that is not known.
    fn note(&mut self, row: Option<&[u8]>, weight: f64, sample: f64) {
        self.total += weight;
        self.samples += sample;
        let Some(row) = row else { return };
        let hash = xxh3_64(row);
        if let Some(known) = self.rows.iter_mut().find(|counter| counter.hash == hash && counter.row == row) {
            known.count += weight;
            return;
        }
        let row = Bytes::copy_from_slice(row);
        if self.rows.len() < ROWS_MAX {
            self.rows.push(Counter { hash, row, count: weight, error: 0.0 });
            return;
        }
        let lowest = self.rows.iter_mut().min_by(|one, other| one.count.total_cmp(&other.count));
        if let Some(lowest) = lowest {
            *lowest = Counter { hash, row, count: lowest.count + weight, error: lowest.count };
        }
    }

    fn scale(&mut self, factor: f64) {
        self.total *= factor;
        self.samples *= factor;
        for counter in &mut self.rows {
            counter.count *= factor;
            counter.error *= factor;
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
