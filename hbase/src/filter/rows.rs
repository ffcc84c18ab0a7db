//! Filters about whole rows, and those that wrap another one.

use bytes::Bytes;
use terrane_types::range::prefix_end;
use terrane_types::{Columns, Invalid, KeyRange};

use super::compare::{Comparator, Operator, Test};
use super::{CellCoordinates, CellFilter, Code, Kept, Position, Shown};
use crate::cell_block::KeyValue;

/// `PageFilter`: this many rows, counted where the reader would return them.
#[derive(Clone)]
pub(super) struct Page {
    pub size: i64,
    pub passed: i64,
}

impl CellFilter for Page {
    fn is_over(&self) -> bool {
        self.passed >= self.size
    }

    fn skips_row(&mut self, _row: &[u8]) -> Result<bool, Invalid> {
        Ok(false)
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn drops_row(&mut self) -> bool {
        self.passed += 1;
        self.passed > self.size
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn judges_cells(&self) -> bool {
        false
    }

    fn passes_until_over(&self) -> bool {
        true
    }
}

/// `PrefixFilter`: rows with a prefix, until the first row behind them.
#[derive(Clone)]
pub(super) struct Prefix {
    /// Without one, no row passes.
    pub prefix: Option<Bytes>,
    pub reverse: bool,
    pub passed: bool,
    pub skips: bool,
}

impl CellFilter for Prefix {
    fn reset(&mut self) {
        self.skips = true;
    }

    fn is_over(&self) -> bool {
        self.passed
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        let Some(prefix) = self.prefix.as_ref().filter(|prefix| !self.passed && row.len() >= prefix.len()) else {
            return Ok(true);
        };
        let order = row[..prefix.len()].cmp(prefix);
        self.passed |= if self.reverse { order.is_lt() } else { order.is_gt() };
        self.skips = order.is_ne();
        Ok(self.skips)
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(if self.skips { Code::NextRow } else { Code::Include })
    }

    fn drops_row(&mut self) -> bool {
        self.skips
    }

    fn reverse(&mut self) {
        self.reverse = true;
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn judges_cells(&self) -> bool {
        false
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        let prefix = self.prefix.as_ref()?;
        range.intersect(&KeyRange { start: prefix.clone(), end: prefix_end(prefix) })
    }
}

/// `InclusiveStopFilter`: rows up to a row.
#[derive(Clone)]
pub(super) struct InclusiveStop {
    pub last: Bytes,
    pub reverse: bool,
    pub passed: bool,
}

impl CellFilter for InclusiveStop {
    fn is_over(&self) -> bool {
        self.passed
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        self.passed |= if self.reverse { *row < self.last[..] } else { *row > self.last[..] };
        Ok(self.passed)
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(if self.passed { Code::NextRow } else { Code::Include })
    }

    fn reverse(&mut self) {
        self.reverse = true;
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn judges_cells(&self) -> bool {
        false
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        range.intersect(&if self.reverse { from(&self.last) } else { up_to(&self.last) })
    }
}

/// Rows from this one on.
fn from(row: &Bytes) -> KeyRange {
    KeyRange { start: row.clone(), end: Bytes::new() }
}

/// Rows up to this one.
fn up_to(row: &[u8]) -> KeyRange {
    KeyRange { start: Bytes::new(), end: behind(row) }
}

/// The first row behind this one.
fn behind(row: &[u8]) -> Bytes {
    [row, &[0]].concat().into()
}

/// `RowFilter`: rows whose key passes a test.
#[derive(Clone)]
pub(super) struct Row {
    pub test: Test,
    pub skips: bool,
}

impl CellFilter for Row {
    fn reset(&mut self) {
        self.skips = false;
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        self.skips = !self.test.passes(row)?;
        Ok(self.skips)
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(if self.skips { Code::NextRow } else { Code::Include })
    }

    fn drops_row(&mut self) -> bool {
        self.skips
    }

    fn judges_each_alone(&self) -> bool {
        true
    }

    fn judges_cells(&self) -> bool {
        false
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        let passing = match (self.test.operator, self.test.comparator.as_ref()?) {
            (Operator::Equal, Comparator::Binary(row)) => KeyRange::row(row),
            (Operator::Less, Comparator::Binary(row)) if row.is_empty() => return None,
            (Operator::Less, Comparator::Binary(row)) => KeyRange { start: Bytes::new(), end: row.clone() },
            (Operator::LessOrEqual, Comparator::Binary(row)) => up_to(row),
            (Operator::GreaterOrEqual, Comparator::Binary(row)) => from(row),
            (Operator::Greater, Comparator::Binary(row)) => from(&behind(row)),
            (Operator::Equal, Comparator::BinaryPrefix(prefix)) => {
                KeyRange { start: prefix.clone(), end: prefix_end(prefix) }
            }
            _ => return Some(range),
        };
        range.intersect(&passing)
    }
}

/// A random number from 0 up to 1.
fn unit() -> f32 {
    const STEPS: u16 = 1 << 15;
    let step = u16::try_from(terrane_env::rand::range(0..u64::from(STEPS))).unwrap_or(0);
    f32::from(step) / f32::from(STEPS)
}

/// `RandomRowFilter`: each row with a probability.
#[derive(Clone)]
pub(super) struct RandomRow {
    pub chance: f32,
    pub skips: bool,
}

impl CellFilter for RandomRow {
    fn reset(&mut self) {
        self.skips = false;
    }

    fn skips_row(&mut self, _row: &[u8]) -> Result<bool, Invalid> {
        self.skips = self.chance < 0.0 || (self.chance <= 1.0 && unit() >= self.chance);
        Ok(self.skips)
    }

    fn cell(&mut self, _cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        Ok(if self.skips { Code::NextRow } else { Code::Include })
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn drops_row(&mut self) -> bool {
        self.skips
    }

    fn judges_cells(&self) -> bool {
        false
    }
}

/// `FilterAllFilter`: nothing passes.
#[derive(Clone)]
pub(super) struct Nothing;

impl CellFilter for Nothing {
    fn is_over(&self) -> bool {
        true
    }
}

/// No filter: everything passes.
#[derive(Clone)]
pub(super) struct Everything;

impl CellFilter for Everything {
    fn judges_each_alone(&self) -> bool {
        true
    }

    fn judges_cells(&self) -> bool {
        false
    }
}

/// What a filter answers as the one that it wraps.
macro_rules! as_the_inner {
    ($($question:ident),+) => {
        $(fn $question(&self) -> bool {
            self.inner.$question()
        })+
    };
}

/// `WhileMatchFilter`: everything until the wrapped filter first leaves out a row or a cell. It passes on neither hints nor the
/// direction, as in HBase.
#[derive(Clone)]
pub(super) struct WhileMatch {
    pub inner: Box<dyn CellFilter>,
    pub over: bool,
}

impl CellFilter for WhileMatch {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn is_over(&self) -> bool {
        self.over || self.inner.is_over()
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        if self.is_over() {
            return Ok(true);
        }
        let skips = self.inner.skips_row(row)?;
        self.over |= skips;
        Ok(skips)
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let code = self.inner.cell(cell)?;
        self.over |= code != Code::Include;
        Ok(code)
    }

    fn shown(&self, shown: Shown, length: usize) -> Shown {
        self.inner.shown(shown, length)
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn drops_row(&mut self) -> bool {
        let drops = self.inner.drops_row();
        self.over |= drops;
        drops
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.inner.needs_family(family)
    }

    as_the_inner!(judges_cells, changes_values, reads_values, hides_values);

    fn watches_rows(&self) -> bool {
        !self.inner.passes_until_over()
    }
}

/// `SkipFilter`: rows of which the wrapped filter leaves out no cell.
#[derive(Clone)]
pub(super) struct Skip {
    pub inner: Box<dyn CellFilter>,
    pub drops: bool,
}

impl CellFilter for Skip {
    fn reset(&mut self) {
        self.inner.reset();
        self.drops = false;
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        let code = self.inner.cell(cell)?;
        self.drops |= code != Code::Include;
        Ok(code)
    }

    fn shown(&self, shown: Shown, length: usize) -> Shown {
        self.inner.shown(shown, length)
    }

    fn edits_row(&self) -> bool {
        true
    }

    fn drops_row(&mut self) -> bool {
        self.drops
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.inner.needs_family(family)
    }

    as_the_inner!(changes_values, reads_values, hides_values, watches_rows);
}

/// `FilterWrapper`: the filter inside, whose rows count as edited.
#[derive(Clone)]
pub(super) struct Wrapper {
    pub inner: Box<dyn CellFilter>,
}

impl CellFilter for Wrapper {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        if self.is_over() { Ok(true) } else { self.inner.skips_row(row) }
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        self.inner.cell(cell)
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        self.inner.hint(at)
    }

    fn shown(&self, shown: Shown, length: usize) -> Shown {
        self.inner.shown(shown, length)
    }

    fn edit(&mut self, cells: &mut Vec<Kept<'_>>) {
        self.inner.edit(cells);
    }

    fn drops_row(&mut self) -> bool {
        self.inner.drops_row()
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.inner.needs_family(family)
    }

    fn columns(&self) -> Columns {
        self.inner.columns()
    }

    as_the_inner!(is_over, edits_row, edits_cells, changes_values, reads_values, hides_values);
    as_the_inner!(judges_each_alone, watches_rows);
}
