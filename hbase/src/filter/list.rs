//! `FilterList`: filters joined by "all pass" and "one passes". Both ask their filters in order and join the answers about a cell
//! by how far they would continue: "all" by the widest step, "one" by the narrowest.

use bytes::Bytes;
use terrane_types::{Columns, Invalid, KeyRange};

use super::{CellCoordinates, CellFilter, Code, Kept, Position, Shown};
use crate::cell_block::KeyValue;

/// `MUST_PASS_ALL`. The first filter that leaves out a cell has the last word about it: those behind it are not asked.
#[derive(Clone)]
pub(super) struct All {
    pub filters: Vec<Box<dyn CellFilter>>,
    /// Which filter's hint was asked for last.
    pub hinting: Option<usize>,
    pub reverse: bool,
}

impl CellFilter for All {
    fn reset(&mut self) {
        self.filters.iter_mut().for_each(|filter| filter.reset());
        self.hinting = None;
    }

    fn is_over(&self) -> bool {
        self.filters.iter().any(|filter| filter.is_over())
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        let mut skips = false;
        for filter in &mut self.filters {
            // Each one hears of the row.
            skips |= filter.is_over() || filter.skips_row(row)?;
        }
        Ok(skips)
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        self.hinting = None;
        let mut joined = Code::Include;
        for (at, filter) in self.filters.iter_mut().enumerate() {
            if filter.is_over() {
                return Ok(Code::NextRow);
            }
            let code = filter.cell(cell)?;
            joined = match (joined, code) {
                (joined, Code::Include) => joined,
                (Code::IncludeAndNextColumn, Code::Skip) => Code::NextColumn,
                (_, code) => code,
            };
            if code == Code::Seek {
                self.hinting = Some(at);
            }
            if !joined.includes() {
                break;
            }
        }
        Ok(joined)
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        let filter = &mut self.filters[self.hinting?];
        if filter.is_over() { None } else { filter.hint(at) }
    }

    fn shown(&self, shown: Shown, length: usize) -> Shown {
        self.filters.iter().fold(shown, |shown, filter| filter.shown(shown, length))
    }

    fn edits_row(&self) -> bool {
        self.filters.iter().any(|filter| filter.edits_row())
    }

    fn edits_cells(&self) -> bool {
        self.filters.iter().any(|filter| filter.edits_cells())
    }

    fn edit(&mut self, cells: &mut Vec<Kept<'_>>) {
        self.filters.iter_mut().for_each(|filter| filter.edit(cells));
    }

    fn drops_row(&mut self) -> bool {
        self.filters.iter_mut().any(|filter| filter.drops_row())
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.needs_family(family))
    }

    fn reverse(&mut self) {
        self.reverse = true;
        self.filters.iter_mut().for_each(|filter| filter.reverse());
    }

    fn judges_cells(&self) -> bool {
        self.filters.iter().any(|filter| filter.judges_cells())
    }

    fn takes_first_cell(&self) -> bool {
        // Those in front of such a filter are asked about all cells.
        self.filters.iter().find(|filter| filter.judges_cells()).is_some_and(|filter| filter.takes_first_cell())
    }

    fn changes_values(&self) -> bool {
        self.filters.iter().any(|filter| filter.changes_values())
    }

    fn decided_by(&self) -> Option<Vec<(Bytes, Bytes)>> {
        decided_by(self.filters.iter().map(|filter| &**filter))
    }

    fn reads_values(&self) -> bool {
        self.filters.iter().any(|filter| filter.reads_values())
    }

    fn hides_values(&self) -> bool {
        self.filters.iter().any(|filter| filter.hides_values())
    }

    fn watches_rows(&self) -> bool {
        self.filters.iter().any(|filter| filter.watches_rows())
    }

    fn judges_each_alone(&self) -> bool {
        self.filters.iter().all(|filter| filter.judges_each_alone())
    }

    fn columns(&self) -> Columns {
        let mut columns = Columns::whole_family();
        for filter in &self.filters {
            columns = columns.intersect(&filter.columns());
            // Those behind this one do not keep it from being asked.
            if !filter.judges_each_alone() {
                break;
            }
        }
        columns
    }

    fn clip(&self, range: KeyRange) -> Option<KeyRange> {
        if self.watches_rows() {
            return Some(range);
        }
        self.filters.iter().try_fold(range, |range, filter| filter.clip(range))
    }
}

/// The last answer of a filter in a list that one passes, and where it was given.
#[derive(Clone)]
struct Answer {
    code: Code,
    family: Bytes,
    qualifier: Bytes,
    timestamp: i64,
}

/// A filter of such a list.
#[derive(Clone)]
struct Part {
    filter: Box<dyn CellFilter>,
    answer: Option<Answer>,
    /// It includes the current cell.
    includes: bool,
}

/// `MUST_PASS_ONE`. A filter that wanted to continue further on is not asked about what is before that place, although the
/// list has to go there for another one.
#[derive(Clone)]
pub(super) struct One {
    parts: Vec<Part>,
    reverse: bool,
}

impl One {
    pub fn new(filters: Vec<Box<dyn CellFilter>>) -> Self {
        let part = |filter| Part { filter, answer: None, includes: false };
        Self { parts: filters.into_iter().map(part).collect(), reverse: false }
    }
}

impl Part {
    /// The answer about a cell that lies before the place where the filter wanted to continue.
    fn earlier(&mut self, at: CellCoordinates<'_>, reverse: bool) -> Option<Code> {
        let answer = self.answer.as_ref()?;
        let same_family = answer.family == at.family;
        match answer.code {
            Code::Include | Code::Skip => None,
            Code::NextColumn | Code::IncludeAndNextColumn => {
                (same_family && answer.qualifier == at.qualifier).then_some(Code::NextColumn)
            }
            Code::NextRow => same_family.then_some(Code::NextRow),
            Code::Seek => {
                let (family, qualifier) = (&answer.family[..], &answer.qualifier[..]);
                let hint = self.filter.hint(CellCoordinates {
                    row: at.row,
                    family,
                    qualifier,
                    timestamp: answer.timestamp,
                })?;
                let ahead = hint.seen_from(at).is_gt();
                (ahead != reverse).then_some(Code::Seek)
            }
        }
    }
}

/// The narrower of two steps.
const fn narrower(joined: Option<Code>, code: Code) -> Code {
    let Some(joined) = joined else { return code };
    match (joined, code) {
        (Code::Include, _) | (_, Code::Include) => Code::Include,
        (Code::IncludeAndNextColumn, Code::Skip | Code::Seek)
        | (Code::Skip | Code::Seek, Code::IncludeAndNextColumn) => Code::Include,
        (Code::IncludeAndNextColumn, _) | (_, Code::IncludeAndNextColumn) => Code::IncludeAndNextColumn,
        (Code::Seek, Code::Seek) => Code::Seek,
        (Code::Skip | Code::Seek, _) | (_, Code::Skip | Code::Seek) => Code::Skip,
        (Code::NextColumn, _) | (_, Code::NextColumn) => Code::NextColumn,
        (Code::NextRow, Code::NextRow) => Code::NextRow,
    }
}

impl CellFilter for One {
    fn reset(&mut self) {
        for part in &mut self.parts {
            part.filter.reset();
            (part.answer, part.includes) = (None, false);
        }
    }

    fn is_over(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(|part| part.filter.is_over())
    }

    fn skips_row(&mut self, row: &[u8]) -> Result<bool, Invalid> {
        let mut skips = !self.parts.is_empty();
        for Part { filter, .. } in &mut self.parts {
            // Each one hears of the row.
            if !filter.is_over() && !filter.skips_row(row)? {
                skips = false;
            }
        }
        Ok(skips)
    }

    fn cell(&mut self, cell: &KeyValue<'_>) -> Result<Code, Invalid> {
        if self.parts.is_empty() {
            return Ok(Code::Include);
        }
        let mut joined = None;
        for part in &mut self.parts {
            part.includes = false;
            if part.filter.is_over() {
                continue;
            }
            let at = CellCoordinates::of(cell);
            let code = match part.earlier(at, self.reverse) {
                Some(code) => code,
                None => part.filter.cell(cell)?,
            };
            part.answer = (!matches!(code, Code::Include | Code::Skip)).then(|| Answer {
                code,
                family: Bytes::copy_from_slice(at.family),
                qualifier: Bytes::copy_from_slice(at.qualifier),
                timestamp: at.timestamp,
            });
            joined = Some(narrower(joined, code));
            part.includes = code.includes();
        }
        Ok(joined.unwrap_or(Code::Skip))
    }

    fn hint(&mut self, at: CellCoordinates<'_>) -> Option<Position> {
        let mut nearest: Option<Position> = None;
        for Part { filter, .. } in &mut self.parts {
            if filter.is_over() {
                continue;
            }
            let hint = filter.hint(at)?;
            nearest = Some(match nearest {
                Some(nearest) if self.reverse => nearest.max(hint),
                Some(nearest) => nearest.min(hint),
                None => hint,
            });
        }
        nearest
    }

    fn shown(&self, shown: Shown, length: usize) -> Shown {
        let including = self.parts.iter().filter(|part| part.includes);
        including.fold(shown, |shown, part| part.filter.shown(shown, length))
    }

    fn edits_row(&self) -> bool {
        self.parts.iter().any(|part| part.filter.edits_row())
    }

    fn edits_cells(&self) -> bool {
        self.parts.iter().any(|part| part.filter.edits_cells())
    }

    fn edit(&mut self, cells: &mut Vec<Kept<'_>>) {
        self.parts.iter_mut().for_each(|part| part.filter.edit(cells));
    }

    fn drops_row(&mut self) -> bool {
        !self.parts.is_empty() && self.parts.iter_mut().all(|part| part.filter.drops_row())
    }

    fn needs_family(&self, family: &[u8]) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|part| part.filter.needs_family(family))
    }

    fn reverse(&mut self) {
        self.reverse = true;
        self.parts.iter_mut().for_each(|part| part.filter.reverse());
    }

    fn changes_values(&self) -> bool {
        self.parts.iter().any(|part| part.filter.changes_values())
    }

    fn decided_by(&self) -> Option<Vec<(Bytes, Bytes)>> {
        decided_by(self.parts.iter().map(|part| &*part.filter))
    }

    fn reads_values(&self) -> bool {
        self.parts.iter().any(|part| part.filter.reads_values())
    }

    fn watches_rows(&self) -> bool {
        self.parts.iter().any(|part| part.filter.watches_rows())
    }

    fn judges_each_alone(&self) -> bool {
        // In descending order a filter is not asked about what it sought past, although it may pass.
        !self.reverse && self.parts.iter().all(|part| part.filter.judges_each_alone())
    }

    fn columns(&self) -> Columns {
        if !self.judges_each_alone() {
            return Columns::whole_family();
        }
        let mut parts = self.parts.iter().map(|part| part.filter.columns());
        let first = parts.next().unwrap_or_default();
        parts.fold(first, |columns, part| columns.union(&part))
    }
}

/// The columns that decide where each of some filters is decided by columns.
fn decided_by<'a>(filters: impl Iterator<Item = &'a dyn CellFilter>) -> Option<Vec<(Bytes, Bytes)>> {
    let all: Vec<_> = filters.map(CellFilter::decided_by).collect::<Option<_>>()?;
    (!all.is_empty()).then(|| all.concat())
}
