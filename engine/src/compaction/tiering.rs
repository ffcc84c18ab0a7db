//! Joining neighbours of level 0 of about equal size.
//!
//! Level 0 is ordered by age, so only neighbours can be joined. A file is joined when the rest of its run is at least
//! half as large: each time a byte is rewritten its file grows by half, so it is rewritten a logarithmic number of
//! times.

use std::ops::Range;

use super::FileSummary;

/// The run of neighbours whose joining removes the most files for the bytes it writes; of equal ones the oldest. It has
/// at least `files_min` files and at most `bytes_max` bytes, and every file of it is free.
pub(super) fn similar_run(
    files: &[FileSummary],
    is_free: impl Fn(&FileSummary) -> bool,
    files_min: usize,
    bytes_max: u64,
) -> Option<Range<usize>> {
    let files_min = files_min.max(2);
    let mut best: Option<(Range<usize>, u64)> = None;
    for start in 0..files.len() {
        let (mut sum, mut largest) = (0u64, 0u64);
        for (stop, file) in (start + 1..).zip(&files[start..]) {
            sum = sum.saturating_add(file.bytes);
            largest = largest.max(file.bytes);
            if !is_free(file) || sum > bytes_max {
                break;
            }
            let similar = largest <= (sum - largest).saturating_mul(2);
            if stop - start >= files_min
                && similar
                && best.as_ref().is_none_or(|best| is_cheaper(&(start..stop), sum, best))
            {
                best = Some((start..stop, sum));
            }
        }
    }
    best.map(|(run, _)| run)
}

/// Fewer bytes per removed file, as fractions without division.
fn is_cheaper(run: &Range<usize>, bytes: u64, (best, best_bytes): &(Range<usize>, u64)) -> bool {
    let gone = |run: &Range<usize>| (run.len() - 1) as u128;
    u128::from(bytes) * gone(best) < u128::from(*best_bytes) * gone(run)
}
