//! Filters where rows are read: what is read for them, whole rows that are assembled before they are evaluated, and rows that
//! are skipped.
//!
//! A read without a filter, or with one that is a single range of rows and nothing else, never gets here: its range is
//! clipped, and that is all. A filter on the row key alone decides by the first part of a row. Any other filter sees whole
//! rows, so a row is assembled up to [`FILTERED_ROW_BYTES_MAX`] whatever the size of a block, and a larger one is refused.

use terrane_filter::{Filter, RowFilter, Seek, Verdict};
use terrane_types::rows::ROW_HEADER_BYTES;
use terrane_types::{Error, FamilyName, Invalid, KeyRange, Projection, escape};

/// The largest row that a filter evaluates. It fits one message, like the largest answer to a get.
pub const FILTERED_ROW_BYTES_MAX: usize = 32 << 20;

/// Rows that are read before seeking, although the filter says that no row before a later one can pass: a seek costs as much
/// as reading a few small rows, and often the target is among them.
const ROWS_BEFORE_SEEK: u32 = 4;

/// What a read looks for: a projection and a filter, prepared once per request.
pub struct Lookup {
    projection: Projection,
    filter: Option<RowFilter>,
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
        let filter = filter.map(|filter| RowFilter::new(&projection, filter));
        let reads = filter.as_ref().map_or_else(|| projection.clone(), |filter| filter.reads().clone());
        Self { projection, filter, reads, page, tested }
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

    /// A copy of the filter for one reader.
    pub fn filter(&self) -> Option<RowFilter> {
        self.filter.clone()
    }

    /// The filter as a scan applies it; `None` if clipping the range is all there is to do.
    pub fn filtering(&self) -> Option<Filtering> {
        let filter = self.filter.clone().filter(|filter| !filter.is_range())?;
        Some(Filtering { filter, target: None, waited: 0, over: false })
    }

    /// The part of the range in which rows can pass.
    pub fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        match &self.filter {
            Some(filter) => filter.clip(&range),
            None => Some(range),
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
    filter: RowFilter,
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
        !self.filter.is_about_key()
    }

    /// Whether the filter ended the scan, in all regions.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Evaluates the row, or part of a row, that begins at `from` and ends the block. Removes it if it does not pass.
    pub fn judge(&mut self, block: &mut Vec<u8>, from: usize, reverse: bool) -> bool {
        if let Some(target) = &self.target {
            let row = key_of(&block[from..]);
            if if reverse { row > &target[..] } else { row < &target[..] } {
                block.truncate(from);
                return false;
            }
            self.target = None;
        }
        match self.filter.judge(block, from) {
            Verdict::Shown => return true,
            Verdict::Hidden => {}
            Verdict::End => self.over = true,
        }
        block.truncate(from);
        false
    }

    /// Where to continue after a row that was read.
    pub fn hop(&mut self, row: &[u8], reverse: bool) -> Hop {
        if self.over {
            return Hop::Leave;
        }
        if !self.filter.may_seek() {
            return Hop::Next;
        }
        if self.target.is_none() {
            self.waited = 0;
            match self.filter.seek(row, reverse) {
                Seek::Next => return Hop::Next,
                Seek::Nothing => return Hop::Leave,
                Seek::To(target) => self.target = Some(target),
            }
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
        "row {} has more than {FILTERED_ROW_BYTES_MAX} bytes of cells, more than a filter evaluates; request fewer of its \
         columns, or filter by row key alone",
        escape(row)
    )))
}

/// The key of a packed row.
pub fn key_of(packed: &[u8]) -> &[u8] {
    let len = packed.first_chunk::<2>().map_or(0, |len| usize::from(u16::from_le_bytes(*len)));
    packed.get(ROW_HEADER_BYTES..ROW_HEADER_BYTES + len).unwrap_or_default()
}
