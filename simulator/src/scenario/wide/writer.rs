//! Writers of wide rows: large values, whole rows in one mutation, deletions of columns, and appends.

use std::collections::BTreeSet;

use terrane_client::{Delete, Error, Put, Returns, RowMutation, Table};
use terrane_oracle::Fate;
use terrane_oracle::ledger::{TOKEN_BYTES, token};
use terrane_oracle::rows::Change;

use super::{FAMILY, FIRST, LAST, LIST, LISTS, PART_BYTES, Shared, columns, object, value};
use crate::scenario::play::{below, ended, passes, pause};
use crate::trace::{self, chain};

const PAUSE_MS: u64 = 350;
/// Sizes of values; a whole row takes the smaller half of them, so that it stays below the memory of a small server.
const SIZES: [usize; 8] = [64, 512, 1 << 10, 3 << 10, 8 << 10, 8 << 10, 20 << 10, 64 << 10];
/// A list that has become this long grows no more.
const LIST_BYTES_MAX: usize = 160 << 10;

/// The only writer of a row.
pub struct Writer {
    who: String,
    table: Table,
    row: Vec<u8>,
    shared: Shared,
    /// Columns that may be changed: no deletion of them has an unknown outcome.
    columns: Vec<String>,
    list_bytes: usize,
}

impl Writer {
    pub fn new(who: String, table: Table, row: Vec<u8>, shared: Shared) -> Writer {
        let columns = columns().filter(|column| column != FIRST && column != LAST).collect();
        Writer { who, table, row, shared, columns, list_bytes: 0 }
    }

    /// Writes until the faults are over; the whole row to begin with.
    pub async fn run(mut self) -> Result<(), Error> {
        self.put_all().await?;
        while !self.shared.is_over() {
            match below(12) {
                0 => self.put_all().await?,
                1..=3 => self.append().await?,
                4 | 5 => self.delete().await?,
                _ => {
                    let columns = (0..=below(3)).map(|_| self.columns[below(self.columns.len())].clone()).collect();
                    self.put(columns, SIZES.len()).await?;
                }
            }
            pause(PAUSE_MS).await;
        }
        Ok(())
    }

    async fn put_all(&self) -> Result<(), Error> {
        self.put(self.columns.clone(), SIZES.len() / 2 + 1).await
    }

    /// Puts columns, and the first and the last one, in one mutation, until it is acknowledged. Numbers are timestamps, so a
    /// late second application changes nothing.
    async fn put(&self, columns: Vec<String>, sizes: usize) -> Result<(), Error> {
        let names: BTreeSet<String> = columns.into_iter().chain([FIRST.to_owned(), LAST.to_owned()]).collect();
        let attempt = |column: String| {
            let number = self.shared.columns.borrow_mut().attempt(&object(&self.row, &column), Change::Put);
            (column, number)
        };
        let numbers: Vec<(String, u64)> = names.into_iter().map(attempt).collect();
        let put = numbers.iter().fold(Put::new(&self.row), |put, (column, number)| {
            let bytes = if column == FIRST || column == LAST { 8 } else { SIZES[below(sizes)] };
            let timestamp = i64::try_from(*number).expect("few writes");
            put.set_at(FAMILY, column, timestamp, value(column, *number, bytes))
        });
        while let Err(error) = self.table.put(put.clone()).await {
            if !passes(&error) {
                return Err(error);
            }
            trace::note(format_args!("{} did not write: {}", self.who, chain(&error)));
        }
        trace::note(format_args!("{} wrote {numbers:?}", self.who));
        for (column, number) in numbers {
            self.shared.columns.borrow_mut().acknowledge(&object(&self.row, column), number);
        }
        self.shared.context.state.acknowledge();
        Ok(())
    }

    /// Deletes a column. If the outcome is unknown, the column is left alone.
    async fn delete(&mut self) -> Result<(), Error> {
        if self.columns.len() < 3 {
            return Ok(());
        }
        let at = below(self.columns.len());
        let column = self.columns[at].clone();
        let object = object(&self.row, &column);
        let number = self.shared.columns.borrow_mut().attempt(&object, Change::Delete);
        loop {
            match self.table.delete(Delete::new(&self.row).column(FAMILY, &column)).await {
                Ok(()) => break,
                Err(error) if error.is_uncertain() => {
                    trace::note(format_args!("{} leaves {column}: {}", self.who, chain(&error)));
                    self.columns.swap_remove(at);
                    return Ok(());
                }
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error),
            }
        }
        trace::note(format_args!("{} deleted {column}", self.who));
        self.shared.columns.borrow_mut().acknowledge(&object, number);
        self.shared.context.state.acknowledge();
        Ok(())
    }

    /// Appends a part to the row's list, and sometimes has the whole list returned.
    async fn append(&mut self) -> Result<(), Error> {
        if self.list_bytes >= LIST_BYTES_MAX {
            return Ok(());
        }
        let begun = self.shared.lists.borrow_mut().begin(&self.row);
        let mut part = token(begun.operation).repeat(PART_BYTES / TOKEN_BYTES);
        part.truncate(PART_BYTES);
        let mutation = RowMutation::new(&self.row).append(LISTS, LIST, part);
        let returned = below(3) == 0;
        let mutation = if returned { mutation.returning(Returns::New) } else { mutation };
        self.list_bytes += PART_BYTES;
        let outcome = self.table.mutate(mutation).await;
        trace::note(format_args!("{} appended {}: {}", self.who, begun.operation, outcome.is_ok()));
        let lists = &self.shared.lists;
        let verdict = match ended(outcome)? {
            Ok(outcome) => {
                self.shared.context.state.acknowledge();
                let list = outcome.row.as_ref().and_then(|row| row.value(LISTS, LIST));
                match list.filter(|_| returned) {
                    Some(list) => tokens_of(list).and_then(|list| lists.borrow_mut().appended(&begun, &list)),
                    None => lists.borrow_mut().end(&begun, Fate::Applied),
                }
            }
            Err(fate) => lists.borrow_mut().end(&begun, fate),
        };
        self.shared.judge(&self.who, &self.row, verdict);
        Ok(())
    }
}

/// The tokens of a list of parts; every part is its token over and over.
pub fn tokens_of(list: &[u8]) -> Result<Vec<u8>, String> {
    let parts = list.chunks_exact(PART_BYTES);
    if !parts.remainder().is_empty() {
        return Err(format!("has a list of {} bytes, which is no whole number of parts", list.len()));
    }
    let mut tokens = Vec::new();
    for part in parts {
        let token = &part[..TOKEN_BYTES];
        if part.chunks(TOKEN_BYTES).any(|chunk| chunk != token) {
            return Err("has a list with a torn part".to_owned());
        }
        tokens.extend_from_slice(token);
    }
    Ok(tokens)
}
