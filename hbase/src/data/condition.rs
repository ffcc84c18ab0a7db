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
use super::requests::Region;
use crate::exception::Exception;
use crate::filter::{Evaluator, ValueTest, parts_of};
use crate::proto::{self, CompareType};
use crate::time_range::{bounds, is_limited};

/// A condition as part of what is asked of a row.
pub(super) fn condition(region: &Region, condition: &proto::Condition) -> Result<RowRequest, Exception> {
    region.check_row(&condition.row)?;
    let bad = |refused: Invalid| Exception::bad_request(&refused.what);
    if let Some(filter) = &condition.filter {
        let (reads, evaluator) = reading::judged_row(region, filter, condition.time_range.as_ref())?;
        return Ok(judged(reads, How::Filter(Mutex::new(evaluator))));
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
    Ok(judged(reads.checked().map_err(bad)?, How::Value(test)))
}

/// What is written gets no timestamp below that of the cell that was compared.
fn following() -> Extras {
    Extras { follows_condition: true, ..Extras::default() }
}

fn judged(reads: Projection, how: How) -> RowRequest {
    let condition = Arc::new(Judged { reads, how });
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
    how: How,
}

enum How {
    /// The newest version within the times of the condition.
    Value(ValueTest),
    /// Some cell of the row passes. Each judgement takes a copy.
    Filter(Mutex<Evaluator>),
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

    fn judge(&self, row: &[u8], cells: &[u8]) -> Result<Option<i64>, Invalid> {
        let first = |cells: &[u8]| Cells::new(cells).next().map(|cell: CellRef<'_>| cell.timestamp);
        match &self.how {
            How::Value(test) => {
                let cell = Cells::new(cells).next();
                let holds = test.holds(cell.as_ref().map(|cell| cell.value))?;
                Ok(holds.then(|| first(cells).unwrap_or(i64::MIN)))
            }
            How::Filter(_) if cells.is_empty() => Ok(None),
            How::Filter(evaluator) => {
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
