//! The summary of every mix, and reports of `bench run`: what was asked for and what was measured.
//!
//! A report is one object. A page of a report has the object inside of it, so both forms can be read. A change that an older
//! build would misread makes another version; a field that an older build does not know is left out there.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::measure::{Calls, Measured};
use super::spec::Spec;
use super::stats::Interval;
use crate::args::bench::run::{BenchRun, Operation};
use crate::output::{duration_text, grouped, rate};

/// What a report calls itself.
const FORMAT: &str = "terrane-bench-report";
/// The only version so far. A change that an older build would misread makes another.
const VERSION: u32 = 1;

/// How the data begins and ends in a page.
pub const DATA_BEGIN: &str = "<script id=\"data\" type=\"application/json\">";
const DATA_END: &str = "</script>";

/// Percentiles of the latency curve.
const CURVE: [f64; 22] = [
    0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 99.0, 99.5, 99.75, 99.9,
    99.95, 99.99, 100.0,
];

/// A run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub format: String,
    pub version: u32,
    /// The build of the load generator.
    pub build: String,
    /// When the measurement ended, in milliseconds since 1970.
    pub ended_ms: u64,
    pub parameters: Parameters,
    pub summary: Summary,
    pub operations: Vec<OperationReport>,
    pub seconds: Vec<Second>,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    pub workload: String,
    pub table: String,
    /// What a new table is filled with.
    pub filled_with: String,
    pub mix: String,
    pub distribution: String,
    pub in_flight: usize,
    /// Calls per second; absent: a closed loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    pub warm_up_seconds: f64,
    pub seconds: f64,
    pub scan_rows: u64,
    pub batch: u64,
    pub seed: u64,
}

/// The whole run; under `--json` the last line. The first ten fields are those of the documented line, in its order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub workload: String,
    pub operations: u64,
    pub rows: u64,
    pub seconds: f64,
    pub rate: f64,
    pub rows_rate: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub errors: u64,
    pub mean_us: f64,
    pub max_us: u64,
    /// Reads that found no row.
    pub missing: u64,
    /// CPU of the load generator's process, user and system, per call and in cores.
    pub client_cpu_us: f64,
    pub client_cores: f64,
    /// In an open loop: what was asked for, how long calls waited until they were made, and how many were never made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<Open>,
    /// Of calls of one numbered row: the longest time without an acknowledged call in any of the table's first regions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_ms: Option<f64>,
}

/// What only an open loop has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub asked_rate: f64,
    pub delay_p50_us: u64,
    pub delay_p99_us: u64,
    pub backlog: u64,
}

/// The calls of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    pub name: String,
    pub operations: u64,
    pub errors: u64,
    pub rate: f64,
    pub mean_us: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    /// Percentiles and their latencies in microseconds.
    pub curve: Vec<(f64, u64)>,
}

/// One second. Under `--json` it is a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Second {
    pub second: u64,
    pub operations: u64,
    pub rows: u64,
    pub rate: f64,
    pub p50_us: u64,
    pub p99_us: u64,
    pub p999_us: u64,
    pub max_us: u64,
    pub errors: u64,
    /// By operation: calls per second, median and 99th percentile.
    pub by_operation: BTreeMap<String, SecondOf>,
}

/// The calls of one operation in one second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondOf {
    pub rate: f64,
    pub p50_us: u64,
    pub p99_us: u64,
}

impl Parameters {
    pub fn new(args: &BenchRun, spec: &Spec, table: String) -> Parameters {
        Parameters {
            workload: spec.name(),
            table,
            filled_with: spec.shape().to_string(),
            mix: spec.mix.to_string(),
            distribution: spec.distribution.name().to_owned(),
            in_flight: spec.in_flight,
            rate: args.rate.map(|rate| rate.0),
            warm_up_seconds: args.warm_up.0.as_secs_f64(),
            seconds: args.seconds.0.as_secs_f64(),
            scan_rows: spec.scan_rows,
            batch: u64::from(args.batch),
            seed: spec.seed,
        }
    }
}

impl Second {
    pub fn new(second: u64, calls: &Calls, operations: &[Operation], elapsed: Duration) -> Second {
        let Interval { operations: count, rows, errors, .. } = calls.total;
        let by_operation = operations.iter().zip(&calls.by_operation).map(|(operation, interval)| {
            let of = SecondOf {
                rate: rounded(rate(interval.operations, elapsed)),
                p50_us: interval.quantile_us(0.5),
                p99_us: interval.quantile_us(0.99),
            };
            (operation.name().to_owned(), of)
        });
        Second {
            second,
            operations: count,
            rows,
            rate: rounded(rate(count, elapsed)),
            p50_us: calls.total.quantile_us(0.5),
            p99_us: calls.total.quantile_us(0.99),
            p999_us: calls.total.quantile_us(0.999),
            max_us: calls.total.quantile_us(1.0),
            errors,
            by_operation: by_operation.collect(),
        }
    }
}

impl Summary {
    pub fn new(workload: &str, measured: &Measured, asked_rate: Option<f64>) -> Summary {
        let Measured { calls, elapsed, .. } = measured;
        let cpu = measured.client_cpu.as_secs_f64();
        let open = measured.delays.as_ref().zip(asked_rate).map(|(delays, asked_rate)| Open {
            asked_rate,
            delay_p50_us: delays.quantile_us(0.5),
            delay_p99_us: delays.quantile_us(0.99),
            backlog: measured.backlog,
        });
        Summary {
            workload: workload.to_owned(),
            operations: calls.total.operations,
            rows: calls.total.rows,
            seconds: (elapsed.as_secs_f64() * 1_000.0).round() / 1_000.0,
            rate: rounded(rate(calls.total.operations, *elapsed)),
            rows_rate: rounded(rate(calls.total.rows, *elapsed)),
            p50_us: calls.total.quantile_us(0.5),
            p99_us: calls.total.quantile_us(0.99),
            p999_us: calls.total.quantile_us(0.999),
            errors: calls.total.errors,
            mean_us: rounded(calls.total.mean_us()),
            max_us: calls.total.quantile_us(1.0),
            missing: measured.missing,
            client_cpu_us: hundredths(cpu * 1e6 / (calls.total.operations.max(1) as f64)),
            // Without a measurement, as after Ctrl-C in the warm-up, there is none to speak of.
            client_cores: if elapsed.is_zero() { 0.0 } else { hundredths(cpu / elapsed.as_secs_f64()) },
            open,
            longest_gap_ms: measured.longest_gap.map(|gap| gap.as_secs_f64() * 1e3),
        }
    }

    /// The summary as lines of text.
    pub fn text(&self, operations: &[OperationReport]) -> Vec<String> {
        let us = |us: u64| format!("{} µs", grouped(us));
        let mut lines = Vec::new();
        if operations.len() > 1 {
            lines.extend(operations.iter().map(|of| {
                format!(
                    "{}: {} calls; p50 {}, p99 {}, p99.9 {}, longest {}; {} errors",
                    of.name,
                    grouped(of.operations),
                    us(of.p50_us),
                    us(of.p99_us),
                    us(of.p999_us),
                    us(of.max_us),
                    grouped(of.errors)
                )
            }));
        }
        let mut cpu = format!("client CPU: {:.2} µs per call", self.client_cpu_us);
        if self.rows > self.operations {
            let per_row = self.client_cpu_us * self.operations as f64 / self.rows as f64;
            cpu.push_str(&format!(", {per_row:.2} µs per row"));
        }
        lines.push(format!("{cpu}, {:.2} cores", self.client_cores));
        if let Some(open) = &self.open {
            lines.push(format!(
                "calls were made {} (p50) and {} (p99) after they were due; {} were due and not made",
                us(open.delay_p50_us),
                us(open.delay_p99_us),
                grouped(open.backlog)
            ));
        }
        if self.missing > 0 {
            lines.push(format!("{} reads found no row", grouped(self.missing)));
        }
        if let Some(gap_ms) = self.longest_gap_ms {
            let gap = duration_text(Duration::from_secs_f64(gap_ms / 1e3));
            lines.push(format!("longest gap between acknowledged calls in any region: {gap}"));
        }
        lines.push(format!(
            "{}: {} calls, {} rows in {:.2} s: {} calls/s, {} rows/s; p50 {}, p99 {}, p99.9 {}; {} errors",
            self.workload,
            grouped(self.operations),
            grouped(self.rows),
            self.seconds,
            grouped(self.rate as u64),
            grouped(self.rows_rate as u64),
            us(self.p50_us),
            us(self.p99_us),
            us(self.p999_us),
            grouped(self.errors)
        ));
        lines
    }
}

impl OperationReport {
    pub fn new(operation: Operation, interval: &Interval, elapsed: Duration) -> OperationReport {
        OperationReport {
            name: operation.name().to_owned(),
            operations: interval.operations,
            errors: interval.errors,
            rate: rounded(rate(interval.operations, elapsed)),
            mean_us: rounded(interval.mean_us()),
            p50_us: interval.quantile_us(0.5),
            p99_us: interval.quantile_us(0.99),
            p999_us: interval.quantile_us(0.999),
            max_us: interval.quantile_us(1.0),
            curve: CURVE.iter().map(|percent| (*percent, interval.quantile_us(percent / 100.0))).collect(),
        }
    }
}

impl Report {
    pub fn new(
        parameters: Parameters,
        summary: Summary,
        operations: Vec<OperationReport>,
        seconds: Vec<Second>,
    ) -> Report {
        Report {
            format: FORMAT.to_owned(),
            version: VERSION,
            build: terrane_client::BUILD.to_owned(),
            ended_ms: terrane_env::time::wall_ms(),
            parameters,
            summary,
            operations,
            seconds,
        }
    }

    /// Reads a report from the content of a file of either form.
    pub fn parse(content: &[u8]) -> Result<Report, String> {
        let text = std::str::from_utf8(content).map_err(|_| "is not text".to_owned())?;
        let json = match text.split_once(DATA_BEGIN) {
            Some((_, rest)) => rest.split_once(DATA_END).map_or(rest, |(data, _)| data),
            None => text,
        };
        let not = |error: serde_json::Error| format!("is not a report of `bench run`: {error}");
        let mut value: serde_json::Value = serde_json::from_str(json).map_err(not)?;
        if let Some(reports) = value.get_mut("reports").and_then(|reports| reports.as_array_mut()) {
            match reports.len() {
                1 => value = reports.remove(0),
                count => return Err(format!("holds {count} reports: it is a comparison, not a run")),
            }
        }
        if value.get("format").and_then(|format| format.as_str()) != Some(FORMAT) {
            return Err("is not a report of `bench run`".to_owned());
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => serde_json::from_value(value).map_err(not),
            version => Err(format!("has version {} of the format; this build reads {VERSION}", version.unwrap_or(0))),
        }
    }
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn hundredths(number: f64) -> f64 {
    (number * 100.0).round() / 100.0
}

#[cfg(test)]
pub mod tests {
    use super::super::stats::Recorder;
    use super::*;

    /// A report whose seconds have these rates and medians.
    pub fn report(workload: &str, seconds: &[(f64, u64)]) -> Report {
        let recorder = Recorder::new();
        for latency in 1..=100 {
            recorder.acknowledged(latency, 1, Duration::from_micros(latency as u64 * 10));
        }
        let interval = recorder.drain();
        let calls = Calls { total: interval.clone(), by_operation: vec![interval.clone()] };
        let second = |(at, (rate, p50_us)): (usize, &(f64, u64))| Second {
            rate: *rate,
            p50_us: *p50_us,
            p99_us: p50_us * 3,
            p999_us: p50_us * 9,
            ..Second::new(at as u64 + 1, &calls, &[Operation::Read], Duration::from_secs(1))
        };
        let mean = |of: fn(&(f64, u64)) -> f64| seconds.iter().map(of).sum::<f64>() / seconds.len().max(1) as f64;
        let median = mean(|second| second.1 as f64) as u64;
        let elapsed = Duration::from_secs(seconds.len() as u64);
        let measured = Measured::of_total(interval.clone(), elapsed, Duration::from_millis(1), false);
        let summary = Summary {
            rate: mean(|second| second.0),
            p50_us: median,
            p99_us: median * 3,
            p999_us: median * 9,
            ..Summary::new(workload, &measured, None)
        };
        let parameters = Parameters {
            workload: workload.to_owned(),
            table: "t</script>".to_owned(),
            filled_with: "10 records".to_owned(),
            mix: "read=100".to_owned(),
            distribution: "zipfian".to_owned(),
            in_flight: 4,
            rate: None,
            warm_up_seconds: 1.0,
            seconds: seconds.len() as f64,
            scan_rows: 100,
            batch: 100,
            seed: 1,
        };
        let operations = vec![OperationReport::new(Operation::Read, &interval, Duration::from_secs(1))];
        Report::new(parameters, summary, operations, seconds.iter().enumerate().map(second).collect())
    }

    #[test]
    fn a_report_reads_back_from_both_forms() {
        let report = report("ycsb-a", &[(1_000.0, 50), (1_100.0, 51)]);
        let written = serde_json::to_string(&report).expect("JSON");
        assert_eq!(Report::parse(written.as_bytes()), Ok(report.clone()));
        let written = written.replace('<', "\\u003c");
        let page = format!("<html>{DATA_BEGIN}{{\"reports\":[{written}]}}{DATA_END}<script>1</script></html>");
        assert_eq!(Report::parse(page.as_bytes()), Ok(report));
    }

    #[test]
    fn the_summary_has_the_figures_of_the_calls() {
        let recorder = Recorder::new();
        (0..4).for_each(|_| recorder.acknowledged(0, 5, Duration::from_micros(1000)));
        let summary = |interval, seconds| {
            let measured = Measured::of_total(interval, Duration::from_secs(seconds), Duration::ZERO, false);
            serde_json::to_string(&Summary::new("put", &measured, None)).expect("JSON")
        };
        let put = summary(recorder.drain(), 2);
        let line = r#"{"workload":"put","operations":4,"rows":20,"seconds":2.0,"rate":2.0,"rows_rate":10.0,"p50_us":1000,"p99_us":1000,"p999_us":1000,"errors":0,"#;
        assert!(put.starts_with(line), "{put}");
        assert!(summary(Interval::empty(), 0).contains(r#""p50_us":0"#));
    }

    #[test]
    fn the_summary_begins_with_the_fields_of_every_workload() {
        let summary = serde_json::to_string(&report("ycsb-c", &[(1.0, 1)]).summary).expect("JSON");
        let names: Vec<&str> =
            summary.split('"').filter(|part| part.chars().all(|c| c.is_alphanumeric() || c == '_')).collect();
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        assert_eq!(
            names[..10],
            ["workload", "operations", "rows", "seconds", "rate", "rows_rate", "p50_us", "p99_us", "p999_us", "errors"],
        );
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let refused = |content: &str| Report::parse(content.as_bytes()).expect_err("no report");
        assert!(refused("").starts_with("is not a report"));
        assert_eq!(refused("{}"), "is not a report of `bench run`");
        assert_eq!(refused("[1]"), "is not a report of `bench run`");
        assert!(refused("<html></html>").starts_with("is not a report"));
        assert_eq!(
            refused(r#"{"format":"terrane-bench-report","version":9}"#),
            "has version 9 of the format; this build reads 1"
        );
        assert_eq!(Report::parse(&[0xff, 0xfe]), Err("is not text".to_owned()));
        assert_eq!(refused(r#"{"reports":[{},{}]}"#), "holds 2 reports: it is a comparison, not a run");
    }
}
