//! The rows of a run: their keys and contents, and the table that has them.
//!
//! The key of row `n` is the number as 40 digits, so that keys sort by number and split points can be computed.

use anyhow::{Context, ensure};
use terrane_client::{Client, RowData, RowMutation, Scan, Table, TableSpec};
use terrane_oracle::counted_rows::Content;

/// Length of a key.
const KEY_BYTES: usize = 40;
const FAMILY: &str = "f";
/// The number of the row's last write.
const STATE: &str = "state";
/// To which every write adds 1.
const COUNTER: &str = "count";
/// Rows per call while missing rows are written, and at the end.
pub const BATCH: usize = 500;

/// The key of a row.
pub fn key(number: u64) -> String {
    format!("{number:0KEY_BYTES$}")
}

/// The number of a row from its key.
pub fn number(row: &[u8]) -> Option<u64> {
    let text = str::from_utf8(row).ok().filter(|text| text.len() == KEY_BYTES)?;
    text.parse().ok()
}

/// Write number `number` of a row.
pub fn mutation(row: u64, number: u64) -> RowMutation {
    RowMutation::new(key(row)).set(FAMILY, STATE, number.to_be_bytes()).increment(FAMILY, COUNTER, 1)
}

pub fn content(row: &RowData) -> Option<Content> {
    let eight = |qualifier: &str| -> Option<[u8; 8]> { row.value(FAMILY, qualifier)?.try_into().ok() };
    Some(Content { state: u64::from_be_bytes(eight(STATE)?), count: u64::from_be_bytes(eight(COUNTER)?) })
}

/// Opens the table; a missing one is created with regions of one size.
pub async fn open_or_create(client: &Client, name: &str, rows: u64, regions: u32) -> anyhow::Result<Table> {
    let table = match client.table(name).await {
        Err(error) if error.is_not_found() => {
            eprintln!("creating table {name} with {regions} regions");
            let mut spec = TableSpec::new(name)?.family(FAMILY, &[])?;
            for row in split_points(rows, regions) {
                spec = spec.split_at(key(row).as_bytes());
            }
            client.admin().create_table(spec).await.with_context(|| format!("creating table {name}"))?;
            client.table(name).await
        }
        found => found,
    };
    let table = table.with_context(|| format!("opening table {name}"))?;
    let has_family = table.schema().family(FAMILY.as_bytes()).is_some();
    ensure!(has_family, "table {name} has no family {FAMILY}: choose another with --table; a missing one is created");
    Ok(table)
}

/// The first rows of all regions but the first; none is empty.
fn split_points(rows: u64, regions: u32) -> Vec<u64> {
    let mut points: Vec<u64> = (1..u64::from(regions)).map(|region| rows * region / u64::from(regions)).collect();
    points.retain(|&point| point > 0);
    points.dedup();
    points
}

/// Gives the rows that are missing their first write. Returns the contents of all.
pub async fn write_missing(table: &Table, rows: u64) -> anyhow::Result<Vec<Content>> {
    let found = read_all(table, rows).await?;
    let missing: Vec<u64> = (0..).zip(found).filter(|(_, found)| found.is_none()).map(|(row, _)| row).collect();
    for batch in missing.chunks(BATCH) {
        let writes: Vec<RowMutation> = batch.iter().map(|row| mutation(*row, 1)).collect();
        for outcome in table.mutate_many(writes).await.context("writing the rows")? {
            outcome.map_err(|row| row.error).context("writing the rows")?;
        }
    }
    let found: Option<Vec<Content>> = read_all(table, rows).await?.into_iter().collect();
    found.context("a row that was written a moment ago is missing")
}

/// The contents of rows 0 and up, by a scan.
async fn read_all(table: &Table, rows: u64) -> anyhow::Result<Vec<Option<Content>>> {
    let mut found = vec![None; usize::try_from(rows).expect("a million rows fit")];
    let mut stream = table.scan(Scan::all()).await.context("scanning the table")?;
    while let Some(row) = stream.next().await {
        let row = row.context("scanning the table")?;
        let slot = number(row.row()).and_then(|row| found.get_mut(usize::try_from(row).ok()?));
        *slot.context("the table has rows of other programs: choose another with --table")? = content(&row);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_give_their_numbers_and_sort_by_them() {
        assert_eq!(number(key(1_234).as_bytes()), Some(1_234));
        assert_eq!(number(b"1234"), None);
        assert_eq!(number(&[b'x'; KEY_BYTES]), None);
        assert!([0, 1, 9, 10, 12_345, u64::MAX].map(key).is_sorted());
    }

    #[test]
    fn regions_are_of_one_size() {
        assert_eq!(split_points(100, 4), [25, 50, 75]);
        assert!(split_points(100, 1).is_empty());
        assert_eq!(split_points(3, 10).len(), 2, "no region is empty, none begins at the first row");
    }
}
