//! Where the load of a region is cut in half, from rows sampled where the load is.
//!
//! Splits by load and the advice for operators both ask here, so that a region is advised to be split where it would be split.

use super::sample::Sample;

/// Fewer samples say too little.
const SAMPLES_MIN: usize = 48;
/// The heavier side of a split keeps at most this much of the load, in percent.
const HEAVIER_PERCENT_MAX: u64 = 70;
/// A row with this share of the load is named as the reason why a region is not split.
const HOT_PERCENT_MIN: u64 = 40;

/// Where the load of a region is cut in half.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Too few rows were sampled.
    Unknown,
    /// Here; the heavier side keeps this much of the load, in percent.
    At(Vec<u8>, u64),
    /// Nowhere: this row has this much of the load, in percent.
    HotRow(Vec<u8>, u64),
    /// Nowhere: no boundary spreads it.
    Nowhere,
    /// Nowhere: the keys grow, so that the load to come goes to one side of any boundary.
    Growing,
}

/// Chooses a boundary for a split that no one asked for: as [`choose`], and none where the keys grow. Otherwise a region whose
/// load is at its end would be split again and again, and leave regions behind that nothing is written to.
pub fn choose_unasked(grows: bool, samples: &[Sample], boundary: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Choice {
    match choose(samples, boundary) {
        Choice::At(..) if grows => Choice::Growing,
        choice => choice,
    }
}

/// Chooses a boundary from sampled rows. `boundary` gives the boundary at or before a row, where there is one.
pub fn choose(samples: &[Sample], boundary: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Choice {
    if samples.len() < SAMPLES_MIN {
        return Choice::Unknown;
    }
    let mut rows: Vec<(&[u8], u64)> = samples.iter().map(|sample| (&sample.row[..], sample.units)).collect();
    rows.sort_unstable();
    rows.dedup_by(|next, first| {
        let same = next.0 == first.0;
        first.1 += if same { next.1 } else { 0 };
        same
    });
    let total: u64 = rows.iter().map(|(_, units)| units).sum();
    let percent = |units: u64| units * 100 / total.max(1);
    let below: Vec<u64> = rows
        .iter()
        .scan(0, |sum, (_, units)| {
            let before = *sum;
            *sum += units;
            Some(before)
        })
        .chain([total])
        .collect();
    let candidates = rows.iter().skip(1).filter_map(|(row, _)| {
        let at = boundary(row)?;
        let left = below[rows.partition_point(|(row, _)| *row < at.as_slice())];
        Some((left.max(total - left), at))
    });
    if let Some((heavier, at)) = candidates.min()
        && percent(heavier) <= HEAVIER_PERCENT_MAX
    {
        return Choice::At(at, percent(heavier));
    }
    let hottest = rows.iter().max_by_key(|(_, units)| *units);
    match hottest.filter(|(_, units)| percent(*units) >= HOT_PERCENT_MIN) {
        Some((row, units)) => Choice::HotRow(row.to_vec(), percent(*units)),
        None => Choice::Nowhere,
    }
}
