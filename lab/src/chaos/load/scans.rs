//! A client that scans parts of the table, across the boundaries of regions.

use terrane_client::{Error, Scan, Table};
use terrane_oracle::check::{Action, Answer};

use super::calls::failed;
use super::rows::MARK;
use super::{COLUMN, FAMILY, Worker};
use crate::chaos::value;

/// Parts of the key space; a scan reads a few of them.
const PARTS: usize = 256;
const PARTS_MAX: usize = 40;
const PAUSE_MS: u64 = 1_500;

impl Worker {
    /// Scans until the load is over.
    pub async fn scan(mut self) {
        while !self.shared.is_over() {
            let first = self.dice.below(PARTS);
            let last = first + 1 + self.dice.below(PARTS_MAX);
            let start = format!("{first:02x}");
            let stop = if last < PARTS { format!("{last:02x}") } else { String::new() };
            let (table, is_reverse) = (self.table(), self.dice.one_in(4));
            let op = self.shared.history.call(Action::Scan { start: start.clone(), stop: stop.clone() });
            let found = rows(&table, &start, &stop, is_reverse).await;
            self.shared.history.end(op, found.map_or_else(failed, Answer::Rows));
            self.pause(PAUSE_MS).await;
        }
    }
}

/// The rows of a range, in the order of keys; of a reverse scan, in the reverse of the order in which they came.
pub async fn rows(table: &Table, start: &str, stop: &str, is_reverse: bool) -> Result<Vec<(String, String)>, Error> {
    let scan = if stop.is_empty() { Scan::rows(start..) } else { Scan::rows(start..stop) };
    let mut stream = table.scan(if is_reverse { scan.reverse() } else { scan }).await?;
    let mut rows = Vec::new();
    while let Some(row) = stream.next().await {
        let row = row?;
        let key = String::from_utf8_lossy(row.row()).into_owned();
        if key.contains(MARK) {
            rows.push((key, row.value(FAMILY, COLUMN).map_or_else(String::new, value::name_of)));
        }
    }
    if is_reverse {
        rows.reverse();
    }
    Ok(rows)
}
