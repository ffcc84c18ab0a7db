//! What a region scanner does with a filter's answers.
//!
//! HBase reads each family of a region by a scanner of its own and asks the filter about the cells of a row family by family.
//! "Next row" and hints therefore concern one family: the others are asked about all the same. A hint may lead a family into a
//! later row, so that the rows before it are read without that family. A filter that is over in the middle of a row ends the
//! families about which it is asked after that. Families that a filter does not need to judge a row are read for the rows that
//! pass, if the read allows it.
//!
//! The filter sees as many versions as the family keeps; those that are returned are counted after it.

mod streaming;

use std::mem::take;

use bytes::Bytes;
use terrane_regionserver::edge::RowJudge;
use terrane_types::cell::{CellRef, Cells};
use terrane_types::rows::{ROW_HEADER_BYTES, begin_row, end_row};
use terrane_types::{Columns, Invalid, KeyRange, Onward};

use super::decode::decode;
use super::row_progress::{RowProgress, pack_shown};
use super::rows::Everything;
use super::{CellCoordinates, CellFilter, Code, Kept, Position, Shown};
use crate::cell_block::KeyValue;
use crate::proto;

/// How many cells of each family of a row are returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoreLimits {
    /// Absent: all.
    pub limit: Option<u32>,
    /// How many cells to leave out before them.
    pub offset: u32,
}

impl StoreLimits {
    const fn apply(self) -> bool {
        self.limit.is_some() || self.offset > 0
    }
}

/// A filter of HBase, with the state of a read of one region.
pub(crate) struct Evaluator {
    pub(super) filter: Box<dyn CellFilter>,
    /// How many versions of a column are returned.
    pub(super) versions: usize,
    pub(super) limits: StoreLimits,
    /// Families that the filter does not need are read for rows that pass.
    pub(super) defers: bool,
    pub(super) reverse: bool,
    /// The families that are read, and whether only named columns of them are.
    pub(super) families: Vec<(Vec<u8>, bool)>,
    pub(super) progress: Progress,
    /// Of the row that is judged cell by cell.
    row: Box<RowProgress>,
    /// A regular expression of the filter goes back.
    backtracks: bool,
    /// A buffer for the row to return.
    buffer: Vec<u8>,
}

/// How far the families are.
#[derive(Clone, Default)]
pub(super) struct Progress {
    /// Families without further cells.
    pub ended: Vec<Vec<u8>>,
    /// Families that continue in another row.
    pub sought: Vec<(Vec<u8>, Position)>,
    /// Where all families that the last row had cells of continue.
    pub target: Option<Vec<u8>>,
    /// The filter is over at the end of a row.
    pub over: bool,
}

impl Evaluator {
    /// An evaluator of a filter, or of limits alone.
    ///
    /// # Errors
    /// [`Invalid`] for a filter that is malformed, unknown, or over the limits.
    pub fn new(filter: Option<&proto::Filter>, versions: u32, limits: StoreLimits) -> Result<Self, Invalid> {
        let (filter, backtracks) = match filter {
            Some(filter) => decode(filter)?,
            None => (Box::new(Everything) as Box<dyn CellFilter>, false),
        };
        Ok(Self {
            filter,
            backtracks,
            versions: usize::try_from(versions).unwrap_or(usize::MAX),
            limits,
            defers: false,
            reverse: false,
            families: Vec::new(),
            progress: Progress::default(),
            row: Box::default(),
            buffer: Vec::new(),
        })
    }

    /// Reads families that the filter does not need only for rows that pass.
    pub fn deferring(mut self, defers: bool) -> Self {
        self.defers = defers;
        self
    }

    /// Rows come in descending order.
    pub fn reversed(mut self, reverse: bool) -> Self {
        self.reverse = reverse;
        if reverse {
            self.filter.reverse();
        }
        self
    }

    /// Names the families that are read, and says whether only named columns of them are. A read ends when all of them have.
    pub fn reading(mut self, families: impl IntoIterator<Item = (Vec<u8>, bool)>) -> Self {
        self.families = families.into_iter().collect();
        self
    }

    /// Whether all versions that a family keeps are to be read, and not only those that are asked for.
    pub fn needs_all_versions(&self) -> bool {
        self.filter.judges_cells() || self.limits.apply()
    }

    /// Whether only the first cell of each row need be read.
    pub fn needs_first_cell_only(&self) -> bool {
        self.filter.takes_first_cell() && !self.limits.apply()
    }

    /// Whether values need not be read: they are neither tested nor shown.
    pub fn needs_keys_only(&self) -> bool {
        self.filter.hides_values() && !self.filter.reads_values()
    }

    /// The columns outside of which nothing is returned, so that they need not be read.
    pub fn columns(&self) -> Columns {
        // A filter that watches rows is asked about those that have none of these columns, too.
        if self.filter.watches_rows() { Columns::whole_family() } else { self.filter.columns() }
    }

    /// The columns that decide whether a row is returned, beside whether it has any cell; `None`: other cells may decide.
    pub fn decided_by(&self) -> Option<Vec<(Bytes, Bytes)>> {
        (!self.limits.apply()).then(|| self.filter.decided_by()).flatten()
    }

    /// Whether the time that it takes is not linear in what it reads.
    pub const fn backtracks(&self) -> bool {
        self.backtracks
    }

    fn judge_row(&mut self, block: &mut Vec<u8>, from: usize) -> Result<bool, Invalid> {
        self.progress.target = None;
        if self.is_done() {
            return Ok(false);
        }
        let mut buffer = take(&mut self.buffer);
        let judged = self.reduce(&block[from..], &mut buffer);
        let shown = match judged {
            Ok(Reduced::Nothing) => Ok(false),
            Ok(Reduced::AsRead) => Ok(true),
            Ok(Reduced::Changed) => {
                block.truncate(from);
                block.extend_from_slice(&buffer);
                Ok(true)
            }
            Err(refused) => Err(refused),
        };
        self.buffer = buffer;
        self.progress.over |= self.filter.is_over();
        shown
    }

    /// Judges a packed row and packs what is returned of it, unless that is all of it.
    fn reduce(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<Reduced, Invalid> {
        let (row, cells) = parts_of(packed);
        if !self.looks_at_cells() {
            return self.judge_key(row);
        }
        let cells: Vec<CellRef<'_>> = Cells::new(cells).collect();
        let (needed, deferred) = self.stores(row, &cells);
        // As for the reader of HBase, there is no row without cells that are to be read.
        if needed.is_empty() {
            return Ok(Reduced::Nothing);
        }
        let mut kept = Vec::with_capacity(cells.len());
        if self.filter.skips_row(row)? {
            if self.filter.is_over() {
                return Ok(Reduced::Nothing);
            }
            // The reader passes over the row, and its filter still hears of the cells.
            self.walk_all(row, &needed, &mut kept)?;
            self.filter.reset();
            return Ok(Reduced::Nothing);
        }
        self.walk_all(row, &needed, &mut kept)?;
        let is_empty = kept.is_empty();
        if self.filter.edits_row() {
            self.filter.edit(&mut kept);
        }
        // A row that the filter emptied is not counted, and one that was empty before is not either.
        let drops = is_empty || (!kept.is_empty() && self.filter.drops_row());
        if !drops && !deferred.is_empty() {
            self.walk_all(row, &deferred, &mut kept)?;
            kept.sort_by(|left, right| left.cell.cell.family.cmp(right.cell.cell.family));
        }
        self.filter.reset();
        if drops || kept.is_empty() {
            return Ok(Reduced::Nothing);
        }
        if kept.len() == cells.len() && kept.iter().all(|kept| kept.shown == Shown::Whole) {
            return Ok(Reduced::AsRead);
        }
        out.clear();
        let start = begin_row(out, row);
        for Kept { cell, shown } in kept {
            pack_shown(out, cell.cell, shown);
        }
        end_row(out, start);
        Ok(Reduced::Changed)
    }

    /// Whether cells are judged, or shown otherwise than they are read.
    pub(super) fn looks_at_cells(&self) -> bool {
        self.needs_all_versions() || (self.filter.changes_values() && !self.needs_keys_only())
    }

    /// Judges a row by its key, for a filter that does not judge cells.
    fn judge_key(&mut self, row: &[u8]) -> Result<Reduced, Invalid> {
        let shown = !self.filter.skips_row(row)? && !self.filter.drops_row();
        self.filter.reset();
        Ok(if shown { Reduced::AsRead } else { Reduced::Nothing })
    }

    /// The cells of each family that is not past this row: of those that the filter needs, and of the others.
    fn stores<'c, 'a>(&self, row: &[u8], cells: &'c [CellRef<'a>]) -> (Vec<&'c [CellRef<'a>]>, Vec<&'c [CellRef<'a>]>) {
        let of_families = cells.chunk_by(|left, right| left.family == right.family);
        let is_here = |store: &&[CellRef<'_>]| {
            let family = store[0].family;
            let sought = self.progress.sought.iter().find(|(sought, _)| sought == family);
            let is_past = sought.is_some_and(|(_, place)| {
                store.iter().all(|cell| self.is_ahead(place, CellCoordinates::of(&KeyValue { row, cell: *cell })))
            });
            !is_past && !self.progress.ended.iter().any(|ended| ended == family)
        };
        let is_needed = |store: &&[CellRef<'_>]| !self.defers || self.filter.needs_family(store[0].family);
        of_families.filter(is_here).partition(is_needed)
    }

    /// Whether a family that continues at this place passes over this cell.
    pub(super) fn is_ahead(&self, place: &Position, at: CellCoordinates<'_>) -> bool {
        if self.reverse { *at.row > place.row[..] } else { place.seen_from(at).is_gt() }
    }

    fn walk_all<'a>(
        &mut self,
        row: &'a [u8],
        stores: &[&[CellRef<'a>]],
        kept: &mut Vec<Kept<'a>>,
    ) -> Result<(), Invalid> {
        let mut targets = Vec::with_capacity(stores.len());
        for store in stores {
            targets.extend(self.walk(row, store, kept)?);
        }
        // A family without cells in this row would be asked about the rows before the target. A filter whose later answers do
        // not depend on that leaves them out as well.
        if targets.len() == stores.len() && !self.filter.watches_rows() {
            self.progress.target = if self.reverse { targets.into_iter().max() } else { targets.into_iter().min() };
        }
        Ok(())
    }

    /// Asks the filter about the cells of one family of a row. Returns the row in which the family continues, if not in the
    /// next one.
    fn walk<'a>(
        &mut self,
        row: &'a [u8],
        store: &[CellRef<'a>],
        kept: &mut Vec<Kept<'a>>,
    ) -> Result<Option<Vec<u8>>, Invalid> {
        let family = store[0].family;
        let sought = self.progress.sought.iter().position(|(sought, _)| sought == family);
        let mut place = sought.map(|at| self.progress.sought.swap_remove(at).1);
        let (mut column, mut versions, mut column_done, mut included) = (None, 0, false, 0_u32);
        for &cell in store {
            let cell = KeyValue { row, cell };
            if place.as_ref().is_some_and(|place| self.is_ahead(place, CellCoordinates::of(&cell))) {
                continue;
            }
            place = None;
            if column != Some(cell.cell.qualifier) {
                (column, versions) = (Some(cell.cell.qualifier), 0);
            } else if column_done {
                continue;
            }
            if self.filter.is_over() {
                self.progress.ended.push(family.to_vec());
                return Ok(None);
            }
            let code = self.filter.cell(&cell)?;
            let passes = self.passes_columns(&cell);
            column_done = passes && matches!(code, Code::IncludeAndNextColumn | Code::NextColumn);
            if code.includes() {
                // A raw scan shows tombstones, which are no versions.
                versions += usize::from(!cell.cell.kind.is_delete());
                if versions > self.versions {
                    column_done = passes;
                    continue;
                }
                let StoreLimits { limit, offset } = self.limits;
                included += 1;
                if included > offset {
                    kept.push(Kept { cell, shown: self.filter.shown(Shown::Whole, cell.cell.value.len()) });
                    // The limit is looked at behind a cell: a limit of none lets one through, as in HBase.
                    if limit.is_some_and(|limit| included >= limit.saturating_add(offset)) {
                        return Ok(None);
                    }
                }
            }
            match code {
                Code::NextRow => break,
                Code::Seek => {
                    let hint = self.filter.hint(CellCoordinates::of(&cell));
                    // A reader that goes down stays in the row only to take the next cell.
                    place = hint.filter(|place| self.is_ahead(place, CellCoordinates::of(&cell)));
                }
                _ => {}
            }
        }
        if self.filter.is_over() {
            // The reader asks about the family's next cell, wherever that is, and learns that there is none for it.
            self.progress.ended.push(family.to_vec());
            return Ok(None);
        }
        let Some(place) = place.filter(|place| place.row != row) else { return Ok(None) };
        let target = place.row.clone();
        self.progress.sought.push((family.to_vec(), place));
        Ok(Some(target))
    }

    /// Whether the rest of the cell's column can be passed over. HBase does not seek past a column without a name, because deletes of
    /// the family may be there, too: its filter is asked about further versions, unless columns are named.
    pub(super) fn passes_columns(&self, cell: &KeyValue<'_>) -> bool {
        let is_explicit = |(name, is_explicit): &(Vec<u8>, bool)| *is_explicit && name == cell.cell.family;
        !cell.cell.qualifier.is_empty() || self.families.iter().any(is_explicit)
    }

    /// The filter lets no further row of the region pass.
    pub(super) fn is_done(&self) -> bool {
        let ended = |(family, _): &(Vec<u8>, bool)| self.progress.ended.contains(family);
        self.progress.over || (!self.families.is_empty() && self.families.iter().all(ended))
    }
}

/// What is returned of a row.
enum Reduced {
    Nothing,
    AsRead,
    Changed,
}

/// The key and the packed cells of one packed row.
pub(crate) fn parts_of(packed: &[u8]) -> (&[u8], &[u8]) {
    let length = packed.first_chunk::<2>().map_or(0, |length| usize::from(u16::from_le_bytes(*length)));
    let behind = packed.get(ROW_HEADER_BYTES..).unwrap_or_default();
    behind.split_at_checked(length).unwrap_or_default()
}

impl RowJudge for Evaluator {
    fn copy(&self) -> Box<dyn RowJudge> {
        Box::new(Self {
            filter: self.filter.clone(),
            versions: self.versions,
            limits: self.limits,
            defers: self.defers,
            reverse: self.reverse,
            families: self.families.clone(),
            progress: self.progress.clone(),
            row: Box::default(),
            backtracks: self.backtracks,
            buffer: Vec::new(),
        })
    }

    fn judge(&mut self, block: &mut Vec<u8>, from: usize) -> Result<bool, Invalid> {
        self.judge_row(block, from)
    }

    fn judges_cells(&self) -> bool {
        self.judges_as_read()
    }

    fn cell(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<Onward, Invalid> {
        self.judge_cell(row, cell, out)
    }

    fn end_row(&mut self, row: &[u8]) -> bool {
        self.judge_end(row)
    }

    fn is_done(&self) -> bool {
        Self::is_done(self) || self.filter.is_over()
    }

    fn is_over(&self) -> bool {
        self.progress.over || self.filter.is_over()
    }

    fn target(&mut self) -> Option<Vec<u8>> {
        self.progress.target.take()
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        if self.filter.watches_rows() { Some(range) } else { self.filter.clip(range) }
    }
}
