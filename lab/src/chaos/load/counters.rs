//! Clients that add to counters and read them.

use terrane_client::{Error, Get, Table};
use terrane_oracle::check::{Action, Answer};

use super::calls::failed;
use super::{FAMILY, Worker, place};

/// Counters, each in another region.
pub const COUNTERS: usize = 8;
const COLUMN: &str = "n";
const PAUSE_MS: u64 = 60;

/// The row of a counter.
pub fn name(number: usize) -> String {
    format!("{}-counter-{number}", place(number as u64))
}

impl Worker {
    /// Adds until the load is over.
    pub async fn add(mut self) {
        while !self.shared.is_over() {
            let counter = name(self.dice.below(COUNTERS));
            let table = self.table();
            if self.dice.one_in(5) {
                let op = self.shared.history.call(Action::Count { counter: counter.clone() });
                let answer = count(&table, &counter).await.map_or_else(failed, Answer::Number);
                self.shared.history.end(op, answer);
            } else {
                let by = 1 + self.dice.below(10) as u64;
                let op = self.shared.history.call(Action::Add { counter: counter.clone(), by });
                let answer = match table.increment(&counter, FAMILY, COLUMN, by as i64).await {
                    Ok(number) => Answer::Number(number),
                    Err(Error::ResultLost) => Answer::Written,
                    Err(error) => failed(error),
                };
                self.shared.history.end(op, answer);
            }
            self.pause(PAUSE_MS).await;
        }
    }
}

/// The number of a counter; an absent one is 0.
pub async fn count(table: &Table, counter: &str) -> Result<i64, Error> {
    let Some(row) = table.get(Get::new(counter)).await? else { return Ok(0) };
    Ok(row.read::<i64>(FAMILY, COLUMN)?.unwrap_or(0))
}
