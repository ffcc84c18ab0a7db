//! Gets: one row of one region, as a snapshot sees it.

mod large;
mod walked;

use terrane_types::limits::READ_BYTES_MAX;
use terrane_types::{KeyRange, Projection};

use crate::Error;
use crate::cell_window::CellWindow;
use crate::cells::Cells;
use crate::column_selection::ColumnSelection;
use crate::family_reader::{FamilyReader, Patience, ReadStats, RowRead, view_of};
use crate::region::Region;
use crate::scan::{RowScanner, ScanSpec, column_cells};
use crate::snapshot::Snapshot;
use crate::source::{Reading, RowKey, RowLookup};

thread_local! {
    /// A buffer for the cells of a row that a get gathers, kept by the thread for the next get.
    static GATHERED: std::cell::Cell<Cells> = std::cell::Cell::default();
}

/// The largest buffer that a thread keeps.
const GATHERED_BYTES_MAX: usize = 64 << 10;

impl Region {
    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none. A row with more than
    /// [`READ_BYTES_MAX`] bytes of them is refused.
    ///
    /// # Errors
    /// As [`Region::get_row`].
    pub fn get(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        projection: &Projection,
        now_ms: i64,
        patience: Patience,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        self.get_row(snapshot, row, RowRead { projection, now_ms, patience, bytes_max: READ_BYTES_MAX }, out)
    }

    /// Appends the packed cells of `row` that `snapshot` sees; none when the row has none. However large the row is, no more
    /// of it is in memory than the limit and one part.
    ///
    /// # Errors
    /// [`Error::RowTooLarge`] as soon as more is visible than the limit. [`Error::NeedsDisk`] where the patience is
    /// [`Patience::MemoryOnly`], and the row is not in memory or is large. [`Error::Corruption`] or [`Error::Io`] from the
    /// files below. After any error nothing was appended.
    pub fn get_row(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ReadStats, Error> {
        let before = out.len();
        let mut result = self.get_small(snapshot, row, read, self.part_bytes(), out);
        if let Ok(None) = result {
            out.truncate(before);
            result = match read.patience {
                // Too slow for a runtime thread.
                Patience::MemoryOnly => Err(Error::NeedsDisk),
                Patience::MayBlock => self.get_large(snapshot, row, read, out).map(Some),
            };
        }
        if result.is_ok() && out.len() - before > read.bytes_max {
            result = Err(Error::RowTooLarge { bytes_max: read.bytes_max });
        }
        if result.is_err() {
            out.truncate(before);
        }
        result.map(Option::unwrap_or_default)
    }

    /// A scan of one row, for a row that is too large to be gathered at once.
    fn scan_row(&self, snapshot: &Snapshot, row: &[u8], read: RowRead<'_>) -> RowScanner {
        let spec = ScanSpec::new(KeyRange::row(row), read.projection.clone(), read.now_ms);
        // Blocks of a row this large would evict what others read.
        self.scan(snapshot.another(), ScanSpec { fills_cache: false, ..spec })
    }

    /// The whole row; `None` where a family has more of it than this many bytes, so that it must be read in parts.
    fn get_small(
        &self,
        snapshot: &Snapshot,
        row: &[u8],
        read: RowRead<'_>,
        part_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<ReadStats>, Error> {
        let RowRead { projection, now_ms, patience, .. } = read;
        let mut stats = ReadStats::default();
        if !self.bounds().contains(row) {
            return Ok(Some(stats));
        }
        let key = RowKey::new(row);
        let mut cells = GATHERED.take();
        let mut is_all = true;
        let mut window = CellWindow::of(projection);
        for store in self.views(projection) {
            let asked = projection.columns(store.name.as_bytes());
            let sought = ColumnSelection::of(asked).pausing_after(column_cells(projection, part_bytes));
            let view = view_of(projection, store.name.as_bytes(), snapshot.sequence(), now_ms);
            let reading = Reading {
                blocking: patience == Patience::MayBlock,
                sequential: false,
                fills_cache: true,
                time_min: view.time_min,
                prefix: None,
            };
            let lookup = RowLookup { key, sought, reading, bytes_max: part_bytes };
            cells.clear();
            let mut sources_with_row = 0;
            for source in &store.sources {
                let before = cells.len();
                is_all = source.row(&lookup, &mut cells)?;
                sources_with_row += usize::from(cells.len() > before);
                if !is_all || (sources_with_row > 0 && terrane_env::planted!("a get reads only the newest file")) {
                    break;
                }
            }
            if !is_all {
                break;
            }
            if sources_with_row == 0 {
                continue;
            }
            if sources_with_row > 1 {
                cells.sort_from(0);
            }
            let mut reader = FamilyReader::new(&store.family, view);
            let name = store.name.as_bytes();
            reader.show(&mut cells, asked, &mut stats, |_, cell| {
                if window.admits() {
                    terrane_types::cell::pack(out, window.shown(cell.packed(name)));
                }
            });
            if window.is_full() {
                break;
            }
        }
        cells.clear();
        if cells.memory_bytes() <= GATHERED_BYTES_MAX {
            GATHERED.set(cells);
        }
        Ok(is_all.then_some(stats))
    }
}
