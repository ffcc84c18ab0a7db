//! Where a region is best split: at a row near the middle by bytes.

use crate::cell::StoredCell;
use crate::region::Region;
use crate::source::Cursor;

/// How many samples a region is cut into, about; the boundary is right to one of them.
const SAMPLES: u64 = 64;
/// What a small cell weighs in memory, to guess how many cells make a sample.
const CELL_BYTES: u64 = 200;

struct Sample {
    row: Vec<u8>,
    bytes: u64,
}

impl Region {
    /// A boundary near the middle of the region by bytes, with rows on both sides of it. `accept` maps a row to the
    /// boundary that may be drawn at it, if any (a key that shares its atomic prefix gives the prefix). `None`: there is
    /// none.
    ///
    /// Goes over every cell of the region once: call it off the hot path.
    #[must_use]
    pub fn split_point(&self, accept: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let cells_per_sample = (self.size_bytes() / CELL_BYTES / SAMPLES).max(1);
        let mut samples = self.samples(cells_per_sample)?;
        samples.sort_by(|a, b| a.row.cmp(&b.row));
        let first_row = samples.first()?.row.clone();
        let total: u64 = samples.iter().map(|sample| sample.bytes).sum();
        let mut before = 0u64;
        let mut candidates: Vec<(u64, &Sample)> = Vec::new();
        for sample in &samples {
            candidates.push((before.abs_diff(total / 2), sample));
            before += sample.bytes;
        }
        // Nearest to the middle first: an atomic prefix or one huge row may forbid the best one.
        candidates.sort_by_key(|(distance, _)| *distance);
        let inside = |at: &Vec<u8>| at.as_slice() > first_row.as_slice() && self.bounds().contains(at);
        candidates.iter().filter_map(|(_, sample)| accept(&sample.row)).find(inside)
    }

    /// Rows at about equal distances, each with the bytes from it to the next; the first row of each source is one.
    /// `None` when a source cannot be read.
    fn samples(&self, cells_per_sample: u64) -> Option<Vec<Sample>> {
        let sources: Vec<_> = {
            let state = self.state.read();
            state.stores.keys().flat_map(|family| Self::sources(&state, family)).collect()
        };
        let mut samples: Vec<Sample> = Vec::new();
        let mut row_cells = Vec::new();
        for source in sources {
            let mut cursor = Cursor::new(source, self.bounds().clone(), false).ok()?;
            let mut left = 0;
            while cursor.row().is_some() {
                row_cells.clear();
                cursor.take(&mut row_cells).ok()?;
                let bytes: u64 = row_cells.iter().map(StoredCell::memory_bytes).sum();
                match samples.last_mut() {
                    Some(sample) if left > 0 => sample.bytes += bytes,
                    _ => {
                        samples.push(Sample { row: row_cells[0].row().to_vec(), bytes });
                        left = cells_per_sample;
                    }
                }
                left = left.saturating_sub(row_cells.len() as u64);
            }
        }
        Some(samples)
    }
}
