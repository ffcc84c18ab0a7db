//! Collecting: a merge of rows without what no reader will miss. Flushes and compactions share it.
//!
//! `terrane_types::visibility` alone decides which cells may go. This module decides whether everything older of a row
//! is present: a row that may also be in an older file outside of the merge keeps the tombstones and masked puts that
//! act on what lies there.
//!
//! A row is collected part by part and column by column, so that a row of any size passes through bounded memory. A
//! column is judged as a whole; from one larger than [`COLUMN_PARTS_MAX`] only what has expired is dropped.

use terrane_types::visibility::{CellMeta, Collector, Fate};

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::column_selection::ColumnSelection;
use crate::manifest::FamilyRecord;
use crate::merging_cursor::MergingCursor;

/// The most parts of one column that are gathered to be judged: 64 MiB.
const COLUMN_PARTS_MAX: usize = 128;

/// The first and the last row of a file.
pub(crate) type RowEnds = (Vec<u8>, Vec<u8>);

/// First and last rows of files that hold older cells than the merge and are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OlderFiles {
    /// Groups of files, each sorted by row and without overlaps; the number is the first file that was not passed yet.
    groups: Vec<(Vec<RowEnds>, usize)>,
    /// Any row may be in one of them.
    is_unknown: bool,
}

impl OlderFiles {
    /// Files that may hold any row.
    pub(crate) fn unknown() -> Self {
        Self { groups: Vec::new(), is_unknown: true }
    }

    /// Adds files that are sorted by row and do not overlap.
    pub(crate) fn add_sorted(&mut self, files: Vec<RowEnds>) {
        if !files.is_empty() {
            self.groups.push((files, 0));
        }
    }

    /// Whether there are none: everything older of every row is present.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && !self.is_unknown
    }

    /// Whether one of the files may hold `row`. Called with rows in ascending order.
    fn may_hold(&mut self, row: &[u8]) -> bool {
        if terrane_env::planted!("a tombstone goes before the cells it hides") {
            return false;
        }
        self.is_unknown
            || self.groups.iter_mut().any(|(files, at)| {
                while files.get(*at).is_some_and(|(_, last)| last.as_slice() < row) {
                    *at += 1;
                }
                files.get(*at).is_some_and(|(first, _)| first.as_slice() <= row)
            })
    }
}

/// The rules of the family, and which of them the collectors have.
struct CurrentRules {
    family: FamilyRecord,
    place: usize,
    oldest_snapshot: u64,
    log_time_ms: i64,
}

/// Walks the rows of a merge and returns what is kept of them.
pub(crate) struct Collecting {
    merge: MergingCursor,
    /// Older cells belong to an earlier family of the same name.
    since: u64,
    rules: CurrentRules,
    older: OlderFiles,
    /// For rows with everything older present, and for the others.
    whole: Collector,
    part: Collector,
    /// Cells that are not judged yet.
    gathered: Cells,
    metas: Vec<CellMeta>,
    /// Whether a row was begun and is not over.
    within: bool,
    /// Whether the merge is within a row, including one of which nothing was gathered.
    mid_row: bool,
    /// Whether everything older of that row is present.
    covers_older: bool,
    /// The qualifier of a column that is too large to be judged.
    kept: Option<Vec<u8>>,
    spare: Cells,
    part_bytes: usize,
    cells_seen: u64,
    bytes_seen: u64,
}

impl Collecting {
    /// Collects for readers at `oldest_snapshot` and above, as of `log_time_ms`, in parts of about `part_bytes`.
    pub(crate) fn new(
        merge: MergingCursor,
        family: &FamilyRecord,
        oldest_snapshot: u64,
        log_time_ms: i64,
        older: OlderFiles,
        part_bytes: usize,
    ) -> Self {
        let collector = |covers_older| Collector::new(&family.rules, oldest_snapshot, log_time_ms, covers_older);
        let rules = CurrentRules { family: family.clone(), place: 0, oldest_snapshot, log_time_ms };
        Self {
            merge,
            since: family.since,
            rules,
            older,
            whole: collector(true),
            part: collector(false),
            gathered: Cells::default(),
            metas: Vec::new(),
            within: false,
            mid_row: false,
            covers_older: false,
            kept: None,
            spare: Cells::default(),
            part_bytes,
            cells_seen: 0,
            bytes_seen: 0,
        }
    }

    /// The next row; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.merge.row()
    }

    /// Whether what comes next belongs to the row of the last cell.
    pub(crate) fn is_within_row(&self) -> bool {
        self.within
    }

    /// Hands what is kept of the next row, or of its next part, to `keep`, in store order. At the end it does nothing.
    pub(crate) fn next(&mut self, mut keep: impl FnMut(Cell<'_>)) -> Result<(), Error> {
        if !self.mid_row {
            self.enter_row();
            if self.keep_single(&mut keep)? {
                return Ok(());
            }
        }
        let before = (self.gathered.len(), self.gathered.weight());
        // A column that continues doubles what is gathered of it, so that finding its end costs no more than reading
        // it.
        let bytes_max = self.part_bytes.max(self.gathered.data_bytes());
        let is_over = self.merge.take(ColumnSelection::ALL, bytes_max, &mut self.gathered)?;
        self.cells_seen += (self.gathered.len() - before.0) as u64;
        self.bytes_seen += self.gathered.weight() - before.1;
        if self.since > 0 {
            let since = self.since;
            self.gathered.retain(|cell| cell.sequence >= since);
            if self.gathered.is_empty() {
                // Otherwise the bytes of the removed cells would count as gathered.
                self.gathered.clear();
            }
        }
        self.mid_row = !is_over;
        if !self.within && !self.gathered.is_empty() {
            self.within = true;
            self.covers_older = !self.older.may_hold(self.gathered.row(0));
            let collector = if self.covers_older { &mut self.whole } else { &mut self.part };
            if is_over { collector.start_row() } else { collector.start_row_in_parts() }
        }
        let judged = self.judge(is_over, &mut keep);
        if is_over {
            self.gathered.clear();
            (self.within, self.kept) = (false, None);
        } else if judged > 0 {
            self.gathered.drop_front(judged, &mut self.spare);
        }
        Ok(())
    }

    /// Takes the rules of the next row, where they differ by row.
    fn enter_row(&mut self) {
        let Self { merge, since, rules, whole, part, .. } = self;
        let CurrentRules { family, place, oldest_snapshot, log_time_ms } = rules;
        if family.beyond.is_empty() {
            return;
        }
        let Some(next) = merge.row().map(|row| family.place_of(row)).filter(|next| next != place) else { return };
        let (first, history) = family.history(next);
        let collector = |covers_older| Collector::new(history, *oldest_snapshot, *log_time_ms, covers_older);
        (*since, *whole, *part, *place) = (first, collector(true), collector(false), next);
    }

    /// Judges a row of a single cell from where it lies; `false` where the next row is not such a row.
    fn keep_single(&mut self, keep: &mut impl FnMut(Cell<'_>)) -> Result<bool, Error> {
        let Some(cell) = self.merge.single().filter(|cell| cell.sequence >= self.since) else { return Ok(false) };
        self.cells_seen += 1;
        self.bytes_seen += cell.weight();
        let collector = if self.older.may_hold(cell.row) { &mut self.part } else { &mut self.whole };
        collector.start_row();
        match collector.column(&[cell.meta()]).first() {
            Some(Fate::Keep) => keep(cell),
            Some(Fate::Mask) => keep(cell.masked()),
            Some(Fate::Drop) | None => {}
        }
        self.merge.skip_single()?;
        Ok(true)
    }

    /// Judges the columns that are gathered completely; returns how many cells these have.
    fn judge(&mut self, is_over: bool, keep: &mut impl FnMut(Cell<'_>)) -> usize {
        let Self { gathered: cells, metas, kept, whole, part, part_bytes, .. } = self;
        let column_bytes_max = part_bytes.saturating_mul(COLUMN_PARTS_MAX);
        let collector = if self.covers_older { whole } else { part };
        let mut first = 0;
        while first < cells.len() {
            let qualifier = cells.get(first).qualifier;
            metas.clear();
            let of_column = (first..cells.len()).map(|at| cells.get(at)).take_while(|cell| cell.qualifier == qualifier);
            metas.extend(of_column.map(|cell| cell.meta()));
            let next = first + metas.len();
            let goes_on = next == cells.len() && !is_over;
            let is_large = kept.as_deref() == Some(qualifier) || (goes_on && cells.data_bytes() >= column_bytes_max);
            if goes_on && !is_large {
                break;
            }
            let fates = if is_large { collector.column_in_parts(metas) } else { collector.column(metas) };
            *kept = (is_large && goes_on).then(|| qualifier.to_vec());
            for (at, fate) in (first..).zip(fates) {
                match fate {
                    Fate::Keep => keep(cells.get(at)),
                    Fate::Mask => keep(cells.get(at).masked()),
                    Fate::Drop => {}
                }
            }
            first = next;
        }
        first
    }

    /// Cells read so far, and their bytes.
    pub(crate) fn seen(&self) -> (u64, u64) {
        (self.cells_seen, self.bytes_seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_files_are_found_by_row() {
        let pair = |first: &[u8], last: &[u8]| (first.to_vec(), last.to_vec());
        let mut older = OlderFiles::default();
        older.add_sorted(vec![pair(b"b", b"d"), pair(b"m", b"m")]);
        older.add_sorted(vec![pair(b"x", b"z")]);
        let held: Vec<bool> =
            [&b"a"[..], b"b", b"d", b"e", b"m", b"ma", b"y", b"zz"].iter().map(|row| older.may_hold(row)).collect();
        assert_eq!(held, [false, true, true, false, true, false, true, false]);
    }
}
