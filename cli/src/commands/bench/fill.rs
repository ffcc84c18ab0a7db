//! The table of a mix: created if it is missing, and filled with the rows that its calls need.
//!
//! How a table of `bench run` was filled, and that filling it ended, is kept in the table itself, as free metadata of its
//! family. So a second run starts at once, an interrupted fill is repeated (which writes the same rows again), and a table that
//! holds something else is refused before anything is written to it. Numbered rows are kept in any table with the family, and
//! mixes that read them fill it if it is empty.

use std::time::Duration;

use terrane_client::{Client, Error, KeyRange, Table, TableChange};

use super::calls::Shared;
use super::layout::{FAMILY, Found, META_FILLED, POINT_KEY, found, table_spec};
use super::measure::{Calls, Plan, measure};
use super::spec::{Kind, Spec};
use super::tally::numbers;
use crate::args::bench::run::{BenchRun, Known, Mix, Operation};
use crate::failure::{During, Failure};
use crate::output::grouped;
use crate::progress::Progress;
use crate::question::confirms_loss;

/// Calls in flight, and the most rows and bytes of a call.
const IN_FLIGHT: usize = 8;
const BATCH_ROWS_MAX: u64 = 1_000;
const BATCH_BYTES_MAX: u64 = 1 << 20;

/// The table of a mix of `bench run`.
pub async fn named_table(client: &Client, args: &BenchRun, spec: &Spec, name: &str) -> Result<Table, Failure> {
    if args.recreate {
        drop_table(client, args, name).await?;
    }
    let table = open_or_create(client, spec, name).await?;
    let key = matches!(spec.kind, Kind::Series { .. }).then_some(POINT_KEY);
    match found(&table.schema(), spec.shape(), key) {
        Found::Filled => Ok(table),
        Found::Unfilled => {
            fill(&table, spec).await?;
            let change = TableChange::new().family(FAMILY, &[(META_FILLED, "yes")]);
            client.admin().alter_table(name, change).await.during(format!("note that table {name} is filled"))?;
            client.table(name).await.during(format!("open table {name}"))
        }
        Found::Other(why) => Err(Failure::new(format!("table {name} {why}")).advise(
            "name another table with --table, use the --rows, --fields and --field-bytes of the table, or drop it and \
             create a new one with --recreate",
        )),
    }
}

/// The table of a mix of numbered rows.
pub async fn rows_table(client: &Client, spec: &Spec, name: &str) -> Result<Table, Failure> {
    let table = open_or_create(client, spec, name).await?;
    if table.schema().family(FAMILY.as_bytes()).is_none() {
        return Err(Failure::new(format!("table {name} has no family {FAMILY}, which bench writes to"))
            .advise("choose another with --table; a missing table is created"));
    }
    let is_filled = match spec.known {
        Known::Put | Known::Load | Known::Incr | Known::Cas => true,
        Known::Sum => numbers(&table).await? > 0,
        _ => table.first(KeyRange::all()).await.during(format!("read table {name}"))?.is_some(),
    };
    if !is_filled {
        // The rows that a page skips, too.
        let rows = if spec.known == Known::Page { spec.offset.saturating_add(spec.scan_rows) } else { 0 };
        fill(&table, &Spec { rows: spec.rows.max(rows), ..spec.clone() }).await?;
    }
    Ok(table)
}

async fn open_or_create(client: &Client, spec: &Spec, name: &str) -> Result<Table, Failure> {
    match client.table(name).await {
        Err(error) if error.is_not_found() => {}
        found => return found.during(format!("open table {name}")),
    }
    let created = table_spec(spec, name)?;
    let regions = created.split_at.len() + 1;
    let regions = if regions == 1 { "1 region".to_owned() } else { format!("{regions} regions") };
    eprintln!("creating table {name} with {regions}: {}", spec.shape());
    match client.admin().create_table(created).await {
        // Another run may have created it meanwhile; its table is checked like any other.
        Ok(_) | Err(Error::AlreadyExists { .. }) => {}
        Err(error) => return Err(error).during(format!("create table {name}")),
    }
    client.table(name).await.during(format!("open table {name}"))
}

async fn drop_table(client: &Client, args: &BenchRun, name: &str) -> Result<(), Failure> {
    match client.table(name).await {
        Err(error) if error.is_not_found() => return Ok(()),
        found => found.during(format!("open table {name}"))?,
    };
    let loss = format!("All rows of table {name} will be lost.");
    if !confirms_loss(args.yes, args.connection.json, &loss, name)? {
        return Err(Failure::new(format!("table {name} was not dropped")));
    }
    client.admin().drop_table(name).await.during(format!("drop table {name}"))?;
    eprintln!("dropped table {name}");
    Ok(())
}

/// Loads all rows, with the mix's loop and a mix of one operation.
async fn fill(table: &Table, spec: &Spec) -> Result<(), Failure> {
    let name = table.name();
    eprintln!("filling table {name} with {} rows", grouped(spec.rows));
    let mix = Mix(vec![(Operation::Load, 1)]);
    let load = Spec { mix, batch: batch_rows(spec), in_flight: IN_FLIGHT, ..spec.clone() };
    let plan = Plan { rate: None, warm_up: Duration::ZERO, seconds: None };
    let (mut progress, mut written) = (Progress::over_rows("fill", spec.rows), 0);
    let all_written = |calls: &Calls| match calls.total.errors {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} calls failed")).during(format!("fill table {name}"))),
    };
    let measured = measure(&Shared::new(table.clone(), load), plan, |_, calls, _| {
        written += calls.total.rows;
        progress.update(written, written);
        all_written(calls)
    })
    .await?;
    if measured.interrupted {
        eprintln!("the table is not filled; the next run writes it from the start");
        return Err(Failure::interrupted());
    }
    all_written(&measured.calls)
}

/// Rows of a call: as many as its bytes allow.
fn batch_rows(spec: &Spec) -> u64 {
    let row_bytes = u64::from(spec.fields) * (spec.field_bytes as u64 + 16) + 32;
    (BATCH_BYTES_MAX / row_bytes).clamp(1, BATCH_ROWS_MAX)
}
