//! Writers that put ascending numbers into a family that stays and one that comes and goes, and readers of their rows. They
//! hurry while that family is dropped: a put that meets the drop shows whether it is refused as a whole.

use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Error, Get, Put, RowData, Scan, Table};
use terrane_oracle::families::Families;

use super::{ALTERED, GROUPS, KEPT, NUMBER, Shared, other, row};
use crate::scenario::play::{PATIENCE, all_rows, below, passed, passes, patiently, pause};
use crate::trace::{self, chain};

const WRITERS: usize = 6;
const READERS: usize = 3;
/// Rows of a writer. Few, so that readers see a row between two puts.
const ROWS_PER_WRITER: usize = 2;
const PUT_MAX: Duration = Duration::from_secs(3);
const WRITER_PAUSE_MS: u64 = 200;
const READER_PAUSE_MS: u64 = 200;
const HURRY_MS: u64 = 2;

/// The rows of a writer in a generation.
fn rows_of(writer: usize, generation: usize) -> impl Iterator<Item = Vec<u8>> {
    let group = move |at| (writer + at * WRITERS) % GROUPS;
    (0..ROWS_PER_WRITER).map(move |at| row(group(at), &format!("writer-{generation}-{writer}-{at}")))
}

fn some_row(writer: usize, generation: usize) -> Vec<u8> {
    rows_of(writer, generation).nth(below(ROWS_PER_WRITER)).expect("below the number of rows")
}

/// Writes until the faults are over.
pub async fn write_all_the_time(shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(PUT_MAX);
    let writers = (0..WRITERS).map(|writer| Writer { writer, table: table.clone(), shared: shared.clone() }.run());
    join_all(writers).await.into_iter().collect()
}

/// The pause before the next put or read.
async fn pause_between(shared: &Shared, up_to_ms: u64) {
    let is_dropping = shared.in_generation(shared.generation(), |families| families.is_dropping());
    pause(if is_dropping { HURRY_MS } else { up_to_ms }).await;
}

/// The only writer of its rows.
struct Writer {
    writer: usize,
    table: Table,
    shared: Shared,
}

impl Writer {
    async fn run(self) -> Result<(), Error> {
        while !self.shared.is_over() {
            self.put().await?;
            pause_between(&self.shared, WRITER_PAUSE_MS).await;
        }
        Ok(())
    }

    /// Puts the next number once: a retry by this client could be refused although the first try was applied.
    async fn put(&self) -> Result<(), Error> {
        let generation = self.shared.generation();
        let row = some_row(self.writer, generation);
        let one_in = if self.shared.in_generation(generation, |families| families.is_absent()) { 8 } else { 1 };
        let both = below(4 * one_in) < 3;
        let number = self.shared.in_generation(generation, |families| families.attempt_put(&row, both));
        let outcome = self.table.put(self.put_of(&row, number, both.then(|| other(generation)))).await;
        let (who, shown) = (format!("w2.{}", self.writer), row.escape_ascii());
        match outcome {
            Ok(()) => {
                trace::note(format_args!("{who} put {shown}={number}, both: {both}"));
                self.shared.context.state.acknowledge();
                let verdict = self.shared.in_generation(generation, |families| families.acknowledge(&row, number));
                self.shared.judge(&who, &row, verdict);
            }
            Err(error) if error.is_uncertain() => {
                trace::note(format_args!("{who} may have put {shown}={number}: {}", chain(&error)));
            }
            // The table is read-only now, or the family does not exist.
            Err(error) if may_be_refused(&error, both) => {
                trace::note(format_args!("{who} did not put {shown}={number}: {}", chain(&error)));
                let verdict = self.shared.in_generation(generation, |families| {
                    families.refuse(&row, number);
                    if error.is_invalid() { families.judge_refusal(&row, number) } else { Ok(()) }
                });
                self.shared.judge(&who, &row, verdict);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn put_of(&self, row: &[u8], number: u64, other: Option<String>) -> Put {
        let (timestamp, text) = (i64::try_from(number).expect("few puts"), number.to_string());
        let put = Put::new(row).set_at(KEPT, NUMBER, timestamp, &text);
        let put = put.set(ALTERED, "padding", vec![b'p'; self.shared.context.plan.value_bytes]);
        match other {
            Some(other) => put.set_at(&other, NUMBER, timestamp, &text),
            None => put,
        }
    }
}

fn may_be_refused(error: &Error, both: bool) -> bool {
    error.is_retry_safe() || matches!(error, Error::ReadOnly { .. }) || (both && error.is_invalid()) || passes(error)
}

/// Reads rows of all writers until the faults are over.
pub async fn read_all_the_time(host: &'static str, patience: Duration, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(patience);
    let readers = (0..READERS).map(|reader| {
        let (who, table, shared) = (format!("{host}.{reader}"), table.clone(), shared.clone());
        async move {
            while !shared.is_over() {
                let generation = shared.generation();
                let done = read(&who, &table, generation, &some_row(below(WRITERS), generation), &shared).await;
                passed(format_args!("{who} did not read"), done)?;
                pause_between(&shared, READER_PAUSE_MS).await;
            }
            Ok(())
        }
    });
    join_all(readers).await.into_iter().collect()
}

async fn read(who: &str, table: &Table, generation: usize, row: &[u8], shared: &Shared) -> Result<(), Error> {
    let reading = shared.in_generation(generation, |families| families.begin_read(row));
    let found = table.get(Get::new(row)).await?;
    let (kept, other) = numbers_in(found.as_ref(), generation);
    trace::note(format_args!("{who} read {}={kept} {other:?}", row.escape_ascii()));
    shared.judge(who, row, shared.in_generation(generation, |families| families.end_read(&reading, kept, other)));
    Ok(())
}

/// The numbers in the family that stays (0 if it has none) and in the other.
fn numbers_in(row: Option<&RowData>, generation: usize) -> (u64, Option<u64>) {
    let number = |family| {
        let text = row.and_then(|row| row.value(family, NUMBER))?;
        // What is no number was never written, which 0 is neither.
        Some(std::str::from_utf8(text).ok().and_then(|digits| digits.parse().ok()).unwrap_or_default())
    };
    (number(KEPT).unwrap_or_default(), number(&other(generation)))
}

/// Reads all rows after all writes, those of the present generation by gets and all by a scan.
pub async fn read_all(who: &str, table: &Table, shared: &Shared) -> Result<(), Error> {
    let newest = shared.generation();
    for row in (0..WRITERS).flat_map(|writer| rows_of(writer, newest)) {
        patiently(async || read(who, table, newest, &row, shared).await).await?;
    }
    let all = (0..=newest).flat_map(|generation| {
        let rows = (0..WRITERS).flat_map(move |writer| rows_of(writer, generation));
        rows.map(move |row| (generation, row))
    });
    let begin = |families: &mut Families, row: &[u8]| families.begin_read(row);
    let readings: Vec<_> = all
        .map(|(generation, row)| (generation, shared.in_generation(generation, |families| begin(families, &row)), row))
        .collect();
    let scanned = patiently(async || all_rows(table, Scan::all()).await).await?;
    for (generation, reading, row) in readings {
        let found = scanned.iter().find(|found| found.row()[..] == row[..]);
        let (kept, other) = numbers_in(found, generation);
        shared.judge(who, &row, shared.in_generation(generation, |families| families.end_read(&reading, kept, other)));
    }
    Ok(())
}
