//! Readers of wide rows: whole rows, ranges of columns, columns after an offset, and scans in blocks smaller than a row.

use std::time::Duration;

use futures::future::join_all;
use terrane_client::{Error, Get, RowData, Scan, Table};
use terrane_oracle::rows::{Asked, Scanning};
use terrane_types::KeyRange;

use super::writer::tokens_of;
use super::{COLUMNS, FAMILY, FIRST, LAST, LIST, LISTS, ROWS, Shared, columns, number_in, object, row};
use crate::scenario::play::{LAST_PATIENCE, PATIENCE, below, passed, patiently, pause};
use crate::trace;

const READERS_PER_HOST: usize = 2;
const PAUSE_MS: u64 = 650;
/// Block sizes; 0 is the server's usual one. Most are smaller than a row, some smaller than a value.
const BLOCK_BYTES: [u32; 4] = [0, 1 << 10, 10 << 10, 100 << 10];
/// Longest pause between two rows of a scan.
const ROW_PAUSE_MS: u64 = 100;

/// Reads until the faults are over.
pub async fn read_all_the_time(host: &'static str, patience: Duration, shared: Shared) -> Result<(), Error> {
    let table = shared.table(PATIENCE).await?.with_timeout(patience);
    let readers = (0..READERS_PER_HOST).map(|reader| {
        let reader = Reader { who: format!("{host}.{reader}"), table: table.clone(), shared: shared.clone() };
        async move {
            let act = async || {
                let row = row(below(ROWS));
                // A scan in blocks smaller than a value reads every value once for each of its blocks.
                let done = match below(10) {
                    0 => reader.get_all(&row).await,
                    1 => reader.scan().await,
                    2 => reader.get_list(&row).await,
                    _ => reader.get_some(&row).await,
                };
                passed(format_args!("{}", reader.who), done)
            };
            reader.shared.until_over(PAUSE_MS, act).await
        }
    });
    join_all(readers).await.into_iter().collect()
}

/// The columns of a row from one to another, not included; an empty end is the end of the row.
fn part_of(row: &[u8], from: &str, to: &str) -> KeyRange {
    let end = if to.is_empty() { [row, b"0"].concat() } else { object(row, to) };
    KeyRange { start: object(row, from).into(), end: end.into() }
}

/// Reads in several ways and has every result checked.
struct Reader {
    who: String,
    table: Table,
    shared: Shared,
}

impl Reader {
    /// Judges the columns that a read of a row showed.
    fn judge(&self, row: &[u8], begun: Scanning, found: Option<&RowData>, complete: bool) {
        self.shared.reads.set(self.shared.reads.get() + 1);
        let mut shown = Vec::new();
        for cell in found.iter().flat_map(|found| found.cells()).filter(|cell| cell.family == FAMILY.as_bytes()) {
            let Some(number) = number_in(cell.qualifier, cell.value) else {
                let column = cell.qualifier.escape_ascii();
                return self.shared.judge(
                    &self.who,
                    row,
                    Err(format!("has a value in {column} that was never written")),
                );
            };
            shown.push((object(row, cell.qualifier), number));
        }
        let verdict = self.shared.columns.borrow_mut().judge_scan(begun, &shown, complete);
        trace::note(format_args!("{} read {} columns of {}", self.who, shown.len(), row.escape_ascii()));
        self.shared.judge(&self.who, row, verdict.map_err(|violation| violation.to_string()));
        let number = |column| shown.iter().find(|(name, _)| *name == object(row, column)).map(|(_, number)| *number);
        if let (Some(first), Some(last)) = (number(FIRST), number(LAST))
            && first != last
        {
            let torn = format!("shows mutation {first} in its first column and {last} in its last one");
            self.shared.judge(&self.who, row, Err(torn));
        }
    }

    async fn get_all(&self, row: &[u8]) -> Result<(), Error> {
        let begun = self.shared.columns.borrow().begin_scan(Asked::all(part_of(row, "", "")), |_| true);
        let found = self.table.get(Get::new(row).family(FAMILY)).await?;
        self.judge(row, begun, found.as_ref(), true);
        Ok(())
    }

    /// Some columns of a row: by a range or a filter, after an offset and up to a limit.
    async fn get_some(&self, row: &[u8]) -> Result<(), Error> {
        let all: Vec<String> = columns().collect();
        let from = below(COLUMNS);
        let to = from + 1 + below(COLUMNS - from);
        let (from, to) = (&all[from], &all[to]);
        let by_filter = below(3) == 0;
        let (offset, limit) = if below(2) == 0 { (0, None) } else { (below(4), Some(1 + below(6))) };
        let asked = Asked {
            range: part_of(row, from, to),
            reverse: false,
            offset: offset as u64,
            limit: limit.map(|limit| limit as u64),
        };
        let begun = self.shared.columns.borrow().begin_scan(asked, |_| true);
        let get = Get::new(row);
        let get = if by_filter {
            get.family(FAMILY).filter(format!("qualifiers('{from}'..'{to}')"))
        } else {
            get.column_range(FAMILY, from, to)
        };
        let small = |number: usize| u32::try_from(number).expect("few columns");
        let get = if offset + limit.unwrap_or(0) > 0 { get.cells(small(offset), limit.map_or(0, small)) } else { get };
        let found = self.table.get(get).await?;
        let cells = found.as_ref().map_or(0, |found| found.cells().count());
        self.judge(row, begun, found.as_ref(), limit.is_none_or(|limit| cells < limit));
        Ok(())
    }

    /// All rows from one on, in blocks that end within rows, forwards or in reverse.
    async fn scan(&self) -> Result<(), Error> {
        let from = below(ROWS);
        let reverse = below(2) == 0;
        self.scan_from(from, reverse, BLOCK_BYTES[below(BLOCK_BYTES.len())]).await
    }

    async fn scan_from(&self, from: usize, reverse: bool, block_bytes: u32) -> Result<(), Error> {
        let mut begun: Vec<_> = (from..ROWS)
            .map(row)
            .map(|row| (self.shared.columns.borrow().begin_scan(Asked::all(part_of(&row, "", "")), |_| true), row))
            .collect();
        let scan = Scan::all().start(row(from)).family(FAMILY).block_bytes(block_bytes);
        let mut stream = self.table.scan(if reverse { scan.reverse() } else { scan }).await?;
        if reverse {
            begun.reverse();
        }
        let mut expected = begun.into_iter();
        while let Some(found) = stream.next().await {
            let found = found?;
            loop {
                let Some((begun, row)) = expected.next() else {
                    self.shared.judge(&self.who, found.row(), Err("is out of order or not among the rows".to_owned()));
                    return Ok(());
                };
                let is_it = found.row()[..] == row[..];
                self.judge(&row, begun, is_it.then_some(&found), true);
                if is_it {
                    break;
                }
            }
            pause(ROW_PAUSE_MS).await;
        }
        expected.for_each(|(begun, row)| self.judge(&row, begun, None, true));
        Ok(())
    }

    async fn get_list(&self, row: &[u8]) -> Result<(), Error> {
        let reading = self.shared.lists.borrow_mut().begin_read(row);
        let found = self.table.get(Get::new(row).column(LISTS, LIST)).await?;
        let list = found.as_ref().and_then(|found| found.value(LISTS, LIST)).unwrap_or_default();
        let verdict = tokens_of(list).and_then(|list| self.shared.lists.borrow_mut().read_list(&reading, &list));
        self.shared.judge(&self.who, row, verdict);
        Ok(())
    }

    async fn read_final_list(&self, row: &[u8]) -> Result<(), Error> {
        let found = self.table.get(Get::new(row).column(LISTS, LIST)).await?;
        let list = found.as_ref().and_then(|found| found.value(LISTS, LIST)).unwrap_or_default();
        let verdict = tokens_of(list).and_then(|list| self.shared.lists.borrow_mut().final_list(row, &list));
        self.shared.judge(&self.who, row, verdict);
        Ok(())
    }
}

/// Reads all rows in all ways after all writes.
pub async fn read_everything(host: &'static str, shared: Shared) -> Result<(), Error> {
    let table = shared.table(LAST_PATIENCE).await?;
    let reader = Reader { who: host.to_owned(), table, shared };
    for (reverse, block_bytes) in [(false, 0), (true, 10 << 10)] {
        patiently(async || reader.scan_from(0, reverse, block_bytes).await).await?;
    }
    for row in (0..ROWS).map(row) {
        patiently(async || reader.get_all(&row).await).await?;
        patiently(async || reader.get_some(&row).await).await?;
        patiently(async || reader.read_final_list(&row).await).await?;
    }
    Ok(())
}
