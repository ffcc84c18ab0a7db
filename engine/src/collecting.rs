//! Collecting: the rows of a merge without what no reader will notice. What a flush and a compaction have in common.
//!
//! Which cells may go is decided by `terrane_types::visibility` alone. What is decided here is whether everything older
//! of a row is at hand: a row that an older file outside of the merge may hold keeps the deletes and witnesses that act
//! on what lies there.

use terrane_types::visibility::{CellMeta, Collector, Fate};

use crate::Error;
use crate::cells::{Cell, Cells};
use crate::manifest::FamilyRecord;
use crate::merge::Merge;

/// The first and the last row of a file.
pub(crate) type RowEnds = (Vec<u8>, Vec<u8>);

/// First and last rows of files that hold older cells than the merge and are not in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Older {
    /// Groups of files, each sorted by row and without overlaps; the number is the first file that is not behind yet.
    groups: Vec<(Vec<RowEnds>, usize)>,
}

impl Older {
    /// Adds files that are sorted by row and do not overlap.
    pub(crate) fn add_sorted(&mut self, files: Vec<RowEnds>) {
        if !files.is_empty() {
            self.groups.push((files, 0));
        }
    }

    /// Whether there is none: everything older of every row is at hand.
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Whether one of the files may hold `row`. Rows are asked about in ascending order.
    fn may_hold(&mut self, row: &[u8]) -> bool {
        self.groups.iter_mut().any(|(files, at)| {
            while files.get(*at).is_some_and(|(_, last)| last.as_slice() < row) {
                *at += 1;
            }
            files.get(*at).is_some_and(|(first, _)| first.as_slice() <= row)
        })
    }
}

/// Goes over the rows of a merge and gives what is to be kept of them.
pub(crate) struct Collecting {
    merge: Merge,
    /// Cells from before it are of an earlier family of the same name.
    since: u64,
    older: Older,
    /// For rows with everything older at hand, and for the others.
    whole: Collector,
    part: Collector,
    gathered: Cells,
    metas: Vec<CellMeta>,
    cells_seen: u64,
    bytes_seen: u64,
}

impl Collecting {
    /// Collects for readers at `oldest_snapshot` and above, as of `log_time_ms`.
    pub(crate) fn new(
        merge: Merge,
        family: &FamilyRecord,
        oldest_snapshot: u64,
        log_time_ms: i64,
        older: Older,
    ) -> Self {
        let collector = |covers_older| Collector::new(&family.rules, oldest_snapshot, log_time_ms, covers_older);
        Self {
            merge,
            since: family.since,
            older,
            whole: collector(true),
            part: collector(false),
            gathered: Cells::default(),
            metas: Vec::new(),
            cells_seen: 0,
            bytes_seen: 0,
        }
    }

    /// The next row; `None` at the end.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.merge.row()
    }

    /// Hands what is kept of the next row to `keep`, in store order; says no at the end.
    pub(crate) fn next(&mut self, mut keep: impl FnMut(Cell<'_>)) -> Result<bool, Error> {
        if let Some(cell) = self.merge.lone().filter(|cell| cell.sequence >= self.since) {
            self.cells_seen += 1;
            self.bytes_seen += cell.weight();
            let collector = if self.older.may_hold(cell.row) { &mut self.part } else { &mut self.whole };
            collector.start_row();
            match collector.column(&[cell.meta()]).first() {
                Some(Fate::Keep) => keep(cell),
                Some(Fate::Stub) => keep(cell.stub()),
                Some(Fate::Drop) | None => {}
            }
            self.merge.skip_lone()?;
            return Ok(true);
        }
        self.gathered.clear();
        self.merge.take(&[], &mut self.gathered)?;
        if self.gathered.is_empty() {
            return Ok(self.merge.row().is_some());
        }
        self.cells_seen += self.gathered.len() as u64;
        self.bytes_seen += self.gathered.weight();
        if self.since > 0 {
            let since = self.since;
            self.gathered.retain(|cell| cell.sequence >= since);
        }
        let cells = &self.gathered;
        if cells.is_empty() {
            return Ok(true);
        }
        let collector = if self.older.may_hold(cells.row(0)) { &mut self.part } else { &mut self.whole };
        collector.start_row();
        let mut first = 0;
        while first < cells.len() {
            let qualifier = cells.get(first).qualifier;
            self.metas.clear();
            let of_column = (first..cells.len()).map(|at| cells.get(at)).take_while(|cell| cell.qualifier == qualifier);
            self.metas.extend(of_column.map(|cell| cell.meta()));
            for (at, fate) in (first..).zip(collector.column(&self.metas)) {
                match fate {
                    Fate::Keep => keep(cells.get(at)),
                    Fate::Stub => keep(cells.get(at).stub()),
                    Fate::Drop => {}
                }
            }
            first += self.metas.len();
        }
        Ok(true)
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
        let mut older = Older::default();
        older.add_sorted(vec![pair(b"b", b"d"), pair(b"m", b"m")]);
        older.add_sorted(vec![pair(b"x", b"z")]);
        let held: Vec<bool> =
            [&b"a"[..], b"b", b"d", b"e", b"m", b"ma", b"y", b"zz"].iter().map(|row| older.may_hold(row)).collect();
        assert_eq!(held, [false, true, true, false, true, false, true, false]);
    }
}
