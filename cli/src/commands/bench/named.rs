//! `bench run`: a workload by its name, in a closed or an open loop, with a report.
//!
//! Modules: `spec` says what a workload is, `distribution` which rows it chooses, `inserts` which of them exist, `layout`
//! how they are stored, `load` fills a table with them. `calls` makes the calls, `schedule` and `pace` say when those of an
//! open loop are due, `measure` runs them. `report` is what is kept of it, `compare` compares two, `page` writes them. All
//! but `load`, `calls`, `pace` and `measure` is plain code without a cluster.

mod calls;
mod compare;
mod distribution;
mod inserts;
mod layout;
mod load;
mod measure;
mod pace;
mod page;
mod report;
mod schedule;
mod spec;

use std::sync::Arc;

use super::stats::{counters_text, second_text};
use crate::args::bench::run::{BenchCompare, BenchRun, Operation, ReportFile};
use crate::failure::Failure;
use crate::output::{Output, grouped};
use crate::scope::connect;
use crate::trace_export;
use calls::Shared;
use measure::{Plan, measure};
use report::{OperationReport, Parameters, Report, Second, Summary};
use spec::Spec;

/// A backlog of more than this share of all calls means that the cluster did not keep up.
const BACKLOG_SHARE_MAX: f64 = 0.01;

pub async fn run(args: BenchRun) -> Result<(), Failure> {
    let spec = Spec::new(&args)?;
    let name = args.table.as_ref().map_or_else(|| Spec::table_default(spec.known).to_owned(), ToString::to_string);
    let tracer = trace_export::of_command(&args.connection.tracing)?;
    let client = connect(&args.connection.masters.to_string(), args.connection.timeout, tracer).await?;
    let table = load::prepare(&client, &args, &spec, &name).await?;
    if args.load_only {
        return Ok(());
    }
    let plan = Plan { rate: args.rate.map(|rate| rate.0), warm_up: args.warm_up.0, seconds: args.seconds.0 };
    let operations: Vec<Operation> = spec.mix.0.iter().map(|(operation, _)| *operation).collect();
    let shared = Arc::new(Shared::new(table, spec.clone()));
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

    let summary = Summary::new(&spec.name(), &measured, plan.rate);
    let by_operation = operations.iter().zip(&measured.calls.by_operation);
    let by_operation: Vec<OperationReport> = by_operation
        .map(|(operation, interval)| OperationReport::new(*operation, interval, measured.elapsed))
        .collect();
    let mut output = Output::new(json);
    if output.is_json() {
        output.object(&summary)?;
    } else {
        summary.text(&by_operation).iter().try_for_each(|line| output.line(line))?;
    }
    output.flush()?;
    if measured.backlog as f64 > BACKLOG_SHARE_MAX * summary.operations as f64 {
        eprintln!(
            "the cluster did not keep up with the rate: {} calls were due and not made, and latencies grow with the run",
            grouped(measured.backlog)
        );
    }
    let parameters = Parameters {
        workload: spec.name(),
        table: name,
        filled_with: spec.shape().to_string(),
        mix: spec.mix.to_string(),
        distribution: spec.distribution.name().to_owned(),
        in_flight: spec.in_flight,
        rate: plan.rate,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        seconds: plan.seconds.as_secs_f64(),
        scan_rows: spec.scan_rows,
        batch: spec.batch,
        seed: spec.seed,
    };
    let report = Report::new(parameters, summary, by_operation, seconds, terrane_env::time::wall_ms());
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
