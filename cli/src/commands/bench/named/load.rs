//! The load phase: creates the table of a workload and fills it, or finds that this was done.
//!
//! How a table was filled, and that filling it ended, is kept in the table itself, as free metadata of its family. So a
//! second run starts at once, an interrupted load is repeated (which writes the same rows again), and a table that holds
//! something else is refused before anything is written to it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use terrane_client::{Client, Error, Table, TableChange};
use terrane_env::task::shutdown_signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

use super::calls::Shared;
use super::layout::{FAMILY, Found, META_FILLED, POINT_KEY, filled_key, found, table_spec};
use super::spec::{Kind, Spec};
use crate::args::bench::run::BenchRun;
use crate::failure::{During, Failure};
use crate::output::grouped;
use crate::progress::Progress;
use crate::question::confirms_loss;
use crate::random::Random;

/// Calls in flight, and the most rows and bytes of a call.
const IN_FLIGHT: usize = 8;
const BATCH_ROWS_MAX: u64 = 1_000;
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// Interval of progress updates.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// The workload's table, created and filled if it was not.
pub async fn prepare(client: &Client, args: &BenchRun, spec: &Spec, name: &str) -> Result<Table, Failure> {
    if args.recreate {
        drop_table(client, args, name).await?;
    }
    match client.table(name).await {
        Err(error) if error.is_not_found() => {
            let created = table_spec(spec, name, args.regions)?;
            let regions = created.split_at.len() + 1;
            let regions = if regions == 1 { "1 region".to_owned() } else { format!("{regions} regions") };
            eprintln!("creating table {name} with {regions}: {}", spec.shape());
            let created = client.admin().create_table(created).await;
            match created {
                // Another run may have created it meanwhile; its table is checked like any other.
                Ok(_) | Err(Error::AlreadyExists { .. }) => {}
                Err(error) => return Err(error).during(format!("create table {name}")),
            }
        }
        Err(error) => return Err(error).during(format!("open table {name}")),
        Ok(_) => {}
    }
    let table = client.table(name).await.during(format!("open table {name}"))?;
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

async fn fill(table: &Table, spec: &Spec) -> Result<(), Failure> {
    let during = || format!("fill table {}", table.name());
    eprintln!("filling table {} with {} rows", table.name(), grouped(spec.rows));
    let shared = Arc::new(Shared::new(table.clone(), spec.clone()));
    let (next, written) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut workers = JoinSet::new();
    for number in 0..IN_FLIGHT {
        workers.spawn(fill_some(Arc::clone(&shared), Arc::clone(&next), Arc::clone(&written), number));
    }
    let mut progress = Progress::over_rows("fill", spec.rows);
    let mut looks = interval_at(Instant::now(), SHOWN_EVERY);
    let mut interrupt = pin!(shutdown_signal());
    loop {
        tokio::select! {
            biased;
            joined = workers.join_next() => match joined {
                None => return Ok(()),
                Some(Err(error)) => return Err(Failure::new(format!("a worker panicked: {error}")).during(during())),
                Some(Ok(filled)) => filled.during(during())?,
            },
            () = &mut interrupt => {
                eprintln!("the table is not filled; the next run writes it from the start");
                return Err(Failure::interrupted());
            }
            _ = looks.tick() => {
                let rows = written.load(Ordering::Relaxed);
                progress.update(rows, rows);
            }
        }
    }
}

async fn fill_some(
    shared: Arc<Shared>,
    next: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
    number: usize,
) -> Result<(), Error> {
    let spec = &shared.spec;
    let batch = batch_rows(spec);
    let mut random = Random::new(Random::new(number as u64).draw());
    loop {
        // The numbers order nothing else.
        let first = next.fetch_add(batch, Ordering::Relaxed);
        if first >= spec.rows {
            return Ok(());
        }
        let rows = first..spec.rows.min(first + batch);
        let count = rows.end - rows.start;
        let rows = rows.map(|row| shared.full_row(&filled_key(spec, row), &mut random)).collect();
        if let Some(row) = shared.table.mutate_many(rows).await?.into_iter().find_map(Result::err) {
            return Err(row.error);
        }
        written.fetch_add(count, Ordering::Relaxed);
    }
}

/// Rows of a call: as many as its bytes allow.
fn batch_rows(spec: &Spec) -> u64 {
    let row_bytes = u64::from(spec.fields) * (spec.field_bytes as u64 + 16) + 32;
    (BATCH_BYTES_MAX / row_bytes).clamp(1, BATCH_ROWS_MAX)
}
