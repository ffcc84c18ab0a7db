//! What the writes of a run came to, whether they were acknowledged in the measured time or later: it is held against what
//! is in the table afterwards.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use terrane_client::{Error, Number, Table, ValueType};

use super::keys::{COUNTER, FAMILY, NUMBER};
use crate::failure::{During, Failure};
use crate::output::grouped;

/// Counts that all workers add to. Each stands for itself, so relaxed order is enough; they are read after the workers have
/// ended.
#[derive(Default)]
pub struct Tally {
    acknowledged: AtomicU64,
    uncertain: AtomicU64,
    refused: AtomicU64,
    lost: AtomicU64,
    /// Number and sum of the values of the last aggregate.
    summed: Mutex<Option<(u64, i128)>>,
}

impl Tally {
    /// An increment by 1 was answered.
    pub fn incremented(&self, answer: Result<(), &Error>) {
        match answer {
            Ok(()) | Err(Error::ResultLost) => self.acknowledged.fetch_add(1, Ordering::Relaxed),
            Err(error) if may_be_applied(error) => self.uncertain.fetch_add(1, Ordering::Relaxed),
            Err(_) => 0,
        };
    }

    /// A condition did not hold; `is_lost` when by all that was acknowledged it had to.
    pub fn refused(&self, is_lost: bool) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.lost.fetch_add(u64::from(is_lost), Ordering::Relaxed);
    }

    /// A sum was calculated.
    pub fn summed(&self, values: u64, sum: i128) {
        *self.summed.lock() = Some((values, sum));
    }
}

/// Whether a write that failed may be there all the same. An internal error says nothing about it.
fn may_be_applied(error: &Error) -> bool {
    error.is_uncertain() || matches!(error, Error::Internal { .. })
}

/// The sum of all counters of the table.
pub async fn counters(table: &Table) -> Result<i128, Failure> {
    let sum = table.aggregate(FAMILY, COUNTER, ValueType::I64).await.during("add up the counters")?.sum();
    Ok(sum.and_then(Number::as_i128).unwrap_or(0))
}

/// How many rows have their number in a column.
pub async fn numbers(table: &Table) -> Result<u64, Failure> {
    Ok(table.aggregate(FAMILY, NUMBER, ValueType::I64).await.during("look for numbers to add up")?.count())
}

/// What `incr` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// By how much the sum of all counters grew.
    grew: i128,
    /// Increments acknowledged, those included that were answered after the measured time.
    acknowledged: u64,
    /// Increments that failed and may have been applied.
    uncertain: u64,
    /// Whether the sum grew by what was acknowledged, and at most by what is uncertain more.
    exact: bool,
}

impl Counted {
    /// Holds the growth against the tally.
    pub fn new(grew: i128, tally: &Tally) -> Counted {
        let acknowledged = tally.acknowledged.load(Ordering::Relaxed);
        let uncertain = tally.uncertain.load(Ordering::Relaxed);
        let least = i128::from(acknowledged);
        let exact = (least..=least + i128::from(uncertain)).contains(&grew);
        Counted { grew, acknowledged, uncertain, exact }
    }

    pub fn text(&self) -> String {
        let verdict = if self.exact { "exact" } else { "NOT EXACT" };
        let (acknowledged, uncertain) = (grouped(self.acknowledged), grouped(self.uncertain));
        format!("counters: {verdict}: grew by {}, {acknowledged} acknowledged, {uncertain} uncertain", self.grew)
    }

    /// A failure when increments were lost or applied twice.
    pub fn check(&self) -> Result<(), Failure> {
        if self.exact {
            return Ok(());
        }
        let advice = "unless another program writes these counters, please report this";
        Err(Failure::new(format!(
            "the counters grew by {}, but {} increments were acknowledged and {} are uncertain",
            self.grew, self.acknowledged, self.uncertain
        ))
        .advise(advice))
    }
}

/// What `cas` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// Conditions that did not hold: what earlier runs left had to be learnt first, or workers shared rows.
    refused: u64,
    /// Of them those that had to hold by all that was acknowledged.
    lost: u64,
}

impl Compared {
    pub fn new(tally: &Tally) -> Compared {
        Compared { refused: tally.refused.load(Ordering::Relaxed), lost: tally.lost.load(Ordering::Relaxed) }
    }

    pub fn text(&self) -> String {
        format!("conditions: {} did not hold, of which {} had to", grouped(self.refused), grouped(self.lost))
    }

    /// A failure when a row did not hold what was acknowledged last.
    pub fn check(&self) -> Result<(), Failure> {
        if self.lost == 0 {
            return Ok(());
        }
        let what = format!("{} times a row did not hold what was last set in it", self.lost);
        Err(Failure::new(what).advise("unless another program writes these rows, please report this"))
    }
}

/// What `sum` adds to the summary.
#[derive(Debug, Serialize)]
pub struct Summed {
    values: u64,
    sum: i128,
}

impl Summed {
    /// The last sum, if there was one.
    pub fn new(tally: &Tally) -> Option<Summed> {
        tally.summed.lock().map(|(values, sum)| Summed { values, sum })
    }

    pub fn text(&self) -> String {
        format!("{} values, their sum {}", grouped(self.values), self.sum)
    }

    /// A failure when all rows are there and their numbers add up to something else.
    pub fn check(&self, rows: u64) -> Result<(), Failure> {
        let expected = i128::from(rows) * (i128::from(rows) - 1) / 2;
        if self.values != rows || self.sum == expected {
            return Ok(());
        }
        Err(Failure::new(format!("the numbers 0 to {} add up to {expected}, not {}", rows - 1, self.sum)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn growth_is_exact_between_what_is_sure_and_what_may_be() {
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
    fn a_state_that_had_to_be_there_is_a_failure() {
        let tally = Tally::default();
        tally.refused(false);
        assert!(Compared::new(&tally).check().is_ok());
        tally.refused(true);
        assert!(Compared::new(&tally).check().is_err());
    }

    #[test]
    fn sums_are_checked_where_all_rows_are_there() {
        let check = |values, sum| Summed { values, sum }.check(1_000).is_ok();
        assert!(check(1_000, 499_500) && !check(1_000, 499_501) && check(999, 5));
    }
}
