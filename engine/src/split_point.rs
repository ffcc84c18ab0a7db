//! The best place to split a region: a row near the middle by bytes.

use crate::cells::Cells;
use crate::column_selection::ColumnSelection;
use crate::region::Region;
use crate::source::{PART_BYTES, Reading, Source};

/// The approximate number of samples of a memtable; the boundary is accurate to one of them.
const SAMPLES: u64 = 64;

struct Sample {
    row: Vec<u8>,
    bytes: u64,
}

impl Region {
    /// A boundary near the middle of the region by bytes, with rows on both sides of it. `accept` maps a row to the
    /// boundary that may be drawn at it, if any (a key within an atomic prefix maps to the prefix). `None` when there
    /// is none.
    ///
    /// Walks the memtables and the indexes of the files, and may wait for the disk: call it off the hot path.
    #[must_use]
    pub fn split_point(&self, accept: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        let mut samples = self.samples()?;
        samples.sort_by(|a, b| a.row.cmp(&b.row));
        let first_row = samples.first()?.row.clone();
        let total: u64 = samples.iter().map(|sample| sample.bytes).sum();
        let mut before = 0u64;
        let mut candidates: Vec<(u64, &Sample)> = Vec::new();
        for sample in &samples {
            candidates.push((before.abs_diff(total / 2), sample));
            before += sample.bytes;
        }
        // Nearest to the middle first: an atomic prefix or one huge row may rule out the best one.
        candidates.sort_by_key(|(distance, _)| *distance);
        let inside = |at: &Vec<u8>| at.as_slice() > first_row.as_slice() && self.bounds().contains(at);
        candidates.iter().filter_map(|(_, sample)| accept(&sample.row)).find(inside)
    }

    /// Rows at about equal distances, each with the bytes from it to the next. `None` when a source cannot be read.
    fn samples(&self) -> Option<Vec<Sample>> {
        let (memtables, files) = self.memtables_and_files();
        let mut samples = Vec::new();
        for file in files {
            let bounds = file.record.bounds.intersect(self.bounds());
            let of_file = file.source.samples(&bounds).ok()?;
            samples.extend(of_file.into_iter().map(|(row, bytes)| Sample { row, bytes }));
        }
        let mut cells = Cells::default();
        for memtable in memtables {
            let bytes_per_sample = memtable.bytes() / SAMPLES;
            let mut cursor = memtable.cursor(self.bounds(), false, Reading::BULK).ok()?;
            let mut bytes = 0;
            while cursor.row().is_some() {
                cells.clear();
                let is_over = cursor.take(ColumnSelection::ALL, PART_BYTES, &mut cells).ok()?;
                if bytes == 0 && !cells.is_empty() {
                    samples.push(Sample { row: cells.row(0).to_vec(), bytes: 0 });
                }
                bytes += cells.weight();
                samples.last_mut()?.bytes += cells.weight();
                // A sample begins with a row.
                if is_over && bytes >= bytes_per_sample {
                    bytes = 0;
                }
            }
        }
        Some(samples)
    }
}
