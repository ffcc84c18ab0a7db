//! What a mix finds out beside its figures: whether the table has exactly what a run wrote, including writes acknowledged
//! after the measured time.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use terrane_client::{Error, Number, Table, ValueType};

use super::layout::{COUNT, FAMILY, NUMBER};
use crate::failure::{During, Failure};
use crate::output::grouped;

/// What a mix found out: more fields of its summary, a line of text, and whether it is as it has to be.
pub trait Finding: Serialize {
    fn text(&self) -> Option<String>;

    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Most mixes have figures only.
#[derive(Serialize)]
pub struct Nothing {}

impl Finding for Nothing {
    fn text(&self) -> Option<String> {
        None
    }
}

/// Counters of all workers. They are independent and read after the workers have ended, so relaxed order is enough.
#[derive(Default)]
pub struct Tally {
    acknowledged: AtomicU64,
    uncertain: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    /// Count and sum of the values of the last aggregate.
    summed: Mutex<Option<(u64, i128)>>,
}

impl Tally {
    /// Records the result of an increment by 1.
    pub fn incremented(&self, answer: Result<(), &Error>) {
        match answer {
            Ok(()) | Err(Error::ResultLost) => self.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(error) if may_be_applied(error) => self.uncertain.fetch_add(1, Ordering::Relaxed),
            Err(_) => 0,
        };
    }

    /// Records a condition that did not hold; `is_lost` if it should have held after all acknowledged writes.
    pub fn refused(&self, is_lost: bool) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(u64::from(is_lost), Ordering::Relaxed);
    }

    /// Records a computed sum.
    pub fn summed(&self, values: u64, sum: i128) {
        *self.summed.lock() = Some((values, sum));
    }
}

/// Whether a failed write may have been applied. An internal error leaves that open.
fn may_be_applied(error: &Error) -> bool {
    error.is_uncertain() || matches!(error, Error::Internal { .. })
}

/// The sum of all counters of the table.
pub async fn counters(table: &Table) -> Result<i128, Failure> {
    let sum = table.aggregate(FAMILY, COUNT, ValueType::I64).await.during("sum the counters")?.sum();
    Ok(sum.and_then(Number::as_i128).unwrap_or(0))
}

/// How many rows have their number in the column for it.
pub async fn numbers(table: &Table) -> Result<u64, Failure> {
    Ok(table.aggregate(FAMILY, NUMBER, ValueType::I64).await.during("count the numbers")?.count())
}

/// The results that `incr` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// Growth of the sum of all counters.
    grew: i128,
    /// Acknowledged increments, including those after the measured time.
    acknowledged: u64,
    /// Failed increments that may have been applied.
    uncertain: u64,
    /// Whether the growth is between the acknowledged increments and those plus the uncertain ones.
    exact: bool,
}

impl Counted {
    /// Compares the growth with the tally.
    pub fn new(grew: i128, tally: &Tally) -> Counted {
        let acknowledged = tally.acknowledged.load(Ordering::Relaxed);
        let uncertain = tally.uncertain.load(Ordering::Relaxed);
        let least = i128::from(acknowledged);
        let exact = (least..=least + i128::from(uncertain)).contains(&grew);
        Counted { grew, acknowledged, uncertain, exact }
    }
}

impl Finding for Counted {
    fn text(&self) -> Option<String> {
        let verdict = if self.exact { "exact" } else { "NOT EXACT" };
        let (acknowledged, uncertain) = (grouped(self.acknowledged), grouped(self.uncertain));
        Some(format!("counters: {verdict}: grew by {}, {acknowledged} acknowledged, {uncertain} uncertain", self.grew))
    }

    /// Fails if increments were lost or applied twice.
    fn check(&self) -> Result<(), Failure> {
        if self.exact {
            return Ok(());
        }
        let advice = "unless another program writes these counters, this is a bug: please report it";
        Err(Failure::new(format!(
            "the counters grew by {}, but {} increments were acknowledged and {} are uncertain",
            self.grew, self.acknowledged, self.uncertain
        ))
        .advise(advice))
    }
}

/// The results that `cas` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Conditions that did not hold, because an earlier run had written the row or workers shared it.
    refused: u64,
    /// Those of them that should have held after all acknowledged writes.
    lost: u64,
}

impl Compared {
    pub fn new(tally: &Tally) -> Compared {
        Compared { refused: tally.refused.load(Ordering::Relaxed), lost: tally.lost.load(Ordering::Relaxed) }
    }
}

impl Finding for Compared {
    fn text(&self) -> Option<String> {
        let (refused, lost) = (grouped(self.refused), grouped(self.lost));
        Some(format!("conditions: {refused} did not hold, {lost} of them should have"))
    }

    /// Fails if a row did not have its last acknowledged state.
    fn check(&self) -> Result<(), Failure> {
        if self.lost == 0 {
            return Ok(());
        }
        let what = format!("{} times a row did not have its last acknowledged state", self.lost);
        Err(Failure::new(what).advise("unless another program writes these rows, this is a bug: please report it"))
    }
}

/// The results that `sum` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Summed {
    values: u64,
    sum: i128,
    /// The rows that have a number if the table is whole.
    #[serde(skip)]
    rows: u64,
}

impl Summed {
    /// The last sum, if there was one.
    pub fn new(tally: &Tally, rows: u64) -> Option<Summed> {
        tally.summed.lock().map(|(values, sum)| Summed { values, sum, rows })
    }
}

impl Finding for Summed {
    fn text(&self) -> Option<String> {
        Some(format!("{} values, sum {}", grouped(self.values), self.sum))
    }

    /// Fails if all rows exist and their numbers have another sum.
    fn check(&self) -> Result<(), Failure> {
        let Summed { values, sum, rows } = *self;
        let expected = i128::from(rows) * (i128::from(rows) - 1) / 2;
        if values != rows || sum == expected {
            return Ok(());
        }
        Err(Failure::new(format!("the sum of the numbers 0 to {} is {expected}, not {sum}", rows - 1)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn growth_is_exact_between_acknowledged_and_uncertain() {
        let tally = Tally::default();
        (0..5).for_each(|_| tally.incremented(Ok(())));
        tally.incremented(Err(&Error::Uncertain { cause: "c".to_owned() }));
        tally.incremented(Err(&Error::Timeout { after: Duration::ZERO, uncertain: true, last: None }));
        tally.incremented(Err(&Error::Timeout { after: Duration::ZERO, uncertain: false, last: None }));
        let exact = |grew| Counted::new(grew, &tally).check().is_ok();
        assert_eq!([4, 5, 7, 8].map(exact), [false, true, true, false]);
        let text = serde_json::to_string(&Counted::new(6, &tally)).expect("JSON");
        assert_eq!(text, r#"{"grew":6,"acknowledged":5,"uncertain":2,"exact":true}"#);
    }

    #[test]
    fn a_lost_state_is_a_failure() {
        let tally = Tally::default();
        tally.refused(false);
        assert!(Compared::new(&tally).check().is_ok());
        tally.refused(true);
        assert!(Compared::new(&tally).check().is_err());
    }

    #[test]
    fn sums_are_checked_if_all_rows_exist() {
        let check = |values, sum| Summed { values, sum, rows: 1_000 }.check().is_ok();
        assert!(check(1_000, 499_500) && !check(1_000, 499_501) && check(999, 5));
    }
}
