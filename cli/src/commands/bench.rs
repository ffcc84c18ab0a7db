//! `bench`: generates load on a table and measures it; prints a line per second and a summary.
//!
//! A fixed number of workers each keep one call in flight; latency is the time from request to response at the client.
//! Only calls acknowledged within the measured time count. A missing table is created, and workloads that read fill an
//! empty table first, so that the rows exist. Results with an exact expected value (counters, compare-and-set, sums)
//! are checked. `benches/engine` compares the storage engines themselves, without a cluster.
//!
//! Modules: `workload` and `keys` say what is called and on which rows, `calls` makes the calls, `run` is what workers
//! share and `measure` runs them, `fill` fills a table first, `stats`, `gaps` and `cpu` are the figures, `tally` checks
//! exactness, `ends` and `latest` compare kinds of calls, `bulk` loads rows as files.
//! `named` is apart: the workloads of `bench run`, such as YCSB's.

mod bulk;
mod calls;
mod cpu;
mod ends;
mod fill;
mod gaps;
mod keys;
mod latest;
mod measure;
mod named;
mod run;
mod stats;
mod tally;
mod workload;

use serde::Serialize;
use terrane_client::{Client, Table, TableSpec};

use self::keys::{FAMILY, split_points};
use self::stats::{Summary, counters_text};
use super::connect;
use crate::args::bench::{Bench, BenchFlags, BenchPage, BenchScan};
use crate::failure::{During, Failure};
use crate::output::{Output, duration_text, grouped};
use measure::{Measured, measure};
use run::Run;
use tally::{Compared, Counted, Summed};
use workload::Workload;

pub async fn run(args: Bench) -> Result<(), Failure> {
    match args {
        Bench::Run(args) => named::run(*args).await,
        Bench::Compare(args) => named::compare(args).await,
        Bench::Put(flags) => plain(Workload::Put, flags, |run| run).await,
        Bench::Get(flags) => plain(Workload::Get, flags, |run| run).await,
        Bench::Scan(BenchScan { reverse, flags }) => plain(Workload::Scan, flags, |run| Run { reverse, ..run }).await,
        Bench::Fullscan(BenchScan { reverse, flags }) => {
            plain(Workload::FullScan, flags, |run| Run { reverse, ..run }).await
        }
        Bench::Load(flags) => plain(Workload::Load, flags, |run| run).await,
        Bench::Bulk(flags) => {
            let (client, table) = prepare(&flags).await?;
            let (measured, bulk) = bulk::run(&table, &flags).await?;
            eprintln!("{}", counters_text(&client));
            report("bulk", &flags, &measured, &bulk, &bulk.text())?;
            bulk.check(&flags)
        }
        Bench::Incr(flags) => increments(flags).await,
        Bench::Cas(flags) => compare_and_set(flags).await,
        Bench::Page(BenchPage { offset, flags }) => page(offset, flags).await,
        Bench::Count(flags) => plain(Workload::Count, flags, |run| run).await,
        Bench::Sum(flags) => sum(flags).await,
        Bench::Ends(flags) => {
            let (client, table) = prepare(&flags).await?;
            fill::fill_if_empty(&table, &flags, flags.rows).await?;
            let (measured, ends) = ends::run(&table, &flags).await?;
            eprintln!("{}", counters_text(&client));
            report("ends", &flags, &measured, &ends, &ends.text())
        }
        Bench::Latest(flags) => {
            let (client, table) = prepare(&flags).await?;
            fill::fill_if_empty(&table, &flags, flags.rows).await?;
            let (measured, latest) = latest::run(&table, &flags).await?;
            eprintln!("{}", counters_text(&client));
            report("latest", &flags, &measured, &latest, &latest.text())
        }
    }
}

/// Connects, and opens or creates the table.
async fn prepare(flags: &BenchFlags) -> Result<(Client, Table), Failure> {
    let client = connect(&flags.connection).await?;
    let table = open_or_create(&client, flags).await?;
    if table.schema().family(FAMILY.as_bytes()).is_none() {
        return Err(Failure::new(format!("table {} has no family {FAMILY}, which bench writes to", flags.table))
            .advise("choose another with --table; a missing table is created"));
    }
    Ok((client, table))
}

/// A workload whose report has only the measured calls.
async fn plain(workload: Workload, flags: BenchFlags, with: impl FnOnce(Run) -> Run) -> Result<(), Failure> {
    let (client, table) = prepare(&flags).await?;
    if workload.needs_rows() {
        fill::fill_if_empty(&table, &flags, flags.rows).await?;
    }
    let run = with(Run::new(workload, &table, &flags));
    let measured = measured(&client, &run, &flags).await?;
    report(workload.name(), &flags, &measured, &Nothing {}, "")
}

async fn measured(client: &Client, run: &Run, flags: &BenchFlags) -> Result<Measured, Failure> {
    let measured = measure(run, flags.seconds, flags.connection.json).await?;
    eprintln!("{}", counters_text(client));
    Ok(measured)
}

async fn increments(flags: BenchFlags) -> Result<(), Failure> {
    let (client, table) = prepare(&flags).await?;
    let before = tally::counters(&table).await?;
    let run = Run::new(Workload::Incr, &table, &flags);
    let measured = measured(&client, &run, &flags).await?;
    let counted = Counted::new(tally::counters(&table).await? - before, &run.tally);
    report(run.workload.name(), &flags, &measured, &counted, &counted.text())?;
    counted.check()
}

async fn compare_and_set(flags: BenchFlags) -> Result<(), Failure> {
    if flags.batch.is_some_and(|batch| batch != 1) {
        return Err(Failure::usage("cas makes one comparison per call; omit --batch"));
    }
    let (client, table) = prepare(&flags).await?;
    let run = Run::new(Workload::Cas, &table, &flags);
    let measured = measured(&client, &run, &flags).await?;
    let compared = Compared::new(&run.tally);
    report(run.workload.name(), &flags, &measured, &compared, &compared.text())?;
    compared.check()
}

async fn page(offset: u64, flags: BenchFlags) -> Result<(), Failure> {
    let (client, table) = prepare(&flags).await?;
    let run = Run { offset, ..Run::new(Workload::Page, &table, &flags) };
    // An empty table also gets the rows that the page needs.
    fill::fill_if_empty(&table, &flags, flags.rows.max(offset.saturating_add(run.batch))).await?;
    let measured = measured(&client, &run, &flags).await?;
    report(run.workload.name(), &flags, &measured, &Nothing {}, "")?;
    if measured.total.operations > 0 && measured.total.rows == 0 {
        return Err(Failure::new(format!("table {} has no row after the first {}", flags.table, grouped(offset)))
            .advise("use a smaller --offset, or an empty or missing table, which is filled"));
    }
    Ok(())
}

async fn sum(flags: BenchFlags) -> Result<(), Failure> {
    let (client, table) = prepare(&flags).await?;
    fill::fill_with_numbers(&table, &flags).await?;
    let run = Run::new(Workload::Sum, &table, &flags);
    let measured = measured(&client, &run, &flags).await?;
    let Some(summed) = Summed::new(&run.tally) else {
        return report(run.workload.name(), &flags, &measured, &Nothing {}, "");
    };
    report(run.workload.name(), &flags, &measured, &summed, &summed.text())?;
    summed.check(flags.rows)
}

async fn open_or_create(client: &Client, flags: &BenchFlags) -> Result<Table, Failure> {
    let name = flags.table.to_string();
    match client.table(&name).await {
        Err(error) if error.is_not_found() => {}
        found => return found.during(format!("open table {name}")),
    }
    eprintln!("creating table {name} with {} regions", flags.regions);
    let mut spec = TableSpec::new(&name)?.family(FAMILY, &[])?;
    for row in split_points(flags.rows, flags.regions) {
        spec = spec.split_at(&row);
    }
    client.admin().create_table(spec).await.during(format!("create table {name}"))?;
    client.table(&name).await.during(format!("open table {name}"))
}

/// Prints the summary and the workload's own results.
fn report(
    workload: &'static str,
    flags: &BenchFlags,
    measured: &Measured,
    more: &impl Serialize,
    more_text: &str,
) -> Result<(), Failure> {
    let summary = Summary::new(workload, &measured.total, measured.elapsed);
    let mut output = Output::new(flags.connection.json);
    if output.is_json() {
        let longest_gap_ms = measured.longest_gap.map(|gap| gap.as_secs_f64() * 1e3);
        output.object(&Reported { summary, longest_gap_ms, more })?;
        output.flush()?;
        return ended(measured);
    }
    if let Some(cpu) = measured.cpu.filter(|_| measured.total.rows > 0) {
        let per_row = cpu.as_secs_f64() * 1e6 / measured.total.rows as f64;
        let cores = cpu.as_secs_f64() / measured.elapsed.as_secs_f64().max(f64::EPSILON);
        output.line(&format!("client CPU: {per_row:.2} µs per row, {cores:.2} cores"))?;
    }
    if let Some(gap) = measured.longest_gap {
        output.line(&format!("longest gap between acknowledged calls in any region: {}", duration_text(gap)))?;
    }
    if !more_text.is_empty() {
        output.line(more_text)?;
    }
    output.line(&summary.text())?;
    output.flush()?;
    ended(measured)
}

/// An interrupted run has a summary and no success.
fn ended(measured: &Measured) -> Result<(), Failure> {
    if measured.interrupted { Err(Failure::interrupted()) } else { Ok(()) }
}

/// The summary and the workload's own results, in one object.
#[derive(Serialize)]
struct Reported<'a, M: Serialize> {
    #[serde(flatten)]
    summary: Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_gap_ms: Option<f64>,
    #[serde(flatten)]
    more: &'a M,
}

#[derive(Serialize)]
struct Nothing {}
