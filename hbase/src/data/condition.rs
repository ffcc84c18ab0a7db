//! Conditions of `CheckAndMutate`: one column compared with a value, or a filter that some cell of the row must pass.
//!
//! What compares bytes of the newest version becomes a condition of ours, which the leader of the group evaluates from what it
//! knows of the column without reading. Everything else is judged by [`Judged`] from cells that the leader reads.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use terrane_regionserver::edge::{Extras, RowCondition, RowJudge, RowRequest};
use terrane_types::cell::Cells;
use terrane_types::rows::{begin_row, end_row};
use terrane_types::{CellRef, ColumnTest, Condition, FamilyName, Invalid, Projection, Test};

use super::reading;
use super::region::Region;
use crate::exception::Exception;
use crate::filter::{Evaluator, ValueTest, parts_of};
use crate::limits::JUDGED_BYTES_MAX;
use crate::proto::{self, CompareType};
use crate::time_range::{bounds, is_limited};

/// A condition as part of what is asked of a row.
pub(super) fn condition(region: &Region, condition: &proto::Condition) -> Result<RowRequest, Exception> {
    region.check_row(&condition.row)?;
    let bad = |refused: Invalid| Exception::bad_request(&refused.what);
    if let Some(filter) = &condition.filter {
        let (reads, reads_first, evaluator) = reading::judged_row(region, filter, condition.time_range.as_ref())?;
        if evaluator.backtracks() {
            let why = "look-around, back-references, atomic groups and possessive quantifiers are not for the filter of a \
                       condition; use them in a read, or in a condition on one column";
            return Err(Exception::bad_request(why));
        }
        return Ok(judged(reads, reads_first, ConditionTest::Filter(Box::new(Mutex::new(evaluator)))));
    }
    let (Some(family), Some(comparator)) = (&condition.family, &condition.comparator) else {
        return Err(Exception::bad_request("the condition names no family or no comparator"));
    };
    region.check_family(family)?;
    let operator = condition.compare_type();
    if operator == CompareType::NoOp {
        return Err(Exception::bad_request("the condition compares with NO_OP"));
    }
    let family = FamilyName::try_from(&family[..]).map_err(bad)?;
    let qualifier = condition.qualifier.clone().unwrap_or_default();
    let test = ValueTest::read(comparator, operator).map_err(bad)?;
    if let Some(given) = test.given().filter(|_| !is_limited(condition.time_range.as_ref())) {
        let condition = Some(newest(&ColumnTest::new(family, qualifier, Test::Absent), operator, given));
        return Ok(RowRequest { condition, extras: following(), ..RowRequest::default() });
    }
    let (time_min, time_max) = bounds(condition.time_range.as_ref());
    let reads = Projection { time_min, time_max, ..Projection::all() }.with_column(family, qualifier);
    Ok(judged(reads.checked().map_err(bad)?, false, ConditionTest::Value(test)))
}

/// Checks that a condition is about the row that is changed under it.
pub(super) fn check_same_row(condition: Option<&proto::Condition>, row: &[u8]) -> Result<(), Exception> {
    match condition.filter(|condition| condition.row != row) {
        None => Ok(()),
        Some(other) => {
            let (other, row) = (terrane_types::escape(&other.row), terrane_types::escape(row));
            let text =
                format!("the condition is about row {other} and the mutation about row {row}; they must be the same");
            Err(Exception::bad_request(&text))
        }
    }
}

/// What is written gets no timestamp below that of the cell that was compared.
fn following() -> Extras {
    Extras { follows_condition: true, ..Extras::default() }
}

fn judged(reads: Projection, reads_first: bool, how: ConditionTest) -> RowRequest {
    let condition = Arc::new(Judged { reads, reads_first, how });
    RowRequest { extras: Extras { condition: Some(condition), ..following() }, ..RowRequest::default() }
}

/// A comparison with the newest version of a column. HBase compares the given value with the stored one, and we the stored one
/// with the given. No value, or one without bytes, stands for a column that is absent or empty.
fn newest(column: &ColumnTest, operator: CompareType, given: Bytes) -> Condition {
    let test = |test| Condition::Column(ColumnTest { test, ..column.clone() });
    if given.is_empty() {
        return match operator {
            CompareType::NotEqual => test(Test::NotEqual(given)),
            _ => Condition::Any(vec![test(Test::Absent), test(Test::Equal(given))]),
        };
    }
    test(match operator {
        CompareType::NotEqual => Test::NotEqual(given),
        CompareType::Less => Test::Greater(given),
        CompareType::LessOrEqual => Test::GreaterOrEqual(given),
        CompareType::Greater => Test::Less(given),
        CompareType::GreaterOrEqual => Test::LessOrEqual(given),
        CompareType::Equal | CompareType::NoOp => Test::Equal(given),
    })
}

/// A condition that is judged from cells that were read for it.
struct Judged {
    reads: Projection,
    reads_first: bool,
    how: ConditionTest,
}

enum ConditionTest {
    /// The newest version within the times of the condition.
    Value(ValueTest),
    /// Some cell of the row passes. Each judgement takes a copy.
    Filter(Box<Mutex<Evaluator>>),
}

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").field("reads", &self.reads).finish_non_exhaustive()
    }
}

impl RowCondition for Judged {
    fn reads(&self) -> &Projection {
        &self.reads
    }

    fn reads_first(&self) -> bool {
        self.reads_first
    }

    fn judge(&self, row: &[u8], cells: &[u8]) -> Result<Option<i64>, Invalid> {
        let first = |cells: &[u8]| Cells::new(cells).next().map(|cell: CellRef<'_>| cell.timestamp);
        match &self.how {
            ConditionTest::Value(test) => {
                let cell = Cells::new(cells).next();
                let holds = test.holds(cell.as_ref().map(|cell| cell.value))?;
                Ok(holds.then(|| first(cells).unwrap_or(i64::MIN)))
            }
            ConditionTest::Filter(_) if cells.is_empty() => Ok(None),
            ConditionTest::Filter(_) if cells.len() > JUDGED_BYTES_MAX => Err(Invalid::new(format!(
                "the row has more than {JUDGED_BYTES_MAX} bytes of cells, more than the filter of a condition judges; name \
                 one column instead"
            ))),
            ConditionTest::Filter(evaluator) => {
                let mut judge = evaluator.lock().copy();
                let mut block = Vec::with_capacity(row.len() + cells.len() + 16);
                let start = begin_row(&mut block, row);
                block.extend_from_slice(cells);
                end_row(&mut block, start);
                if !judge.judge(&mut block, 0)? {
                    return Ok(None);
                }
                let (_, kept) = parts_of(&block);
                Ok(first(kept))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use terrane_types::cell::pack;

    use super::*;

    fn judged_by(filter: &proto::Filter) -> Judged {
        let evaluator = Evaluator::new(Some(filter), 1, crate::filter::StoreLimits::default()).unwrap();
        Judged {
            reads: Projection::all(),
            reads_first: false,
            how: ConditionTest::Filter(Box::new(Mutex::new(evaluator))),
        }
    }

    fn cells(value: &[u8]) -> Vec<u8> {
        let mut cells = Vec::new();
        for (qualifier, timestamp) in [(b"a", 7), (b"b", 9)] {
            pack(&mut cells, CellRef::put(b"f", qualifier, timestamp, value));
        }
        cells
    }

    #[test]
    fn a_filter_holds_if_a_cell_passes_and_tells_the_time_of_the_first() {
        let all =
            proto::Filter { name: "org.apache.hadoop.hbase.filter.KeyOnlyFilter".to_owned(), ..Default::default() };
        let judged = judged_by(&all);
        assert_eq!(judged.judge(b"row", &cells(b"v")).unwrap(), Some(7));
        assert_eq!(judged.judge(b"row", &cells(b"v")).unwrap(), Some(7), "each judgement begins from the start");
        assert_eq!(judged.judge(b"row", b"").unwrap(), None, "no row, no cell");
    }

    #[test]
    fn a_row_that_would_hold_the_group_up_is_refused() {
        let all =
            proto::Filter { name: "org.apache.hadoop.hbase.filter.KeyOnlyFilter".to_owned(), ..Default::default() };
        let refused = judged_by(&all).judge(b"row", &cells(&vec![0; JUDGED_BYTES_MAX / 2])).unwrap_err();
        assert!(refused.what.contains("4194304"), "{}", refused.what);
    }
}
