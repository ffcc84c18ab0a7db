//! What is requested of a region: counters on the request path, rates once per second, and rows sampled where the load is.
//!
//! Counting costs a request two or three relaxed additions on counters of its own region. Rows are sampled only while the
//! region is busy enough that a split by load may follow: one row per [`STRIDE`] units, behind a lock that a request tries
//! and never waits for. A unit is one row, or one KiB of it: so the samples are weighted by what requests cost. Fewer rows are
//! sampled all the time, to say which are hot ([`super::hot_sampler`]).
//!
//! The rates are computed by the background task once per second ([`LoadMeter::turn`]), and read by reports. The leading
//! master adds them up to a history, so an average keeps what was counted: over the time that it takes to fade, it sums up to
//! the rows that went into it, also if a turn is late, and also if the region splits or merges meanwhile
//! ([`LoadMeter::inherit`]).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use super::hot_rows::Access;
use super::hot_sampler::{Counted, Hot, HotSampler};
use super::sample::{Sample, UNIT_BYTES};

/// Units between two sampled rows.
const STRIDE: u64 = 16;
/// The newest samples are kept.
pub const SAMPLES_MAX: usize = 256;
/// Rows sampled of one request; each stands for more units then.
const PER_REQUEST_MAX: u64 = 4;
/// Of a longer row, this prefix is sampled. It separates rows as well as the row does.
const SAMPLE_BYTES_MAX: usize = 1 << 10;
const SECOND_NS: u64 = 1_000_000_000;
/// Over this time reported rates are averaged, approximately.
const AVERAGED_NS: u64 = 5 * SECOND_NS;

/// The load of a region, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub rows_read: u64,
    pub rows_written: u64,
    pub bytes: u64,
}

impl Load {
    /// Rows and KiB together.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.rows_read + self.rows_written + self.bytes / UNIT_BYTES
    }

    fn combine(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            rows_read: with(self.rows_read, other.rows_read),
            rows_written: with(self.rows_written, other.rows_written),
            bytes: with(self.bytes, other.bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    /// The growth of counters. Another thread may have noted later ones.
    fn less(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }
}

fn per_second(count: u64, elapsed_ns: u64) -> u64 {
    u64::try_from(u128::from(count) * u128::from(SECOND_NS) / u128::from(elapsed_ns)).unwrap_or(u64::MAX)
}

/// An average in thousandths after `elapsed_ns` in which `count` was counted. While the average held, its share of what it
/// stands for was reported, so that much of it goes; what is new joins so that it will be reported in full.
fn faded(average: u64, elapsed_ns: u64, count: u64) -> u64 {
    let left = u128::from(AVERAGED_NS.saturating_sub(elapsed_ns)) * u128::from(average) / u128::from(AVERAGED_NS);
    let joins = u128::from(count) * 1_000 * u128::from(SECOND_NS) / u128::from(AVERAGED_NS.max(elapsed_ns));
    u64::try_from(left + joins).unwrap_or(u64::MAX)
}

/// Counts what is requested of one region.
#[derive(Default)]
pub struct LoadMeter {
    rows_read: AtomicU64,
    rows_written: AtomicU64,
    bytes: AtomicU64,
    /// Units counted while rows are sampled.
    units: AtomicU64,
    is_sampling: AtomicBool,
    samples: Mutex<VecDeque<Sample>>,
    rates: Mutex<Rates>,
    hot: HotSampler,
}

/// What the counters were at the last turn, and the rates since.
#[derive(Default)]
struct Rates {
    at_ns: u64,
    counted: Load,
    /// What the region's parents had counted since their last turn.
    inherited: Load,
    /// In thousandths.
    average: Load,
}

impl LoadMeter {
    /// The meter of a region that exists since this time.
    pub fn since(now_ns: u64) -> Self {
        Self { rates: Mutex::new(Rates { at_ns: now_ns, ..Rates::default() }), ..Self::default() }
    }

    /// Counts rows that were read; `row` gives one of them, by its place. It is asked for ascending places, from the start more
    /// than once.
    pub fn read<'r>(&self, rows: u64, bytes: u64, row: impl FnMut(usize) -> Option<&'r [u8]>) {
        let before = self.rows_read.fetch_add(rows, Ordering::Relaxed);
        self.count(Counted { access: Access::Read, before, rows, bytes, is_exact: true }, row);
    }

    /// Counts rows that were read without being named, up to this one.
    pub fn passed(&self, rows: u64, last: Option<&[u8]>) {
        let before = self.rows_read.fetch_add(rows, Ordering::Relaxed);
        self.count(Counted { access: Access::Read, before, rows, bytes: 0, is_exact: false }, |_| last);
    }

    /// Counts rows that are written; `row` as in [`LoadMeter::read`].
    pub fn written<'r>(&self, rows: u64, bytes: u64, row: impl FnMut(usize) -> Option<&'r [u8]>) {
        let before = self.rows_written.fetch_add(rows, Ordering::Relaxed);
        self.count(Counted { access: Access::Write, before, rows, bytes, is_exact: true }, row);
    }

    fn count<'r>(&self, request: Counted, mut row: impl FnMut(usize) -> Option<&'r [u8]>) {
        let Counted { rows, bytes, .. } = request;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.hot.count(request, &mut row);
        if !self.is_sampling.load(Ordering::Relaxed) {
            return;
        }
        let units = rows + bytes / UNIT_BYTES;
        let before = self.units.fetch_add(units, Ordering::Relaxed);
        let next = before.next_multiple_of(STRIDE);
        if next >= before + units {
            return;
        }
        let Some(mut samples) = self.samples.try_lock() else { return };
        let due = (before + units - next).div_ceil(STRIDE);
        let taken = due.min(PER_REQUEST_MAX);
        for at in 0..taken {
            // The units of a request are spread evenly over its rows.
            let place = usize::try_from(at * rows / taken).unwrap_or(0);
            let Some(row) = row(place) else { continue };
            if samples.len() >= SAMPLES_MAX {
                samples.pop_front();
            }
            let row = Bytes::copy_from_slice(&row[..row.len().min(SAMPLE_BYTES_MAX)]);
            samples.push_back(Sample { row, units: STRIDE * due / taken });
        }
    }

    /// What was requested since the region was opened, in total.
    pub fn total(&self) -> Load {
        Load {
            rows_read: self.rows_read.load(Ordering::Relaxed),
            rows_written: self.rows_written.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Computes the rates since the last turn; returns them.
    pub fn turn(&self, now_ns: u64) -> Load {
        let counted = self.total();
        let mut rates = self.rates.lock();
        let elapsed_ns = now_ns.saturating_sub(std::mem::replace(&mut rates.at_ns, now_ns)).max(1);
        let before = std::mem::replace(&mut rates.counted, counted);
        let inherited = std::mem::take(&mut rates.inherited);
        let news = counted.less(before).plus(inherited);
        let average = rates.average;
        rates.average = news.combine(average, |news, average| faded(average, elapsed_ns, news));
        let last = news.combine(Load::default(), |news, _| per_second(news, elapsed_ns));
        if last.units() == 0 {
            self.hot.forget_if_cold(now_ns);
        }
        last
    }

    /// What is counted and not yet in the average, and the average.
    fn recent(&self) -> (Load, Load, u64) {
        let counted = self.total();
        let rates = self.rates.lock();
        (counted.less(rates.counted).plus(rates.inherited), rates.average, rates.at_ns)
    }

    /// Takes over a share of the load of a parent, before anything is counted here: half of it after a split, since nothing
    /// says how it is spread, and all of both after a merge.
    pub fn inherit(&self, parent: &Self, share: u64) {
        let (news, average, at_ns) = parent.recent();
        let mut rates = self.rates.lock();
        rates.inherited = rates.inherited.plus(news.combine(news, |news, _| news / share));
        rates.average = rates.average.plus(average.combine(average, |average, _| average / share));
        // The next turn looks back to the parent's last one.
        rates.at_ns = rates.at_ns.min(at_ns);
    }

    /// The load over the last few seconds.
    pub fn average(&self) -> Load {
        let Load { rows_read, rows_written, bytes } = self.rates.lock().average;
        let rounded = |thousandths: u64| thousandths.saturating_add(500) / 1_000;
        Load { rows_read: rounded(rows_read), rows_written: rounded(rows_written), bytes: rounded(bytes) }
    }

    /// Which rows are hot, and where the load is.
    pub fn hot(&self, now_ns: u64) -> Hot {
        self.hot.hot(now_ns)
    }

    /// Begins to sample rows, or stops and forgets the samples.
    pub fn set_sampling(&self, on: bool) {
        if self.is_sampling.swap(on, Ordering::Relaxed) && !on {
            *self.samples.lock() = VecDeque::new();
        }
    }

    /// The rows sampled so far.
    pub fn samples(&self) -> Vec<Sample> {
        self.samples.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn rates_are_per_second_and_averaged() {
        let meter = LoadMeter::default();
        meter.turn(SECOND);
        meter.written(100, 4_096, |_| None);
        assert_eq!(meter.turn(3 * SECOND), Load { rows_read: 0, rows_written: 50, bytes: 2_048 });
        assert_eq!(meter.average().rows_written, 20);
        for second in 4..60 {
            meter.turn(second * SECOND);
        }
        assert_eq!(meter.average(), Load::default());
    }

    /// Rows written as the average tells them over this many seconds, a turn in each.
    fn told(meters: &[&LoadMeter], from: u64, seconds: u64) -> u64 {
        let average = |meter: &&LoadMeter| meter.rates.lock().average.rows_written;
        let second = |second| {
            meters.iter().for_each(|meter| _ = meter.turn((from + second) * SECOND));
            meters.iter().map(average).sum::<u64>()
        };
        (1..=seconds).map(second).sum::<u64>() / 1_000
    }

    #[test]
    fn the_average_tells_what_was_counted_also_after_late_turns() {
        for late in [1, 2, 4] {
            let meter = LoadMeter::since(SECOND);
            meter.written(1_000, 0, |_| None);
            meter.turn((1 + late) * SECOND);
            let first = meter.average().rows_written;
            let told = told(&[&meter], 1 + late, 60) + first;
            assert!((990..=1_000).contains(&told), "{told}, {late} s late");
        }
    }

    #[test]
    fn the_load_of_a_parent_goes_on_in_its_daughters_and_in_a_merged_region_once() {
        let parent = LoadMeter::since(SECOND);
        parent.written(1_000, 0, |_| None);
        parent.turn(2 * SECOND);
        // Counted, and not in the average yet.
        parent.written(500, 0, |_| None);
        let [left, right, merged] = [(); 3].map(|()| LoadMeter::since(5 * SECOND / 2));
        left.inherit(&parent, 2);
        right.inherit(&parent, 2);
        assert_eq!(left.total(), Load::default(), "totals are those of the region itself");
        merged.inherit(&left, 1);
        merged.inherit(&right, 1);
        let rest = told(&[&parent], 2, 60);
        assert!((1_250..=1_300).contains(&rest), "500 and what is left of 1,000: {rest}");
        assert!(rest.abs_diff(told(&[&left, &right], 2, 60)) <= 2);
        assert!(rest.abs_diff(told(&[&merged], 2, 60)) <= 2);
    }

    #[test]
    fn rows_are_sampled_by_what_they_cost() {
        let meter = LoadMeter::default();
        meter.written(1_000, 0, |_| Some(b"before"));
        meter.set_sampling(true);
        assert!(meter.samples().is_empty());
        for _ in 0..160 {
            meter.read(1, 0, |_| Some(b"small"));
            meter.read(1, 3 * UNIT_BYTES, |_| Some(b"large"));
        }
        let samples = meter.samples();
        let large = samples.iter().filter(|sample| sample.row.as_ref() == b"large").count();
        assert_eq!((samples.len(), large), (50, 40));
        assert!(samples.iter().all(|sample| sample.units == STRIDE));
        meter.set_sampling(false);
        assert!(meter.samples().is_empty());
    }

    #[test]
    fn samples_of_a_batch_come_from_all_of_it() {
        let meter = LoadMeter::default();
        meter.set_sampling(true);
        let rows: Vec<Vec<u8>> = (0..64u8).map(|row| vec![row]).collect();
        meter.written(64, 0, |place| rows.get(place).map(Vec::as_slice));
        let rows_of = |samples: Vec<Sample>| samples.iter().map(|sample| sample.row[0]).collect::<Vec<_>>();
        assert_eq!(rows_of(meter.samples()), [0, 16, 32, 48]);
        meter.written(64, 64 * 4 * UNIT_BYTES, |place| rows.get(place).map(Vec::as_slice));
        let samples = meter.samples().split_off(4);
        assert!(samples.iter().all(|sample| sample.units == STRIDE * 5), "{samples:?}");
        assert_eq!(rows_of(samples), [0, 16, 32, 48]);
    }
}
