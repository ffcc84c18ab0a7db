//! Evaluates filters on packed rows: which rows and cells are returned, and where the scan continues.
//!
//! A reader reads the columns in [`RowFilter::reads`], passes each packed row to [`RowFilter::judge`], which reduces it
//! to the cells to return, and calls [`RowFilter::seek`] to skip rows. [`RowFilter::judge`] sees only whole rows: a reader that
//! reads a row in parts joins them first. Most filters also judge a row cell by cell as it is read: see [`RowFilter::judges_cells`].
//!
//! Rows that pass unchanged are not copied, and if the row key alone decides, cells are not examined.

mod streaming;

use std::sync::Arc;

use bytes::Bytes;
use terrane_types::cell::{CellRef, Cells};
use terrane_types::rows::{ROW_HEADER_BYTES, begin_row, end_row};
use terrane_types::{FamilyName, KeyRange, Projection};

use crate::column_set::columns_needed;
use crate::expression::{ColumnSubject, Filter, Subject};
use crate::fuzzy_key::FuzzyKey;
use crate::plan::{CellNode, Plan, RowNode};

/// The filter's answer for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The row is returned, as it is in the block now.
    Shown,
    /// The row is not returned.
    Hidden,
    /// Neither this row nor any later one is returned: the scan ends, in all regions.
    End,
}

/// Where a scan continues after a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seek {
    /// At the next row.
    Next,
    /// At the first row, in the direction of the scan, that is not before this one: no row in between can pass.
    To(Vec<u8>),
    /// No further row in this direction can pass. (Unlike the end of a `while`, this does not end the scan elsewhere.)
    Nothing,
}

/// A filter being evaluated. Cheap to clone; each reader has its own.
#[derive(Clone, Debug)]
pub struct RowFilter {
    shared: Arc<Shared>,
    /// Cached answers for the current row, by slot.
    answers: Vec<Option<bool>>,
    /// Of the row that is judged, and a buffer for what is returned of it.
    progress: Box<streaming::Progress>,
}

#[derive(Debug)]
struct Shared {
    plan: Plan,
    reads: Projection,
    /// The requested projection, if more than that is read.
    asked: Option<Projection>,
    /// How many passing cells to skip, and how many to return.
    window: (usize, usize),
    keys_only: bool,
    lengths: bool,
    /// Rows that pass are returned as they are read.
    as_read: bool,
    /// Rows can be judged cell by cell.
    alone: bool,
}

/// A cell and its position in the row.
#[derive(Clone, Copy)]
struct Placed<'a> {
    cell: CellRef<'a>,
    /// The ordinal of its column in the row, from 0.
    column: u32,
    is_first: bool,
}

impl RowFilter {
    /// A [checked](Filter::check) filter over what a [checked](Projection::checked) projection selects.
    #[must_use]
    pub fn new(projection: &Projection, filter: &Filter) -> Self {
        let plan = Plan::of(filter);
        let mut reads = projection.clone();
        let mut asked = None;
        let keys_only = projection.keys_only || plan.keys_only;
        let lengths = plan.lengths && !projection.keys_only;
        // The reader can apply these limits itself if the filter examines no cell.
        let as_read = plan.is_about_key() && !lengths && !(plan.first_only && projection.limits_cells());
        if as_read {
            reads.keys_only = keys_only;
            reads.first_cell_only |= plan.first_only;
        } else {
            (reads.cell_offset, reads.cell_limit, reads.first_cell_only) = (0, 0, false);
            reads.keys_only = keys_only && !lengths && !looks_at_values(filter);
            let widened = widen(&reads, filter);
            if widened != reads {
                reads = widened;
                asked = Some(projection.clone());
            }
            let mut named = Vec::new();
            named_columns(filter, &mut |_, qualifier| named.push(Bytes::copy_from_slice(qualifier)));
            reads = reads.with_only(columns_needed(filter, named));
        }
        let answers = vec![None; plan.slots];
        let window = projection.cell_window();
        let alone = !as_read && plan.judges_cells_alone();
        let shared = Shared { plan, reads, asked, window, keys_only, lengths, as_read, alone };
        Self { shared: Arc::new(shared), answers, progress: Box::default() }
    }

    /// What to read: the requested columns and those that the filter tests, with the offset and limit of cells if the
    /// filter examines no cell.
    #[must_use]
    pub fn reads(&self) -> &Projection {
        &self.shared.reads
    }

    /// The part of a range outside of which no row can pass; `None` if no row can.
    #[must_use]
    pub fn clip(&self, range: &KeyRange) -> Option<KeyRange> {
        self.shared.plan.rows.clip(range)
    }

    /// Whether the row can pass, judging by its key.
    #[must_use]
    pub fn may_pass(&self, row: &[u8]) -> bool {
        let Plan { rows, fuzzy, .. } = &self.shared.plan;
        rows.contains(row) && fuzzy.iter().all(|keys| keys.iter().any(|key| key.matches(row)))
    }

    /// Whether the row key alone decides. A part of a row can then be judged like the whole.
    #[must_use]
    pub fn is_about_key(&self) -> bool {
        self.shared.as_read
    }

    /// Whether the filter passes exactly the rows of one range, unchanged: once the range is clipped, nothing is left
    /// to do.
    #[must_use]
    pub fn is_range(&self) -> bool {
        self.shared.as_read && self.shared.plan.row_tests.is_empty() && !self.may_seek()
    }

    /// Whether rows inside the clipped range can be skipped.
    #[must_use]
    pub fn may_seek(&self) -> bool {
        !self.shared.plan.fuzzy.is_empty() || self.shared.plan.rows.is_parted()
    }

    /// Where to continue after a row that was read.
    #[must_use]
    pub fn seek(&self, row: &[u8], reverse: bool) -> Seek {
        if reverse { self.seek_down(row) } else { self.seek_up(row) }
    }

    fn seek_up(&self, row: &[u8]) -> Seek {
        let next = [row, &[0]].concat();
        let Some(range) = self.shared.plan.rows.range_from(&next) else { return Seek::Nothing };
        let mut target = next.clone();
        if range.start[..] > *target {
            target = range.start.to_vec();
        }
        for keys in &self.shared.plan.fuzzy {
            match keys.iter().filter_map(|key| key.at_or_after(&target)).min() {
                Some(least) => target = least,
                None => return Seek::Nothing,
            }
        }
        if target == next { Seek::Next } else { Seek::To(target) }
    }

    fn seek_down(&self, row: &[u8]) -> Seek {
        let Some(range) = self.shared.plan.rows.range_before(row) else { return Seek::Nothing };
        let mut target = row.to_vec();
        if !range.end.is_empty() && range.end[..] < *target {
            target = range.end.to_vec();
        }
        for keys in &self.shared.plan.fuzzy {
            match keys.iter().filter_map(|key| key.at_or_before(&target)).max() {
                Some(greatest) => target = greatest,
                None => return Seek::Nothing,
            }
        }
        // The row itself was read already, so the scan cannot continue there.
        if target == row { Seek::Next } else { Seek::To(target) }
    }

    /// Judges the packed row from `from` to the end of the block, and reduces it to the cells to return. If the row is
    /// not returned, the caller truncates the block.
    pub fn judge(&mut self, block: &mut Vec<u8>, from: usize) -> Verdict {
        let shared = Arc::clone(&self.shared);
        let (row, cells) = parts_of(&block[from..]);
        if !self.may_pass(row) {
            return Verdict::Hidden;
        }
        self.answers.fill(None);
        let mut judging = Judging { row, cells, asked: shared.asked.as_ref(), answers: &mut self.answers };
        if !shared.plan.row_tests.iter().all(|test| judging.row_passes(test)) {
            return Verdict::Hidden;
        }
        if shared.as_read {
            return Verdict::Shown;
        }
        self.progress.shown.clear();
        let start = begin_row(&mut self.progress.shown, row);
        let (mut passed, mut kept, mut changed) = (0, 0, false);
        for placed in judging.placed() {
            let passes = (!shared.plan.first_only || placed.is_first)
                && shared.plan.cell_tests.iter().all(|test| judging.cell_passes(test, &placed));
            if !passes {
                changed = true;
                continue;
            }
            passed += 1;
            if passed <= shared.window.0 || kept >= shared.window.1 {
                changed = true;
                continue;
            }
            kept += 1;
            shared.pack(&mut self.progress.shown, placed.cell);
        }
        if passed == 0 {
            return Verdict::Hidden;
        }
        let goes_on = shared.plan.whiles.iter().all(|test| {
            let mut cells = judging.placed();
            cells.all(|placed| judging.cell_passes(test, &placed))
        });
        if !goes_on {
            return Verdict::End;
        }
        if kept == 0 {
            return Verdict::Hidden;
        }
        end_row(&mut self.progress.shown, start);
        if changed || shared.keys_only || shared.asked.is_some() {
            block.truncate(from);
            block.extend_from_slice(&self.progress.shown);
        }
        Verdict::Shown
    }
}

/// The key and the packed cells of one packed row.
fn parts_of(packed: &[u8]) -> (&[u8], &[u8]) {
    let length = packed.first_chunk::<2>().map_or(0, |length| usize::from(u16::from_le_bytes(*length)));
    let behind = packed.get(ROW_HEADER_BYTES..).unwrap_or_default();
    behind.split_at_checked(length).unwrap_or_default()
}

/// The row being judged.
struct Judging<'a> {
    row: &'a [u8],
    cells: &'a [u8],
    asked: Option<&'a Projection>,
    answers: &'a mut [Option<bool>],
}

impl<'a> Judging<'a> {
    /// The cells that the projection selects, with their positions.
    fn placed(&self) -> impl Iterator<Item = Placed<'a>> + use<'a> {
        let asked = self.asked;
        let is_asked = move |cell: &CellRef<'_>| asked.is_none_or(|asked| asked.selects(cell.family, cell.qualifier));
        let mut last: Option<(&[u8], &[u8], u32)> = None;
        Cells::new(self.cells).filter(is_asked).map(move |cell| {
            let (column, is_first) = match last {
                None => (0, true),
                Some((family, qualifier, column)) if family == cell.family && qualifier == cell.qualifier => {
                    (column, false)
                }
                Some((_, _, column)) => (column + 1, false),
            };
            last = Some((cell.family, cell.qualifier, column));
            Placed { cell, column, is_first }
        })
    }

    /// The versions of a column, the newest first.
    fn versions(&self, family: &FamilyName, qualifier: &[u8]) -> impl Iterator<Item = CellRef<'a>> {
        let family = family.as_bytes();
        Cells::new(self.cells)
            .skip_while(move |cell| (cell.family, cell.qualifier) < (family, qualifier))
            .take_while(move |cell| cell.family == family && cell.qualifier == qualifier)
    }

    fn row_passes(&mut self, node: &RowNode) -> bool {
        match node {
            RowNode::All(parts) => parts.iter().all(|part| self.row_passes(part)),
            RowNode::Any(parts) => parts.iter().any(|part| self.row_passes(part)),
            RowNode::Not(inner) => !self.row_passes(inner),
            RowNode::Key(test) => test.passes(self.row),
            RowNode::KeyPart(test) => test.passes(self.row),
            RowNode::Ranges(rows) => rows.contains(self.row),
            RowNode::Fuzzy(keys) => keys.iter().any(|key: &FuzzyKey| key.matches(self.row)),
            RowNode::Column { column, test } => {
                let ColumnSubject { family, qualifier, pass_missing, any_version } = column;
                let mut versions = self.versions(family, qualifier).peekable();
                if versions.peek().is_none() {
                    return *pass_missing;
                }
                versions.take(if *any_version { usize::MAX } else { 1 }).any(|cell| test.passes(cell.value))
            }
            RowNode::Exists { family, qualifier } => self.versions(family, qualifier).next().is_some(),
            RowNode::Random { millionths, seed } => {
                let hash = u128::from(xxhash_rust::xxh3::xxh3_64_with_seed(self.row, *seed));
                (hash * 1_000_000) >> 64 < u128::from(*millionths)
            }
            RowNode::EveryCell(test) => {
                let mut cells = self.placed();
                cells.all(|placed| self.cell_passes(test, &placed))
            }
            RowNode::SomeCell(test) => {
                let mut cells = self.placed();
                cells.any(|placed| self.cell_passes(test, &placed))
            }
        }
    }

    fn cell_passes(&mut self, node: &CellNode, placed: &Placed<'_>) -> bool {
        let cell = &placed.cell;
        match node {
            CellNode::Row { slot, test } => match self.answers[*slot] {
                Some(answer) => answer,
                None => {
                    let answer = self.row_passes(test);
                    self.answers[*slot] = Some(answer);
                    answer
                }
            },
            CellNode::All(parts) => parts.iter().all(|part| self.cell_passes(part, placed)),
            CellNode::Any(parts) => parts.iter().any(|part| self.cell_passes(part, placed)),
            CellNode::Not(inner) => !self.cell_passes(inner, placed),
            CellNode::Family(test) => test.passes(cell.family),
            CellNode::Qualifier(test) => test.passes(cell.qualifier),
            CellNode::Value(test) => test.passes(cell.value),
            CellNode::Qualifiers { start, end } => {
                cell.qualifier >= &start[..] && (end.is_empty() || cell.qualifier < &end[..])
            }
            CellNode::Timestamps(times) => times.binary_search(&cell.timestamp).is_ok(),
            CellNode::Columns { limit, offset } => {
                placed.column >= *offset && u64::from(placed.column) < u64::from(*offset) + u64::from(*limit)
            }
            CellNode::First => placed.is_first,
        }
    }
}

/// Whether the filter tests values.
fn looks_at_values(filter: &Filter) -> bool {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().any(looks_at_values),
        Filter::Not(inner) | Filter::Skip(inner) | Filter::Any(inner) | Filter::While(inner) => looks_at_values(inner),
        Filter::Compare { subject, .. }
        | Filter::OneOf { subject, .. }
        | Filter::Prefix { subject, .. }
        | Filter::Contains { subject, .. }
        | Filter::Matches { subject, .. }
        | Filter::Bits { subject, .. } => matches!(subject, Subject::Value | Subject::Column(_)),
        _ => false,
    }
}

/// The projection, extended by the columns that the filter names. Whether their families exist is checked where the
/// schema is known, as for requested ones.
fn widen(projection: &Projection, filter: &Filter) -> Projection {
    let mut wide = projection.clone();
    if !wide.families.is_empty() {
        named_columns(filter, &mut |family, qualifier| {
            if !wide.selects(family.as_bytes(), qualifier) {
                let taken = std::mem::take(&mut wide);
                wide = taken.with_column(family.clone(), qualifier.to_vec());
            }
        });
    }
    wide
}

/// Calls `take` for every column that a test names.
fn named_columns(filter: &Filter, take: &mut impl FnMut(&FamilyName, &[u8])) {
    match filter {
        Filter::And(parts) | Filter::Or(parts) => parts.iter().for_each(|part| named_columns(part, take)),
        Filter::Not(inner) | Filter::Skip(inner) | Filter::Any(inner) | Filter::While(inner) => {
            named_columns(inner, take);
        }
        Filter::Exists { family, qualifier } => take(family, qualifier),
        Filter::Compare { subject: Subject::Column(column), .. }
        | Filter::OneOf { subject: Subject::Column(column), .. }
        | Filter::Prefix { subject: Subject::Column(column), .. }
        | Filter::Contains { subject: Subject::Column(column), .. }
        | Filter::Matches { subject: Subject::Column(column), .. }
        | Filter::Bits { subject: Subject::Column(column), .. } => take(&column.family, &column.qualifier),
        _ => {}
    }
}

impl Filter {
    /// The families of the columns that the filter tests by name: a table without one of them refuses the filter.
    #[must_use]
    pub fn families(&self) -> Vec<FamilyName> {
        let mut families = Vec::new();
        named_columns(self, &mut |family, _| {
            if !families.contains(family) {
                families.push(family.clone());
            }
        });
        families
    }

    /// The columns that the filter tests by name, in its order.
    #[must_use]
    pub fn columns(&self) -> Vec<(FamilyName, Bytes)> {
        let mut columns = Vec::new();
        named_columns(self, &mut |family, qualifier| {
            let column = (family.clone(), Bytes::copy_from_slice(qualifier));
            if !columns.contains(&column) {
                columns.push(column);
            }
        });
        columns
    }
}
