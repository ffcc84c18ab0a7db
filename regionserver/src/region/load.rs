//! What is requested of a region: counters on the request path, rates once per second, and rows sampled where the load is.
//!
//! Counting costs a request two or three relaxed additions on counters of its own region. Rows are sampled only while the
//! region is busy enough that a split by load may follow: one row per [`STRIDE`] units, behind a lock that a request tries
//! and never waits for. A unit is one row, or one KiB of it: so the samples are weighted by what requests cost. Fewer rows are
//! sampled all the time, to say which are hot ([`super::hot_sampler`]).
//!
//! The rates are read by the background task once per second ([`LoadMeter::turn`]), and by reports.

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
/// Seconds over which reported rates are averaged, approximately.
const AVERAGED_SECONDS: u64 = 5;

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
    /// In thousandths.
    average: Load,
}

impl LoadMeter {
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
        let per_second = |now: u64, before: u64| {
            let rate = u128::from(now - before) * 1_000_000_000 / u128::from(elapsed_ns);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let smooth = |average: u64, last: u64| {
            average.saturating_mul(AVERAGED_SECONDS - 1).saturating_add(last.saturating_mul(1_000)) / AVERAGED_SECONDS
        };
        let last = Load {
            rows_read: per_second(counted.rows_read, before.rows_read),
            rows_written: per_second(counted.rows_written, before.rows_written),
            bytes: per_second(counted.bytes, before.bytes),
        };
        if last.units() == 0 {
            self.hot.forget_if_cold(now_ns);
        }
        let average = rates.average;
        rates.average = Load {
            rows_read: smooth(average.rows_read, last.rows_read),
            rows_written: smooth(average.rows_written, last.rows_written),
            bytes: smooth(average.bytes, last.bytes),
        };
        last
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
        assert_eq!(meter.average().rows_written, 10);
        for second in 4..60 {
            meter.turn(second * SECOND);
        }
        assert_eq!(meter.average(), Load::default());
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
