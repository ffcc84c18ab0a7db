//! Writers of rows: each row once, alone or in a batch, and some read again.

use std::sync::atomic::Ordering;

use terrane_client::{Get, Put, RowMutation};
use terrane_oracle::check::{Action, Answer};

use super::calls::{failed, written};
use super::{COLUMN, FAMILY, Worker, place};
use crate::chaos::value;

/// Rows of a whole run: the last scan shows all of them.
const ROWS_MAX: u64 = 60_000;
/// Rows of a batch.
const BATCH_MAX: usize = 8;
/// Sizes of values, in bytes: some need several blocks.
const SIZE_MAX: usize = 3_000;
const PAUSE_MS: u64 = 80;
/// What the key of a row has after its place.
pub const MARK: &str = "-row-";

/// A row that is to be written.
struct Row {
    key: String,
    token: String,
    size: usize,
}

impl Worker {
    /// Writes rows until the load is over.
    pub async fn write_rows(mut self) {
        let mut number = 0;
        while !self.shared.is_over() && self.shared.rows.load(Ordering::Relaxed) < ROWS_MAX {
            let rows = if self.dice.one_in(5) { 2 + self.dice.below(BATCH_MAX - 1) } else { 1 };
            let rows: Vec<Row> = (0..rows).map(|_| self.row(&mut number)).collect();
            match &rows[..] {
                [row] => self.put(row).await,
                rows => self.put_many(rows).await,
            }
            if self.dice.one_in(3) {
                self.get().await;
            }
            self.pause(PAUSE_MS).await;
        }
    }

    fn row(&mut self, number: &mut u64) -> Row {
        *number += 1;
        let at = self.shared.rows.fetch_add(1, Ordering::Relaxed);
        let size_max = if self.dice.one_in(4) { SIZE_MAX } else { 100 };
        let size = 1 + self.dice.below(size_max);
        let token = value::token(&self.name, *number);
        Row { key: format!("{}{MARK}{}-{number}", place(at), self.name), token, size }
    }

    fn call(&self, row: &Row) -> u64 {
        let value = value::name(&row.token, row.size);
        self.shared.history.call(Action::Put { row: row.key.clone(), value })
    }

    fn end(&self, op: u64, row: &Row, answer: Answer) {
        let is_written = answer == Answer::Written;
        self.shared.history.end(op, answer);
        if is_written {
            self.shared.written.lock().push(row.key.clone());
        }
    }

    async fn put(&mut self, row: &Row) {
        let table = self.table();
        let op = self.call(row);
        let put = Put::new(&row.key).set(FAMILY, COLUMN, value::bytes(&row.token, row.size));
        self.end(op, row, written(table.put(put).await));
    }

    async fn put_many(&mut self, rows: &[Row]) {
        let table = self.table();
        let calls: Vec<u64> = rows.iter().map(|row| self.call(row)).collect();
        let mutation = |row: &Row| RowMutation::new(&row.key).set(FAMILY, COLUMN, value::bytes(&row.token, row.size));
        let outcomes = table.mutate_many(rows.iter().map(mutation).collect()).await;
        let answers: Vec<Answer> = match outcomes {
            Ok(outcomes) => outcomes.into_iter().map(|row| written(row.map(drop).map_err(|row| row.error))).collect(),
            Err(error) => vec![failed(error); rows.len()],
        };
        for ((op, row), answer) in calls.into_iter().zip(rows).zip(answers) {
            self.end(op, row, answer);
        }
    }

    /// Reads a row that was acknowledged.
    async fn get(&mut self) {
        let row = {
            let written = self.shared.written.lock();
            if written.is_empty() {
                return;
            }
            written[self.dice.below(written.len())].clone()
        };
        let table = self.table();
        let op = self.shared.history.call(Action::Get { row: row.clone() });
        let answer = match table.get(Get::new(&row)).await {
            Ok(found) => {
                Answer::Found(found.map(|row| row.value(FAMILY, COLUMN).map_or_else(String::new, value::name_of)))
            }
            Err(error) => failed(error),
        };
        self.shared.history.end(op, answer);
    }
}
