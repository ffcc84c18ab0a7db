//! Filters where rows are read: what is read for them, whole rows that are assembled before they are evaluated, and rows that
//! are skipped.
//!
//! A read without a filter, or with one that is a single range of rows and nothing else, never gets here: its range is
//! clipped, and that is all. A filter on the row key alone decides by the first part of a row. Any other filter decides at the end of
//! a row ([`RowProgress`]): what it keeps until then is at most [`READ_BYTES_MAX`], whatever the size of a block.

mod progress;

use parking_lot::Mutex;
use terrane_filter::{Filter, RowFilter, Seek, Verdict};
use terrane_types::cell::CellRef;
use terrane_types::limits::READ_BYTES_MAX;
use terrane_types::rows::ROW_HEADER_BYTES;
use terrane_types::{Error, FamilyName, Invalid, KeyRange, Onward, Projection, escape};

pub use self::progress::RowProgress;

/// Rows that are read before seeking, although the filter says that no row before a later one can pass: a seek costs as much
/// as reading a few small rows, and often the target is among them.
const ROWS_BEFORE_SEEK: u32 = 4;

/// A filter that another protocol brings along. Unlike [`RowFilter`], it has state: it sees the rows of one scan of one region
/// in their order, each of them once.
pub trait RowJudge: Send + Sync {
    /// A copy in its present state.
    fn copy(&self) -> Box<dyn RowJudge>;

    /// Judges the packed row from `from` to the end of the block, and reduces it to the cells to return. If the row is not
    /// returned, the caller truncates the block.
    fn judge(&mut self, block: &mut Vec<u8>, from: usize) -> Result<bool, Invalid>;

    /// Whether it judges rows cell by cell, by [`cell`](Self::cell) and [`end_row`](Self::end_row), and not only whole ones.
    fn judges_cells(&self) -> bool;

    /// Judges the next cell of a row and packs what is returned of it. Returns where to continue; it may be given cells before that.
    fn cell(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<Onward, Invalid>;

    /// Whether the row is returned of which all cells were given, or enough of them.
    fn end_row(&mut self, row: &[u8]) -> bool;

    /// Whether no further row of this region is returned.
    fn is_done(&self) -> bool;

    /// Whether it ends the scan in all regions.
    fn is_over(&self) -> bool;

    /// A row before which no row is returned, in the direction of the scan; taken after a row was judged.
    fn target(&mut self) -> Option<Vec<u8>>;

    /// The part of a range outside of which no row is returned; `None` if none is.
    fn clip(&self, range: KeyRange) -> Option<KeyRange>;
}

/// What evaluates rows: Terrane's filter, or another protocol's.
pub enum Evaluation {
    Filter(RowFilter),
    Judge(Box<dyn RowJudge>),
}

impl Clone for Evaluation {
    fn clone(&self) -> Self {
        match self {
            Self::Filter(filter) => Self::Filter(filter.clone()),
            Self::Judge(judge) => Self::Judge(judge.copy()),
        }
    }
}

impl Evaluation {
    /// Whether it judges rows cell by cell.
    fn judges_cells(&self) -> bool {
        match self {
            Self::Filter(filter) => filter.judges_cells(),
            Self::Judge(judge) => judge.judges_cells(),
        }
    }

    /// Begins a row that is judged cell by cell; returns whether cells of it can pass.
    fn begin_row(&mut self, row: &[u8]) -> bool {
        match self {
            Self::Filter(filter) => filter.begin_row(row),
            Self::Judge(_) => true,
        }
    }

    /// Judges the next cell of the row and packs what is returned of it.
    fn cell(&mut self, row: &[u8], cell: CellRef<'_>, out: &mut Vec<u8>) -> Result<Onward, Invalid> {
        match self {
            Self::Filter(filter) => Ok(filter.cell(row, cell, out)),
            Self::Judge(judge) => judge.cell(row, cell, out),
        }
    }

    /// The verdict on a row that was judged cell by cell.
    fn end_row(&mut self, row: &[u8]) -> Verdict {
        match self {
            Self::Filter(filter) => filter.end_row(row),
            Self::Judge(judge) => {
                if judge.end_row(row) {
                    Verdict::Shown
                } else {
                    Verdict::Hidden
                }
            }
        }
    }

    /// Whether a row can pass, judging by its key.
    pub fn may_pass(&self, row: &[u8]) -> bool {
        match self {
            Self::Filter(filter) => filter.may_pass(row),
            Self::Judge(_) => true,
        }
    }

    /// Judges the packed row from `from` to the end of the block, and reduces it to the cells to return. If it is not shown, the
    /// caller truncates the block.
    pub fn judge(&mut self, block: &mut Vec<u8>, from: usize) -> Result<Verdict, Invalid> {
        match self {
            Self::Filter(filter) => Ok(filter.judge(block, from)),
            Self::Judge(judge) => Ok(if judge.judge(block, from)? { Verdict::Shown } else { Verdict::Hidden }),
        }
    }
}

/// What a read looks for: a projection and a filter, prepared once per request.
pub struct Lookup {
    projection: Projection,
    filter: Option<Box<RowFilter>>,
    /// Instead of a filter. In a scan, its state moves on with each completed block, so that a request with one belongs to one
    /// scan.
    judge: Option<Box<Mutex<Box<dyn RowJudge>>>>,
    reads: Projection,
    page: Option<u64>,
    /// Families that the filter tests by name.
    tested: Vec<FamilyName>,
}

impl Lookup {
    /// A lookup for a validated projection and filter.
    pub fn new(projection: Projection, filter: Option<&Filter>) -> Self {
        let page = filter.and_then(Filter::page);
        let tested = filter.map(Filter::families).unwrap_or_default();
        let filter = filter.map(|filter| Box::new(RowFilter::new(&projection, filter)));
        let reads = filter.as_ref().map_or_else(|| projection.clone(), |filter| filter.reads().clone());
        Self { projection, filter, judge: None, reads, page, tested }
    }

    /// A lookup whose rows are judged by another protocol's filter. It sees what `reads` selects, and returns what it makes of
    /// that.
    pub fn judged(reads: Projection, judge: Box<dyn RowJudge>) -> Self {
        Self { judge: Some(Box::new(Mutex::new(judge))), ..Self::new(reads, None) }
    }

    /// A lookup of whether rows exist: without a filter, a single cell decides.
    pub fn exists(projection: Projection, filter: Option<&Filter>) -> Self {
        let mut lookup = Self::new(projection, filter);
        if lookup.filter.is_none() {
            lookup.reads.first_cell_only = true;
            lookup.reads.keys_only = true;
        }
        lookup
    }

    /// The requested projection.
    pub fn projection(&self) -> &Projection {
        &self.projection
    }

    /// The projection that is read for it.
    pub fn reads(&self) -> &Projection {
        &self.reads
    }

    /// What evaluates rows, for one reader.
    pub fn evaluation(&self) -> Option<Evaluation> {
        match &self.judge {
            Some(judge) => Some(Evaluation::Judge(judge.lock().copy())),
            None => self.filter.as_deref().cloned().map(Evaluation::Filter),
        }
    }

    /// The filter as a scan applies it; `None` if clipping the range is all there is to do.
    pub fn filtering(&self) -> Option<Filtering> {
        let evaluation = self.evaluation()?;
        if let Evaluation::Filter(filter) = &evaluation
            && filter.is_range()
        {
            return None;
        }
        Some(Filtering { evaluation, progress: RowProgress::default(), target: None, waited: 0, over: false })
    }

    /// Keeps the state in which a completed block leaves a filter that has one.
    pub fn keep(&self, filtering: Filtering) {
        if let (Some(kept), Evaluation::Judge(judge)) = (&self.judge, filtering.evaluation) {
            *kept.lock() = judge;
        }
    }

    /// The part of the range in which rows can pass.
    pub fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        match (&self.filter, &self.judge) {
            (Some(filter), _) => filter.clip(&range),
            (None, Some(judge)) => judge.lock().clip(range),
            (None, None) => Some(range),
        }
    }

    /// The number of rows after which the filter ends a scan.
    pub fn page(&self) -> Option<u64> {
        self.page
    }

    /// Families named by the projection, or tested by the filter.
    pub fn families(&self) -> impl Iterator<Item = &FamilyName> {
        self.projection.families.iter().map(|(family, _)| family).chain(&self.tested)
    }
}

/// A filter as a scan applies it.
pub struct Filtering {
    evaluation: Evaluation,
    /// The row that is being read.
    progress: RowProgress,
    /// No row before this one can pass.
    target: Option<Vec<u8>>,
    /// Rows read since that was known.
    waited: u32,
    over: bool,
}

/// Where a scan continues.
pub enum Hop {
    Next,
    /// At this row, or the first one after it.
    Seek(Vec<u8>),
    /// Nowhere: no further row can pass.
    Leave,
}

impl Filtering {
    /// Whether rows must be whole to be judged.
    pub fn needs_whole_rows(&self) -> bool {
        match &self.evaluation {
            Evaluation::Filter(filter) => !filter.is_about_key(),
            Evaluation::Judge(_) => true,
        }
    }

    /// Whether the filter ended the scan, in all regions.
    pub fn is_over(&self) -> bool {
        match &self.evaluation {
            Evaluation::Filter(_) => self.over,
            Evaluation::Judge(judge) => judge.is_over(),
        }
    }

    /// Whether no further row of the region passes.
    pub fn is_done(&self) -> bool {
        match &self.evaluation {
            Evaluation::Filter(_) => self.over,
            Evaluation::Judge(judge) => judge.is_done(),
        }
    }

    /// Whether no row behind a range passes, in the direction of the scan: then no other region has one either.
    pub fn ends_within(&self, range: &KeyRange, reverse: bool) -> bool {
        match &self.evaluation {
            Evaluation::Filter(_) => false,
            Evaluation::Judge(judge) => match judge.clip(range.clone()) {
                Some(clipped) if reverse => clipped.start != range.start,
                Some(clipped) => clipped.end != range.end,
                None => false,
            },
        }
    }

    /// Whether a row is before the one at which the next can pass.
    fn is_before_target(&mut self, row: &[u8], reverse: bool) -> bool {
        let is_before = |target: &Vec<u8>| if reverse { row > &target[..] } else { row < &target[..] };
        let before = self.target.as_ref().is_some_and(is_before);
        if !before {
            self.target = None;
        }
        before
    }

    /// Takes the next cell of a row that is judged at its end. Returns where to continue reading.
    pub fn take(&mut self, row: &[u8], cell: CellRef<'_>, block: &mut Vec<u8>, reverse: bool) -> Onward {
        if !self.progress.is_begun() && self.is_before_target(row, reverse) {
            return self.progress.hide(row, block);
        }
        self.progress.take(&mut self.evaluation, row, cell, block)
    }

    /// Whether a row was begun that has not ended.
    pub fn is_within_row(&self) -> bool {
        self.progress.is_begun()
    }

    /// Ends that row. Returns where it is in the block, if it passes.
    pub fn end_row(&mut self, row: &[u8], block: &mut Vec<u8>) -> Result<Option<usize>, Error> {
        let ended = self.progress.end(&mut self.evaluation, row, block)?;
        self.over |= matches!(ended, Some((_, Verdict::End)));
        Ok(ended.and_then(|(from, verdict)| (verdict == Verdict::Shown).then_some(from)))
    }

    /// Evaluates part of a row that begins at `from` and ends the block, by the row's key. Removes it if it does not pass.
    pub fn judge(&mut self, block: &mut Vec<u8>, from: usize, reverse: bool) -> Result<bool, Invalid> {
        if self.target.is_some() {
            let row = key_of(&block[from..]).to_vec();
            if self.is_before_target(&row, reverse) {
                block.truncate(from);
                return Ok(false);
            }
        }
        match self.evaluation.judge(block, from)? {
            Verdict::Shown => return Ok(true),
            Verdict::Hidden => {}
            Verdict::End => self.over = true,
        }
        block.truncate(from);
        Ok(false)
    }

    /// Where to continue after a row that was read.
    pub fn hop(&mut self, row: &[u8], reverse: bool) -> Hop {
        if self.is_done() {
            return Hop::Leave;
        }
        if self.target.is_none() {
            self.waited = 0;
            self.target = match &mut self.evaluation {
                Evaluation::Filter(filter) if !filter.may_seek() => return Hop::Next,
                Evaluation::Filter(filter) => match filter.seek(row, reverse) {
                    Seek::Next => return Hop::Next,
                    Seek::Nothing => return Hop::Leave,
                    Seek::To(target) => Some(target),
                },
                Evaluation::Judge(judge) => match judge.target() {
                    Some(target) => Some(target),
                    None => return Hop::Next,
                },
            };
        }
        self.waited += 1;
        if self.waited < ROWS_BEFORE_SEEK {
            return Hop::Next;
        }
        self.target.take().map_or(Hop::Next, Hop::Seek)
    }
}

/// The error for a row that is too large to be evaluated.
pub fn too_large(row: &[u8]) -> Error {
    Error::Invalid(Invalid::new(format!(
        "more than {READ_BYTES_MAX} bytes of row {} pass the filter, or are needed to judge it; request fewer of its \
         columns, or filter by row key alone",
        escape(row)
    )))
}

/// The key of a packed row.
pub fn key_of(packed: &[u8]) -> &[u8] {
    let len = packed.first_chunk::<2>().map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    packed.get(ROW_HEADER_BYTES..ROW_HEADER_BYTES + len).unwrap_or_default()
}
