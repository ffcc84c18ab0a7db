//! The report: a table with a column per store and ratios to a baseline, or JSON lines.
//!
//! A ratio above 1 is better than the baseline in every row: rates are divided by the baseline, costs divide it.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::meter::Spent;
use crate::{Contender, Latency, Machine, Options, Workload};

/// The baseline, when it takes part.
const BASELINE: &str = "rocksdb";

/// One workload of one store.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// The store's name.
    pub subject: &'static str,
    /// The workload.
    pub workload: Workload,
    /// Calls.
    pub operations: u64,
    /// Rows in all of them.
    pub rows: u64,
    /// Their duration.
    pub seconds: f64,
    /// Rows per second.
    pub rows_per_second: f64,
    /// Microseconds of processor time per row, of all threads.
    pub cpu_us_per_row: f64,
    /// Microseconds of processor time per row, of the calling thread.
    pub thread_cpu_us_per_row: f64,
    /// Latencies, where each call was timed.
    pub latency: Option<Latency>,
    /// Latencies of calls during a compaction.
    pub in_compaction: Option<Latency>,
    /// Bytes in the store's directory afterwards.
    pub disk_bytes: Option<u64>,
    /// Bytes of its keys and values.
    pub data_bytes: Option<u64>,
    /// Whether the workload finished within its time limit.
    pub complete: bool,
}

impl Measurement {
    pub(crate) fn new(subject: &'static str, workload: Workload, spent: Spent, operations: u64, rows: u64) -> Self {
        let per_row = |seconds: f64| if rows == 0 { 0.0 } else { seconds * 1e6 / float(rows) };
        Self {
            subject,
            workload,
            operations,
            rows,
            seconds: spent.seconds,
            rows_per_second: if spent.seconds > 0.0 { float(rows) / spent.seconds } else { 0.0 },
            cpu_us_per_row: per_row(spent.process_seconds),
            thread_cpu_us_per_row: per_row(spent.thread_seconds),
            latency: None,
            in_compaction: None,
            disk_bytes: None,
            data_bytes: None,
            complete: true,
        }
    }

    /// The figures of the table.
    fn figures(&self) -> Vec<Figure> {
        let figure = |what, unit, better, value| Figure { workload: self.workload, what, unit, better, value };
        let rate = figure("", "rows/s", Better::Higher, self.rows_per_second);
        let cpu = figure("CPU, all threads", "µs/row", Better::Lower, self.cpu_us_per_row);
        let seconds = figure("", "s", Better::Lower, self.seconds);
        let mut figures = match self.workload {
            Workload::Drain | Workload::Compact => vec![seconds],
            Workload::Reopen => vec![figure("", "ms", Better::Lower, self.seconds * 1e3)],
            Workload::FullScan | Workload::Scans | Workload::ReverseScans => vec![rate, cpu],
            Workload::Batches | Workload::Inserts | Workload::PutsInCompaction => {
                let thread = figure("CPU, this thread", "µs/row", Better::Lower, self.thread_cpu_us_per_row);
                vec![rate, cpu, thread]
            }
            Workload::Gets | Workload::AbsentGets => vec![rate, cpu],
        };
        if let Some(latency) = &self.latency {
            let spread = [("p50", latency.p50_us), ("p99", latency.p99_us), ("p99.9", latency.p999_us)];
            figures.extend(spread.map(|(what, value)| figure(what, "µs", Better::Lower, value)));
            figures.push(figure("max", "µs", Better::Lower, latency.max_us));
        }
        if let Some(latency) = &self.in_compaction {
            figures.push(figure("p99.9 in compaction", "µs", Better::Lower, latency.p999_us));
            figures.push(figure("max in compaction", "µs", Better::Lower, latency.max_us));
        }
        if let (Some(disk), Some(data)) = (self.disk_bytes, self.data_bytes) {
            figures.push(figure("disk per byte of data", "", Better::Lower, float(disk) / float(data.max(1))));
        }
        figures
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Better {
    Higher,
    Lower,
}

/// One number of the table.
struct Figure {
    workload: Workload,
    what: &'static str,
    unit: &'static str,
    better: Better,
    value: f64,
}

impl Figure {
    fn same_row(&self, other: &Self) -> bool {
        self.workload == other.workload && self.what == other.what
    }

    /// Above 1 if this one is better.
    fn ratio_to(&self, baseline: &Self) -> Option<f64> {
        let (above, below) = match self.better {
            Better::Higher => (self.value, baseline.value),
            Better::Lower => (baseline.value, self.value),
        };
        (above > 0.0 && below > 0.0).then(|| above / below)
    }
}

/// Everything a run measured.
#[derive(Clone, Debug)]
pub struct Report {
    machine: Machine,
    options: Options,
    making_ns: f64,
    contenders: Vec<(&'static str, &'static str)>,
    measurements: Vec<Measurement>,
}

impl Report {
    pub(crate) fn new(machine: Machine, options: &Options, making_ns: f64) -> Self {
        Self { machine, options: options.clone(), making_ns, contenders: Vec::new(), measurements: Vec::new() }
    }

    pub(crate) fn introduce(&mut self, contender: &Contender) {
        self.contenders.push((contender.name, contender.about));
    }

    pub(crate) fn extend(&mut self, measured: impl IntoIterator<Item = Measurement>) {
        self.measurements.extend(measured);
    }

    /// The measurements, store by store.
    #[must_use]
    pub fn measurements(&self) -> &[Measurement] {
        &self.measurements
    }

    /// One line about the run and one per measurement.
    ///
    /// # Errors
    /// Returns an error if a figure has no JSON form, which cannot happen with finite numbers.
    pub fn json_lines(&self) -> Result<Vec<String>, serde_json::Error> {
        let run = serde_json::json!({
            "run": &self.options,
            "machine": &self.machine,
            "making_ns": self.making_ns,
            "contenders": &self.contenders,
        });
        let lines = self.measurements.iter().map(serde_json::to_string);
        std::iter::once(serde_json::to_string(&run)).chain(lines).collect()
    }

    /// The table.
    #[must_use]
    pub fn text(&self) -> String {
        let Options { rows, cache_mib, write_buffer_mib, compaction, seed, .. } = &self.options;
        let mut text = format!(
            "{} ({} cpus)\n{rows} rows of 40 + 100 bytes, {cache_mib} MiB block cache, {write_buffer_mib} MiB write \
             buffers, compaction {compaction}, seed {seed}; making a key and a value costs {:.0} ns of each put\n",
            self.machine.cpu, self.machine.cpus, self.making_ns
        );
        for (name, about) in &self.contenders {
            text.push_str(&format!("{name}: {about}\n"));
        }
        text.push_str(&format!("\n{}\n", self.table()));
        for measured in self.measurements.iter().filter(|measured| !measured.complete) {
            text.push_str(&format!(
                "{}, {}: cut short after {} operations\n",
                measured.subject, measured.workload, measured.operations
            ));
        }
        if self.baseline().is_some() {
            text.push_str(&format!("ratios are to {BASELINE}; above 1 is better\n"));
        }
        text
    }

    fn baseline(&self) -> Option<&'static str> {
        self.contenders.iter().map(|(name, _)| *name).find(|name| *name == BASELINE)
    }

    fn figures_of(&self, subject: &str) -> Vec<Figure> {
        self.measurements.iter().filter(|measured| measured.subject == subject).flat_map(Measurement::figures).collect()
    }

    fn table(&self) -> Table {
        let baseline = self.baseline();
        let names: Vec<&str> = self.contenders.iter().map(|(name, _)| *name).collect();
        let compared: Vec<usize> = match baseline {
            Some(baseline) => (0..names.len()).filter(|&at| names[at] != baseline).collect(),
            None => Vec::new(),
        };
        let columns: Vec<Vec<Figure>> = names.iter().map(|name| self.figures_of(name)).collect();
        let find = |at: usize, row: &Figure| columns[at].iter().find(|figure| figure.same_row(row));
        let baseline = baseline.and_then(|baseline| names.iter().position(|name| *name == baseline));

        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        let ratios = compared.iter().map(|&at| format!("{}/{BASELINE}", names[at]));
        table.set_header(
            ["workload".to_owned(), "unit".to_owned()]
                .into_iter()
                .chain(names.iter().map(|name| (*name).to_owned()))
                .chain(ratios),
        );
        for row in self.table_rows(&columns) {
            let label = if row.what.is_empty() { row.workload.to_string() } else { format!("  {}", row.what) };
            let mut cells = vec![label, row.unit.to_owned()];
            cells.extend((0..names.len()).map(|at| find(at, row).map_or_else(dash, |figure| number(figure.value))));
            cells.extend(compared.iter().map(|&at| {
                let ratio = find(at, row).zip(baseline.and_then(|at| find(at, row)));
                ratio.and_then(|(ours, theirs)| ours.ratio_to(theirs)).map_or_else(dash, |ratio| format!("{ratio:.2}×"))
            }));
            table.add_row(cells);
        }
        table.discover_columns();
        for (at, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if at >= 2 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table
    }

    /// One figure per row that any store has, in the order of the workloads.
    fn table_rows<'a>(&self, columns: &'a [Vec<Figure>]) -> Vec<&'a Figure> {
        let mut rows: Vec<&Figure> = Vec::new();
        for workload in Workload::ALL {
            for figure in columns.iter().flatten().filter(|figure| figure.workload == workload) {
                if !rows.iter().any(|row| row.same_row(figure)) {
                    rows.push(figure);
                }
            }
        }
        rows
    }
}

fn dash() -> String {
    "–".to_owned()
}

/// At least three significant digits, with thousands separators.
fn number(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
