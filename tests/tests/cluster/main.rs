//! Whole clusters in this process, on real clocks, sockets and files, tested through the client.
//!
//! Every wait has a condition and a timeout. The data is fixed, and every check holds for every interleaving; only
//! `model` draws its data from a seed, which its failures name.

mod bad_input;
mod bulk;
mod consistency;
mod damage;
mod data_model;
mod faults;
mod forged_log;
mod hbase;
mod leadership;
mod merges;
mod model;
mod moves;
mod orphans;
mod placement;
mod rebuild;
mod repair;
mod reports;
mod routing;
mod schema;
mod splits;
mod surplus;

use std::time::Duration;

use anyhow::Result;
use terrane_client::{Client, Error, KeyRange, RowData, Scan, Table, TableSpec};
use terrane_regionserver::BackendKind;
use terrane_tests::cluster::Settings;

/// Far longer than anything here takes, also where two slow cores compile beside it.
const SOON: Duration = Duration::from_secs(90);

/// A region size that is never reached, so that no region splits.
const NEVER_SPLIT: u64 = 1 << 30;

fn with_engine(engine: BackendKind) -> Settings {
    Settings { engine, ..Settings::default() }
}

/// A table with one family `f`.
async fn plain_table(client: &Client, name: &str, region_size: u64) -> Result<Table> {
    let spec = TableSpec::new(name)?.family("f", &[])?.region_size(region_size);
    client.admin().create_table(spec).await?;
    Ok(client.table(name).await?)
}

async fn all_rows(table: &Table, scan: Scan) -> Result<Vec<RowData>> {
    let mut stream = table.scan(scan).await?;
    let mut rows = Vec::new();
    while let Some(row) = stream.next().await {
        rows.push(row?);
    }
    Ok(rows)
}

fn keys(rows: &[RowData]) -> Vec<String> {
    rows.iter().map(|row| String::from_utf8_lossy(row.row()).into_owned()).collect()
}

fn range(start: &str, end: &str) -> KeyRange {
    KeyRange::new(start.to_owned(), end.to_owned()).expect("start is below end")
}

/// An error and its causes as text.
fn text_of(error: &Error) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
