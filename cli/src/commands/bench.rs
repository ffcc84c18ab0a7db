//! `bench`: generates load on a table and measures it; prints a line per second and a summary.
//!
//! All mixes of operations stand in one table, and one loop runs them. `bench run` takes a mix by its name, in a closed or an
//! open loop, with a report. `put`, `get` and others are mixes of one operation on numbered rows. Latency is the time from
//! request to response at the client, and only acknowledged calls have one. A missing table is created, and filled if the mix
//! reads. Results with an exact expected value (counters, compare-and-set, sums) are checked. `benches/engine` compares the
//! storage engines themselves, without a cluster.
//!
//! Modules: `spec` is the table of mixes, `distribution` says which rows are chosen, `inserts` which of them exist, `layout`
//! how they are stored, `fill` fills a table with them. `calls` makes the calls, `schedule` and `pace` say when those of an
//! open loop are due, `measure` runs them. `stats` and `gaps` are the figures, `tally` checks exactness, `report` is what is
//! kept of a run, `compare` compares two, `page` writes them. `ends` and `latest` compare kinds of calls, `bulk` loads rows as
//! files.

mod bulk;
mod calls;
mod compare;
mod distribution;
mod ends;
mod fill;
mod gaps;
mod inserts;
mod latest;
mod layout;
mod measure;
mod pace;
mod page;
mod report;
mod schedule;
mod spec;
mod stats;
mod tally;

use std::time::Duration;

use serde::Serialize;
use terrane_client::{Client, Table};

use self::stats::{counters_text, second_text};
use super::connect;
use crate::args::bench::run::{BenchCompare, BenchRun, Known, ReportFile};
use crate::args::bench::{Bench, BenchFlags, BenchPage, BenchScan};
use crate::failure::Failure;
use crate::output::{Output, grouped};
use calls::Shared;
use measure::{Measured, Plan, SECONDS_DEFAULT, measure, progress_line};
use report::{OperationReport, Parameters, Report, Second, Summary};
use spec::Spec;
use tally::{Compared, Counted, Finding, Nothing, Summed, counters};

/// A backlog of more than this share of all calls means that the cluster did not keep up.
const BACKLOG_SHARE_MAX: f64 = 0.01;

pub async fn run(args: Bench) -> Result<(), Failure> {
    let (known, flags) = match args {
        Bench::Run(args) => return named(*args).await,
        Bench::Compare(args) => return compare(args).await,
        Bench::Put(flags) => (Known::Put, flags),
        Bench::Get(flags) => (Known::Get, flags),
        Bench::Scan(BenchScan { reverse, flags }) => {
            return rows(Spec { reverse, ..Spec::of_rows(Known::Scan, &flags) }, flags).await;
        }
        Bench::Fullscan(BenchScan { reverse, flags }) => {
            return rows(Spec { reverse, ..Spec::of_rows(Known::FullScan, &flags) }, flags).await;
        }
        Bench::Load(flags) => (Known::Load, flags),
        Bench::Incr(flags) => (Known::Incr, flags),
        Bench::Cas(flags) if flags.batch.is_some_and(|batch| batch != 1) => {
            return Err(Failure::usage("cas makes one comparison per call; omit --batch"));
        }
        Bench::Cas(flags) => (Known::Cas, flags),
        Bench::Page(BenchPage { offset, flags }) => {
            return rows(Spec { offset, ..Spec::of_rows(Known::Page, &flags) }, flags).await;
        }
        Bench::Count(flags) => (Known::Count, flags),
        Bench::Sum(flags) => (Known::Sum, flags),
        Bench::Bulk(flags) => {
            let (client, table) = open(&flags, &Spec::of_rows(Known::Load, &flags)).await?;
            let (measured, bulk) = bulk::run(&table, &flags).await?;
            return finish("bulk", &client, &flags, &measured, &bulk);
        }
        Bench::Ends(flags) => {
            let (client, table) = open(&flags, &Spec::of_rows(Known::Get, &flags)).await?;
            let (measured, ends) = ends::run(&table, &flags).await?;
            return finish("ends", &client, &flags, &measured, &ends);
        }
        Bench::Latest(flags) => {
            let (client, table) = open(&flags, &Spec::of_rows(Known::Get, &flags)).await?;
            let (measured, latest) = latest::run(&table, &flags).await?;
            return finish("latest", &client, &flags, &measured, &latest);
        }
    };
    rows(Spec::of_rows(known, &flags), flags).await
}

/// A mix of one operation on numbered rows.
async fn rows(spec: Spec, flags: BenchFlags) -> Result<(), Failure> {
    let (client, table) = open(&flags, &spec).await?;
    let counted_before = if spec.known == Known::Incr { counters(&table).await? } else { 0 };
    let seconds = flags.seconds.or_else(|| (!spec.ends()).then_some(SECONDS_DEFAULT));
    let plan = Plan { rate: None, warm_up: Duration::ZERO, seconds };
    let shared = Shared::new(table, spec);
    let measured = measure(&shared, plan, |second, calls, elapsed| {
        progress_line(flags.connection.json, &second_text(second, &calls.total, elapsed))
    })
    .await?;
    let (Shared { table, spec, tally, .. }, name) = (&*shared, shared.spec.known.name());
    match spec.known {
        Known::Incr => {
            let counted = Counted::new(counters(table).await? - counted_before, tally);
            finish(name, &client, &flags, &measured, &counted)
        }
        Known::Cas => finish(name, &client, &flags, &measured, &Compared::new(tally)),
        Known::Sum => match Summed::new(tally, spec.rows) {
            Some(summed) => finish(name, &client, &flags, &measured, &summed),
            None => finish(name, &client, &flags, &measured, &Nothing {}),
        },
        _ => finish(name, &client, &flags, &measured, &Nothing {}),
    }?;
    let calls = &measured.calls.total;
    if spec.known == Known::Page && calls.operations > 0 && calls.rows == 0 {
        let skipped = grouped(spec.offset);
        return Err(Failure::new(format!("table {} has no row after the first {skipped}", flags.table))
            .advise("use a smaller --offset, or an empty or missing table, which is filled"));
    }
    Ok(())
}

/// Connects, and opens the table of numbered rows that the mix needs.
async fn open(flags: &BenchFlags, spec: &Spec) -> Result<(Client, Table), Failure> {
    let client = connect(&flags.connection).await?;
    let table = fill::rows_table(&client, spec, &flags.table.to_string()).await?;
    Ok((client, table))
}

/// Prints the summary of a measurement. An interrupted one has a summary and no success.
fn finish(
    name: &str,
    client: &Client,
    flags: &BenchFlags,
    measured: &Measured,
    finding: &impl Finding,
) -> Result<(), Failure> {
    eprintln!("{}", counters_text(client));
    print(flags.connection.json, &Summary::new(name, measured, None), &[], finding)?;
    if measured.interrupted { Err(Failure::interrupted()) } else { finding.check() }
}

/// Prints a summary, and what the mix found out.
fn print(
    json: bool,
    summary: &Summary,
    by_operation: &[OperationReport],
    finding: &impl Finding,
) -> Result<(), Failure> {
    let mut output = Output::new(json);
    if output.is_json() {
        output.object(&Printed { summary, finding })?;
    } else {
        let lines = finding.text().into_iter().chain(summary.text(by_operation));
        lines.into_iter().try_for_each(|line| output.line(&line))?;
    }
    output.flush()
}

/// A summary and a finding, in one object.
#[derive(Serialize)]
struct Printed<'a, F: Finding> {
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    finding: &'a F,
}

/// A mix by its name, with a report.
async fn named(args: BenchRun) -> Result<(), Failure> {
    let spec = Spec::of_run(&args)?;
    let name = args.table.as_ref().map_or_else(|| spec.table_default().to_owned(), ToString::to_string);
    let client = connect(&args.connection).await?;
    let table = fill::named_table(&client, &args, &spec, &name).await?;
    if args.load_only {
        return Ok(());
    }
    let plan = Plan { rate: args.rate.map(|rate| rate.0), warm_up: args.warm_up.0, seconds: Some(args.seconds.0) };
    let operations = spec.operations();
    let shared = Shared::new(table, spec);
    if !plan.warm_up.is_zero() {
        eprintln!("warming up for {}", args.warm_up);
    }
    let json = args.connection.json;
    let mut seconds = Vec::new();
    let measured = measure(&shared, plan, |second, calls, elapsed| {
        let of_second = Second::new(second, calls, &operations, elapsed);
        let mut output = Output::new(json);
        if output.is_json() {
            output.object(&of_second)?;
        } else {
            output.line(&second_text(second, &calls.total, elapsed))?;
        }
        seconds.push(of_second);
        output.flush()
    })
    .await?;
    eprintln!("{}", counters_text(&client));

    let spec = &shared.spec;
    let summary = Summary::new(&spec.name(), &measured, plan.rate);
    let by_operation = operations.iter().zip(&measured.calls.by_operation);
    let by_operation: Vec<OperationReport> = by_operation
        .map(|(operation, interval)| OperationReport::new(*operation, interval, measured.elapsed))
        .collect();
    print(json, &summary, &by_operation, &Nothing {})?;
    if measured.backlog as f64 > BACKLOG_SHARE_MAX * summary.operations as f64 {
        eprintln!(
            "the cluster did not keep up with the rate: {} calls were due and not made, and latencies grow with the run",
            grouped(measured.backlog)
        );
    }
    let report = Report::new(Parameters::new(&args, spec, name), summary, by_operation, seconds);
    for file in &args.report {
        page::save(&report, file).await?;
        eprintln!("wrote {}", file.path.display());
    }
    if measured.interrupted { Err(Failure::interrupted()) } else { Ok(()) }
}

/// Reads two reports and shows their differences.
pub async fn compare(args: BenchCompare) -> Result<(), Failure> {
    let (before, after) = (read(&args.before).await?, read(&args.after).await?);
    let comparison = compare::compare(&before, &after);
    let mut output = Output::new(args.json);
    if output.is_json() {
        comparison.figures.iter().try_for_each(|figure| output.object(figure))?;
    } else {
        for (name, before, after) in &comparison.parameters {
            eprintln!("{name} differs: {before} before, {after} after");
        }
        let rows = comparison.figures.iter().map(compare::Figure::row).collect();
        output.table(&["figure", "before", "after", "difference", "noise", "verdict"], rows)?;
    }
    output.flush()?;
    if let Some(path) = &args.report {
        page::write(path, &page::page(&[&before, &after], Some(&comparison))?).await?;
        eprintln!("wrote {}", path.display());
    }
    Ok(())
}

async fn read(file: &ReportFile) -> Result<Report, Failure> {
    let path = file.path.display();
    let content = terrane_env::fs::read(&file.path).await;
    let content = content.map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
    Report::parse(&content).map_err(|why| {
        Failure::new(format!("{path} {why}")).advise("`terrane bench run WORKLOAD --report FILE.json` writes a report")
    })
}
